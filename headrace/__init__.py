"""Headrace: FPGA preprocessing, batching policies and simulation for inference servers.

These names are the public interface. What is not named here may change without notice. Each name is imported when it
is first used, so that `import headrace` is quick and needs no extra.

    import headrace

    sweep = headrace.sweep(
        model="mobilenet_v3_small",
        on=headrace.MigGpu("a100-40gb", "1g.5gb:7"),
        policy=["graph", "preba"],
        rate_rps=range(2000, 17001, 3000),
    )
    sweep.plot("p99_ms")
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

_PLACES = {
    # Simulate and plan
    "simulate": "sim.studies",  # one run of a workload on simulated hardware
    "sweep": "sim.studies",  # many runs, over lists of settings
    "plan": "sim.planner.planning",  # the cheapest server that meets a target
    "reproduce": "sim.experiments.reproduce",  # a paper's evaluation
    "Result": "sim.studies",  # what a run gave
    "Sweep": "sim.studies",  # what many runs gave
    "Planned": "sim.planner.planning",  # what `plan` found
    "Workload": "sim.workload.settings",  # the requests that come
    "Poisson": "sim.workload.settings",  # arrivals at random, at a constant rate
    "Bursty": "sim.workload.settings",  # arrivals in bursts
    "Replay": "sim.workload.settings",  # arrivals from a file
    "Npu": "sim.hardware.settings",  # a systolic array
    "MigGpu": "sim.hardware.settings",  # a GPU cut into slices
    "MeasuredGpu": "sim.hardware.settings",  # a whole GPU with measured kernels
    "measured_nodes": "sim.machine",  # which part of a network's time on such a GPU is measured
    "Measured": "sim.hardware.settings",  # latencies from `profile`
    "V100": "sim.hardware.settings",  # a GPU for networks of cells
    "Preprocess": "sim.system.settings",  # what makes tensors of images and audio
    "Fleet": "sim.fleet.settings",  # many servers behind a router
    # Models that decode
    "simulate_decoding": "sim.decoding.simulation",  # one run of a replica of a model that decodes
    "plan_decoding": "sim.planner.decoders.planning",  # the cheapest servers of a model that decodes
    "PlannedDecoder": "sim.planner.decoders.planning",  # what `plan_decoding` found
    "DecodingResult": "sim.decoding.results",  # what such a run gave
    "PreprocessStage": "sim.decoding.front_end",  # cores or compute units that make tensors before the encoder
    "preprocess_stage": "sim.planner.decoders.stages",  # such a stage by names: cpu:8:torchvision, dpu:2
    "EncoderStage": "sim.decoding.encoder",  # a device that encodes images or audio before the replica
    "StepLatencyModel": "batching.steps.policy",  # what a step model answers
    "StepLatency": "sim.decoding.latency",  # a step model of measured operators of a GPU
    "DecoderArchitecture": "sim.decoding.architecture",  # the sizes of a model that decodes
    "MeasuredSteps": "sim.decoding.measured_steps",  # a step model of measured step times
    "MeasuredStep": "sim.decoding.measured_steps",  # a step and its duration
    "check_step_model": "sim.decoding.step_models",  # whether a step model keeps the rules
    "StepModelCheck": "sim.decoding.step_models",  # what `check_step_model` found
    "StepRequest": "batching.steps.request",  # one request, in tokens
    "StepPolicy": "batching.steps.policy",  # what a policy of steps answers
    "StepContext": "batching.steps.policy",  # what a policy of steps is told before its run
    "Step": "batching.steps.request",  # the work of one iteration of a model that decodes
    "BadInput": "batching.errors",  # a policy's answer to a request that can never run to its end
    "TokenTrace": "sim.workload.token_traces",  # requests in tokens, as arrays
    "read_token_trace": "sim.workload.token_traces",  # a trace of Azure, BurstGPT or Mooncake
    "token_requests": "sim.workload.token_requests",  # the requests of a trace, one after another
    "Conversations": "sim.workload.token_requests",  # prompts that begin alike
    "ImagesPerRequest": "sim.workload.token_requests",  # how many images a request has, and their tokens
    # Policies
    "Policy": "batching.policy",  # what a policy answers
    "PolicyContext": "batching.context",  # what a policy is told before its run
    "Request": "batching.request",  # one inference request
    "Task": "batching.request",  # a batch of requests that a policy hands to a worker
    "REASONS": "batching.request",  # why a task left: "full", "window", "idle" ...
    "settings": "batching.settings",  # makes a class of settings, for a policy or traffic of one's own
    "setting": "batching.settings",  # makes a field of such a class
    "ModelGraph": "batching.graphs.model_graph",  # a network as policies see it
    "Node": "batching.graphs.model_graph",  # one step of a network
    "NodeKind": "batching.graphs.model_graph",  # whether a node runs once, or once for each step of input or output
    "MatMul": "batching.graphs.model_graph",  # a matrix product that a node computes
    "LENGTH": "batching.graphs.model_graph",  # a dimension that is as long as the request's input
    "Profile": "batching.graphs.profile",  # latency by batch size
    "HeadraceError": "batching.errors",  # the base of all errors
    "UsageError": "batching.errors",  # what was asked for cannot be done
    "UnknownModel": "batching.errors",  # a policy's answer to a request of a model that it does not have
    "UnsupportedInput": "batching.errors",  # an input that the DPU cannot take
    # Hardware and serving
    "profile": "host.workers.profiling.profile",  # measure a network on this machine
    "Dpu": "host.dpu.driver",  # the preprocessing units
    "Fallback": "host.dpu.preprocessor",  # whether the CPU takes an input that the DPU cannot take
    "AudioStream": "host.dpu.reference.audio_stream",  # the features of a sound that comes in pieces
    "ImageSpec": "host.dpu.specs.images",  # how images become tensors
    "AudioSpec": "host.dpu.specs.audio",  # how audio becomes tensors
    "ProcessorSpec": "host.dpu.processors.spec",  # how an image processor of Hugging Face makes tensors
    "processor": "host.dpu.hugging_face.names",  # the processor of a model of images or audio, by name or folder
    "preprocess": "host.dpu.hugging_face.front",  # the tensors of one image or audio file by such a processor
    "HeadraceImageProcessor": "host.adapters.images",  # in place of an image processor of transformers
    "HeadraceFeatureExtractor": "host.adapters.audio",  # in place of a feature extractor of transformers
    "register_processors": "host.adapters.registration",  # let the Auto classes of transformers make these two
    "unregister_processors": "host.adapters.registration",  # give the Auto classes their own methods back
    "sglang_inputs": "host.adapters.sglang",  # inputs of SGLang with ready tensors
    "compare": "host.compare.comparison",  # where a front end differs from transformers
    "Comparison": "host.compare.comparison",  # what `compare` found
    "build": "bitstreams.cache",  # a container for the DPU
    "Runtime": "host.live.runtime",  # a policy on live workers
    "serve": "host.server.background",  # a server process
    "Server": "host.server.background",  # the server process that `serve` started
}

if TYPE_CHECKING:
    from headrace.batching import policies as policies
    from headrace.batching.context import PolicyContext as PolicyContext
    from headrace.batching.errors import BadInput as BadInput
    from headrace.batching.errors import HeadraceError as HeadraceError
    from headrace.batching.errors import UnknownModel as UnknownModel
    from headrace.batching.errors import UnsupportedInput as UnsupportedInput
    from headrace.batching.errors import UsageError as UsageError
    from headrace.batching.graphs.model_graph import LENGTH as LENGTH
    from headrace.batching.graphs.model_graph import MatMul as MatMul
    from headrace.batching.graphs.model_graph import ModelGraph as ModelGraph
    from headrace.batching.graphs.model_graph import Node as Node
    from headrace.batching.graphs.model_graph import NodeKind as NodeKind
    from headrace.batching.graphs.profile import Profile as Profile
    from headrace.batching.policy import Policy as Policy
    from headrace.batching.request import REASONS as REASONS
    from headrace.batching.request import Request as Request
    from headrace.batching.request import Task as Task
    from headrace.batching.settings import setting as setting
    from headrace.batching.settings import settings as settings
    from headrace.batching.steps.policy import StepContext as StepContext
    from headrace.batching.steps.policy import StepLatencyModel as StepLatencyModel
    from headrace.batching.steps.policy import StepPolicy as StepPolicy
    from headrace.batching.steps.request import Step as Step
    from headrace.batching.steps.request import StepRequest as StepRequest
    from headrace.bitstreams.cache import build as build
    from headrace.host.adapters.audio import HeadraceFeatureExtractor as HeadraceFeatureExtractor
    from headrace.host.adapters.images import HeadraceImageProcessor as HeadraceImageProcessor
    from headrace.host.adapters.registration import register_processors as register_processors
    from headrace.host.adapters.registration import unregister_processors as unregister_processors
    from headrace.host.adapters.sglang import sglang_inputs as sglang_inputs
    from headrace.host.compare.comparison import Comparison as Comparison
    from headrace.host.compare.comparison import compare as compare
    from headrace.host.dpu.driver import Dpu as Dpu
    from headrace.host.dpu.hugging_face.front import preprocess as preprocess
    from headrace.host.dpu.hugging_face.names import processor as processor
    from headrace.host.dpu.preprocessor import Fallback as Fallback
    from headrace.host.dpu.processors.spec import ProcessorSpec as ProcessorSpec
    from headrace.host.dpu.reference.audio_stream import AudioStream as AudioStream
    from headrace.host.dpu.specs.audio import AudioSpec as AudioSpec
    from headrace.host.dpu.specs.images import ImageSpec as ImageSpec
    from headrace.host.live.runtime import Runtime as Runtime
    from headrace.host.server.background import Server as Server
    from headrace.host.server.background import serve as serve
    from headrace.host.workers.profiling.profile import profile as profile
    from headrace.sim.decoding.architecture import DecoderArchitecture as DecoderArchitecture
    from headrace.sim.decoding.encoder import EncoderStage as EncoderStage
    from headrace.sim.decoding.front_end import PreprocessStage as PreprocessStage
    from headrace.sim.decoding.latency import StepLatency as StepLatency
    from headrace.sim.decoding.measured_steps import MeasuredStep as MeasuredStep
    from headrace.sim.decoding.measured_steps import MeasuredSteps as MeasuredSteps
    from headrace.sim.decoding.results import DecodingResult as DecodingResult
    from headrace.sim.decoding.simulation import simulate_decoding as simulate_decoding
    from headrace.sim.decoding.step_models import StepModelCheck as StepModelCheck
    from headrace.sim.decoding.step_models import check_step_model as check_step_model
    from headrace.sim.experiments.reproduce import reproduce as reproduce
    from headrace.sim.fleet.settings import FleetSettings
    from headrace.sim.hardware.settings import V100 as V100
    from headrace.sim.hardware.settings import Measured as Measured
    from headrace.sim.hardware.settings import MeasuredGpu as MeasuredGpu
    from headrace.sim.hardware.settings import MigGpu as MigGpu
    from headrace.sim.hardware.settings import Npu as Npu
    from headrace.sim.machine import measured_nodes as measured_nodes
    from headrace.sim.planner.decoders.planning import PlannedDecoder as PlannedDecoder
    from headrace.sim.planner.decoders.planning import plan_decoding as plan_decoding
    from headrace.sim.planner.decoders.stages import preprocess_stage as preprocess_stage
    from headrace.sim.planner.planning import Planned as Planned
    from headrace.sim.planner.planning import plan as plan
    from headrace.sim.studies import Result as Result
    from headrace.sim.studies import Sweep as Sweep
    from headrace.sim.studies import simulate as simulate
    from headrace.sim.studies import sweep as sweep
    from headrace.sim.system.settings import Preprocess as Preprocess
    from headrace.sim.workload.settings import Bursty as Bursty
    from headrace.sim.workload.settings import Poisson as Poisson
    from headrace.sim.workload.settings import Replay as Replay
    from headrace.sim.workload.settings import Workload as Workload
    from headrace.sim.workload.token_requests import Conversations as Conversations
    from headrace.sim.workload.token_requests import ImagesPerRequest as ImagesPerRequest
    from headrace.sim.workload.token_requests import token_requests as token_requests
    from headrace.sim.workload.token_traces import TokenTrace as TokenTrace
    from headrace.sim.workload.token_traces import read_token_trace as read_token_trace

    Fleet = FleetSettings
    __version__: str

__all__ = [*_PLACES, "__version__", "policies"]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("headrace")
    elif name == "policies":
        value = import_module("headrace.batching.policies")
    elif name in _PLACES:
        value = getattr(import_module(f"headrace.{_PLACES[name]}"), _NAMES.get(name, name))
        value = import_module("headrace.batching.docstrings").with_docstring(value)
    else:
        raise AttributeError(f"module 'headrace' has no attribute {name!r}; the public names are in headrace.__all__")
    globals()[name] = value
    return value


_NAMES = {"Fleet": "FleetSettings"}


def __dir__() -> list[str]:
    return sorted(__all__)
