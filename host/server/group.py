"""Models that are served together: one policy, one runtime and its workers."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headrace.batching import NodeTimes, Policy, PolicyContext, Profile, UsageError
from headrace.host.dpu.driver import Dpu
from headrace.host.dpu.fair_pool import UnitState
from headrace.host.dpu.preprocessor import CpuPreprocessor, Launch, Preprocessor
from headrace.host.dpu.reference import audio
from headrace.host.dpu.reference.audio import AudioSpec
from headrace.host.dpu.reference.image import Damaged, ImageSpec
from headrace.host.live.hardware import Hardware, Network, NodeWorkers, hardware_of, schedules_nodes
from headrace.host.live.results import Execution
from headrace.host.live.runtime import Runtime
from headrace.host.live.settings import RuntimeSettings
from headrace.host.live.smdp_tables import solve_tables_in_background
from headrace.host.live.tasks.cells import CellTasks
from headrace.host.live.tasks.interface import Tasks
from headrace.host.memory.layout import TensorSpec
from headrace.host.server.rows import AUDIO, IMAGE, Rows, TensorRows, TokenRows, TreeRows
from headrace.host.server.settings import ModelSettings
from headrace.host.workers.devices import parsed_workers, worker_devices
from headrace.host.workers.inspection.parent import describe, in_thread, is_step_model, signature
from headrace.host.workers.networks.input_shapes import parse_input_shape
from headrace.host.workers.networks.sequence_networks import Network as StepNetwork
from headrace.host.workers.networks.steps import Signature
from headrace.host.workers.pool import WorkerPool
from headrace.host.workers.process import processes
from headrace.sim.hardware.profiles import read_profile
from headrace.sim.workload.lengths import TRANSLATION, dec_timesteps

OnStage = Callable[[str], None]
RANDOM = "RANDOM weights, so that its answers mean nothing; give --weights FILE"


AnyPreprocessor = Preprocessor[ImageSpec] | Preprocessor[AudioSpec]


@dataclass(slots=True, eq=False)
class ServedModel:
    """What the service knows of a model. `workers` are the names of its runtime's; `rows` is what a request's tensors
    mean to it; `preprocessor` makes its input of photos or sounds; `streams` tells whether its runtime tells of each
    token as it comes. `in_flight` counts the rows that are admitted and not answered, `preprocessing` those of them
    that are at its preprocessor, or wait for it."""

    settings: ModelSettings
    runtime: Runtime
    workers: Sequence[str]
    rows: Rows
    outputs: tuple[TensorSpec, ...]
    categories: Sequence[str] | None = None
    preprocessor: AnyPreprocessor | None = None
    streams: bool = False
    random_weights: bool = False
    in_flight: int = 0
    preprocessing: int = 0

    @property
    def name(self) -> str:
        return self.settings.name

    @property
    def ready(self) -> bool:
        """Tell whether a worker is in service and does not hang."""
        up = self.runtime.statistics().workers_up
        return up > self.runtime.workers_hanging() and not self.runtime.broken


class Group:
    """Models whose settings agree in `shared`; use `open_group`. `kind` is what they run on."""

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
        """Requests that are in flight are answered with RuntimeClosed."""
        await self._stack.aclose()


def groups_of(models: Sequence[ModelSettings]) -> list[list[ModelSettings]]:
    """Those that are served together, in their order."""
    found: dict[tuple[object, ...], list[ModelSettings]] = {}
    for model in models:
        found.setdefault(model.shared, []).append(model)
    return list(found.values())


def _told(spec: ImageSpec | AudioSpec) -> str:
    if isinstance(spec, AudioSpec):
        return f"{spec.n_mels} bands"
    return f"{spec.crop_width} x {spec.crop_height} of {spec.resize_short}"


class Preprocessors:
    """One for each kind of tensor, shared by all models; those of a DPU are all of its CUs. `container` makes or finds
    its .xclbin when the first model asks for it; `max_megapixels`, `damaged` and `orient` are as in `ImageSpec`;
    `launch` is how image CUs are given their work, of which a queue serves one kind of tensor only. `resampler`, if it
    is not None, replaces that of every `AudioSpec`. Use as an async context manager."""

    def __init__(
        self,
        container: Callable[[], Path],
        max_megapixels: int,
        damaged: Damaged,
        orient: bool,
        launch: Launch = Launch.SINGLE,
        resampler: str | None = None,
    ) -> None:
        self._container = container
        self._max_megapixels = max_megapixels
        self._damaged = damaged
        self._orient = orient
        self._launch = launch
        self._resampler = resampler
        self._made: dict[tuple[str, ImageSpec | AudioSpec], AnyPreprocessor] = {}
        self._stack = contextlib.AsyncExitStack()

    async def of(self, kind: str, spec: ImageSpec | AudioSpec) -> AnyPreprocessor:
        """Raises UsageError."""
        if isinstance(spec, ImageSpec):
            spec = replace(spec, max_megapixels=self._max_megapixels, damaged=self._damaged, orient=self._orient)
        elif self._resampler is not None:
            spec = replace(spec, resampler=self._resampler)
        if (kind, spec) not in self._made:
            made: CpuPreprocessor[ImageSpec | AudioSpec] | Dpu[ImageSpec | AudioSpec]
            if isinstance(spec, AudioSpec):
                await asyncio.to_thread(audio.prepare, spec)
            launch = self._launch if isinstance(spec, ImageSpec) else Launch.SINGLE
            if kind != "cpu" and launch is Launch.QUEUE:
                others = [own for on, own in self._made if on == kind and isinstance(own, ImageSpec)]
                if others:  # whose runs have the units as long as photos come
                    raise UsageError(
                        f"--launch queue: units serve one kind of tensor, {_told(others[0])}; {_told(spec)} needs "
                        "--launch single"
                    )
            if kind == "cpu":
                made = CpuPreprocessor(spec)
            else:
                made = Dpu(await asyncio.to_thread(self._container), spec, launch=launch)
            self._made[kind, spec] = await self._stack.enter_async_context(made)
        return self._made[kind, spec]

    def all(self) -> list[AnyPreprocessor]:
        return list(self._made.values())

    def states(self) -> list[UnitState]:
        """Of all units; with what they make, where there are several kinds of tensors."""
        if len(self._made) == 1:
            return [state for made in self._made.values() for state in made.states()]
        return [
            state._replace(name=f"{state.name}, {_told(spec)}")
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
    """Load the models, measure what has no profile, start workers. `suffix` tells the workers' names from those of
    other groups; `on_execution` is told the worker's, the runtime's origin, and a task that ended. Raises UsageError,
    and WorkerLost if no worker can be started."""
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
            own, network = each.settings, each.network
            sounds = network.description.audio_spec
            spec = sounds or _photos(own, network)
            on_stage(_said(own, network, spec))
            preprocessor = None if spec is None else await preprocessors.of(own.preprocess, spec)
            encoded = None if spec is None else IMAGE if sounds is None else AUDIO
            rows = TensorRows(own.name, network.description.inputs, encoded, sounds)
            models.append(
                ServedModel(
                    own,
                    runtime,
                    workers,
                    rows,
                    network.description.outputs,
                    network.description.categories,
                    preprocessor,
                    random_weights=network.is_random,
                )
            )
        for step in loaded.steps:
            told = step.signature
            if step.settings.weights is None and ":" not in step.settings.source:
                on_stage(f"{step.settings.name}: {RANDOM}")
            by_cell = step.settings.of_cells
            found = TreeRows(told) if told.tree else TokenRows(told, "max_steps" if by_cell else "output_len")
            models.append(
                ServedModel(step.settings, runtime, workers, found, told.outputs, streams=by_cell and told.decodes)
            )
        return Group(parts.kind, runtime, workers, parts.tasks, models, stack.pop_all())


def _of_images(own: ModelSettings) -> dict[str, Any]:
    """Return the settings of the transform that the user has given."""
    given = {"resize": own.resize, "crop": own.crop, "mean": own.mean, "std": own.std}
    return {name: value for name, value in given.items() if value is not None}


def _refuse_images(own: ModelSettings) -> None:
    """Raise UsageError if the user has given settings of the transform, for a model that takes no photos."""
    if given := _of_images(own):
        raise UsageError(f"model {own.name!r} takes no photos: leave --{next(iter(given))} out")


def _photos(own: ModelSettings, network: Network) -> ImageSpec | None:
    """Return the transform of the network, with the user's settings in it. Raises UsageError."""
    spec = network.description.image_spec
    if spec is None:
        _refuse_images(own)
        return None
    changes = _of_images(own)
    if (crop := changes.pop("crop", None)) is not None and (spec.crop_width, spec.crop_height) != (crop, crop):
        raise UsageError(
            f"model {own.name!r}: --crop {crop}, and its input is {spec.crop_width}x{spec.crop_height}; give "
            f"--input-shape 3x{crop}x{crop} too, if it takes that"
        )
    if "resize" in changes:
        changes["resize_short"] = changes.pop("resize")
    return replace(spec, **changes)


def _said(own: ModelSettings, network: Network, spec: ImageSpec | AudioSpec | None) -> str:
    """Return a line that tells the network's weights and transform, for the user who starts the server."""
    weights = RANDOM if network.is_random else f"weights of {own.weights or own.source}"
    if not isinstance(spec, ImageSpec):
        return f"{own.name}: {weights}" + ("" if spec is None else f"; sounds become {spec.n_mels} bands")
    how = (
        f"photos are resized to {spec.resize_short}, cropped to {spec.crop_width}x{spec.crop_height}, "
        f"mean {_numbers(spec.mean)}, std {_numbers(spec.std)}"
    )
    if own.mean is not None and own.std is not None:
        origin = "as the settings say"
    elif network.description.transform is None:
        origin = "GUESSED as of ImageNet: it names no transform; give --mean and --std, and --resize"
    else:
        origin = "as the settings and its own transform say" if _of_images(own) else "as its own transform says"
    return f"{own.name}: {weights}; {how}, {origin}"


def _numbers(values: Sequence[float]) -> str:
    return ",".join(f"{value:g}" for value in values)


@dataclass(frozen=True, slots=True)
class _Loaded:
    settings: ModelSettings
    network: Network


@dataclass(frozen=True, slots=True)
class _Steps:
    settings: ModelSettings
    network: StepNetwork
    signature: Signature


@dataclass(frozen=True, slots=True)
class _Models:
    """Of a group: networks that take tensors, and step models."""

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
            tensors.append(own)
            continue
        if own.input_shape is not None:
            raise UsageError(f"model {own.name!r} takes tokens: leave --input-shape out")
        _refuse_images(own)
        sizes = {
            name: value
            for name in ("hidden", "vocabulary", "longest_input", "longest_output")
            if (value := getattr(own, name)) is not None
        }
        weights = None if own.weights is None else str(own.weights)
        network = StepNetwork(own.name, own.source, weights=weights, rules=own.rules, **sizes)
        steps.append(_Steps(own, network, signature(network)))
    if tensors and tensors[0].of_cells:
        first = tensors[0]
        raise UsageError(f"--policy {first.policy}: it serves step models, and {first.name!r} is none; choose another")
    if tensors:
        on_stage(f"reading {', '.join(own.source for own in tensors)}")
    return _Models([_network(own) for own in tensors], steps)


def _network(own: ModelSettings) -> _Loaded:
    weights = None if own.weights is None else str(own.weights)
    found = describe(own.source, weights, own.input_shape, own.rules)
    if own.max_batch > found.largest_batch:
        raise UsageError(
            f"model {own.name!r} was exported for batches of at most {found.largest_batch}: give --max-batch "
            f"{found.largest_batch}, or export it anew"
        )
    return _Loaded(own, Network(own.name, own.source, found, weights, own.input_shape, rules=own.rules))


async def _cells(models: _Models) -> _Parts:
    """Step models whose tasks are of cells."""
    own = models.steps[0].settings
    count, npus = parsed_workers(own.workers)
    if npus or any(step.settings.profile is not None for step in models.steps):
        raise UsageError(f"--policy {own.policy}: cells run on real workers, and need no profile; leave those out")
    devices = worker_devices(count)
    tasks = CellTasks([step.network for step in models.steps], len(devices))
    context = PolicyContext({}, len(devices), cells={model.name: model for model in tasks.models})
    policy = own.chosen.build(context)
    return _Parts("workers", len(devices), tasks, WorkerPool(processes(tasks.program(), devices)), policy, {}, {})


async def _networks(models: _Models, on_stage: OnStage) -> _Parts:
    every: list[_Loaded | _Steps] = [*models.networks, *models.steps]
    own = every[0].settings
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
        profile = given.get(name) or await hardware.profile(name, own.max_batch)
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
