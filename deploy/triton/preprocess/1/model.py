"""A model of Triton's Python backend that sends files to Headrace over gRPC and answers the tensors that come back.

It needs tritonclient[grpc] in the Python of the backend. Its settings are the parameters in config.pbtxt.

Each request of a batch goes to Headrace by itself, all of them at a time. So a file that cannot be read fails its own
request only. No request takes longer than `timeout_s`.
"""

import json
from concurrent import futures
from pathlib import Path

import triton_python_backend_utils as pb_utils
from tritonclient.grpc import InferenceServerClient, InferInput
from tritonclient.utils import InferenceServerException

FILES = ("IMAGE", "AUDIO")
START_S = 10.0  # for the question which tensors there are
MARGIN_S = 5.0  # gRPC keeps the deadline; this bound holds if it does not
CHANNEL = [
    # Without these, gRPC waits up to two minutes before it tries again to reach a server that was gone.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
]
CODES = {  # statuses of gRPC, and the names of Triton's codes; others are internal
    "StatusCode.INVALID_ARGUMENT": "INVALID_ARG",
    "StatusCode.NOT_FOUND": "NOT_FOUND",
    "StatusCode.UNIMPLEMENTED": "UNSUPPORTED",
    "StatusCode.UNAVAILABLE": "UNAVAILABLE",
    "StatusCode.RESOURCE_EXHAUSTED": "UNAVAILABLE",
    "StatusCode.DEADLINE_EXCEEDED": "UNAVAILABLE",
    "StatusCode.CANCELLED": "CANCELLED",
}


class Headrace:
    """The connection to Headrace. `config` is a model's configuration, as Triton gives it."""

    def __init__(self, config):
        given = {key: value["string_value"] for key, value in config["parameters"].items()}
        self.url, self.model = given["url"], given["model"]
        self.timeout_s = float(given["timeout_s"])
        self._certificates = given.get("root_certificates")
        self._headers = None
        if "token_file" in given:
            self._headers = {"authorization": f"Bearer {Path(given['token_file']).read_text().strip()}"}
        self._client = InferenceServerClient(
            self.url,
            ssl=self._certificates is not None,
            root_certificates=self._certificates,
            channel_args=CHANNEL,
        )

    def metadata(self):
        """Return the inputs and outputs of the model. Raises TritonModelException."""
        try:
            return self._client.get_model_metadata(self.model, headers=self._headers, client_timeout=START_S)
        except InferenceServerException as error:
            raise pb_utils.TritonModelException(self.text(error)) from None

    def send(self, request):
        """Begin to answer a request, and return the future of its result."""
        answer = futures.Future()

        def done(result, error):
            if error is None:
                answer.set_result(result)
            else:
                answer.set_exception(error)

        inputs = []
        for name in FILES:
            tensor = pb_utils.get_input_tensor_by_name(request, name)
            if tensor is not None:
                files = tensor.as_numpy()
                inputs.append(InferInput(name, files.shape, "BYTES"))
                inputs[-1].set_data_from_numpy(files)
        limits = [self.timeout_s]
        if request.timeout():  # microseconds; 0 if the client gave none
            limits.append(request.timeout() / 1e6)
        self._client.async_infer(
            self.model,
            inputs,
            done,
            request_id=request.request_id(),
            timeout=round(min(limits) * 1e6),
            client_timeout=min(limits),
            headers=self._headers,
        )
        return answer

    def text(self, error):
        """Return the text of an error for a client."""
        return f"headrace at {self.url}: {error.message() or error.status()}"

    def close(self):
        self._client.close()


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(auto_complete_model_config):
        """Add the inputs and outputs that the model has in Headrace, unless config.pbtxt has them."""
        config = auto_complete_model_config.as_dict()
        if config.get("input") and config.get("output"):
            return auto_complete_model_config
        headrace = Headrace(config)
        try:
            metadata = headrace.metadata()
        finally:
            headrace.close()
        batched = config["max_batch_size"] > 0
        files = [each for each in metadata.inputs if each.name in FILES]
        if not files:
            raise pb_utils.TritonModelException(
                f"headrace at {headrace.url}: model {headrace.model!r} takes no files; serve it with --processor"
            )
        auto_complete_model_config.add_input(
            {"name": files[0].name, "data_type": "TYPE_STRING", "dims": [1] if batched else [-1]}
        )
        for each in metadata.outputs:
            dims = list(each.shape[1:] if batched else each.shape)
            reshape = {} if dims else {"reshape": {"shape": []}}
            auto_complete_model_config.add_output(
                {"name": each.name, "data_type": f"TYPE_{each.datatype}", "dims": dims or [1], **reshape}
            )
        return auto_complete_model_config

    def initialize(self, args):
        config = json.loads(args["model_config"])
        self._headrace = Headrace(config)
        self._batched = config["max_batch_size"] > 0
        self._outputs = [each["name"] for each in config["output"]]

    def execute(self, requests):
        answers = [self._headrace.send(request) for request in requests]
        return [self._response(request, answer) for request, answer in zip(requests, answers, strict=True)]

    def _response(self, request, answer):
        try:
            result = answer.result(self._headrace.timeout_s + MARGIN_S)
        except InferenceServerException as error:
            return failed(self._headrace.text(error), CODES.get(error.status(), "INTERNAL"))
        except futures.TimeoutError:
            return failed(f"headrace at {self._headrace.url} does not answer", "UNAVAILABLE")
        tensors = {name: result.as_numpy(name) for name in self._outputs}
        rows = sum(len(tensor.as_numpy()) for tensor in request.inputs())
        if self._batched and any(len(tensor) != rows for tensor in tensors.values()):
            return failed(
                "the batch of this model joins rows; give max_batch_size: 0 in config.pbtxt",
                "INVALID_ARG",
            )
        return pb_utils.InferenceResponse([pb_utils.Tensor(name, tensor) for name, tensor in tensors.items()])

    def finalize(self):
        self._headrace.close()


def failed(text, code):
    return pb_utils.InferenceResponse([], pb_utils.TritonError(text, getattr(pb_utils.TritonError, code)))
