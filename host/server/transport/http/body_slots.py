"""Connections of HTTP receive the tensor of a request into a borrowed slot of the model's arena (see `lending`).

A body that ends with the bytes of one tensor is a description in JSON and these bytes. Inference-Header-Content-Length
says where they begin. If they are as many as the model's one input has, they go into a slot."""

from dataclasses import dataclass, field

from headrace.host.memory.slots import SlotArena, SlotTensors
from headrace.host.memory.sources import FilledSlot
from headrace.host.server.group import ServedModel
from headrace.host.server.service import Service
from headrace.host.server.transport.lending import lender


@dataclass
class _Pool:
    """The slots of one model. `free` are those that receive nothing. Without an arena there are none."""

    name: str
    model: ServedModel
    arena: SlotArena | None = None
    tensors: SlotTensors | None = None
    free: list[int] = field(default_factory=list)
    receiving: int = 0


class BodySlot(FilledSlot):
    """A slot that receives a tensor. The connection calls `release` when the request has ended."""

    def __init__(self, pool: _Pool, slot: int) -> None:
        assert pool.tensors is not None
        self._pool: _Pool | None = pool
        self._slot = slot
        self._bytes = memoryview(pool.tensors.at(slot)).cast("B")
        pool.receiving += 1

    def __len__(self) -> int:
        return len(self._bytes)

    def view(self) -> memoryview:
        return self._bytes

    def exchange(self, arena: object, model: str, slot: int) -> int | None:
        pool = self._pool
        if pool is None or arena is not pool.arena or model != pool.name:
            return None
        self._leave(slot)
        return self._slot

    def release(self) -> None:
        """Give the slot back, unless a request has taken it."""
        self._leave(self._slot)

    def _leave(self, free: int) -> None:
        if self._pool is not None:
            self._pool.receiving -= 1
            self._pool.free.append(free)
            self._pool = None


class BodySlots:
    """Borrow slots of the models that are served. A description of more than `max_said` bytes gets none."""

    def __init__(self, service: Service, max_said: int) -> None:
        self._service = service
        self._max_said = max_said
        self._pools: dict[str, _Pool] = {}

    def find(self, name: str, said: str, length: int) -> BodySlot | None:
        """Return a slot for the tensor in a body of `length` bytes. Return None if the body is to stay in one piece.

        Args:
            name: the model in the request's path.
            said: the value of Inference-Header-Content-Length.
            length: the number of bytes of the whole body."""
        if not said.isdecimal() or len(said) > 5 or int(said) > self._max_said:
            return None
        model = self._service.models.get(name)
        if model is None:
            return None
        pool = self._pools.get(name)
        if pool is None or pool.model is not model:
            pool = self._borrow(name, model)
        if not pool.free or pool.tensors is None or pool.tensors.spec.nbytes != length - int(said):
            return None
        return BodySlot(pool, pool.free.pop())

    def _borrow(self, name: str, model: ServedModel) -> _Pool:
        models = self._service.models
        self._pools = {each: pool for each, pool in self._pools.items() if models.get(each) is pool.model}
        pool = self._pools[name] = _Pool(name, model)
        found = lender(self._service, name, model)
        if found is None:
            return pool
        arena, _ = found

        def take_back() -> bool:
            pool.arena, pool.tensors, pool.free = None, None, []
            return pool.receiving > 0

        pool.arena = arena
        pool.tensors = arena.views[name].inputs[0]
        pool.free = list(arena.lend(name, take_back))
        return pool
