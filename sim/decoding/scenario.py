"""Hold the settings of one simulated run of a model that decodes: requests in tokens, hardware and a step policy.

As in a `Scenario` of networks (sim/scenario.py), all settings have one flat list of names. The run is of a model that
decodes if `model` names one (architecture.py, or a config.json of Hugging Face), or if `step_model` is given.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from headrace.batching.errors import LONGEST_NAME, UsageError
from headrace.batching.registry import step_policy_entry
from headrace.batching.settings import Setting, option, read_settings, setting, settings, settings_of
from headrace.batching.steps.continuous import Continuous
from headrace.batching.steps.registry import StepPolicySettings, step_policy_name
from headrace.sim.decoding.architecture import ARCHITECTURES, CONFIG, KEY_BYTES, PRECISIONS
from headrace.sim.hardware.gpu.tables import BACKENDS, DECODER_FOLDERS, VLLM
from headrace.sim.hardware.settings import Accelerators
from headrace.sim.workload.settings import TRAFFICS, Poisson, Replay, traffic_class, traffic_name
from headrace.sim.workload.token_requests import Conversations, ImagesPerRequest
from headrace.sim.workload.token_traces import MAX_TOKENS

POLICY, ACCELERATOR, TRAFFIC = "policy", "accelerator", "traffic"  # settings that choose a class of settings
STEP_MODEL: Final = "step_model"
GPU: Final = "h100"
# Traffic of networks has other defaults, at which no replica of a model that decodes keeps up.
TRAFFIC_DEFAULTS: Final[Mapping[str, Any]] = {"rate_rps": 1.0, "requests": 2000}


@settings()
class DecodingWorkload(Conversations):
    """The requests of a model that decodes, in tokens. Lengths are drawn from log-normal distributions."""

    model: str = setting(
        default="llama-3.1-8b",
        help=f"The model that decodes: {', '.join(ARCHITECTURES)}, or the path of a config.json of Hugging Face.",
    )
    prompt_tokens: float = setting(default=512.0, help="Median of the tokens of prompts.", ge=1, le=MAX_TOKENS)
    output_tokens: float = setting(default=128.0, help="Median of the tokens of outputs.", ge=1, le=MAX_TOKENS)
    tokens_sigma: float = setting(
        default=0.7,
        help="Standard deviation of the logarithms of prompts and outputs. 0 makes all equal.",
        ge=0,
        le=3,
        advanced=True,
    )
    longest_tokens: int = setting(
        default=8192, help="Largest prompt and largest output that is drawn.", ge=1, le=MAX_TOKENS, advanced=True
    )
    slo_ttft_ms: float | None = setting(default=None, help="Target for the time to first token.", gt=0)
    slo_tpot_ms: float | None = setting(default=None, help="Target for the time per output token after it.", gt=0)
    images_per_request: str | None = setting(
        default=None,
        help="Images of a request: a number, shares such as 0:0.7,1:0.2,4:0.1, or `trace` for the trace's own.",
    )
    image_tokens: int = setting(default=256, help="Tokens of an image, which the prompt gets.", ge=1, le=MAX_TOKENS)

    def check(self) -> None:
        """Refuse values that contradict each other."""
        if max(self.prompt_tokens, self.output_tokens) > self.longest_tokens:
            raise UsageError(
                f"--longest-tokens {self.longest_tokens} is below the median of prompts or outputs; give more"
            )
        if self.images() is not None and self.shares:
            raise UsageError("--images-per-request: conversations and system prompts have no images; leave out either")

    def images(self) -> ImagesPerRequest | None:
        """Return the images of the requests; None for none. Raises UsageError."""
        if self.images_per_request is None:
            return None
        if self.images_per_request == "trace":
            return ImagesPerRequest(self.image_tokens)
        shares: dict[int, float] = {}
        try:
            for part in self.images_per_request.split(","):
                number, colon, share = part.partition(":")
                shares[int(number)] = float(share) if colon else 1.0
            if len(shares) < self.images_per_request.count(",") + 1:
                raise UsageError("a number is there twice")
            return ImagesPerRequest(self.image_tokens, shares)
        except (ValueError, UsageError) as error:
            why = f" ({error})" if isinstance(error, UsageError) else ""
            raise UsageError(
                f"--images-per-request {self.images_per_request[:LONGEST_NAME]!r}: give a number, shares such as "
                f"0:0.7,1:0.3 with a sum of 1, or trace{why}"
            ) from None


@settings()
class TokenReplay(Replay):
    """Requests as a trace of Azure, BurstGPT or Mooncake has them. A run of more `requests` repeats the trace."""

    requests: int | None = setting(default=None, help="How many requests come.", ge=1, le=100_000_000)


@settings()
class KvMemory(Accelerators):
    """The KV cache of a replica, and the encoder of its images."""

    kv_blocks: int | None = setting(
        default=None, help="Blocks of the KV cache [those that fit into the GPUs' memory].", ge=1, le=1 << 30
    )
    block_size: int = setting(default=16, help="Tokens of a block of the KV cache.", ge=1, le=1 << 16, advanced=True)
    prefix_caching: bool = setting(
        default=True,
        help="Share blocks of prompts that begin alike, and keep them, if the requests tell that they do.",
    )
    encoder_ms: float | None = setting(
        default=None, help="Time that encoding images takes in a step, in addition to that of their tokens.", ge=0
    )
    encoder_token_us: float = setting(
        default=0.0, help="Time that encoding takes for each token of an image, in us.", ge=0
    )
    encoder_device: bool = setting(
        default=False, help="Encode images on a device of their own, and not in the replica's steps.", advanced=True
    )


@settings()
class DecoderGpus(KvMemory):
    """GPUs that share a model, with the latencies of NVIDIA's tables of measured kernels (latency.py)."""

    gpu: str = setting(default=GPU, help="The GPU.", choices=tuple(DECODER_FOLDERS))
    tp: int = setting(default=1, help="GPUs that share each layer of the model (tensor parallel).", ge=1, le=8)
    ep: int = setting(
        default=1, help="Groups into which these GPUs share the experts (expert parallel).", ge=1, le=8, advanced=True
    )
    kernels: str = setting(default=VLLM, help="The server whose kernels run.", choices=tuple(BACKENDS))
    weight_precision: str = setting(default="bf16", help="Precision of the layers' products.", choices=PRECISIONS)
    expert_precision: str | None = setting(
        default=None, help="Precision of experts [as weight-precision].", choices=PRECISIONS, advanced=True
    )
    kv_precision: str = setting(default="bf16", help="Precision of the KV cache.", choices=tuple(KEY_BYTES))
    memory_share: float | None = setting(
        default=None,
        help="Share of the memory that the weights leave which the KV cache takes [what the server takes by default].",
        gt=0,
        le=1,
        advanced=True,
    )
    host_us: float = setting(
        default=0.0, help="The host's time in each step that the GPUs wait for, in us.", ge=0, le=1e6, advanced=True
    )
    host_request_us: float | None = setting(
        default=None,
        help="The same for each request of a step, in us [20 with the kernels of SGLang, else 0].",
        ge=0,
        le=1e6,
        advanced=True,
    )


@settings()
class StepTimes(KvMemory):
    """A replica with a step model of the user's own (step_models.py)."""

    step_model: str = setting(
        default="",
        help="Duration of steps of a model that decodes: a CSV file of measured step times, module:name, or an entry "
        "point.",
    )

    def check(self) -> None:
        """Refuse a cache of unknown size."""
        if self.kv_blocks is None:
            raise UsageError("--step-model tells no memory; give --kv-blocks, too")


@settings()
class DecodingRun:
    """Settings of a run as a whole."""

    seed: int = setting(default=0, help="The seed of all random numbers; a run is a function of it.", ge=0)


CONVERSATION: Final = tuple(each.name for each in settings_of(Conversations))
DECODING: Final[tuple[type, ...]] = (DecodingWorkload, TokenReplay, DecoderGpus, StepTimes)


@settings()
class DecodingScenario(DecodingRun):
    """A simulated run of a model that decodes. Raises UsageError for values out of their range."""

    workload: DecodingWorkload = DecodingWorkload()
    traffic: Any = Poisson()
    hardware: DecoderGpus | StepTimes = DecoderGpus()
    policy: StepPolicySettings = Continuous()

    def check(self) -> None:
        """Refuse images without an encoder."""
        if self.workload.images_per_request is not None and self.hardware.encoder_ms is None:
            raise UsageError("--images-per-request needs the time of an encoder; give --encoder-ms")
        if self.workload.images_per_request == "trace" and not isinstance(self.traffic, Replay):
            raise UsageError("--images-per-request trace is for --replay; give a number, or shares of numbers")

    def flat(self) -> dict[str, Any]:
        """Return all settings by their flat names."""
        found: dict[str, Any] = {POLICY: step_policy_name(self.policy)}
        if isinstance(self.hardware, DecoderGpus):
            found[ACCELERATOR] = self.hardware.gpu
        if not isinstance(self.traffic, Replay):
            found[TRAFFIC] = traffic_name(self.traffic)
        for part in (self.traffic, self.workload, self.hardware, self.policy, self):
            found |= {each.name: getattr(part, each.name) for each in settings_of(type(part)) if each.name != "gpu"}
        return found

    @property
    def title(self) -> str:
        """Return what is simulated, in words."""
        hardware = self.hardware
        if isinstance(hardware, StepTimes):
            return f"{step_policy_name(self.policy)}, {hardware.step_model}"
        return f"{step_policy_name(self.policy)}, {self.workload.model}, {hardware.tp} x {hardware.gpu}"

    def unseeded(self) -> "DecodingScenario":
        """Return the same scenario with the seed 0."""
        return replace(self, seed=0)


def decodes(given: Mapping[str, Any]) -> bool:
    """Tell whether settings by their flat names are those of a model that decodes."""
    model = str(given.get("model", ""))
    return given.get(STEP_MODEL) is not None or model in ARCHITECTURES or model.endswith(CONFIG)


def files_of(given: Mapping[str, Any]) -> list[str]:
    """Return the names of the settings that name a file to read: the model, the step model, or both."""
    ends = {"model": CONFIG, STEP_MODEL: ".csv"}
    return [name for name, end in ends.items() if str(given.get(name, "")).lower().endswith(end)]


def decoding_scenario_of(
    given: Mapping[str, Any], others: Mapping[str, Setting], where: Callable[[str], str] = option
) -> tuple[DecodingScenario, list[str]]:
    """Return a scenario from settings by their flat names, and warnings about settings that have no effect in it.

    Args:
        given: Values, or texts as the command line has them.
        others: Settings of other scenarios by name, which have no effect here.
        where: Makes the beginning of an error text from a setting's name.

    Raises UsageError."""
    own_steps = given.get(STEP_MODEL) is not None
    replays = given.get("replay") is not None
    accelerator = given.get(ACCELERATOR, GPU)
    if accelerator not in DECODER_FOLDERS:
        raise UsageError(
            f"{where(ACCELERATOR)} {str(accelerator)[:LONGEST_NAME]!r}: for a model that decodes, choose from "
            f"{', '.join(DECODER_FOLDERS)}"
        )
    policy = given.get(POLICY, "continuous")
    chosen = step_policy_entry(policy, where(POLICY)).cls
    parts: dict[str, type] = {
        "traffic": TokenReplay if replays else traffic_class(str(given.get(TRAFFIC, "poisson")), where(TRAFFIC)),
        "workload": DecodingWorkload,
        "hardware": StepTimes if own_steps else DecoderGpus,
        "policy": chosen,
        "run": DecodingRun,
    }
    known = {each.name: part for part, cls in parts.items() for each in settings_of(cls) if each.name != "gpu"}
    values: dict[str, dict[str, Any]] = {part: {} for part in parts}
    useless = [name for name in (ACCELERATOR,) if own_steps and name in given]
    for name, value in given.items():
        if name in (POLICY, ACCELERATOR, TRAFFIC):
            continue
        if name in known:
            values[known[name]][name] = value
        elif name in others:
            others[name].read(value, where(name))  # a wrong value is wrong even where it has no effect
            useless.append(name)
        else:
            raise UsageError(
                f"{where(name)}: there is no setting {name[:LONGEST_NAME]!r}; known are "
                f"{', '.join(sorted({*others, *known, POLICY, ACCELERATOR, TRAFFIC}))}"
            )
    _refuse_useless(useless, given, replays, where)
    if not own_steps:
        values["hardware"]["gpu"] = accelerator
    if not replays:
        of_traffic = {name: value for name, value in TRAFFIC_DEFAULTS.items() if known.get(name) == "traffic"}
        values["traffic"] = {**of_traffic, **values["traffic"]}
    made: dict[str, Any] = {part: read_settings(parts[part], values[part], where) for part in parts}
    scenario = DecodingScenario(
        workload=made["workload"],
        traffic=made["traffic"],
        hardware=made["hardware"],
        policy=made["policy"],
        seed=made["run"].seed,
    )
    if replays:
        drawn = ("prompt_tokens", "output_tokens", "tokens_sigma", "longest_tokens")
        useless += [name for name in (*drawn, *CONVERSATION) if name in given]
    elif not scenario.workload.shares and "prefix_caching" in given:
        useless.append("prefix_caching")
    if scenario.workload.images_per_request is None:
        useless += [name for name in ("image_tokens", "encoder_ms", "encoder_token_us") if name in given]
    of = f"--policy {policy}, " + ("--step-model" if own_steps else f"--model {scenario.workload.model}")
    return scenario, [f"{option(name)} has no effect with {of}" for name in given if name in useless]


_DRAWN: Final = {each.name for cls in TRAFFICS.values() for each in settings_of(cls)} - {"requests"}


def _refuse_useless(useless: list[str], given: Mapping[str, Any], replays: bool, where: Callable[[str], str]) -> None:
    """Raise UsageError for settings without effect where a warning would not be enough."""
    if replays and (both := [name for name in given if name in _DRAWN or name == TRAFFIC]):
        raise UsageError(f"--replay brings its own arrivals; leave out {', '.join(map(option, sorted(both)))}")
    if not replays and (late := [name for name in ("replay_every", "replay_speed") if name in useless]):
        raise UsageError(f"{where(late[0])} is for --replay; leave it out")
    if alone := [name for name in useless if name in ("servers", "slo_ms", "lengths")]:
        instead = {
            "servers": "one replica is simulated; leave it out",
            "slo_ms": "give --slo-ttft-ms and --slo-tpot-ms for a model that decodes",
            "lengths": "give --prompt-tokens and --output-tokens for a model that decodes",
        }
        raise UsageError(f"{where(alone[0])}: {instead[alone[0]]}")


def finite(value_ms: float | None) -> float:
    """Return a target (ms) in seconds; inf for none."""
    return math.inf if value_ms is None else value_ms / 1e3
