"""The protocol of step models: the interface of a network over sequences or trees.

A step model is any object with three attributes:

- `states`: TensorSpecs of the states that a request keeps between steps, without the batch. The first dimension of a
  state may be -1, with its `longest` given: such a state grows (the cached keys of a Transformer, for example), and
  begins empty. The others have one size and begin as zeros;
- `vocabulary`: tokens are integers from 0 to `vocabulary` - 1. GO and EOS are two of them;
- `steps`: `Step`s, in the order in which a request runs them.

A step's module is called on a batch as `module(tokens, state, lengths)` and returns `(updates, chosen)`:

- `tokens`: (batch,) int64. A STATIC step, which takes the whole input at once, gets (batch, longest), padded with 0;
- `state`: by name, (batch, ...), or (batch, reads, ...) where `reads` is not 1. A growing state is padded with zeros to
  the longest of the batch;
- `lengths`: (batch,) int64, the length of each growing state, by name, and of a STATIC step's `tokens`, under "tokens".
  The module must mask the padding: a request's result must not depend on its batch;
- `updates`: by name. An update replaces a fixed state. A fixed state without an update stays as it is (not in trees). A
  growing state that the step's `appends` names gets the update appended: (batch, 1, ...), or in a STATIC step (batch,
  longest, ...), without its padding;
- `chosen`: (batch,) int64, the tokens that a DECODER step chose, which are the output. None in all other steps.

This module does not import torch, as planning and scheduling need no weights. step_rows.py runs steps; step_models.py
loads them.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from headrace.batching import BadInput, UsageError
from headrace.batching.graphs.cell_graph import CellType
from headrace.batching.graphs.model_graph import ModelGraph, Node, NodeKind
from headrace.host.memory.layout import TensorSpec
from headrace.host.memory.states import StateSpecs

GO = 0  # the first token that a decoder is fed
EOS = 1  # the token that ends its output
DECODED = 16  # most decoder steps that a measurement runs; they are enough for a median


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a step model.

    Args:
        kind: How often a request runs it. STATIC: once, on the whole input. ENCODER: once for each input token.
            DECODER: once for each output token. In a network over binary trees both steps are ENCODER: the step that
            reads 0 states runs for each leaf, and the step that reads 2, those of the children, runs for each inner
            node.
        module: A torch.nn.Module. None in a Signature.
        reads: Number of states that it reads.
        max_batch: Most entries in a batch.
        priority: Where requests wait at several steps, `cellular` runs the step with the highest priority.
        appends: Names of growing states that it appends to.
    """

    name: str
    kind: NodeKind
    module: Any = None
    reads: int = 1
    max_batch: int = 64
    priority: int = 0
    appends: tuple[str, ...] = ()


class StepModel(Protocol):
    @property
    def states(self) -> Sequence[TensorSpec]: ...
    @property
    def vocabulary(self) -> int: ...
    @property
    def steps(self) -> Sequence[Step]: ...


@dataclass(frozen=True)  # without slots, because of cached_property
class Signature:
    """A step model without its weights, under the name that requests use.

    `longest_input` and `longest_output` are the most tokens that memory has room for, where the room must be known:
    the input of a STATIC step, and the slots of node-level policies. Raises UsageError for a model that cannot be
    served."""

    name: str
    vocabulary: int
    states: tuple[TensorSpec, ...]
    steps: tuple[Step, ...]
    longest_input: int
    longest_output: int

    def __post_init__(self) -> None:
        if (wrong := self._wrong()) is not None:
            raise UsageError(f"network {self.name!r}: {wrong}")

    def _wrong(self) -> str | None:
        """Return why the model cannot be served and how to change it, or None."""
        if not isinstance(self.vocabulary, int) or self.vocabulary <= EOS:
            return f"vocabulary {self.vocabulary}; give {EOS + 1} or more words"
        if not self.states or not self.steps:
            return f"{len(self.states)} states and {len(self.steps)} steps; give one or more of each"
        if self.longest_input < 1 or self.longest_output < 1:
            return f"longest input {self.longest_input}, output {self.longest_output}; give 1 or more tokens"
        for what, names in (("states", [s.name for s in self.states]), ("steps", [s.name for s in self.steps])):
            if twice := [name for name, count in Counter(names).items() if count > 1]:
                return f"two {what} are named {twice[0]!r}; give each its own name"
        growing = {spec.name for spec in self.growing}
        for spec in self.growing:
            if spec.variable != 0:
                return f"state {spec.name!r} of shape {spec.shape}; put the dimension that grows, -1, first"
        for step in self.steps:
            if not isinstance(step.kind, NodeKind):
                return f"step {step.name!r} of kind {step.kind!r}; give STATIC, ENCODER or DECODER of NodeKind"
            if step.max_batch < 1:
                return f"step {step.name!r}: batches of {step.max_batch}; give 1 or more"
            if unknown := set(step.appends) - growing:
                return f"step {step.name!r} appends to {min(unknown)!r}; give that state a first dimension of -1"
        reads = [step.reads for step in self.steps]
        if self.tree:
            if sorted(reads) != [0, 2] or {step.kind for step in self.steps} != {NodeKind.ENCODER} or growing:
                return (
                    "a network over trees has two steps of kind ENCODER, a leaf's (reads 0) and an inner node's "
                    "(reads 2), and no growing state; give such ones"
                )
            return None
        kinds = [step.kind for step in self.steps]
        for kind in (NodeKind.ENCODER, NodeKind.DECODER):
            if kinds.count(kind) > 1:
                return f"{kinds.count(kind)} steps of kind {kind.name}; make one of them"
        if NodeKind.DECODER in kinds and (kinds[-1] is not NodeKind.DECODER or len(kinds) == 1):
            return "a DECODER step comes last, after a STATIC or ENCODER step that takes the input; put it there"
        if not self.decodes and self.states[0].variable is not None:
            return (
                f"without a DECODER step the first state is the output, and {self.states[0].name!r} grows; put one of "
                "a fixed shape first"
            )
        return None

    @cached_property
    def tree(self) -> bool:
        return any(step.reads != 1 for step in self.steps)

    @cached_property
    def decodes(self) -> bool:
        return self.steps[-1].kind is NodeKind.DECODER

    @cached_property
    def growing(self) -> tuple[TensorSpec, ...]:
        return tuple(spec for spec in self.states if spec.variable is not None)

    @property
    def types(self) -> tuple[CellType, ...]:
        """The steps as cells, by number."""
        return tuple(CellType(step.name, step.max_batch, priority=step.priority) for step in self.steps)

    @property
    def graph(self) -> ModelGraph:
        """The steps as nodes, for node-level policies. Raises UsageError for a network over trees."""
        if self.tree:
            raise UsageError(f"network {self.name!r} runs over trees; serve it by cells: cellular or dynamic-graph")
        return ModelGraph(self.name, tuple(Node(step.name, step.kind) for step in self.steps))

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """The inputs in a slot: the input tokens."""
        return (TensorSpec("tokens", "int64", (-1,), self.longest_input),)

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """The outputs in a slot: the decoded tokens, or without a decoder the first state."""
        return (TensorSpec("tokens", "int64", (-1,), self.longest_output),) if self.decodes else self.states[:1]

    @property
    def row(self) -> StateSpecs:
        """The row of a request: its states, and its input where a step takes all of it at once."""
        return StateSpecs(self.states, self.longest_input if self._takes_all else 0)

    @cached_property
    def _takes_all(self) -> bool:
        """Whether a step takes the whole input at once."""
        return any(step.kind is NodeKind.STATIC for step in self.steps)

    def fits(self, tokens: int, max_steps: int) -> bool:
        """Return whether such a request finds room in a slot and in the states."""
        if tokens > self.longest_input or (self.decodes and max_steps > self.longest_output):
            return False
        try:
            self.check_lengths(tokens, max_steps)
        except BadInput:
            return False
        return True

    def check_lengths(self, tokens: int, max_steps: int) -> None:
        """Raise BadInput if `tokens` input tokens and `max_steps` decoder steps find no room in the states."""
        if self._takes_all and tokens > self.longest_input:
            raise BadInput(f"network {self.name!r} takes at most {self.longest_input} tokens, not {tokens}; give fewer")
        for spec in self.growing:
            read = tokens * sum(spec.name in step.appends for step in self.steps if step.kind is not NodeKind.DECODER)
            written = max_steps if self.decodes and spec.name in self.steps[-1].appends else 0
            if read + written > spec.longest:
                raise BadInput(
                    f"network {self.name!r} keeps at most {spec.longest} steps in {spec.name!r}: an input of {tokens} "
                    f"tokens and max_steps {max_steps} need {read + written}; give a shorter input or fewer steps"
                )


def longest_input(signature: Signature) -> int:
    """Return the longest input, halved until it fits with as many decoder steps."""
    longest = signature.longest_input
    while longest > 1 and not signature.fits(longest, min(longest, DECODED)):
        longest //= 2
    return longest
