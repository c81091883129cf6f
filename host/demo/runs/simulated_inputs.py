"""Describe the inputs of a live run for the simulated server: lengths, sizes, DPU clocks and the work on a CPU core."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from headrace.batching import UnsupportedInput, UsageError
from headrace.host.demo.inputs.prepared_audio import PreparedAudio
from headrace.host.demo.inputs.prepared_files import PreparedFile, PreparedFiles
from headrace.host.demo.inputs.prepared_images import PreparedImages
from headrace.host.demo.networks import ImageNetwork
from headrace.host.demo.runs.serving import Run
from headrace.host.dpu.audio_work import mel_cu_clocks, norm_cu_clocks
from headrace.host.dpu.reference import audio, audio_file, image
from headrace.host.dpu.specs import AudioSpec, ImageSpec
from headrace.host.dpu.units.run_limits import SOS
from headrace.sim.hardware.dpu.image import image_cu_cycles
from headrace.sim.hardware.dpu.jpeg import read_jpeg_work
from headrace.sim.hardware.inputs import estimated_clocks
from headrace.sim.zoo.traced import traced

# The cycle model takes about 0.6 s for 1 MB of scans. It models photos up to this sum; clocks of others are estimated.
MODELLED_BYTES: Final = 2_500_000
CYCLE_MODEL: Final = "the cycle model"
# Speech networks whose traced network (sim/zoo/traced.py) has another name. The traced citrinet has 512 channels, as
# PREBA's has.
TRACED_AS: Final = {"conformer": "conformer_small"}


@dataclass(frozen=True, slots=True)
class Input:
    """One input of a network.

    Attributes:
        length: in the network's unit.
        size: pixels (1 if the DPU did not report them) or seconds.
        clocks: of each CU that the input passes, in turn; empty if the DPU does not take the input, so that the CPU
            preprocesses it.
        clocks_from: the source of `clocks`.
        preprocess: preprocesses the input on a CPU core.
    """

    length: float
    size: float
    file_bytes: int
    clocks: tuple[int, ...]
    clocks_from: str
    preprocess: Callable[[], object]


@dataclass(frozen=True, slots=True)
class Inputs:
    """All inputs of a live run, by network and file name. `traced_names` are the networks' names in the simulator."""

    what: str  # "photos" or "sounds"
    traced_names: Mapping[str, str]
    by_name: Mapping[tuple[str, str], Input]

    @property
    def clocks_from(self) -> Counter[str]:
        """The number of inputs by the source of their clocks."""
        return Counter(each.clocks_from for each in self.by_name.values() if each.clocks)


def image_inputs(networks: Mapping[str, ImageNetwork], prepared: Mapping[str, PreparedImages], run: Run) -> Inputs:
    """Describe the photos of a live run. Raises UsageError for tensors of another size than 224x224."""
    sizes = {f"{net.spec.crop_height}x{net.spec.crop_width}" for net in networks.values()} - {"224x224"}
    if sizes:
        raise UsageError(f"preprocessing is simulated for tensors of 224x224, and not of {' and '.join(sizes)}")
    inputs = {}
    bytes_left = MODELLED_BYTES
    for (model, name), (_, file) in _sent_files(prepared, run).items():
        spec = networks[model].spec
        source, clocks = _image_clocks(file, spec, bytes_left)
        bytes_left -= _modelled_bytes(file.data) if source == CYCLE_MODEL else 0
        work = partial(image.preprocess, file.data, spec)
        inputs[model, name] = Input(1.0, _pixels(file), len(file.data), clocks, source, work)
    return Inputs("photos", {name: name for name in networks}, inputs)


def _pixels(file: PreparedFile) -> int:
    """Return the pixels that the DPU reported, or 1."""
    return 1 if file.dpu is None or not file.on_dpu else file.dpu.source_pixels or 1


def _image_clocks(file: PreparedFile, spec: ImageSpec, bytes_left: int) -> tuple[str, tuple[int, ...]]:
    """Return the clocks of the image CU and their source. The cycle model takes no more than `bytes_left` bytes."""
    if file.dpu is None or not file.on_dpu:
        return "", ()
    if file.dpu.counters is not None:
        return "hw_emu", (file.dpu.counters["cycles"],)
    if _modelled_bytes(file.data) <= bytes_left:
        try:
            return CYCLE_MODEL, (image_cu_cycles(read_jpeg_work(file.data), resize_short=spec.resize_short),)
        except UsageError:  # the file is damaged below the crop, where the CU did not look
            pass
    return "pixels and bytes", (round(float(estimated_clocks(np.array(_pixels(file)), np.array(len(file.data))))),)


def _modelled_bytes(jpeg: bytes) -> int:
    """Return the bytes that the cycle model works through: each scan is a pass over the image."""
    return len(jpeg) * jpeg.count(SOS)


def audio_inputs(prepared: Mapping[str, PreparedAudio], run: Run) -> Inputs:
    """Describe the clips of a live run. Raises UsageError for networks that have no traced network for audio."""
    traced_names = {model: TRACED_AS.get(model, model) for model in prepared}
    inputs = {}
    for (model, name), (index, file) in _sent_files(prepared, run).items():
        spec = prepared[model].spec
        clocks = _audio_clocks(file.data, spec)
        step_s = traced(traced_names[model]).step_s
        if step_s is None:
            raise UsageError(f"{traced_names[model]} takes no sounds")
        seconds = prepared[model].seconds[index]
        work = partial(audio.preprocess, file.data, spec)
        inputs[model, name] = Input(seconds / step_s, seconds, len(file.data), clocks, CYCLE_MODEL, work)
    return Inputs("sounds", traced_names, inputs)


def _audio_clocks(data: bytes, spec: AudioSpec) -> tuple[int, ...]:
    """Return the clocks of CU A and CU B, or none if the DPU does not take the file."""
    try:
        header = audio_file.pcm(data, spec.rates, spec.longest_s)
    except UnsupportedInput:
        return ()
    return mel_cu_clocks(spec, header.frames, header.rate), norm_cu_clocks(spec, header.frames, header.rate)


def _sent_files(prepared: Mapping[str, PreparedFiles], run: Run) -> dict[tuple[str, str], tuple[int, PreparedFile]]:
    """Return the distinct files that a run sent, with their indexes, by network and file name, in the order sent."""
    places = {model: {file.name: place for place, file in enumerate(part.files)} for model, part in prepared.items()}
    sent = dict.fromkeys((record.model, record.input) for record in run.records)
    return {(model, name): (places[model][name], prepared[model].files[places[model][name]]) for model, name in sent}
