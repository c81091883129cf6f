"""The request path through a model: admission, rows, their runs, and the outputs of the answer.

A request of n rows becomes n requests of the model's runtime and one answer. Admission counts rows, separately for each
model. A request that would exceed `max_queue` is refused at once, as a whole.

The deadline of a request is its arrival plus its `timeout`. Without a timeout it is the arrival plus the model's SLO,
times the `priority` if that is above 1. Priority 1 is the most urgent, and a request without a priority has it.

Example: with an SLO of 100 ms, a request of priority 3 has a deadline 300 ms after its arrival.

Every request takes this path, so mypyc compiles the module."""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Coroutine, Sequence
from typing import Any

from headrace.batching import BadInput, CorruptInput, HeadraceError
from headrace.host.dpu.reference import image_file
from headrace.host.live.results import Inference, Overloaded, TooLate
from headrace.host.server.group import ServedModel
from headrace.host.server.observe.watch import RequestTrace, RowTrace, Watcher
from headrace.host.server.outputs import Outputs, placed
from headrace.host.server.outputs import Row as OutputsOfRow
from headrace.host.server.protocol.limits import Limits
from headrace.host.server.protocol.messages import OK, Draining, InferRequest, Output, RequestedOutput, outcome
from headrace.host.server.rows import AUDIO, IMAGE, Row, outputs_by_name

LATE_S = 1.0  # a request is answered so long after its own timeout, even if a worker hangs
INLINE_BYTES = 1 << 20  # bytes of outputs that are joined in the event loop; more are joined in a thread


class Inferences:
    """The runs of requests. `draining` refuses new ones.

    `limits` are those on the work of a request."""

    def __init__(self, limits: Limits) -> None:
        self.draining = False
        self.limits = limits

    async def run(self, model: ServedModel, request: InferRequest, trace: RequestTrace) -> list[Output]:
        """Return the outputs of a request. Raises the errors that `messages.outcome` knows.

        If the caller is cancelled, rows that have not begun are withdrawn."""
        trace.id = request.id
        requested = self.requested(model, request)
        rows = self.rows(model, request)
        pads = model.rows.encoded == AUDIO
        outputs = Outputs(model.specs, requested, len(rows), pads=pads, categories=model.categories)
        self.admit(model, len(rows))
        try:
            done = await self.all(model, rows, request, trace, outputs)
        finally:
            model.in_flight -= len(rows)
        found = [outputs_by_name(model.outputs, inference.outputs) for inference in done]
        if self._answer_bytes(requested, found) <= INLINE_BYTES:
            answer = outputs.joined(found)
        else:
            answer = await asyncio.to_thread(outputs.joined, found)
        return [placed(output) for output in answer]

    def requested(self, model: ServedModel, request: InferRequest) -> Sequence[RequestedOutput]:
        """Return the outputs that the request asks for, all if it names none. Raises BadInput."""
        if not request.outputs:
            return [RequestedOutput(spec.name, binary=request.binary) for spec in model.outputs]
        names = model.specs
        if unknown := [output.name for output in request.outputs if output.name not in names]:
            raise BadInput(f"model {model.name!r} has no output {unknown[0]!r}; ask for {', '.join(sorted(names))}")
        several = len(request.outputs) > 1
        if several and len({output.name for output in request.outputs}) < len(request.outputs):  # each is another copy
            name, count = Counter(output.name for output in request.outputs).most_common(1)[0]
            raise BadInput(f"the request asks for output {name!r} {count} times; ask for it once")
        return request.outputs

    def rows(self, model: ServedModel, request: InferRequest) -> list[Row]:
        """Return the rows of a request. The number of rows is checked first, because few bytes can claim any number.

        Raises BadInput and CorruptInput."""
        rows = model.rows.count(request.inputs)
        max_rows = model.settings.max_queue
        if rows > max_rows:
            raise BadInput(f"the request has {rows} rows; send model {model.name!r} at most {max_rows} at a time")
        converted = model.rows.of(request)
        if model.rows.encoded == IMAGE:
            pixels = sum([_pixels(row.value) for row in converted if isinstance(row.value, bytes)])
            if pixels > self.limits.megapixels * 10**6:
                raise BadInput(
                    f"the {len(converted)} images of the request have {pixels / 1e6:.0f} megapixels together; "
                    f"send at most {self.limits.megapixels}"
                )
        return converted

    def _answer_bytes(self, requested: Sequence[RequestedOutput], rows: Sequence[OutputsOfRow]) -> int:
        """Return the bytes of all outputs in the answer. Raises BadInput if there are too many."""
        size = sum(outputs[output.name].nbytes for outputs in rows for output in requested)
        if size > self.limits.answer:
            raise BadInput(
                f"the outputs have {size} bytes, over this server's limit of {self.limits.answer} for an answer; send "
                "fewer rows at a time, or ask for fewer outputs"
            )
        return size

    def admit(self, model: ServedModel, rows: int) -> None:
        """Count rows as in flight. The caller takes them off again. Raises Overloaded and Draining."""
        max_queue = model.settings.max_queue
        if self.draining:
            raise Draining("this server is shutting down; send the request to another server")
        if model.in_flight + rows > max_queue:
            raise Overloaded(
                f"{model.in_flight} rows of model {model.name!r} are in flight, and its limit is {max_queue}; "
                "send fewer at a time"
            )
        model.in_flight += rows

    def _deadline(self, model: ServedModel, request: InferRequest, arrived: float) -> float:
        """Return the deadline of a request in seconds of the runtime's clock."""
        allowed_s = request.timeout_us / 1e6 or model.settings.slo_s * max(1, request.priority)
        return arrived - model.runtime.origin + allowed_s

    def all(
        self,
        model: ServedModel,
        rows: Sequence[Row],
        request: InferRequest,
        trace: RequestTrace,
        outputs: Outputs | None,
    ) -> Coroutine[Any, Any, list[Inference]]:
        """Return a run of all rows. `outputs` reads their outputs; None copies them. The run raises TooLate."""
        deadline = self._deadline(model, request, trace.arrived)
        if not request.timeout_us:
            return self._all_rows(model, rows, trace, deadline, outputs)
        return self._in_time(model, rows, request, trace, deadline, outputs)

    async def _in_time(
        self,
        model: ServedModel,
        rows: Sequence[Row],
        request: InferRequest,
        trace: RequestTrace,
        deadline: float,
        outputs: Outputs | None,
    ) -> list[Inference]:
        """Run all rows until the timeout of their request. Raises TooLate."""
        left_s = request.timeout_us / 1e6 + LATE_S - (time.monotonic() - trace.arrived)
        try:
            async with asyncio.timeout(left_s):
                return await self._all_rows(model, rows, trace, deadline, outputs)
        except TimeoutError:
            raise TooLate(
                f"the request was not answered within its timeout of {request.timeout_us / 1e3:g} ms plus {LATE_S:g} "
                "s; give it more time, or check whether a worker hangs"
            ) from None

    async def _all_rows(
        self,
        model: ServedModel,
        rows: Sequence[Row],
        trace: RequestTrace,
        deadline: float,
        outputs: Outputs | None,
    ) -> list[Inference]:
        origin = model.runtime.origin
        if len(rows) == 1:
            row_trace = RowTrace(None, None, origin)
            trace.rows = [row_trace]
            return [await self._row(model, rows[0], 0, row_trace, trace.arrived, deadline, outputs)]
        trace.rows = [RowTrace(None, None, origin) for _ in rows]
        running = [
            asyncio.ensure_future(self._row(model, row, number, row_trace, trace.arrived, deadline, outputs))
            for number, (row, row_trace) in enumerate(zip(rows, trace.rows, strict=True))
        ]
        try:
            return await asyncio.gather(*running)
        finally:  # after the first error the other rows are useless
            for task in running:
                task.cancel()

    async def _row(
        self,
        model: ServedModel,
        row: Row,
        number: int,
        row_trace: RowTrace,
        arrived: float,
        deadline: float,
        outputs: Outputs | None,
    ) -> Inference:
        value, options = row
        if isinstance(value, bytes):
            assert model.preprocessor is not None
            model.preprocessing += 1
            try:
                row_trace.preprocessed = await model.preprocessor.process(value)
            finally:
                model.preprocessing -= 1
            value = model.rows.preprocessed(row_trace.preprocessed)
        read = None
        if outputs is not None:
            read = outputs.reader(number)
            if model.in_files and (places := outputs.places(number)):
                options = {**options, "outputs": places}
        row_trace.inference = await model.runtime.answer(
            model.name, value, arrived - model.runtime.origin, deadline, read, options
        )
        row_trace.worker = model.workers[row_trace.inference.execution.worker]
        return row_trace.inference


class Counted:
    """Report a request to the watcher when its context ends, with its outcome."""

    __slots__ = ("_trace", "_watcher")

    def __init__(self, trace: RequestTrace, watcher: Watcher) -> None:
        self._trace = trace
        self._watcher = watcher

    def __enter__(self) -> RequestTrace:
        return self._trace

    def __exit__(self, _: object, error: BaseException | None, traceback: object) -> None:
        trace = self._trace
        if error is None:
            trace.outcome = OK
        elif isinstance(error, Exception):
            trace.outcome = outcome(error)
            trace.error = str(error) if isinstance(error, HeadraceError) else repr(error)
        trace.answered = time.monotonic()
        trace.cut()
        self._watcher.answered(trace)


def _pixels(file: bytes) -> int:
    """Return the number of pixels in the file's header, or 0 without a header. Decoding reports such a file."""
    try:
        return math.prod(image_file.size(file))
    except CorruptInput:
        return 0
