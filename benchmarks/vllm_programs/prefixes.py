"""Serve requests with common prefixes on a vLLM engine in this process, and write what each found in the KV cache.

The Python of scripts/setup_vllm runs this file: `prefixes.py ORDER RESULT`. ORDER is a JSON file with the engine's
arguments and a list of runs. A run is a list of requests: the number of the step at which it comes, the segments of its
contents ((number, tokens at which it ends), as in `headrace.StepRequest`), its prompt tokens and its output tokens.
RESULT gets, for each run, what its requests found, and its counts. Nothing of Headrace is imported.

The tokens of a segment are drawn by its number. If an earlier request has generated some of them, those stand there.
"""

import json
import random
import sys
from pathlib import Path
from typing import Any


class Recorder:
    """Notes what requests find when they are admitted, and counts preemptions and evicted blocks."""

    def __init__(self, scheduler: Any) -> None:
        self.found: list[tuple[int, int]] = []
        self.preemptions = self.evicted = 0
        manager, pool = scheduler.kv_cache_manager, scheduler.kv_cache_manager.block_pool
        record, preempt = manager.record_prefix_cache_stats, scheduler._preempt_request
        evict = pool._maybe_evict_cached_block

        def recorded(request: Any, hits: int) -> Any:
            if hits > 0:
                self.found.append((int(request.request_id.partition("-")[0]), hits))
            return record(request, hits)

        def preempted(*arguments: Any, **named: Any) -> Any:
            self.preemptions += 1
            return preempt(*arguments, **named)

        def evicted(block: Any) -> Any:
            gone = evict(block)
            self.evicted += bool(gone)
            return gone

        manager.record_prefix_cache_stats = recorded
        scheduler._preempt_request = preempted
        pool._maybe_evict_cached_block = evicted


def prompt_of(request: list[Any], number: int, streams: dict[int, list[int]], vocabulary: int) -> list[int]:
    """Return the tokens of a prompt. `streams` has the tokens of conversations so far, by their segment."""
    _, contents, tokens, _ = request
    prompt: list[int] = []
    for segment, end in [*contents, (-1 - number, tokens)]:
        known = streams.get(segment, [])
        draw = random.Random(f"{segment} from {len(known)}")
        while len(prompt) < min(end, tokens):
            place = len(prompt)
            prompt.append(known[place] if place < len(known) else draw.randrange(vocabulary))
    return prompt


def serve(engine: Any, recorder: Recorder, requests: list[Any], vocabulary: int) -> dict[str, Any]:
    """Serve the requests of a run, each from the step on at which it comes, to the end."""
    from vllm import SamplingParams

    assert engine.reset_prefix_cache()
    recorder.found, recorder.preemptions, recorder.evicted = [], 0, 0
    streams: dict[int, list[int]] = {}
    sent: dict[int, list[int]] = {}
    open_: set[int] = set()  # conversations with a request that has not ended
    step, coming = 0, 0
    while coming < len(requests) or engine.has_unfinished_requests():
        if not engine.has_unfinished_requests():
            step = max(step, requests[coming][0])
        while coming < len(requests) and requests[coming][0] <= step:
            _, contents, prompt, output = requests[coming]
            if contents and contents[-1][1] > prompt:
                assert contents[-1][0] not in open_, "a conversation goes on before its last output has ended"
                open_.add(contents[-1][0])
            sent[coming] = prompt_of(requests[coming], coming, streams, vocabulary)
            sampling = SamplingParams(
                temperature=0, max_tokens=output, min_tokens=output, ignore_eos=True, detokenize=False
            )
            engine.add_request(str(coming), {"prompt_token_ids": sent[coming]}, sampling)
            coming += 1
        for each in engine.step():
            if each.finished:
                place = int(each.request_id)
                _, contents, prompt, _ = requests[place]
                if contents and contents[-1][1] > prompt:
                    open_.remove(contents[-1][0])
                    streams[contents[-1][0]] = [*sent[place], *each.outputs[0].token_ids]
        step += 1
    return {
        "found": recorder.found,
        "preemptions": recorder.preemptions,
        "evicted": recorder.evicted,
        "steps": step,
    }


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
            enable_prefix_caching=True,
            disable_log_stats=True,
            async_scheduling=False,
            **order["engine"],
        )
    )
    scheduler = engine.engine_core.engine_core.scheduler
    recorder = Recorder(scheduler)
    runs = [serve(engine, recorder, each, order["vocabulary"]) for each in order["runs"]]
    blocks = scheduler.kv_cache_manager.block_pool.num_gpu_blocks
    result_file.write_text(json.dumps({"blocks": blocks, "runs": runs}))


if __name__ == "__main__":
    main()
