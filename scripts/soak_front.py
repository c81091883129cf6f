#!/usr/bin/env python3
"""Kill several servers of a fleet at once, repeatedly, and count the failures that clients see.

HAProxy is in front of the servers, with the configuration of `headrace serve --ray`. Each client sends one request
after another over gRPC or HTTP.

    .venv/bin/python scripts/soak_front.py [--replicas 3] [--killed 2] [--rounds 20] [--size 602112] [--http]

The servers answer each inference after 5 ms and do nothing else, so that they leave the cores to HAProxy. The exit
status is 1 if a request failed, or took longer than ANSWER_S.
"""

import argparse
import asyncio
import http.client
import json
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import grpc
from grpc import aio

SERVICE = "inference.GRPCInferenceService"
CLIENTS = 6
ANSWER_S = 8.0
NOTICED_S = 0.5  # until the fleet notices the kill; HAProxy may notice it earlier
GAP_S = 1.0  # between two rounds
ANSWER = bytes(4000)


async def serve() -> None:
    """Run a stand-in for a replica, with the parts that HAProxy and the clients use."""

    async def infer(_: bytes, __: object) -> bytes:
        await asyncio.sleep(0.005)
        return ANSWER

    async def over_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                body = b""
                if head.startswith(b"POST"):
                    length = head.lower().partition(b"content-length: ")[2].partition(b"\r")[0]
                    await reader.readexactly(int(length))
                    await asyncio.sleep(0.005)
                    body = ANSWER
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            writer.close()

    server = aio.server(options=[("grpc.max_receive_message_length", -1)])
    handlers = {"ModelInfer": grpc.unary_unary_rpc_method_handler(infer)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    listening = await asyncio.start_server(over_http, "127.0.0.1", 0)
    print(json.dumps([listening.sockets[0].getsockname()[1], port]), flush=True)
    await asyncio.Event().wait()


def started() -> tuple["subprocess.Popen[str]", str, str]:
    """Start a replica. Returns its process and its addresses for HTTP and gRPC."""
    from headrace.host.fleet.die_with_parent import die_with_parent

    command = die_with_parent([sys.executable, __file__, "--serve"])
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    by_http, by_grpc = json.loads(process.stdout.readline())
    return process, f"127.0.0.1:{by_http}", f"127.0.0.1:{by_grpc}"


class Clients:
    """Threads that send requests and count the answers and the errors."""

    def __init__(self, over_http: bool, ports: dict[str, socket.socket], size: int) -> None:
        self.answered, self.errors = [0] * CLIENTS, Counter[str]()
        self._end = threading.Event()
        self._message = bytes(size)
        self._address = ports["http" if over_http else "grpc"].getsockname()
        new = self._http if over_http else self._grpc
        self._threads = [threading.Thread(target=self._ask, args=(number, new)) for number in range(CLIENTS)]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, number: int, new: Callable[[], Callable[[], bytes]]) -> None:
        ask = new()
        while not self._end.is_set():
            try:
                assert ask() == ANSWER
                self.answered[number] += 1
            except Exception as error:
                text = f"{error.code().name}: {error.details()}" if isinstance(error, grpc.RpcError) else repr(error)
                self.errors[text] += 1
                ask = new()
                self._end.wait(0.05)

    def _grpc(self) -> Callable[[], bytes]:
        options = [("grpc.use_local_subchannel_pool", 1)]
        channel = grpc.insecure_channel("{}:{}".format(*self._address), options=options)
        call = channel.unary_unary(f"/{SERVICE}/ModelInfer")
        return lambda: bytes(call(self._message, timeout=ANSWER_S))

    def _http(self) -> Callable[[], bytes]:
        host, port = self._address
        connection = http.client.HTTPConnection(host, port, timeout=ANSWER_S)

        def ask() -> bytes:
            connection.request("POST", "/v2/models/m/infer", self._message)
            answer = connection.getresponse()
            body = answer.read()
            if answer.status != 200:
                raise OSError(f"{answer.status}: {body.decode()}")
            return body

        return ask


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--killed", type=int, default=2, help="replicas that are killed at once")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--size", type=int, default=602_112, help="size of a request, in bytes")
    parser.add_argument("--http", action="store_true", help="use HTTP instead of gRPC")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve())
    if options.killed >= options.replicas:
        parser.error("--killed: give less than --replicas, so that one server stays alive")

    # Imported here, so that the servers start sooner.
    from headrace.host.fleet.haproxy import NAMES, Place, Proxy, ProxySettings
    from headrace.host.workers.profiling.batches import machine

    ports = {name: socket.create_server(("127.0.0.1", 0)) for name in NAMES}
    with tempfile.TemporaryDirectory() as folder:
        sockets = {name: Path(folder, name) for name in ("http", "grpc")}
        settings = ProxySettings(options.replicas + 1, 1 << 20, 15.0, 32 << 10, 1024, 5.0, sockets)
        proxy = Proxy(settings, ports, Path(folder))
        proxy.start()
        replicas = [started() for _ in range(options.replicas)]
        for number, (_, *place) in enumerate(replicas):
            proxy.put(number, Place(*place))

        def wait(s: float) -> None:
            end = time.monotonic() + s
            while time.monotonic() < end:
                time.sleep(0.1)
                proxy.maintain()

        clients = Clients(options.http, ports, options.size)
        wait(GAP_S)
        for _ in range(options.rounds):
            chosen = random.sample(range(options.replicas), options.killed)
            for number in chosen:
                replicas[number][0].send_signal(signal.SIGKILL)
            wait(NOTICED_S)
            for number in chosen:
                replicas[number][0].wait()
                proxy.remove(number)
                replicas[number] = started()
                proxy.put(number, Place(*replicas[number][1:]))
            wait(GAP_S)
        clients.end()
        proxy.stop()
        for process, *_ in replicas:
            process.kill()
    print(
        f"{machine()}\n{options.rounds} times {options.killed} of {options.replicas} killed: "
        f"{sum(clients.answered)} answered, {sum(clients.errors.values())} failed"
    )
    for text, count in clients.errors.most_common():
        print(f"  {count} times {text}")
    sys.exit(bool(clients.errors))


if __name__ == "__main__":
    main()
