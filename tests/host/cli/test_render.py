"""`headrace render` as a process: it says when it is ready, and ends cleanly."""

import asyncio
import signal
import subprocess
import sys

import aiohttp
from chats import chat
from engine_double import EngineDouble
from tiny_qwen2_vl import qwen2_vl


def test_it_is_ready_answers_and_ends_at_sigterm(tmp_path):
    folder = qwen2_vl(tmp_path / "model")

    async def run():
        async with EngineDouble(folder).running() as engine:
            code = "from headrace.host.cli.main import main; main()"
            command = ("render", "--engine", engine, "--model", folder, "--http", "127.0.0.1:0")
            started = await asyncio.create_subprocess_exec(sys.executable, "-c", code, *command, stderr=subprocess.PIPE)
            try:
                line = (await started.stderr.readline()).decode()
                assert line.startswith("ready: tiny at http://127.0.0.1:")
                url = line.split()[-1]
                async with (
                    aiohttp.ClientSession() as session,
                    session.post(f"{url}/chat/completions", json=chat("a")) as response,
                ):
                    assert response.status == 200
                started.send_signal(signal.SIGTERM)
                async with asyncio.timeout(60):
                    assert await started.wait() == 0
                assert await started.stderr.read() == b""
            finally:
                if started.returncode is None:
                    started.kill()

    asyncio.run(run())
