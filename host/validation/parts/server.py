"""`headrace serve` with one worker, under as many requests as it takes."""

import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from headrace.batching import HeadraceError
from headrace.host.validation.plan import NETWORKS, Check, Row, last_line
from headrace.host.workers.profiling.batches import measure_curve

COMMAND = (sys.executable, "-c", "from headrace.host.cli.main import main; main()")
STOP_S = 10.0


def rows(check: Check) -> Iterator[Row]:
    sizes, source = check.sizes, NETWORKS[check.sizes.served][0]
    profile = asyncio.run(measure_curve(source, workers=1, max_batch=sizes.max_batch))
    best = max(point.throughput_rps for point in profile.points)
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as words:
        file = Path(folder, "profile.json")
        file.write_text(profile.to_json())
        addresses = [word for name in ("--http", "--grpc", "--metrics") for word in (name, "127.0.0.1:0")]
        options = ["--model", source, "--profile", str(file), "--workers", "1", "--max-batch", str(sizes.max_batch)]
        with subprocess.Popen(
            [*COMMAND, "serve", *options, *addresses, "--json"], stdout=subprocess.PIPE, stderr=words, text=True
        ) as server:
            try:
                assert server.stdout is not None
                line = server.stdout.readline()
                if not line:
                    status = server.wait(STOP_S)
                    words.seek(0)
                    raise HeadraceError(f"the server ended with status {status}: {last_line(words.read())}")
                ready = json.loads(line)
                load = ["--concurrency", str(sizes.concurrency), "--duration-s", str(sizes.server_s), "--json"]
                done = subprocess.run(
                    [*COMMAND, "bench", f"http://{ready['http']}", *load],
                    capture_output=True,
                    text=True,
                    timeout=max(1.0, check.left_s()),
                )
                if not done.stdout:
                    raise HeadraceError(f"headrace bench: {last_line(done.stderr)}")
                (run,) = json.loads(done.stdout)["runs"]
            finally:
                server.terminate()
                try:
                    server.wait(STOP_S)
                except subprocess.TimeoutExpired:
                    server.kill()
    case = f"{check.sizes.served}, {sizes.concurrency} requests in flight"
    note = f"mean batch {run['batch_size_mean']:.2f}" if run["batch_size_mean"] else ""
    counts = {key: run[key] for key in ("requests", "finished", "failed", "shed", "dropped")}
    yield Row(case, "throughput", "requests/s", best, run["throughput_rps"], note, {"counts": counts, "run": run})
    # In a closed loop, latency is what Little's law makes of the throughput.
    yield Row(case, "mean latency", "ms", 1e3 * sizes.concurrency / best, run["latency_ms"]["mean"])
