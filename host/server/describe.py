"""What the server tells of itself and its models, as the protocol's messages in JSON: HTTP sends them as they are."""

from importlib.metadata import version
from typing import Any

from headrace.host.memory.layout import TensorSpec
from headrace.host.server.group import ServedModel
from headrace.host.server.protocol.messages import BYTES, DATATYPE_OF, EXTENSIONS, SERVER, VERSION
from headrace.host.server.service import Service

_CONFIG_TYPE = {BYTES: "TYPE_STRING"}  # else TYPE_ and the datatype


def server_metadata(shared_memory: bool) -> dict[str, Any]:
    extensions = [*EXTENSIONS, "system_shared_memory"] if shared_memory else list(EXTENSIONS)
    return {"name": SERVER, "version": version("headrace"), "extensions": extensions}


def model_metadata(model: ServedModel) -> dict[str, Any]:
    """Inputs with the batch as first dimension. A model of photos or sounds takes either
    those, as IMAGE or AUDIO, or its own inputs."""
    inputs = [_tensor(spec) for spec in model.rows.inputs]
    if model.rows.encoded is not None:
        inputs.append({"name": model.rows.encoded, "datatype": BYTES, "shape": [-1, 1]})
    return {
        "name": model.name,
        "versions": [VERSION],
        "platform": SERVER,
        "inputs": inputs,
        "outputs": [_tensor(spec) for spec in model.outputs],
    }


def model_config(model: ServedModel) -> dict[str, Any]:
    """Triton's; shapes without the batch. `max_batch_size` is how many rows a request may have. A model is decoupled
    whose stream sends each token as it comes.

    A model of photos or sounds takes either of its inputs: all are optional."""

    def described(tensor: dict[str, Any], is_input: bool) -> dict[str, Any]:
        datatype = tensor["datatype"]
        kind = _CONFIG_TYPE.get(datatype, f"TYPE_{datatype}")
        found = {"name": tensor["name"], "data_type": kind, "dims": tensor["shape"][1:]}
        return {**found, "optional": True} if is_input and model.rows.encoded is not None else found

    metadata = model_metadata(model)
    return {
        "name": model.name,
        "platform": SERVER,
        "backend": SERVER,
        "max_batch_size": model.settings.max_queue,
        "input": [described(tensor, is_input=True) for tensor in metadata["inputs"]],
        "output": [described(tensor, is_input=False) for tensor in metadata["outputs"]],
        "dynamic_batching": {},
        "model_transaction_policy": {"decoupled": model.streams},
        "parameters": {"policy": {"string_value": model.settings.policy}},
    }


def model_statistics(service: Service, models: list[ServedModel]) -> dict[str, Any]:
    """`compute_input` is preprocessing; `queue` and `compute_infer` are sums over rows. Work on outputs is part of
    `compute_infer`; `compute_output` stands here because perf_analyzer breaks off where it is not counted alike."""
    found = []
    for model in models:
        sums = service.metrics.sums[model.name]

        def duration(count: int, ns: int) -> dict[str, int]:
            return {"count": count, "ns": ns}

        found.append(
            {
                "name": model.name,
                "version": VERSION,
                "last_inference": sums.last_inference_ms,
                "inference_count": sums.inferences,
                "execution_count": sums.executions,
                "inference_stats": {
                    "success": duration(sums.success, sums.success_ns),
                    "fail": duration(sums.fail, sums.fail_ns),
                    "queue": duration(sums.inferences, sums.queue_ns),
                    "compute_input": duration(sums.inferences, sums.preprocess_ns),
                    "compute_infer": duration(sums.inferences, sums.execute_ns),
                    "compute_output": duration(sums.inferences, 0),
                },
                "batch_stats": [
                    {"batch_size": size, "compute_infer": duration(count, ns)}
                    for size, (count, ns) in sorted(sums.by_batch.items())
                ],
            }
        )
    return {"model_stats": found}


def repository_index(service: Service, only_ready: bool) -> list[dict[str, Any]]:
    """Of the models that are served, and those that could be loaded."""
    found = []
    for name, model in service.models.items():
        if service.draining or not model.ready:
            found.append({"name": name, "version": VERSION, "state": "UNAVAILABLE", "reason": "not ready"})
        else:
            found.append({"name": name, "version": VERSION, "state": "READY", "reason": ""})
    for name in service.repository.names() if service.repository is not None else ():
        if name not in service.models:
            found.append({"name": name, "version": "", "state": "UNAVAILABLE", "reason": "unloaded"})
    return [each for each in found if each["state"] == "READY" or not only_ready]


def _tensor(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "datatype": DATATYPE_OF[spec.dtype], "shape": [-1, *spec.shape]}
