"""The server whose fronts answer each request as they answered the first one like it."""

import asyncio

import numpy as np

from benchmarks.front_server import LIKE_BYTES, Repeated, copied_response, grpc_key, http_key
from headrace.host.server.transport.grpc.wire import Placed
from headrace.host.server.transport.http.connection import Request, Response

INFER = "/v2/models/echo/infer"


def test_requests_that_are_alike_have_one_answer_and_all_others_their_own():
    asked = []

    async def handler(request):
        asked.append(request.target)
        return Response(200, [np.full(3, len(asked), np.uint8).data])

    async def answers(*requests):
        repeated = Repeated(handler, http_key, copied_response)
        return [(await repeated(request)).parts[0] for request in requests]

    def request(target, body=b""):
        return Request("POST", target, {}, memoryview(body))

    like = b"a" * LIKE_BYTES
    found = asyncio.run(
        answers(
            request(INFER, like + b"b"),
            request(INFER, like + b"c"),
            request(INFER, b"d"),
            request("/v2"),
            request("/v2"),
        )
    )
    assert found == [b"\1" * 3, b"\1" * 3, b"\2" * 3, b"\3" * 3, b"\4" * 3]
    assert isinstance(found[0], bytes)  # and no view of a slot that another request may take


def test_messages_of_grpc_are_alike_if_their_fields_are():
    assert grpc_key(memoryview(b"a" * LIKE_BYTES + b"b"), None) == grpc_key(Placed(b"a" * LIKE_BYTES, None), None)
    assert grpc_key(memoryview(b"a"), None) != grpc_key(memoryview(b"b"), None)
