"""The native front fills borrowed slots of the models' arenas with the tensors that it receives (see `lending`)."""

from typing import Any

from headrace.host.memory.sources import FilledSlot
from headrace.host.server.group import ServedModel
from headrace.host.server.service import Service
from headrace.host.server.transport.lending import lender


class LentSlots:
    """Borrow slots for a front. `front` is a `native.http2.Front`."""

    def __init__(self, front: Any, service: Service) -> None:
        self._front = front
        self._service = service
        self._known: dict[str, ServedModel] = {}
        self._pools: dict[int, tuple[object, str]] = {}  # the arena and the model, by the front's number

    def borrow(self) -> None:
        """Borrow slots of the models that are served now."""
        models = self._service.models
        new = [name for name, model in models.items() if self._known.get(name) is not model]
        if new or len(models) < len(self._known):
            self._known = dict(models)
        for name in new:
            self._borrow(name, models[name])

    def _borrow(self, name: str, model: ServedModel) -> None:
        found = lender(self._service, name, model)
        if found is None:
            return
        arena, layout = found
        pool = 0

        def take_back() -> bool:
            del self._pools[pool]
            return bool(self._front.take_back(pool))

        slots = arena.lend(name, take_back)
        of_layout = (arena.fd, layout.offset, layout.stride, layout.inputs[0].nbytes, layout.slots)
        pool = self._front.lend(name.encode(), *of_layout, slots)
        self._pools[pool] = (arena, name)

    def filled(self, place: Any) -> FilledSlot:
        """Return the slot that the front has filled."""
        return _Filled(place, *self._pools.get(place.pool, (None, "")))


class _Filled(FilledSlot):
    def __init__(self, place: Any, arena: object, model: str) -> None:
        self._place = place
        self._arena = arena
        self._model = model

    def __len__(self) -> int:
        return len(self.view())

    def view(self) -> memoryview:
        return memoryview(self._place)

    def exchange(self, arena: object, model: str, slot: int) -> int | None:
        if arena is not self._arena or model != self._model:
            return None
        self._arena = None  # the place has no tensor any more
        filled: int = self._place.exchange(slot)
        return filled
