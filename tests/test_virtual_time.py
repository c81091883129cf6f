import asyncio
import socket

import pytest
from virtual_time import BeyondHorizon, Deadlock, Endless, run


def test_an_hour_passes_at_once_and_timers_ring_at_their_instants_in_order():
    async def main():
        loop, rung = asyncio.get_running_loop(), []
        for at in (3600.0, 0.1, 0.1 + 1e-9):
            loop.call_at(at, lambda: rung.append(loop.time()))
        await asyncio.sleep(3600.0)
        await asyncio.sleep(0)
        return rung

    assert run(main()) == [0.1, 0.1 + 1e-9, 3600.0]


def test_time_stands_while_anything_can_run():
    async def main():
        for _ in range(100):
            await asyncio.sleep(0)
        return asyncio.get_running_loop().time()

    assert run(main()) == 0.0


def test_sockets_within_the_process_are_ready_before_the_clock_moves():
    async def main():
        async def echo(reader, writer):
            writer.write(await reader.readexactly(4))

        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        address = server.sockets[0].getsockname()
        reader, writer = await asyncio.open_connection(*address)
        asyncio.get_running_loop().call_later(5.0, lambda: None)
        writer.write(b"abcd")
        assert await reader.readexactly(4) == b"abcd"
        assert writer.get_extra_info("socket").family == socket.AF_UNIX  # loopback TCP may come later
        writer.close()
        server.close()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(*address)
        return asyncio.get_running_loop().time()

    assert run(main()) == 0.0


def test_code_that_waits_for_ever_is_an_error_and_no_hang():
    with pytest.raises(Deadlock):
        run(asyncio.Event().wait())

    async def again():
        while True:
            await asyncio.sleep(0.1)

    with pytest.raises(BeyondHorizon, match="10"):
        run(again(), horizon_s=10.0)


def test_a_loop_that_never_leaves_one_instant_is_an_error_and_no_hang(monkeypatch):
    monkeypatch.setattr("virtual_time.MAX_TURNS", 1000)

    async def spin():
        while True:
            await asyncio.sleep(0)

    with pytest.raises(Endless, match=r"at 0\.0 s"):
        run(spin())
