"""Requests with tensors in POSIX shared memory instead of in messages: the system shared memory extension of Triton.

Each message has its own region, with its inputs and room for its outputs. Regions stay registered with the server as
long as they are in use. A message that is in flight twice at a time shares the room for outputs, which a load generator
does not read."""

import contextlib
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from multiprocessing.shared_memory import SharedMemory

from headrace.batching import UsageError
from headrace.host.bench.client import RequestOptions, Target
from headrace.host.bench.inputs import BYTES, ModelMetadata, Place, Tensor, dtype_of, raw, row_shape


@contextlib.contextmanager
def in_shared_memory(
    target: Target, model: ModelMetadata, requests: Sequence[Sequence[Tensor]], options: RequestOptions
) -> Iterator[list[bytes]]:
    """Provide the messages of `requests` and register their regions for the duration of the context.

    Raises UsageError, and Unreachable if the server lacks the extension."""
    if options.classes:
        raise UsageError("the size of labels is not known in advance; leave out --classes or --shared-memory")
    sizes = {}
    for output in model.outputs:
        if output.datatype == BYTES or any(size < 0 for size in output.shape[1:]):
            raise UsageError(f"the size of output {output.name!r} is not known in advance; leave out --shared-memory")
        sizes[output.name] = math.prod(row_shape(output, 1)) * dtype_of(output).itemsize
    with contextlib.ExitStack() as stack:
        messages = []
        for number, tensors in enumerate(requests):
            name = f"headrace-bench-{os.getpid()}-{number}"
            placed, outputs, at = list[Tensor](), dict[str, Place](), 0
            contents = [raw(tensor) for tensor in tensors]
            for tensor, content in zip(tensors, contents, strict=True):
                placed.append(replace(tensor, place=Place(name, at, len(content))))
                at += len(content)
            for output_name, size in sizes.items():
                outputs[output_name] = Place(name, at, size)
                at += size
            region = SharedMemory(name, create=True, size=at)
            stack.callback(region.unlink)
            stack.callback(region.close)
            joined = b"".join(contents)
            assert region.buf is not None
            region.buf[: len(joined)] = joined
            target.register(name, f"/{name}", at)
            stack.callback(target.unregister, name)
            messages.append(target.message(model, placed, replace(options, outputs=outputs)))
        yield messages
