"""The live page at `/`: one HTML file that reads `/status` every second and sends dropped images to `/photo/MODEL`.

Its Content-Security-Policy allows only the script and the style in the file, and requests to its own server."""

import asyncio
import base64
import hashlib
import re
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import cv2
import numpy as np
from numpy.typing import NDArray

from headrace.batching import BadInput
from headrace.host.dpu.preprocessor import AnySpec, Preprocessed
from headrace.host.dpu.processors import Images, ProcessorSpec
from headrace.host.dpu.reference.image import pixels
from headrace.host.dpu.specs import ImageSpec
from headrace.host.server.observe.watch import RequestTrace
from headrace.host.server.protocol.messages import DATATYPE_OF, InferRequest, RequestedOutput, bytes_tensor
from headrace.host.server.rows import IMAGE
from headrace.host.server.service import Service
from headrace.host.server.transport.http.connection import Response

TOP = 5  # labels that the page shows for an image


def _response() -> Response:
    html = Path(__file__).with_name("page.html").read_bytes()

    def allowed(tag: bytes) -> str:
        (content,) = re.findall(rb"<%b>(.*?)</%b>" % (tag, tag), html, re.DOTALL)
        return f"'sha256-{base64.b64encode(hashlib.sha256(content).digest()).decode()}'"

    policy = (
        f"default-src 'none'; script-src {allowed(b'script')}; style-src {allowed(b'style')}; connect-src 'self'; "
        "img-src blob: data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    headers = {
        "content-type": "text/html; charset=utf-8",
        "content-security-policy": policy,
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cache-control": "no-cache",
    }
    return Response(200, [html], headers)


RESPONSE = _response()


def status(service: Service, query: str) -> dict[str, Any]:
    """Return the JSON of `/status`.

    `query` may name a `model`, and give in `since` the number of the last second that the page has. Raises BadInput,
    UnknownModel."""
    fields = parse_qs(query)
    since = fields.get("since", ["-1"])[0]
    if not re.fullmatch(r"-1|[0-9]{1,12}", since):
        raise BadInput("since must be the number of a second, or -1")
    model = service.model(fields["model"][0]).name if "model" in fields else None
    return {
        "version": version("headrace"),
        "ready": service.ready,
        "draining": service.draining,
        "models": [
            {
                "name": each.name,
                "takes_photos": each.rows.encoded == IMAGE,
                "policy": each.settings.policy,
                "sla_ms": each.settings.slo_s * 1e3,
            }
            for each in service.models.values()
        ],
        **service.dashboard.status(model, int(since)),
    }


async def image(service: Service, trace: RequestTrace, raw: bytes) -> dict[str, Any]:
    """Run an inference on an image file for the page.

    Returns the tensor as a picture, the largest elements of the first output, and the times in milliseconds. Raises the
    errors of `Service.infer`."""
    with service.counted(trace):
        model = service.model(trace.model)
        if model.preprocessor is None or model.rows.encoded != IMAGE:
            raise BadInput(f"model {model.name!r} takes no images")
        request = InferRequest(
            model.name, {IMAGE: bytes_tensor(IMAGE, (1,), [raw])}, [RequestedOutput(model.outputs[0].name)]
        )
        (output,) = await service.infer(request, trace)
    assert output.array is not None
    (row,) = trace.rows
    assert row.preprocessed is not None and row.inference is not None
    made, served, execution = row.preprocessed, row.inference.served, row.inference.execution
    times = {
        "preprocess_wait": made.started - trace.arrived,
        "preprocess": made.finished - made.started,
        "queue": row.origin + served.started - made.finished,
        "execute": served.finished - served.started,
    }
    return {
        "tensor": await asyncio.to_thread(_tensor, made, model.preprocessor.spec),
        "top": await asyncio.to_thread(_top, output.array.ravel(), model.categories or ()),
        "times_ms": {name: round(took_s * 1e3, 3) for name, took_s in times.items()},
        "random_weights": model.random_weights,
        "batch": {
            "size": execution.task.batch_size,
            "reason": execution.task.reason,
            "worker": row.worker,
        },
    }


def _top(values: NDArray[Any], labels: Sequence[str]) -> list[dict[str, Any]]:
    """Return the largest elements of an output with their labels, largest first. An output may be large, so it is not
    sorted."""
    finite = np.flatnonzero(np.isfinite(values))
    candidates = values[finite]
    if len(candidates) > TOP:
        finite = finite[np.argpartition(candidates, -TOP)[-TOP:]]
    best = sorted(finite.tolist(), key=lambda index: (-float(values[index]), index))
    return [
        {"label": labels[index] if index < len(labels) else str(index), "value": float(values[index])} for index in best
    ]


def _tensor(made: Preprocessed, spec: AnySpec) -> dict[str, Any]:
    """Return the description of a preprocessed tensor, with its pixels as a PNG. A tensor of patches has no picture."""
    return {
        "datatype": DATATYPE_OF[str(made.tensor.dtype)],
        "shape": list(made.tensor.shape),
        "least": float(made.tensor.min()),
        "most": float(made.tensor.max()),
        "unit": made.unit,
        "dpu_status": made.dpu_status,
        "damage": made.damage,
        "out_of_service": made.out_of_service,
        "cycles": (made.counters or {}).get("cycles"),
        "png": _picture(made.tensor, spec),
    }


def _picture(tensor: NDArray[Any], spec: AnySpec) -> str | None:
    """Return the pixels of the tensor of an image as a PNG in base64. None for a layout that is none of images."""
    if isinstance(spec, ImageSpec):
        tables = spec.tables()
    elif isinstance(spec, ProcessorSpec) and isinstance(spec.layout, Images):
        tables = spec.table()
        tensor = tensor.reshape(-1, *tensor.shape[-3:])[0]
    else:
        return None
    _, png = cv2.imencode(".png", cv2.cvtColor(pixels(tensor, tables), cv2.COLOR_RGB2BGR))
    return base64.b64encode(png.tobytes()).decode()
