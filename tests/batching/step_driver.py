"""A plain driver of step policies for tests: one repetition at a time, with its own count of tokens and blocks.

It shares nothing with checked_policy.py and checks the rules in another way: it keeps the tokens of each request as a
number, and sums all of them after every step."""

from dataclasses import dataclass, field


def blocks_of(tokens: int, size: int) -> int:
    return -(-tokens // size)


@dataclass
class Seen:
    """What became of one request."""

    request: object
    cached: int = 0
    made: int = 0
    encoded: int = 0


@dataclass
class Run:
    steps: list[tuple[float, float, object]] = field(default_factory=list)  # start, end, step
    ended: dict[int, float] = field(default_factory=dict)
    withdrawn: set[int] = field(default_factory=set)
    preempted: int = 0


def drive(policy, requests, *, kv_blocks, block_size, latency, encoder=None, gone=(), repeat=False):
    """Serve the requests to the end, and check the rules of the contract after each step.

    `gone` are (time, id): the request is withdrawn at the first step's end from that time on. With `repeat`,
    repetitions run as often as the policy allows and nothing happens, else once."""
    run, seen = Run(), {}
    coming = sorted(requests, key=lambda request: request.arrival)
    leaving = sorted(gone)
    now = 0.0
    while coming or seen:
        while coming and coming[0].arrival <= now:
            request = coming.pop(0)
            policy.submit(request, now)
            seen[request.id] = Seen(request)
        while leaving and leaving[0][0] <= now:
            number = leaving.pop(0)[1]
            known = number in seen
            request = seen[number].request if known else next(r for r in requests if r.id == number)
            assert policy.withdraw(request, now) is known
            if known:
                del seen[number]
                run.withdrawn.add(number)
            assert policy.withdraw(request, now) is False
        if not seen:
            assert policy.next_step(now) is None
            if not coming:
                break
            now = coming[0].arrival
            continue
        step = policy.next_step(now)
        assert step is not None, "a policy with requests has nothing to run"
        again = 0
        start = now
        while True:
            now += check(policy, step, seen, latency, encoder, run if again == 0 else None)
            again += 1
            ended = [one for one in seen.values() if one.made == one.request.output_len]
            others = sum(blocks_of(one.cached, block_size) for one in seen.values())
            assert others <= kv_blocks, "more blocks than there are"
            assert sum(one.cached > 0 for one in seen.values()) <= policy.max_num_seqs
            comes = coming[0].arrival if coming else float("inf")
            leaves = leaving[0][0] if leaving else float("inf")
            if ended or not repeat or again == step.repeats or now >= min(comes, leaves):
                break
        policy.complete(step.ended(again, tuple(one.request for one in ended)), now)
        run.steps.append((start, now, step))
        for one in ended:
            run.ended[one.request.id] = now
            del seen[one.request.id]
        assert len(run.steps) < 200_000, "the policy makes no progress"
    return run


def check(policy, step, seen, latency, encoder, run):
    """Apply one repetition of a step to `seen`, and return how long it takes. `run` is None for a further one."""
    seconds = 0.0
    if run is not None:
        for request in step.preempted:
            one = seen[request.id]
            assert one.cached or one.encoded, "a request is preempted that has nothing"
            one.cached = 0
            run.preempted += 1
    else:
        assert not (step.prefill or step.encoder or step.preempted), "a step with other work is repeated"
    items = []
    for request, number in step.encoder:
        one = seen[request.id]
        items += request.items[one.encoded : one.encoded + number]
        assert number >= 1
        one.encoded += number
        assert one.encoded <= len(request.items)
    assert len(items) == 1 or sum(items) <= policy.max_encoder_tokens
    if items:
        seconds += encoder.seconds(items)
    names = [request.id for request, _ in step.prefill] + [request.id for request in step.decoding]
    assert len(set(names)) == len(names)
    assert not set(names) & {request.id for request in step.preempted}
    tokens = sum(tokens for _, tokens in step.prefill) + len(step.decoding)
    assert tokens <= policy.max_num_batched_tokens
    assert tokens or items, "a step does nothing"
    chunks, context = [], 0
    for request in step.decoding:
        one = seen[request.id]
        assert one.made >= 1 and one.cached == request.prompt_tokens + one.made - 1
        one.cached += 1
        one.made += 1
        context += one.cached
    for request, number in step.prefill:
        one = seen[request.id]
        assert one.encoded == len(request.items), "a prefill begins before its items are encoded"
        chunks.append((number, one.cached))
        assert number >= 1
        one.cached += number
        assert one.cached <= request.prompt_tokens + one.made
        if one.cached == request.prompt_tokens + one.made:
            one.made += 1
    if tokens:
        seconds += latency.seconds(chunks, len(step.decoding), context)
    return seconds
