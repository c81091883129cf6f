"""Candidates: built-in ones, whose stages are known, and those of which only the tensors are known."""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from headrace.batching import UsageError
from headrace.batching.errors import one_line
from headrace.host.compare.candidates.images import BUILT_IN
from headrace.host.compare.candidates.opaque import EmulatedDpu, Function, Opaque, Url
from headrace.host.compare.candidates.served import GRPC, GrpcModel, HttpModel, check_grpc, is_infer_url
from headrace.host.compare.reference import Reference
from headrace.host.compare.stages import (
    AudioStages,
    ImageStages,
    Samples,
    Tensors,
    Waveform,
    decode_audio,
    headrace_features,
)
from headrace.host.compare.values import CandidateError, as_tensors
from headrace.host.dpu.processors import ProcessorSpec
from headrace.host.dpu.reference import audio, audio_file
from headrace.host.dpu.specs import AudioSpec

EMULATED: Final = ("sw_emu", "hw_emu")
HEADRACE: Final = "headrace"
URLS: Final = ("http://", "https://")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A front end that is compared: its stages for images or for audio, or an opaque one.

    `versions` has the versions of its libraries."""

    name: str
    images: ImageStages | None = None
    audio: AudioStages | None = None
    opaque: Opaque | None = None
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def staged(self) -> bool:
        """Tell whether its stages are run one by one."""
        return self.opaque is None


class _Here:
    """A function in this process, as Python code gives it."""

    def __init__(self, function: Callable[[bytes], Any]) -> None:
        self.versions: Mapping[str, str] = {}
        self._function = function

    def tensors(self, data: bytes) -> tuple[Tensors, str | None]:
        try:
            return as_tensors(self._function(data)), None
        except CandidateError:
            raise
        except Exception as error:  # of the user's code
            raise CandidateError(one_line(error)) from error

    def close(self) -> None: ...


def candidate_of(named: str | Callable[[bytes], Any], reference: Reference, timeout_s: float) -> Candidate:
    """Return the candidate that a name, a URL or a function stands for.

    Raises UsageError if there is none, or if it cannot run here."""
    check_name(named)
    if callable(named):
        return Candidate(getattr(named, "__qualname__", "a function"), opaque=_Here(named))
    if named.startswith(GRPC):
        return Candidate(named, opaque=GrpcModel(named, timeout_s))
    if named.startswith(URLS):
        return Candidate(named, opaque=(HttpModel if is_infer_url(named) else Url)(named, timeout_s))
    if named.startswith(f"{HEADRACE}:"):
        return _opaque(named, EmulatedDpu(named.partition(":")[2], _spec_for(named, reference)))
    if named in BUILT_IN:
        return _audio_candidate(named, reference) if reference.audio else _image_candidate(named, reference)
    return _opaque(named, Function(named, timeout_s))


def check_name(named: str | Callable[[bytes], Any]) -> None:
    """Raise UsageError if a name is of no kind of candidate. It loads nothing."""
    if isinstance(named, str) and named.startswith(GRPC):
        check_grpc(named)
        return
    if callable(named) or named.startswith(URLS) or named in BUILT_IN:
        return
    module, colon, name = named.partition(":")
    if module == HEADRACE and colon:
        if name not in EMULATED:
            raise UsageError(f"--candidate {named!r}: choose from headrace:sw_emu and headrace:hw_emu")
        return
    if module and name:
        return
    close = difflib.get_close_matches(named, BUILT_IN, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    raise UsageError(
        f"--candidate {named!r}: {hint}choose from {', '.join(BUILT_IN)}, headrace:sw_emu, headrace:hw_emu, or give "
        "module:function or a URL"
    )


def _opaque(name: str, found: Opaque) -> Candidate:
    return Candidate(name, opaque=found, versions=found.versions)


def _spec_for(named: str, reference: Reference) -> ProcessorSpec | AudioSpec:
    """Return what the reference computes. Raises UsageError if Headrace does not know it."""
    if reference.spec is None:
        raise UsageError(
            f"--candidate {named}: it follows the settings of the reference as Headrace reads them, and "
            f"{reference.why_no_spec}; give module:function or a URL"
        )
    return reference.spec


def _image_candidate(named: str, reference: Reference) -> Candidate:
    spec = _spec_for(named, reference)
    assert isinstance(spec, ProcessorSpec)
    found = BUILT_IN[named]
    return Candidate(named, images=found.make(spec), versions=found.versions)


def _audio_candidate(named: str, reference: Reference) -> Candidate:
    if named != HEADRACE:
        raise UsageError(
            f"--candidate {named}: it is for images, and {reference.class_name} takes audio; choose headrace, "
            "headrace:sw_emu, module:function or a URL"
        )
    spec = _spec_for(named, reference)
    assert isinstance(spec, AudioSpec)

    def decode(data: bytes) -> Waveform:
        waveform = decode_audio(data)
        audio_file.check_samples(waveform.samples, waveform.rate, spec.longest_s)
        return waveform

    def resample(waveform: Waveform, rate: int) -> Samples:
        return audio.resample(waveform.samples[:, 0], waveform.rate, spec)

    stages = AudioStages(headrace_features(spec), decode=decode, resample=resample)
    return Candidate(named, audio=stages, versions={"headrace": BUILT_IN[named].versions["headrace"]})
