"""A server of HTTP in virtual time, for tests of its connections."""

import asyncio

import virtual_time

from headrace.host.server.protocol.limits import Limits
from headrace.host.server.transport.http.connection import HttpServer
from headrace.host.server.transport.http.endpoints import refusal

LOOK_S = 1 / 64  # between two looks of a test at the server


def serve(handler, body, limits=None, **options):
    """Run `body(server, connect)` from 0 s on. `connect` returns the reader and writer of a connection.

    At the end it checks that no connection and no byte of a body is left."""

    async def run():
        server = HttpServer(handler, refusal, limits or Limits(), **options)
        address = await server.start("127.0.0.1", 0)
        writers = []

        async def connect():
            reader, writer = await asyncio.open_connection(*address)
            writers.append(writer)
            return reader, writer

        await body(server, connect)
        for writer in writers:
            writer.close()
        await gone(server)
        assert server.bodies == 0
        await server.stop(1)

    virtual_time.run(run())


async def gone(server):
    """Return the instant from which no connection is left, with an error of at most LOOK_S."""
    while server.connections:
        await asyncio.sleep(LOOK_S)
    return asyncio.get_running_loop().time()
