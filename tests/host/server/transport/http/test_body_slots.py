"""Test that a connection of HTTP receives a tensor in the slot that its request takes, and gives back what it
borrowed."""

import asyncio
import itertools
from types import SimpleNamespace

import numpy as np
import orjson
import pytest
from http_serving import LOOK_S, serve
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.batching import HeadraceError, Request
from headrace.host.live.tasks.slots import SlotTasks
from headrace.host.memory.layout import TensorSpec
from headrace.host.memory.slots import LENT
from headrace.host.server.protocol.descriptions import MAX_BYTES, Descriptions
from headrace.host.server.protocol.limits import Limits
from headrace.host.server.transport.http.connection import Response
from headrace.host.server.transport.http.endpoints import HttpApi, infer_request

SIZE = 20_000
SPECS = {
    "net": ((TensorSpec("x", "float32", (SIZE,)),), (TensorSpec("y", "float32", (1,)),)),
    "small": ((TensorSpec("x", "float32", (10,)),), (TensorSpec("y", "float32", (1,)),)),
    "long": ((TensorSpec("x", "float32", (-1,), SIZE),), (TensorSpec("y", "float32", (1,)),)),
}
SLOTS = 2
VALUES = np.arange(SIZE, dtype=np.float32)


class Served:
    """Models whose requests take their slot, and end at once. `slot` is that of the last one."""

    def __init__(self, token=""):
        self._token = token
        self._ids = itertools.count()
        self.before = lambda: None  # runs when a request has arrived, before it takes a slot
        self.places = []
        self.load()
        self.api = HttpApi(self, Limits(), None)

    def load(self):
        """Serve the models on a new arena."""
        self.tasks = SlotTasks(SPECS, SLOTS)
        self.models = {name: object() for name in SPECS}
        self.groups = [SimpleNamespace(models=self.models, tasks=self.tasks)]

    def authorized(self, header):
        return not self._token or header == self._token

    async def handle(self, request):
        """Return the values that lie in the slot of a request, whether the front had lent it, or an error's text."""
        name = request.target.split("/")[3]
        said = request.headers.get("inference-header-content-length")
        try:
            asked = infer_request(name, "", request.body, said, Limits(), None, Descriptions(), request.tensor)
            self.before()
            done = Request(next(self._ids), name, 0.0)
            self.tasks.take(done.id, name, {each: tensor[0] for each, tensor in asked.inputs.items()})
        except HeadraceError as error:
            return Response(400, [str(error).encode()])
        (self.slot,) = self.tasks.slots([done])
        found = self.tasks.arena.views[name].inputs[0].at(self.slot, SIZE if name == "long" else 0).tobytes()
        self.tasks.release(done)
        return Response(200, [found], {"lent": str(request.tensor is not None)})

    def free(self):
        """Return how many slots are free for each model, and for connections."""
        pool = self.api._slots._pools.get("net")
        return self.tasks.arena.free("net"), LENT if pool is None else len(pool.free)

    def place(self, head):
        self.places.append(self.api.place(head))
        return self.places[-1]


def run(body, served=None):
    """Run `body(served, connect)`. At the end no connection has a slot."""
    served = served or Served()
    serve(served.handle, lambda _, connect: body(served, connect), place=served.place)
    assert served.free()[1] == LENT
    served.tasks.close()


def asked(values=VALUES, model="net", inputs=None, headers="", path="infer"):
    """Return a request for a model in bytes."""
    if inputs is None:
        size = {"binary_data_size": values.nbytes}
        inputs = [{"name": "x", "datatype": "FP32", "shape": [1, len(values)], "parameters": size}]
    said, raw = orjson.dumps({"inputs": inputs}), values.tobytes()
    head = (
        f"POST /v2/models/{model}/{path} HTTP/1.1\r\nHost: a\r\n{headers}Content-Length: {len(said) + len(raw)}\r\n"
        f"Inference-Header-Content-Length: {len(said)}\r\n\r\n"
    )
    return head.encode() + said + raw


async def answer(reader):
    """Return the status of a response, whether its tensor was in a lent slot, and its content."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    fields = dict(line.split(": ", 1) for line in head[1:-2])
    content = await reader.readexactly(int(fields["content-length"]))
    return int(head[0].split()[1]), fields.get("lent") == "True", content


async def sent(connect, *pieces):
    """Send a request in pieces on its own connection, and return its answer."""
    reader, writer = await connect()
    for piece in pieces:
        writer.write(piece)
        await asyncio.sleep(LOOK_S)
    return await answer(reader)


def test_a_request_takes_the_slot_into_which_its_tensor_was_received():
    async def body(served, connect):
        assert await sent(connect, asked()) == (200, True, VALUES.tobytes())
        assert served.slot >= SLOTS  # one of those that were lent
        assert served.free() == (SLOTS, LENT)

    run(body)


def test_slots_wander_between_requests_and_connections_and_none_is_lost():
    async def body(served, connect):
        reader, writer = await connect()
        for number in range(3 * LENT):
            writer.write(asked(VALUES + number))
            assert await answer(reader) == (200, True, (VALUES + number).tobytes())
        assert served.free() == (SLOTS, LENT)

    run(body)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 600), max_size=4), st.lists(st.integers(0, 2 * len(asked())), max_size=4), st.booleans())
def test_requests_may_arrive_in_any_pieces(early, late, pipelined):
    raw = asked() + (asked(VALUES + 1) if pipelined else b"")
    cuts = [0, *sorted(min(cut, len(raw)) for cut in (*early, *late)), len(raw)]

    async def body(_, connect):
        reader, writer = await connect()
        for start, end in itertools.pairwise(cuts):
            writer.write(raw[start:end])
            await asyncio.sleep(LOOK_S)
        assert await answer(reader) == (200, True, VALUES.tobytes())
        if pipelined:
            assert await answer(reader) == (200, True, (VALUES + 1).tobytes())

    run(body)


def with_size(size, count=1, datatype="FP32", shape=(1, SIZE)):
    entry = {"datatype": datatype, "shape": shape, "parameters": {"binary_data_size": size}}
    return [{"name": f"x{number}" if number else "x", **entry} for number in range(count)]


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        (asked(inputs=with_size(4 * SIZE - 4)), b"80000 bytes"),
        (asked(inputs=with_size(4 * SIZE + 4)), b"has a binary_data_size of 80004, but only 80000 bytes are left"),
        (asked(inputs=with_size(4 * SIZE, count=2)), b"input 'x1' has a binary_data_size of 80000, but only 0"),
        (asked(inputs=with_size(4 * SIZE, datatype="INT32")), b"it takes float32"),
        (asked(inputs=with_size(4 * SIZE, datatype="FP64", shape=(1, SIZE // 2))), b"it takes float32"),
        (asked(inputs=with_size(4 * SIZE, shape=(1, SIZE - 1))), b"80000"),
        (asked(inputs=with_size(2 * SIZE, count=2, shape=(1, SIZE // 2))), b"no input 'x1'"),
        (asked(inputs=[]), b"80000 bytes of the body belong to no input"),
    ],
    ids=["short", "long", "twice", "type", "wide", "shape", "halves", "none"],
)
def test_a_wrong_description_is_refused_and_its_slot_is_free_again(raw, error):
    async def body(served, connect):
        for _ in range(2):
            status, _, text = await sent(connect, raw)
            assert status == 400 and error in text
        assert served.free() == (SLOTS, LENT)
        assert await sent(connect, asked()) == (200, True, VALUES.tobytes())

    run(body)


@pytest.mark.parametrize(
    "raw",
    [
        asked(np.concatenate([VALUES, VALUES]), inputs=with_size(8 * SIZE, shape=(2, SIZE))),
        asked(VALUES[:10], "small"),
        asked(VALUES, "long"),
        asked(
            inputs=[{**with_size(4 * SIZE)[0], "parameters": {"binary_data_size": 4 * SIZE, "more": " " * MAX_BYTES}}]
        ),
    ],
    ids=["rows", "small", "variable", "description"],
)
def test_other_bodies_arrive_in_one_piece(raw):
    async def body(_, connect):
        status, lent, _ = await sent(connect, raw)
        assert (status, lent) == (200, False)

    run(body)


@pytest.mark.parametrize("way", ["token", "coding", "other path", "unknown model"])
def test_requests_that_need_no_slot_get_none(way):
    served = Served(token="Bearer right" if way == "token" else "")
    headers = {"token": "Authorization: Bearer wrong\r\n", "coding": "Content-Encoding: gzip\r\n"}.get(way, "")
    path = "config" if way == "other path" else "infer"
    raw = asked(model="foreign" if way == "unknown model" else "net", headers=headers, path=path)

    async def body(_, connect):
        reader, writer = await connect()
        writer.write(raw)
        while not served.places:
            await asyncio.sleep(LOOK_S)
        del reader

    run(body, served)
    assert served.places == [None]


def test_clients_that_leave_give_their_slots_back_and_meanwhile_bodies_arrive_whole():
    async def body(served, connect):
        clients = [await connect() for _ in range(LENT)]
        for _, writer in clients:
            writer.write(asked()[:-100])
        while served.free()[1]:
            await asyncio.sleep(LOOK_S)
        assert await sent(connect, asked()) == (200, False, VALUES.tobytes())
        for _, writer in clients:
            writer.close()
        while served.free()[1] < LENT:
            await asyncio.sleep(LOOK_S)
        assert await sent(connect, asked()) == (200, True, VALUES.tobytes())

    run(body)


def test_a_request_beyond_the_slots_is_refused_and_its_slot_is_free_again():
    async def body(served, connect):
        for number in range(SLOTS):
            served.tasks.take(1000 + number, "net", {"x": VALUES})
        status, _, text = await sent(connect, asked())
        assert status == 400 and b"hold requests in flight" in text
        assert served.free() == (0, LENT)

    run(body)


@pytest.mark.parametrize("when", ["receiving", "received"])
def test_a_tensor_survives_the_end_of_its_arena(when):
    """The model is loaded anew while its tensor arrives. The request is served on the new arena."""

    def reload(served):
        served.tasks.close()
        served.load()

    async def body(served, connect):
        raw = asked()
        if when == "received":
            served.before = lambda: reload(served) if served.tasks.arena is old else None
        old = served.tasks.arena
        reader, writer = await connect()
        writer.write(raw[:-100])
        while served.free()[1] == LENT:
            await asyncio.sleep(LOOK_S)
        if when == "receiving":
            reload(served)
        writer.write(raw[-100:])
        assert await answer(reader) == (200, True, VALUES.tobytes())
        assert served.tasks.arena is not old
        writer.write(raw)
        assert await answer(reader) == (200, True, VALUES.tobytes())
        assert served.free() == (SLOTS, LENT)

    run(body)


def test_a_filled_slot_is_taken_once():
    served = Served()
    said = "100"
    slot = served.api._slots.find("net", said, 100 + 4 * SIZE)
    assert slot is not None and len(slot) == 4 * SIZE
    assert slot.exchange(served.tasks.arena, "small", 0) is None
    taken = slot.exchange(served.tasks.arena, "net", 0)
    assert taken is not None and taken >= SLOTS
    assert slot.exchange(served.tasks.arena, "net", 1) is None
    slot.release()
    assert len(served.api._slots._pools["net"].free) == LENT
    for wrong in ("", "-1", "1e2", "99", "101", "100000000000000000000"):
        assert served.api._slots.find("net", wrong, 100 + 4 * SIZE) is None
    assert served.api._slots.find("net", str(MAX_BYTES), MAX_BYTES + 4 * SIZE) is not None
    assert served.api._slots.find("net", str(MAX_BYTES + 1), MAX_BYTES + 1 + 4 * SIZE) is None
    served.tasks.close()
