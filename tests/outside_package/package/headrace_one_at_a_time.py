"""A policy of steps for Headrace: each request has the replica for itself."""

from dataclasses import dataclass, field

import headrace


class OneAtATimeSteps:
    """Prefill a prompt in chunks, let its output end, and begin the next request."""

    max_num_seqs = 1

    def __init__(self, context: headrace.StepContext, chunk: int) -> None:
        self.max_num_batched_tokens = self.max_encoder_tokens = self.chunk = chunk
        self.capacity = context.kv_blocks * context.block_size
        self.waiting: list[headrace.StepRequest] = []
        self.left = 0  # of the prompt of the first request

    def submit(self, request: headrace.StepRequest, now: float) -> None:
        tokens = request.prompt_tokens + request.max_output_tokens - 1
        if request.items or tokens > self.capacity:
            raise headrace.BadInput(f"request {request.id} has images, or more than {self.capacity} tokens")
        self.waiting.append(request)
        if len(self.waiting) == 1:
            self.left = request.prompt_tokens

    def next_step(self, now: float) -> headrace.Step | None:
        if not self.waiting:
            return None
        first = self.waiting[0]
        if self.left > 0:
            return headrace.Step(prefill=((first, min(self.left, self.chunk)),))
        return headrace.Step(decoding=(first,), repeats=first.max_output_tokens)

    def complete(self, step: headrace.Step, now: float) -> None:
        self.left -= sum(tokens for _, tokens in step.prefill)
        if step.finished:
            self.withdraw(step.finished[0], now)

    def withdraw(self, request: headrace.StepRequest, now: float) -> bool:
        if request not in self.waiting:
            return False
        first = request is self.waiting[0]
        self.waiting.remove(request)
        if first and self.waiting:
            self.left = self.waiting[0].prompt_tokens
        return True


@dataclass(frozen=True)
class OneAtATime:
    """Serve one request after another."""

    tasks = "steps"
    chunk: int = field(default=512, metadata={"help": "Tokens of a chunk.", "ge": 1, "le": 8192})

    def build(self, context: headrace.StepContext) -> headrace.StepPolicy:
        """Return the policy for one replica."""
        return OneAtATimeSteps(context, self.chunk)
