"""A fleet of `headrace serve --ray` as a process, and clients that send it requests all the time."""

import json
import signal
import ssl
import subprocess
import threading
import time
from pathlib import Path

import numpy as np
import tritonclient.grpc
import tritonclient.http
import trustme
from command import COMMAND, headrace

from headrace.host.fleet import fleet
from headrace.host.live.machine.children import children

PATIENCE_S = 180.0
PAUSE_S = 0.05  # of a client after an answer: without it, clients take the cores from replicas that start
IMAGE_FILE = (Path(__file__).parents[3] / "examples" / "chelsea.jpg").read_bytes()
MODEL = "squeezenet1_1"  # which is read soonest
LIGHT = ("--workers", "npu:1", "--model", MODEL, "--policy", "serial", "--sla-ms", "10000", "--drain-s", "10")


def until(condition, what="it never came"):
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def descendants(pid):
    found, new = set(), {pid}
    while new:
        found |= new
        new = {child for each in new for child in children(each)} - found
    return found - {pid}


class Everybody:
    """Every client is served."""

    options = ("--insecure",)

    def headers(self):
        return {}

    def client(self, module, url):
        return module.InferenceServerClient(url)


class Secured:
    """Clients use TLS and have a token. The files are in `folder`. The certificate also has the other `addresses`."""

    TOKEN = "it's-a-secret"

    def __init__(self, folder, *addresses):
        ca = trustme.CA()
        ca.cert_pem.write_to_path(folder / "ca.pem")
        issued = ca.issue_cert("127.0.0.1", *addresses)
        for part in issued.cert_chain_pems:
            part.write_to_path(folder / "cert.pem", append=True)
        issued.private_key_pem.write_to_path(folder / "key.pem")
        (folder / "token").write_text(f"{self.TOKEN}\n")
        named = {"--tls-cert": "cert.pem", "--tls-key": "key.pem", "--token-file": "token"}
        self.options = [word for option, name in named.items() for word in (option, str(folder / name))]
        self._authorities = str(folder / "ca.pem")

    def headers(self):
        """Return new ones, because tritonclient adds its own to those that it gets."""
        return {"authorization": f"Bearer {self.TOKEN}"}

    def context(self):
        return ssl.create_default_context(cafile=self._authorities)

    def client(self, module, url):
        if module is tritonclient.http:
            return module.InferenceServerClient(url, ssl=True, ssl_context_factory=self.context)
        return module.InferenceServerClient(url, ssl=True, root_certificates=self._authorities)


class Fleet:
    """Run `headrace serve --ray` as a process. `access` says who is served. An update waits `room_s` seconds for a node
    with room."""

    def __init__(self, address, *options, served=LIGHT, access=Everybody(), cwd=None, room_s=fleet.ROOM_S):  # noqa: B008
        self.access = access
        python, flag, code = COMMAND
        code = f"from headrace.host.fleet import fleet; fleet.ROOM_S = {room_s}; {code}"
        command = [python, flag, code, "serve", "--json", "--ray", address, *served, *options, *access.options]
        command += [f"--{port}=127.0.0.1:0" for port in ("http", "grpc", "metrics")]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd)
        self.said = []
        threading.Thread(target=self._listen, daemon=True).start()
        line = self.process.stdout.readline()
        assert line, self.said
        self.ready = json.loads(line)

    def _listen(self):
        for line in self.process.stderr:
            self.said.append(line.strip())

    def heard(self, *words, since=0):
        return [line for line in self.said[since:] if all(word in line for word in words)]

    def update(self, *options):
        return headrace(
            "serve",
            "--ray",
            "any",
            "--update",
            "--http",
            self.ready["http"],
            *(self.access.options if options else ()),
            *options,
        )

    def client(self, module, url=None):
        """Return a client of the fleet, or of the replica at `url`."""
        return self.access.client(module, url or self.ready[transport(module)])

    def counted(self, module=tritonclient.http, url=None):
        """Return the number of successful requests that the fleet reports, or the replica at `url`."""
        with self.client(module, url) as client:
            found = client.get_inference_statistics(MODEL, headers=self.access.headers())
            if module is tritonclient.http:
                return found["model_stats"][0]["inference_stats"]["success"]["count"]
            return found.model_stats[0].inference_stats.success.count

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(90)


def transport(module):
    """Return the name of the port that a module of tritonclient uses."""
    return module.__name__.rpartition(".")[2]


class Load:
    """Run clients that send the next request `PAUSE_S` after each answer, over both transports, with images and with
    tensors of 602,112 bytes. Another client checks that the counts of the fleet never fall. Use it as a context
    manager."""

    def __init__(self, fleet):
        self._fleet = fleet
        self._end = threading.Event()
        self.answered, self.errors = [], []

    def __enter__(self):
        kinds = [(module, large) for module in (tritonclient.http, tritonclient.grpc) for large in (False, True)]
        self._threads = [threading.Thread(target=self._ask, args=kind) for kind in kinds]
        self._threads.append(threading.Thread(target=self._watch))
        self.answered = [0] * len(kinds)
        for number, thread in enumerate(self._threads):
            thread.name = str(number)
            thread.start()
        try:
            self.more()
        except BaseException:
            self._end.set()  # otherwise the threads would outlive the test
            raise
        return self

    def more(self):
        """Wait until every client has had ten more answers."""
        before = list(self.answered)
        until(lambda: all(now > then + 10 for now, then in zip(self.answered, before, strict=True)), self.errors)

    def __exit__(self, *_):
        self._end.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()

    def _watch(self):
        before = 0
        while not self._end.is_set():
            for module in (tritonclient.http, tritonclient.grpc):
                try:
                    now = self._fleet.counted(module)
                except Exception as error:
                    self.errors.append(("statistics", module, str(error)))
                    continue
                if now < before:
                    self.errors.append(("statistics", module, before, now))
                before = now
            self._end.wait(2.0)  # seldom: what an update ends is to be counted without this

    def _ask(self, module, large):
        client, access = self._fleet.client(module), self._fleet.access
        if large:
            given = module.InferInput("x", [1, 3, 224, 224], "FP32")
            given.set_data_from_numpy(np.zeros((1, 3, 224, 224), np.float32))
        else:
            given = module.InferInput("IMAGE", [1], "BYTES")
            given.set_data_from_numpy(np.array([IMAGE_FILE], object))
        number = int(threading.current_thread().name)
        while not self._end.is_set():
            try:
                assert client.infer(MODEL, [given], headers=access.headers()).as_numpy("output").shape == (1, 1000)
                self.answered[number] += 1
                self._end.wait(PAUSE_S)
            except Exception as error:
                self.errors.append((transport(module), large, str(error)))
                time.sleep(0.1)
