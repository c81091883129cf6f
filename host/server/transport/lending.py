"""This module decides which models lend slots of their arena to the fronts of HTTP and gRPC.

A front reads the tensor of a request from the socket straight into a slot that it has borrowed. The request then takes
that slot and leaves a free one in its place, so nothing is copied. A request that ends before gives its slot back
unchanged.

The fronts borrow of models with one input of a fixed size. All other tensors stay in their message, and are copied into
a slot when their request is admitted. So are those for which no borrowed slot is free."""

from headrace.host.live.tasks.slots import SlotTasks
from headrace.host.memory.slots import MIN_BYTES, SlotArena, SlotLayout
from headrace.host.server.group import ServedModel
from headrace.host.server.service import Service


def lender(service: Service, name: str, model: ServedModel) -> tuple[SlotArena, SlotLayout] | None:
    """Return the arena that lends slots of a model, and their layout. Return None if there is no such arena."""
    group = next(each for each in service.groups if each.models.get(name) is model)
    if not isinstance(group.tasks, SlotTasks):
        return None
    arena = group.tasks.arena
    layout = arena.layouts[name]
    if len(layout.inputs) > 1 or layout.inputs[0].variable is not None or layout.inputs[0].nbytes < MIN_BYTES:
        return None
    return arena, layout
