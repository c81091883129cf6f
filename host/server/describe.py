"""Descriptions of the server and its models as JSON messages of the protocol. HTTP sends them unchanged."""

from importlib.metadata import version
from typing import Any

from headrace.host.memory.layout import VARIABLE, TensorSpec
from headrace.host.server.group import ServedModel
from headrace.host.server.protocol.messages import BYTES, DATATYPE_OF, EXTENSIONS, SERVER, VERSION
from headrace.host.server.service import Service

_CONFIG_TYPE = {BYTES: "TYPE_STRING"}  # any other type is TYPE_ and the datatype


def server_metadata(shared_memory: bool) -> dict[str, Any]:
    """Return the metadata of the server."""
    extensions = [*EXTENSIONS, "system_shared_memory"] if shared_memory else list(EXTENSIONS)
    return {"name": SERVER, "version": version("headrace"), "extensions": extensions}


def model_metadata(model: ServedModel) -> dict[str, Any]:
    """Return the metadata of a model. The first dimension of each tensor is the batch, or the tokens of the batch.

    A model of images or audio takes either files, as IMAGE or AUDIO, or its own inputs."""
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
    """Return Triton's model configuration. Its shapes have no batch dimension.

    `max_batch_size` is the largest number of rows in a request. A model is decoupled if its stream sends each token as
    it is decoded. All inputs of a model of images or audio are optional, because a request gives only one of them."""

    def described(tensor: dict[str, Any], is_input: bool) -> dict[str, Any]:
        datatype = tensor["datatype"]
        kind = _CONFIG_TYPE.get(datatype, f"TYPE_{datatype}")
        entry = {"name": tensor["name"], "data_type": kind, "dims": tensor["shape"][1:]}
        return {**entry, "optional": True} if is_input and model.rows.encoded is not None else entry

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
    """Return Triton's statistics of models.

    `compute_input` is preprocessing. `queue` and `compute_infer` are sums over rows. `compute_infer` includes the work
    on outputs. `compute_output` has no time of its own, but perf_analyzer fails unless it has the same count."""
    entries = []
    for model in models:
        sums = service.metrics.sums[model.name]

        def duration(count: int, ns: int) -> dict[str, int]:
            return {"count": count, "ns": ns}

        entries.append(
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
    return {"model_stats": entries}


def repository_index(service: Service, only_ready: bool) -> list[dict[str, Any]]:
    """Return the models that are served and those that can be loaded. `only_ready` leaves out models that are not
    ready."""
    entries = []
    for name, model in service.models.items():
        if service.draining or not model.ready:
            entries.append({"name": name, "version": VERSION, "state": "UNAVAILABLE", "reason": "not ready"})
        else:
            entries.append({"name": name, "version": VERSION, "state": "READY", "reason": ""})
    for name in service.repository.names() if service.repository is not None else ():
        if name not in service.models:
            entries.append({"name": name, "version": "", "state": "UNAVAILABLE", "reason": "unloaded"})
    return [each for each in entries if each["state"] == "READY" or not only_ready]


def _tensor(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "datatype": DATATYPE_OF[spec.dtype], "shape": list(spec.batched(-1, VARIABLE))}
