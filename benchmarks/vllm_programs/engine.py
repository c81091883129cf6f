"""Serve requests on a vLLM engine in this process, and write what each step held and how long it took.

The Python of scripts/setup_vllm runs this file: `engine.py ORDER RESULT`. ORDER is a JSON file with the engine's
arguments and a list of runs, each with requests (arrival in s, prompt tokens, output tokens). RESULT gets, for each
run, its steps and the times of each request. Nothing of Headrace is imported.

A request comes between two steps, as it does in vLLM's own loop. The duration of a step is that of `LLMEngine.step`:
scheduling, the model, sampling, and the handling of outputs.

The clock is the machine's, or it counts the CPU time of this process and jumps where the engine has nothing to do. The
second one measures the same on a busy machine, if the engine has one thread.
"""

import json
import random
import sys
import time
from pathlib import Path
from typing import Any


class Recorder:
    """Notes what the scheduler puts into each step, and how often it preempts."""

    def __init__(self, scheduler: Any) -> None:
        self.last: tuple[list[tuple[int, int]], int, int] = ([], 0, 0)
        self.preemptions = 0
        schedule, preempt = scheduler.schedule, scheduler._preempt_request

        def scheduled(*arguments: Any, **named: Any) -> Any:
            output = schedule(*arguments, **named)
            chunks, requests, context = [], 0, 0
            for name, tokens in output.num_scheduled_tokens.items():
                request = scheduler.requests[name]
                before = request.num_computed_tokens - tokens  # the scheduler has counted these tokens already
                if tokens == 1 and before == request.num_tokens - 1 and before >= request.num_prompt_tokens:
                    requests, context = requests + 1, context + before + 1
                else:
                    chunks.append((tokens, before))
            self.last = chunks, requests, context
            return output

        def preempted(*arguments: Any, **named: Any) -> Any:
            self.preemptions += 1
            return preempt(*arguments, **named)

        scheduler.schedule, scheduler._preempt_request = scheduled, preempted


class Clock:
    """Time (s) since it was made. With `cpu`, it counts the CPU time of this process, and waiting takes no time."""

    def __init__(self, cpu: bool) -> None:
        self._cpu = cpu
        self._origin = self._read()

    def now(self) -> float:
        return self._read() - self._origin

    def wait_until(self, at: float) -> None:
        if self._cpu:
            self._origin -= max(0.0, at - self.now())
        else:
            time.sleep(max(0.0, at - self.now()))

    def _read(self) -> float:
        return time.process_time() if self._cpu else time.perf_counter()


def serve(engine: Any, recorder: Recorder, requests: list[list[float]], vocabulary: int, cpu: bool) -> dict[str, Any]:
    """Serve the requests of a run as they come, to the end."""
    from vllm import SamplingParams

    draw = random.Random(len(requests))
    coming = [
        (arrival, [draw.randrange(vocabulary) for _ in range(int(prompt))], int(output))
        for arrival, prompt, output in requests
    ]
    steps: list[Any] = []
    first, last = [0.0] * len(coming), [0.0] * len(coming)
    recorder.preemptions = 0
    clock, number = Clock(cpu), 0
    while number < len(coming) or engine.has_unfinished_requests():
        now = clock.now()
        while number < len(coming) and coming[number][0] <= now:
            _, prompt, output = coming[number]
            sampling = SamplingParams(
                temperature=0, max_tokens=output, min_tokens=output, ignore_eos=True, detokenize=False
            )
            engine.add_request(str(number), {"prompt_token_ids": prompt}, sampling)
            number += 1
        if not engine.has_unfinished_requests():
            clock.wait_until(coming[number][0])
            continue
        started = clock.now()
        outputs = engine.step()
        ended = clock.now()
        steps.append((*recorder.last, ended - started))
        for each in outputs:
            place = int(each.request_id)
            first[place] = first[place] or ended
            if each.finished:
                last[place] = ended
    return {"steps": steps, "first_s": first, "last_s": last, "preemptions": recorder.preemptions}


def main() -> None:
    order_file, result_file = map(Path, sys.argv[1:])
    order = json.loads(order_file.read_text())
    from vllm import EngineArgs, LLMEngine

    engine = LLMEngine.from_engine_args(
        EngineArgs(
            dtype="float32",
            load_format="dummy",
            skip_tokenizer_init=True,
            enforce_eager=True,
            enable_prefix_caching=False,
            disable_log_stats=True,
            **order["engine"],
        )
    )
    scheduler = engine.engine_core.engine_core.scheduler
    recorder = Recorder(scheduler)
    blocks = scheduler.kv_cache_manager.block_pool.num_gpu_blocks
    runs = [serve(engine, recorder, each, order["vocabulary"], order["cpu_clock"]) for each in order["runs"]]
    result_file.write_text(json.dumps({"blocks": blocks, "runs": runs}))


if __name__ == "__main__":
    main()
