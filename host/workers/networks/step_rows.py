"""Run a step of a network on a batch of requests whose states lie in rows: gather, module, scatter."""

import time
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from headrace.batching.graphs.model_graph import NodeKind
from headrace.host.memory.layout import TensorSpec
from headrace.host.memory.states import StateViews
from headrace.host.workers.networks.steps import Signature, Step

States = dict[str, Tensor]


def call_step(
    step: Step, module: nn.Module, specs: dict[str, TensorSpec], tokens: Tensor, state: States, lengths: States
) -> tuple[States, Tensor | None]:
    """Return the updates and tokens of the module, checked. No update is ever broadcast into a state. Raises
    ValueError."""
    returned: Any = module(tokens, state, lengths)
    if not isinstance(returned, tuple) or len(returned) != 2 or not isinstance(returned[0], dict):
        raise ValueError(f"step {step.name!r} must return a dict of updates and the chosen tokens or None")
    updates, chosen = returned
    batch, appended = len(tokens), tokens.shape[1] if tokens.ndim == 2 else 1
    for name, update in updates.items():
        spec = specs.get(name)
        if spec is None:
            raise ValueError(f"step {step.name!r} updates {name!r}, which is no state of its network")
        grows = spec.variable is not None
        if grows and name not in step.appends:
            raise ValueError(f"step {step.name!r} appends to state {name!r}; name it in the step's `appends`")
        shape = (batch, *spec.sized(appended))
        if update.shape != shape or update.dtype != getattr(torch, spec.dtype):
            raise ValueError(
                f"step {step.name!r} gives state {name!r} {update.dtype} of shape {tuple(update.shape)}; "
                f"return {spec.dtype} of shape {shape}"
            )
    for name in step.appends:
        if name not in updates:
            raise ValueError(f"step {step.name!r} appends nothing to state {name!r}; take it out of `appends`")
    if step.reads != 1 and (missing := specs.keys() - updates.keys()):
        raise ValueError(f"step {step.name!r} of a tree gives no state {min(missing)!r}; return every state")
    if step.kind is not NodeKind.DECODER:
        if chosen is not None:
            raise ValueError(f"step {step.name!r} chooses tokens; only a DECODER step does, return None")
    elif not isinstance(chosen, Tensor) or chosen.shape != (batch,) or chosen.dtype != torch.int64:
        raise ValueError(f"step {step.name!r} must choose int64 tokens of shape {(batch,)}")
    return updates, chosen


class StepRows:
    """The steps of one network on its rows.

    The rows are in the memory of `views`, or in a copy of it on the device if `rows_on_device`. The tensors of a batch
    go to `device` and back to the rows."""

    def __init__(
        self,
        signature: Signature,
        modules: nn.ModuleList,
        views: StateViews,
        device: torch.device,
        *,
        rows_on_device: bool = False,
    ) -> None:
        self._steps, self._modules = signature.steps, modules
        self._specs = {spec.name: spec for spec in signature.states}
        self._device, self._home = device, device if rows_on_device else torch.device("cpu")
        self._blocks = {name: torch.from_numpy(block).to(self._home) for name, block in views.states.items()}
        self._lengths = {name: torch.from_numpy(block).to(self._home) for name, block in views.lengths.items()}

    @torch.inference_mode()
    def run(
        self, number: int, tokens: Tensor, reads: Tensor, writes: Tensor, counts: Tensor | None = None
    ) -> tuple[float, Tensor | None]:
        """Run a step on a batch.

        Args:
            tokens: (batch,), or (batch, longest) with `counts` for a STATIC step.
            reads: Rows of the states that the entries read, (batch * reads,), one entry after the other.
            writes: Rows of the entries, (batch,).
            counts: Valid tokens of each entry, (batch,).

        Returns:
            When the batch was together (`time.monotonic()` seconds), and the tokens that it chose, (batch,), on the
                CPU.

        Raises:
            ValueError: The updates do not fit the states.
        """
        step, device = self._steps[number], self._device
        reads, writes = reads.to(self._home), writes.to(self._home)
        state: States = {}
        lengths: States = {}
        used: States = {}
        for name, block in self._blocks.items():
            if name in self._lengths:
                used[name] = self._lengths[name].index_select(0, reads)
                lengths[name] = used[name].to(device)
                rows = _padded(block, reads, used[name])
            else:
                rows = block.index_select(0, reads)
                if step.reads != 1:
                    rows = rows.view(len(writes), step.reads, *block.shape[1:])
            state[name] = rows.to(device)
        if counts is not None:
            lengths["tokens"] = counts.to(device)
        tokens = tokens.to(device)
        gathered = time.monotonic()
        updates, chosen = call_step(step, self._modules[number], self._specs, tokens, state, lengths)
        for name, block in self._blocks.items():
            if name in used:
                self._append(name, updates.get(name), used[name], writes, counts)
            elif name in updates:
                block.index_copy_(0, writes, updates[name].to(self._home))
            elif step.reads == 1 and not torch.equal(reads, writes):
                block.index_copy_(0, writes, block.index_select(0, reads))
        return gathered, chosen.cpu() if chosen is not None else None

    def state(self, name: str, row: int) -> NDArray[Any]:
        """Return a state of a row, on the CPU. Of a growing state, return the valid steps."""
        state: NDArray[Any] = self._blocks[name][row].cpu().numpy()
        return state[: int(self._lengths[name][row])] if name in self._lengths else state

    @torch.inference_mode()
    def warm_up(self, number: int, batch: int) -> None:
        """Run a step on zeros, with one step in each growing state, as the first run of a shape is slow.

        It writes no row. Raises ValueError as `run` does."""
        step = self._steps[number]
        state = {}
        for name, spec in self._specs.items():
            shape = (batch, *spec.sized(1)) if step.reads == 1 else (batch, step.reads, *spec.shape)
            state[name] = torch.zeros(shape, dtype=getattr(torch, spec.dtype), device=self._device)
        one = torch.ones(batch, dtype=torch.int64, device=self._device)
        lengths = {name: one for name in self._lengths}
        tokens = torch.zeros_like(one)
        if step.kind is NodeKind.STATIC:
            tokens, lengths["tokens"] = tokens[:, None], one
        call_step(step, self._modules[number], self._specs, tokens, state, lengths)

    def _append(self, name: str, update: Tensor | None, used: Tensor, writes: Tensor, counts: Tensor | None) -> None:
        """Write the new steps of a growing state. A row is read and written by the same request, or read empty.

        A request whose output has ended may still run a few steps that were sent before that was known. Where there is
        no more room, these steps overwrite the end of a state that no request reads any more."""
        block, lengths = self._blocks[name], self._lengths[name]
        if update is None:
            lengths.index_copy_(0, writes, used)
            return
        update = update.to(self._home)
        longest = block.shape[1]
        if counts is None:
            block[writes, used.clamp(max=longest - 1)] = update[:, 0]
            lengths.index_copy_(0, writes, (used + 1).clamp(max=longest))
            return
        counts = counts.to(self._home)
        start = torch.minimum(used, longest - counts)
        there = torch.arange(update.shape[1], device=self._home) < counts[:, None]
        entry, place = there.nonzero(as_tuple=True)
        block[writes[entry], start[entry] + place] = update[there]
        lengths.index_copy_(0, writes, start + counts)


def _padded(block: Tensor, rows: Tensor, used: Tensor) -> Tensor:
    """Return the first `used` steps of the rows, (batch, longest, ...), with zeros after them.

    The memory after them holds another request's steps. They may be NaN, which no attention mask would stop."""
    lengths = used.tolist()
    gathered = block[:, : max(lengths)].index_select(0, rows)
    for entry, length in enumerate(lengths):  # a mask over all entries takes three times as long
        if length < gathered.shape[1]:
            gathered[entry, length:] = 0
    return gathered
