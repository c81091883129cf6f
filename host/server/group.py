"""Groups of models that are served together, with one policy, one runtime and its workers."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from headrace.batching import NodeTimes, Policy, PolicyContext, Profile, UsageError
from headrace.host.dpu.driver import Dpu
from headrace.host.dpu.fair_pool import UnitState
from headrace.host.dpu.preprocessor import AnySpec, CpuPreprocessor, Launch, Preprocessor
from headrace.host.dpu.processors import ProcessorSpec
from headrace.host.dpu.reference import audio
from headrace.host.dpu.specs import AudioSpec, Damaged, ImageSpec
from headrace.host.live.hardware import Hardware, Network, NodeWorkers, hardware_of, schedules_nodes
from headrace.host.live.results import Execution
from headrace.host.live.runtime import Runtime
from headrace.host.live.settings import RuntimeSettings
from headrace.host.live.smdp_tables import solve_tables_in_background
from headrace.host.live.tasks.cells import CellTasks
from headrace.host.live.tasks.interface import Tasks
from headrace.host.memory.layout import TensorSpec
from headrace.host.server.file_inputs import (
    RANDOM,
    FileInput,
    check_processor,
    check_unpadded,
    file_input,
    refuse_images,
    tensors_text,
    with_inputs,
)
from headrace.host.server.rows import (
    IMAGE,
    AudioRows,
    FeatureRows,
    ProcessorRows,
    Rows,
    TensorRows,
    TokenRows,
    TreeRows,
)
from headrace.host.server.settings import ModelSettings
from headrace.host.workers.devices import parsed_workers, worker_devices
from headrace.host.workers.inspection import parent
from headrace.host.workers.inspection.parent import describe, in_thread, is_step_model
from headrace.host.workers.networks.input_shapes import parse_input_shape
from headrace.host.workers.networks.sequence_networks import Network as StepNetwork
from headrace.host.workers.networks.steps import Signature
from headrace.host.workers.pool import WorkerPool
from headrace.host.workers.process import processes
from headrace.sim.hardware.profiles import read_profile
from headrace.sim.workload.lengths import TRANSLATION, dec_timesteps

OnStage = Callable[[str], None]
AnyPreprocessor = Preprocessor[ImageSpec] | Preprocessor[AudioSpec] | Preprocessor[ProcessorSpec]


@dataclass(slots=True, eq=False)
class ServedModel:
    """Hold the state of one served model.

    Args:
        workers: names of the workers of its runtime.
        rows: converts the tensors of a request into rows.
        preprocessor: makes the model's input from image or audio files.
        streams: whether its runtime reports each token as it is decoded.
        in_files: whether its workers write outputs to regions of shared memory.
        in_flight: number of rows that are admitted and not answered.
        preprocessing: number of these rows that are at the preprocessor or wait for it.
        specs: the outputs by name."""

    settings: ModelSettings
    runtime: Runtime
    workers: Sequence[str]
    rows: Rows
    outputs: tuple[TensorSpec, ...]
    categories: Sequence[str] | None = None
    preprocessor: AnyPreprocessor | None = None
    streams: bool = False
    in_files: bool = False
    random_weights: bool = False
    in_flight: int = 0
    preprocessing: int = 0
    name: str = field(init=False)
    specs: Mapping[str, TensorSpec] = field(init=False)

    def __post_init__(self) -> None:
        self.name = self.settings.name
        self.specs = {spec.name: spec for spec in self.outputs}

    @property
    def ready(self) -> bool:
        """Return whether a worker is in service and does not hang."""
        up = self.runtime.statistics().workers_up
        return up > self.runtime.workers_hanging() and not self.runtime.broken


class Group:
    """Hold the models whose settings agree in `shared`. Create it with `open_group`.

    `kind` names the hardware that they run on."""

    def __init__(
        self,
        kind: str,
        runtime: Runtime,
        workers: Sequence[str],
        tasks: Tasks,
        models: Sequence[ServedModel],
        stack: contextlib.AsyncExitStack,
    ):
        self.kind = kind
        self.runtime = runtime
        self.workers = tuple(workers)
        self.tasks = tasks
        self.models = {model.name: model for model in models}
        self._stack = stack

    async def close(self) -> None:
        """End the runtime and the workers. Requests in flight are answered with RuntimeClosed."""
        await self._stack.aclose()


def groups_of(models: Sequence[ModelSettings]) -> list[list[ModelSettings]]:
    """Return the models in groups that are served together, in their order."""
    groups: dict[tuple[object, ...], list[ModelSettings]] = {}
    for model in models:
        groups.setdefault(model.shared, []).append(model)
    return list(groups.values())


def _tensor_text(spec: AnySpec) -> str:
    """Return a short text for the tensors of a spec, for names of units and errors."""
    if isinstance(spec, ProcessorSpec) or (isinstance(spec, AudioSpec) and spec.tensors is not None):
        return tensors_text(spec)
    if isinstance(spec, AudioSpec):
        return f"{spec.n_mels} bands"
    return f"{spec.crop_width} x {spec.crop_height} of {spec.resize_short}"


class Preprocessors:
    """Hold one preprocessor for each kind of tensor. All models share them. A DPU's preprocessor uses all of its CUs.

    Use it as an async context manager, which closes the preprocessors."""

    def __init__(
        self,
        container: Callable[[], Path],
        max_megapixels: int,
        damaged: Damaged,
        orient: bool,
        launch: Launch = Launch.SINGLE,
        resampler: str | None = None,
    ) -> None:
        """Store the settings of the preprocessors.

        Args:
            container: builds or finds the DPU's .xclbin. It is called when the first model needs it.
            max_megapixels: see `ImageSpec`; so are `damaged` and `orient`. A `ProcessorSpec` turns every image.
            launch: how image CUs receive their work. With a queue they serve only one kind of tensor.
            resampler: replaces the resampler of every `AudioSpec`, unless it is None."""
        self._container = container
        self._max_megapixels = max_megapixels
        self._damaged = damaged
        self._orient = orient
        self._launch = launch
        self._resampler = resampler
        self._made: dict[tuple[str, AnySpec], AnyPreprocessor] = {}
        self._stack = contextlib.AsyncExitStack()

    async def of(self, kind: str, spec: AnySpec) -> AnyPreprocessor:
        """Return the preprocessor of a kind ("cpu" or "dpu") for a spec, and create it at the first call. Raises
        UsageError."""
        if isinstance(spec, ImageSpec):
            spec = replace(spec, max_megapixels=self._max_megapixels, damaged=self._damaged, orient=self._orient)
        elif isinstance(spec, AudioSpec) and self._resampler is not None:
            spec = replace(spec, resampler=self._resampler)
        if (kind, spec) not in self._made:
            made: CpuPreprocessor[AnySpec] | Dpu[AnySpec]
            if isinstance(spec, AudioSpec):
                await asyncio.to_thread(audio.prepare, spec)
            launch = Launch.SINGLE if isinstance(spec, AudioSpec) else self._launch
            if kind != "cpu" and launch is Launch.QUEUE:
                others = [own for on, own in self._made if on == kind and not isinstance(own, AudioSpec)]
                if others:  # their runs keep the units as long as images arrive
                    raise UsageError(
                        f"--launch queue: the units already serve one kind of tensor, {_tensor_text(others[0])}; "
                        f"{_tensor_text(spec)} needs --launch single"
                    )
            if kind == "cpu":
                made = CpuPreprocessor(spec, max_megapixels=self._max_megapixels, damaged=self._damaged)
            else:
                rules = {"max_megapixels": self._max_megapixels, "damaged": self._damaged}
                made = Dpu(await asyncio.to_thread(self._container), spec, launch=launch, **rules)
            self._made[kind, spec] = await self._stack.enter_async_context(made)
        return self._made[kind, spec]

    def all(self) -> list[AnyPreprocessor]:
        """Return every preprocessor."""
        return list(self._made.values())

    def states(self) -> list[UnitState]:
        """Return the states of all units. If there are several kinds of tensors, the names include the kind."""
        if len(self._made) == 1:
            return [state for made in self._made.values() for state in made.states()]
        return [
            state._replace(name=f"{state.name}, {_tensor_text(spec)}")
            for (_, spec), made in self._made.items()
            for state in made.states()
        ]

    async def __aenter__(self) -> "Preprocessors":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()


async def open_group(
    settings: Sequence[ModelSettings],
    preprocessors: Preprocessors,
    on_stage: OnStage,
    on_execution: Callable[[str, float, Execution], None],
    suffix: str = "",
) -> Group:
    """Load the models, measure missing profiles, and start the workers.

    Args:
        on_stage: called with a text at each stage of the start.
        on_execution: called at the end of each task with the worker's name, the origin of the runtime's clock, and the
            execution.
        suffix: distinguishes the names of the workers from those of other groups.

    Raises UsageError, and WorkerLost if no worker can be started."""
    loaded = await in_thread(_load, settings, on_stage)
    parts = await (_cells(loaded) if settings[0].of_cells else _networks(loaded, on_stage))
    on_stage(f"starting {parts.count} {parts.kind} for {', '.join(model.name for model in settings)}")
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(parts.tasks.close)
        pool = await stack.enter_async_context(parts.pool)
        workers = [worker.name + suffix for worker in pool.workers]
        made = Runtime(
            parts.policy,
            pool,
            parts.tasks,
            RuntimeSettings(drop_late=settings[0].drop_late),
            on_execution=lambda execution: on_execution(workers[execution.worker], made.origin, execution),
        )
        runtime = await stack.enter_async_context(made)
        await stack.enter_async_context(
            solve_tables_in_background(parts.policy, parts.times, parts.profiles, settings[0].max_batch, parts.count)
        )
        models = []
        for each in loaded.networks:
            own, network, files = each.settings, each.network, each.files
            on_stage(files.text)
            preprocessor = None if files.spec is None else await preprocessors.of(own.preprocess, files.spec)
            rows = _rows(own, network.description.inputs, files)
            models.append(
                ServedModel(
                    own,
                    runtime,
                    workers,
                    rows,
                    network.description.outputs,
                    network.description.categories,
                    preprocessor,
                    in_files=parts.tasks.in_files,
                    random_weights=network.is_random,
                )
            )
        for step in loaded.steps:
            signature = step.signature
            if step.settings.weights is None and ":" not in step.settings.source:
                on_stage(f"{step.settings.name}: {RANDOM}")
            by_cell = step.settings.of_cells
            limit = "max_steps" if by_cell else "output_len"
            step_rows = TreeRows(signature) if signature.tree else TokenRows(signature, limit)
            streams = by_cell and signature.decodes
            models.append(ServedModel(step.settings, runtime, workers, step_rows, signature.outputs, streams=streams))
        return Group(parts.kind, runtime, workers, parts.tasks, models, stack.pop_all())


def _rows(own: ModelSettings, inputs: Sequence[TensorSpec], files: FileInput) -> Rows:
    """Return what converts requests for a network that takes tensors into rows."""
    if isinstance(files.spec, ProcessorSpec):
        return ProcessorRows(own.name, inputs, files.spec, files.tensors, own.max_batch_tokens)
    if isinstance(files.spec, AudioSpec) and files.spec.tensors is not None:
        return FeatureRows(own.name, inputs, files.tensors)
    if isinstance(files.spec, AudioSpec):
        return AudioRows(own.name, inputs, files.spec)
    return TensorRows(own.name, inputs, None if files.spec is None else IMAGE)


@dataclass(frozen=True, slots=True)
class _Loaded:
    settings: ModelSettings
    network: Network
    files: FileInput


@dataclass(frozen=True, slots=True)
class _Steps:
    settings: ModelSettings
    network: StepNetwork
    signature: Signature


@dataclass(frozen=True, slots=True)
class _Models:
    """Hold the networks of a group: those that take tensors, and step models."""

    networks: Sequence[_Loaded]
    steps: Sequence[_Steps]


@dataclass(frozen=True, slots=True)
class _Parts:
    kind: str
    count: int
    tasks: Tasks
    pool: WorkerPool
    policy: Policy
    times: Mapping[str, NodeTimes]
    profiles: Mapping[str, Profile]


def _load(settings: Sequence[ModelSettings], on_stage: OnStage) -> _Models:
    """Read the networks, after all checks that do not need them. Raises UsageError."""
    steps, tensors = [], []
    for own in settings:
        if not is_step_model(own.source):
            if own.input_shape is not None:
                parse_input_shape(own.input_shape)
            check_processor(own)
            tensors.append(with_inputs(own))
            continue
        if own.input_shape is not None:
            raise UsageError(f"model {own.name!r} takes tokens; leave out --input-shape")
        refuse_images(own)
        sizes = {
            name: value
            for name in ("hidden", "vocabulary", "longest_input", "longest_output")
            if (value := getattr(own, name)) is not None
        }
        weights = None if own.weights is None else str(own.weights)
        network = StepNetwork(own.name, own.source, weights=weights, rules=own.rules, **sizes)
        steps.append(_Steps(own, network, parent.signature(network)))
    if tensors and tensors[0].of_cells:
        first = tensors[0]
        raise UsageError(
            f"--policy {first.policy} serves step models, and {first.name!r} is not a step model; choose another policy"
        )
    if tensors:
        on_stage(f"reading {', '.join(own.source for own in tensors)}")
    return _Models([_network(own) for own in tensors], steps)


def _network(own: ModelSettings) -> _Loaded:
    weights = None if own.weights is None else str(own.weights)
    description = describe(own.source, weights, own.input_shape, own.rules)
    check_unpadded(own, description)
    if own.max_batch > description.largest_batch:
        raise UsageError(
            f"model {own.name!r} was exported for batches of at most {description.largest_batch}; give --max-batch "
            f"{description.largest_batch}, or export it again"
        )
    network = Network(own.name, own.source, description, weights, own.input_shape, rules=own.rules)
    return _Loaded(own, network, file_input(own, network))


async def _cells(models: _Models) -> _Parts:
    """Prepare the serving of step models whose tasks consist of cells. Raises UsageError."""
    own = models.steps[0].settings
    count, npus = parsed_workers(own.workers)
    if npus or any(step.settings.profile is not None for step in models.steps):
        raise UsageError(
            f"--policy {own.policy}: cells run on real workers and need no profile; leave out --workers npu:N and "
            "--profile"
        )
    devices = worker_devices(count)
    tasks = CellTasks([step.network for step in models.steps], len(devices))
    context = PolicyContext({}, len(devices), cells={model.name: model for model in tasks.models})
    policy = own.chosen.build(context)
    return _Parts("workers", len(devices), tasks, WorkerPool(processes(tasks.program(), devices)), policy, {}, {})


def _with_token_limit(own: ModelSettings, models: _Models) -> ModelSettings:
    """Return the settings with a limit on the tokens of a batch, if the user gave none and all inputs are joined.

    A batch then has at most as many tokens as the longest input, so that memory does not grow with `max_batch`."""
    longest = [max(map(_joined_length, each.network.description.inputs), default=0) for each in models.networks]
    known = any(each.name == "max_batch_tokens" for each in fields(own.chosen))
    if models.steps or 0 in longest or not known or own.max_batch_tokens is not None:
        return own
    return own.with_policy_values({"max_batch_tokens": max(longest)})


def _joined_length(spec: TensorSpec) -> int:
    return spec.longest if spec.joined else 0


async def _networks(models: _Models, on_stage: OnStage) -> _Parts:
    """Prepare the serving of all other models: profiles, times, policy, tasks and workers. Raises UsageError."""
    every: list[_Loaded | _Steps] = [*models.networks, *models.steps]
    own = _with_token_limit(every[0].settings, models)
    given = {
        each.settings.name: replace(read_profile(each.settings.profile), model=each.settings.name)
        for each in every
        if each.settings.profile is not None
    }
    hardware = await in_thread(_hardware, models, own, list(given.values()))
    profiles = {}
    for each in every:
        name = each.settings.name
        if name not in given:
            on_stage(f"profile of {name} on {hardware.count} {hardware.kind}")
        profile = given.get(name) or await hardware.profile(name, own.max_batch, own.max_batch_tokens)
        profiles[name] = profile
    times = {name: hardware.times(profile) for name, profile in profiles.items()}

    def steps_of(coverage: float) -> dict[str, int]:
        steps = dec_timesteps(TRANSLATION, coverage)
        return {step.settings.name: min(step.signature.longest_output, steps) for step in models.steps}

    context = PolicyContext(times, hardware.count, profiles, steps_of=steps_of, tables={}, slo_s=own.slo_s)
    policy = own.chosen.build(context)
    largest = {name: policy.largest_batch(name) for name in profiles}
    tasks, pool = hardware.serving(largest, max(each.settings.max_queue for each in every))
    return _Parts(hardware.kind, hardware.count, tasks, pool, policy, times, profiles)


def _hardware(models: _Models, own: ModelSettings, given: Sequence[Profile]) -> Hardware:
    workers, npus = parsed_workers(own.workers)
    networks = [each.network for each in models.networks]
    if not models.steps:
        by_node = schedules_nodes([own.policy], given)
        return hardware_of(networks, workers=workers, npus=npus, by_node=by_node, whole=own.whole)
    if npus:
        raise UsageError(f"--workers {own.workers}: {models.steps[0].settings.name!r} needs real workers")
    return NodeWorkers(networks, worker_devices(workers), own.whole, [step.network for step in models.steps])
