"""Test that the native front receives a tensor in the slot that its request takes, and gives back what it borrowed."""

import contextlib
import socket
import struct
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import grpc
import numpy as np
import pytest
from grpc_fronts import front_alone, next_events, no_native
from http2_frames import PREFACE, RPC, frame, head, message
from running import serving, until
from tritonclient.grpc import service_pb2 as pb

from headrace.batching import BadInput, Request
from headrace.host.live.results import Overloaded
from headrace.host.live.tasks.slots import SlotTasks
from headrace.host.memory.layout import TensorSpec
from headrace.host.memory.slots import LENT
from headrace.host.server.protocol.descriptions import Descriptions
from headrace.host.server.protocol.limits import Limits
from headrace.host.server.transport.grpc.lent_slots import LentSlots
from headrace.host.server.transport.grpc.tensor_calls import infer_request, received
from headrace.host.server.transport.grpc.wire import Placed

pytestmark = no_native

CALL = 0  # a kind of event
SIZE = 20_000
SPECS = {"net": ((TensorSpec("x", "float32", (SIZE,)),), (TensorSpec("y", "float32", (1,)),))}
SLOTS = 2
VALUES = np.arange(SIZE, dtype=np.float32)


class Served:
    """A model's arena, of which a front has borrowed slots, and the connections of clients."""

    def __init__(self, front, address, stack):
        self.front = front
        self._address = address
        self._stack = stack
        self.load()
        self.lent = LentSlots(front, self)
        self.lent.borrow()

    def load(self):
        """Serve the model on a new arena."""
        self.tasks = SlotTasks(SPECS, SLOTS)
        self._stack.callback(self.tasks.close)
        self.models = {"net": object()}
        self.groups = [SimpleNamespace(models=self.models, tasks=self.tasks)]

    def client(self):
        """Return a connection on which a call has begun."""
        connection = self._stack.enter_context(socket.create_connection(self._address, timeout=30))
        connection.sendall(PREFACE + frame(4, 0, 0) + frame(4, 1, 0) + head())
        return connection

    def call(self, raw, flag=0):
        """Send one message, and return the message and the place of its event."""
        self.client().sendall(frames(message(raw, flag)))
        found = []
        while not found:  # others tell that clients were refused, or have gone
            found = [event for event in next_events(self.front) if event[0] == CALL]
        ((_, _, _, got, place, _),) = found
        return got, place

    def request(self, got, place):
        """Return the inputs of the request in a placed message."""
        read = received(Placed(memoryview(got), self.lent.filled(place)), Limits(), Descriptions())
        return infer_request(read.description(), read.contents, None).inputs


@pytest.fixture
def served():
    with contextlib.ExitStack() as stack:
        front, address = stack.enter_context(front_alone(client_s=1.0))
        yield Served(front, address, stack)


def frames(raw, end=True):
    """Return frames of DATA with these bytes, the last of which may end the stream."""
    pieces = [raw[at : at + 16_000] for at in range(0, len(raw), 16_000)]
    return b"".join(frame(0, end and at == len(pieces) - 1, 1, piece) for at, piece in enumerate(pieces))


def asked(values=VALUES, model="net", name="x", datatype="FP32", shape=(1, SIZE)):
    tensor = pb.ModelInferRequest.InferInputTensor(name=name, datatype=datatype, shape=shape)
    return pb.ModelInferRequest(model_name=model, inputs=[tensor], raw_input_contents=[values.tobytes()])


def test_a_request_takes_the_slot_into_which_its_tensor_was_received(served):
    got, place = served.call(asked().SerializeToString())
    without = asked()
    del without.raw_input_contents[:]
    assert bytes(got) == without.SerializeToString()
    tensor = served.request(got, place)["x"][0]
    served.tasks.take(7, "net", {"x": tensor})
    (slot,) = served.tasks.slots([Request(7, "net", 0.0)])
    assert slot >= SLOTS  # one of those that were lent
    np.testing.assert_array_equal(served.tasks.arena.views["net"].inputs[0].at(slot), VALUES)
    assert served.tasks.arena_use() == {"net": (1, SLOTS)}


def test_slots_wander_between_requests_and_the_front_and_none_is_lost(served):
    """The front always has LENT of them, and requests have all others."""
    for number in range(3 * LENT):
        got, place = served.call(asked(VALUES + number).SerializeToString())
        served.tasks.take(number, "net", {"x": served.request(got, place)["x"][0]})
        request = Request(number, "net", 0.0)
        found = served.tasks.arena.views["net"].inputs[0].at(*served.tasks.slots([request]))
        assert found[0] == number
        served.tasks.release(request)
        del got, place
    held = [served.call(asked().SerializeToString()) for _ in range(LENT)]
    assert all(place is not None for _, place in held)
    assert served.tasks.arena_use() == {"net": (0, SLOTS)}


def test_a_request_beyond_the_slots_is_refused_and_its_place_is_the_fronts(served):
    for number in range(SLOTS):
        served.tasks.take(number, "net", {"x": VALUES})
    got, place = served.call(asked().SerializeToString())
    with pytest.raises(Overloaded):
        served.tasks.take(9, "net", {"x": served.request(got, place)["x"][0]})
    np.testing.assert_array_equal(np.frombuffer(place, np.float32), VALUES)  # it was not exchanged


def raw_first():
    """Return a message that has its tensor first, which protobuf allows."""
    whole = asked().SerializeToString()
    begin = whole.index(b"\x3a" + varint(4 * SIZE) + VALUES[:2].tobytes())
    return whole[begin:] + whole[:begin]


def varint(number):
    found = b""
    while number > 127:
        found += bytes([number & 127 | 128])
        number >>= 7
    return found + bytes([number])


def two_tensors():
    twice = asked()
    twice.raw_input_contents.append(b"x")
    return twice.SerializeToString()


OTHERS = {
    "the tensor comes first": raw_first,
    "two tensors": two_tensors,
    "a field after the tensor": lambda: asked(VALUES.view(np.uint8)[:-5]).SerializeToString() + b"\x1a\x03abc",
    "another model": lambda: asked(model="other").SerializeToString(),
    "another size": lambda: asked(VALUES[:-1]).SerializeToString(),
    "a long name": lambda: asked(name="x" * 5000).SerializeToString(),
    "an unknown field": lambda: b"\x78\0" + asked().SerializeToString(),
    "no model": lambda: asked(model="").SerializeToString(),
    "a length without an end": lambda: b"\x0a" + b"\xff" * 5000 + bytes(1 << 16),
    "nothing but a key": lambda: b"\x3a" * (1 << 16),
}


@pytest.mark.parametrize("raw", [make() for make in OTHERS.values()], ids=OTHERS)
def test_all_other_messages_arrive_whole(served, raw):
    got, place = served.call(raw)
    assert place is None and bytes(got) == raw


def test_compressed_messages_arrive_whole(served):
    """The flag alone says that a message is compressed. Its bytes may look like a request."""
    raw = asked().SerializeToString()
    got, place = served.call(raw, flag=1)
    assert place is None and bytes(got) == raw


def test_messages_beyond_the_lent_slots_arrive_whole(served):
    raw = asked().SerializeToString()
    held = [served.call(raw) for _ in range(LENT + 2)]
    assert [place is None for _, place in held] == [False] * LENT + [True] * 2
    assert bytes(held[-1][0]) == raw


WAYS = {
    "leaves": lambda client: client.close(),
    "resets": lambda client: client.sendall(frame(3, 0, 1, struct.pack(">I", 8))),
    "ends too early": lambda client: client.sendall(frame(0, 1, 1)),
    "stalls": lambda client: None,
    "breaks the protocol": lambda client: client.sendall(frame(8, 0, 0, bytes(4))),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_client_that_stops_within_its_tensor_gives_the_slot_back(served, way):
    """So many clients stop that the front would have no slot left."""
    most = message(asked().SerializeToString())[:-100]
    clients = [served.client() for _ in range(LENT)]
    for client in clients:
        client.sendall(frames(most, end=False))
    until(lambda: served.front.held == LENT * (len(most) - 5))
    for client in clients:
        way(client)
    until(lambda: served.front.held == 0)
    held = [served.call(asked().SerializeToString()) for _ in range(LENT)]
    assert all(place is not None for _, place in held)


def test_a_message_for_an_arena_that_has_gone_is_copied_into_the_new_one(served):
    """The model is loaded again while the tensor is on its way."""
    client = served.client()
    whole = message(asked().SerializeToString())
    client.sendall(frames(whole[:-100], end=False))
    until(lambda: served.front.held >= len(whole) - 200)
    former = served.tasks
    served.load()
    served.lent.borrow()
    former.close()
    client.sendall(frame(0, 1, 1, whole[-100:]))
    ((_, _, _, got, place, _),) = next_events(served.front)
    served.tasks.take(7, "net", {"x": served.request(got, place)["x"][0]})
    (slot,) = served.tasks.slots([Request(7, "net", 0.0)])
    assert slot < SLOTS
    np.testing.assert_array_equal(served.tasks.arena.views["net"].inputs[0].at(slot), VALUES)
    got, place = served.call(asked().SerializeToString())
    assert served.request(got, place)["x"][0].exchange(served.tasks.arena, "net", 0) is not None


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"shape": (2, SIZE // 2)}, "takes float32"),
        ({"shape": (1, SIZE - 1)}, "needs"),
        ({"datatype": "INT32"}, "takes float32"),
        ({"datatype": "BYTES"}, "bytes"),
        ({"name": "y"}, "no input"),
    ],
)
def test_a_placed_tensor_is_checked_like_any_other(served, given, says):
    got, place = served.call(asked(**given).SerializeToString())
    with pytest.raises(BadInput, match=says):
        served.tasks.take(7, "net", {name: tensor[0] for name, tensor in served.request(got, place).items()})
    assert served.tasks.arena_use() == {"net": (0, SLOTS)}


def test_requests_keep_their_tensors_while_workers_die_and_clients_leave():
    """One request of twenty kills its worker, and every seventh client leaves. The front loses no slot."""
    with serving("--grpc-front", "native", models=("wide",)) as server:
        with grpc.insecure_channel(server.url("grpc")) as channel:
            call = channel.unary_unary(f"{RPC}/ModelInfer")

            def send(number):
                values = VALUES + 1 / 8
                values[0] = 13 if number % 20 == 9 else number / 8
                answer = call.future(asked(values, "wide").SerializeToString(), timeout=60)
                if number % 7 == 6:
                    answer.cancel()  # false if it was answered before
                    return True
                if number % 20 == 9:
                    return isinstance(answer.exception(), grpc.RpcError)
                got = pb.ModelInferResponse.FromString(answer.result()).raw_output_contents[0]
                return np.array_equal(np.frombuffer(got, np.float32), 2 * values)

            with ThreadPoolExecutor(8) as threads:
                assert all(threads.map(send, range(70)))
        until(lambda: 'headrace_arena_used{arena="wide"} 0.0' in server.metrics())
        assert 'headrace_arena_size{arena="wide"} 256.0' in server.metrics()
        status, said = server.end()
        assert status == 0 and "Traceback" not in said, said
