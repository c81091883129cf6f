"""Run a PyTorch network on one thread.

The requests that Triton's dynamic batcher brings together run as one batch. The parameter `network` of config.pbtxt
names the network: module:function, or a file of TorchScript.
"""

import importlib
import json

import torch
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        torch.set_num_threads(1)
        name = json.loads(args["model_config"])["parameters"]["network"]["string_value"]
        module, _, function = name.partition(":")
        made = getattr(importlib.import_module(module), function)() if function else torch.jit.load(name)
        self.network = made.eval()

    def execute(self, requests):
        inputs = [torch.from_numpy(pb_utils.get_input_tensor_by_name(each, "x").as_numpy()) for each in requests]
        with torch.inference_mode():
            outputs = self.network(inputs[0] if len(inputs) == 1 else torch.cat(inputs))
        parts = outputs.split([len(each) for each in inputs])
        return [pb_utils.InferenceResponse([pb_utils.Tensor("output", part.numpy())]) for part in parts]
