"""A model repository of Triton that is made of deploy/triton, for a server of Headrace with three models."""

import json
import re
import shutil
from pathlib import Path

from running import write_profile

DEPLOY = Path(__file__).parents[2] / "deploy" / "triton"
SIGLIP = {"image_processor_type": "SiglipImageProcessor", "size": {"height": 64, "width": 48}, "resample": 2}
WHISPER = {"feature_extractor_type": "WhisperFeatureExtractor", "chunk_length": 2}
QWEN = {"image_processor_type": "Qwen2VLImageProcessor", "max_pixels": 78400}
PROCESSORS = {"pixels": SIGLIP, "features": WHISPER, "patches": QWEN}
TIMEOUT_S = 4.0
NETWORK = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        tensors = [pb_utils.get_input_tensor_by_name(each, "pixel_values").as_numpy() for each in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("output", 2 * each)]) for each in tensors]
"""
NETWORK_CONFIG = """
backend: "python"
max_batch_size: 16
dynamic_batching { }
instance_group [ { kind: KIND_CPU } ]
input [ { name: "pixel_values", data_type: TYPE_FP32, dims: [ 3, 64, 48 ] } ]
output [ { name: "output", data_type: TYPE_FP32, dims: [ 3, 64, 48 ] } ]
"""
DELAY_US = 300_000  # requests of several clients come together within it


def server_config(folder: Path) -> Path:
    """Write the file for `headrace serve --config`: a model `tensors` for each processor. Return its path."""
    shapes = {"patches": "pixel_values=1..400+x1176,image_grid_thw=3:int64"}
    tables = []
    for name, settings in PROCESSORS.items():
        (folder / f"processor_{name}.json").write_text(json.dumps(settings))
        table = {"name": name, "source": "tensors", "processor": str(folder / f"processor_{name}.json")}
        table |= {"profile": str(write_profile(folder, name)), "policy": "work-conserving"}
        if name in shapes:
            table["input-shape"] = shapes[name]
        tables.append("[[models]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in table.items()))
    (folder / "server.toml").write_text("\n".join(tables))
    return folder / "server.toml"


def preprocess(repository: Path, name: str, url: str, model: str, max_batch: int = 16) -> None:
    """Copy the preprocessing model under a name, with the address and the name of a model in Headrace."""
    shutil.copytree(DEPLOY / "preprocess", repository / name)
    file = repository / name / "config.pbtxt"
    changes = {
        '"127.0.0.1:8011"': f'"{url}"',
        '"pixels"': f'"{model}"',
        'string_value: "10"': f'string_value: "{TIMEOUT_S:g}"',
        "max_batch_size: 16": f"max_batch_size: {max_batch}",
        "dynamic_batching { }": f"dynamic_batching {{ max_queue_delay_microseconds: {DELAY_US} }}",
    }
    text = file.read_text()
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    if not max_batch:
        text = re.sub(r"dynamic_batching .*\n", "", text)
    file.write_text(text)


def model_repository(repository: Path, url: str) -> Path:
    """Make a repository with the models of a server of `server_config`, a network, and an ensemble of both."""
    preprocess(repository, "preprocess", url, "pixels")
    preprocess(repository, "audio", url, "features")
    preprocess(repository, "vision", url, "patches", max_batch=0)
    (repository / "network" / "1").mkdir(parents=True)
    (repository / "network" / "1" / "model.py").write_text(NETWORK)
    (repository / "network" / "config.pbtxt").write_text(NETWORK_CONFIG)
    shutil.copytree(DEPLOY / "photos", repository / "photos")
    (repository / "photos" / "1").mkdir()
    file = repository / "photos" / "config.pbtxt"
    file.write_text(file.read_text().replace("[ 1000 ]", "[ 3, 64, 48 ]"))
    return repository
