"""Compare a candidate with the reference over files, one at a time, and find the first stage at which they differ."""

import importlib
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import cv2
import numpy as np
from numpy.typing import NDArray

from headrace.batching import HeadraceError, UsageError
from headrace.batching.errors import one_line
from headrace.host.compare import curated
from headrace.host.compare.candidates import Candidate, candidate_of, check_name
from headrace.host.compare.candidates.opaque import Opaque
from headrace.host.compare.difference import (
    Difference,
    difference,
    gap,
    heat_map,
    joined,
    levels,
    on_images,
    shapes,
    thumbnail,
)
from headrace.host.compare.effect import Effect, Model
from headrace.host.compare.hypotheses import audio as audio_hypotheses
from headrace.host.compare.hypotheses import images as image_hypotheses
from headrace.host.compare.hypotheses.search import Grade, Match, chosen, matches
from headrace.host.compare.reference import Reference, Refused
from headrace.host.compare.stages import (
    AUDIO_NAMES,
    IMAGE_NAMES,
    IMAGE_STAGES,
    IN_LEVELS,
    NO_STAGE,
    OF_TENSORS,
    AudioStages,
    ImageRun,
    Tensors,
    audio_results_of,
    own_audio_results,
    own_results,
    results_of,
    run_audio,
    run_image,
)
from headrace.host.compare.values import CandidateError
from headrace.host.dpu.processors import ProcessorSpec, type_name
from headrace.host.dpu.specs import AudioSpec

TIMEOUT_S: Final = 60.0
IMAGE_ENDINGS: Final = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".tif", ".tiff", ".bmp")
AUDIO_ENDINGS: Final = (".wav", ".flac")
EQUAL, DIFFERS, FAILED, REFUSED = "equal", "differs", "failed", "refused"
MAX_PICTURES: Final = 24  # files with a heat map in a report: the first that differ
LEVEL_SHARE: Final = 0.01  # of a level, which counts as rounding


@dataclass(frozen=True, slots=True)
class Pictures:
    """The source as the model sees it, as JPEG or PNG, and the heat map of the difference, as PNG.

    `scale` says in words what the brightest colour stands for."""

    source: bytes | None
    heat: bytes
    stage: str
    scale: str


@dataclass(frozen=True, slots=True)
class FileResult:
    """The comparison of one file.

    Attributes:
        file: Its name in the folder.
        result: "equal", "differs", "failed" (the candidate made no tensor) or "refused" (the reference made none).
        first: The first stage that differs, "unknown", or None.
        why: What the candidate does there, or what failed, in words.
        stages: The difference of each stage that was run by itself. A text stands for another form.
        tensors: The difference of each tensor by name. A text stands for another form.
        levels: The difference of the main tensor in levels of a pixel, or None.
        note: What else is to be known, such as that the CPU did the work of the DPU.
        effect: The effect on a network, an error as text, or None.
        pictures: The pictures of the report, or None.
        seconds: Time that the candidate took.
    """

    file: str
    result: str
    first: str | None = None
    why: str | None = None
    stages: Mapping[str, Difference | str] = field(default_factory=dict)
    tensors: Mapping[str, Difference | str] = field(default_factory=dict)
    levels: Difference | None = None
    note: str | None = None
    effect: Effect | str | None = None
    pictures: Pictures | None = None
    seconds: float = 0.0

    @property
    def as_json(self) -> dict[str, Any]:
        def shown(of: Mapping[str, Difference | str]) -> dict[str, Any]:
            return {name: each if isinstance(each, str) else each.as_json for name, each in of.items()}

        return {
            "file": self.file,
            "result": self.result,
            "first": self.first,
            "why": self.why,
            "stages": shown(self.stages),
            "tensors": shown(self.tensors),
            "levels": self.levels and self.levels.as_json,
            "note": self.note,
            "effect": self.effect.as_json if isinstance(self.effect, Effect) else self.effect,
            "seconds": self.seconds,
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of a candidate with the reference.

    Attributes:
        reference, candidate: Name, class or kind, and the versions of the libraries.
        inputs: The folder, or "curated".
        tolerance: Largest difference of a value that counts as equal.
        names: The stages in their order.
        files: The result of each file.
        note: Why stages cannot be told, or None.
    """

    reference: Mapping[str, Any]
    candidate: Mapping[str, Any]
    inputs: str
    tolerance: float
    names: tuple[str, ...]
    files: tuple[FileResult, ...]
    note: str | None = None

    @property
    def equal(self) -> bool:
        """Tell whether no file differs and none failed."""
        return not (self.count(DIFFERS) or self.count(FAILED))

    def count(self, result: str) -> int:
        """Return the number of files with a result."""
        return sum(each.result == result for each in self.files)

    @property
    def first(self) -> dict[str, int]:
        """Return the number of files that first differ at each stage, in the order of the stages."""
        counts = Counter(each.first for each in self.files if each.result == DIFFERS)
        return {name: counts[name] for name in (*self.names, NO_STAGE) if counts[name]}

    @property
    def stages(self) -> dict[str, dict[str, Any]]:
        """Return what each stage does by itself over all files: files that differ, and the largest difference."""
        made: dict[str, dict[str, Any]] = {}
        for name in self.names:
            found = [each.stages[name] for each in self.files if name in each.stages]
            if found:
                numbers = [each for each in found if isinstance(each, Difference)]
                total = sum(each.values for each in numbers)
                made[name] = {
                    "files": len(found),
                    "differ": sum(map(_differs, found)),
                    "max": max((each.max for each in numbers), default=0.0),
                    "share": sum(each.share * each.values for each in numbers) / max(1, total),
                    "unit": next((each.unit for each in numbers), "values"),
                }
        return made

    @property
    def effect(self) -> dict[str, Any] | None:
        """Return the effect on the network over all files, or None without a network."""
        found = [each.effect for each in self.files if isinstance(each.effect, Effect)]
        errors = sum(isinstance(each.effect, str) for each in self.files)
        if not found and not errors:
            return None
        return {
            "files": len(found),
            "failed": errors,
            "flips": sum(each.flips > 0 for each in found),
            "max": max((each.max for each in found), default=0.0),
            "distance": float(np.mean([each.distance for each in found])) if found else 0.0,
        }

    @property
    def as_json(self) -> dict[str, Any]:
        """Return the comparison as values for JSON, without the pictures."""
        return {
            "reference": dict(self.reference),
            "candidate": dict(self.candidate),
            "inputs": self.inputs,
            "tolerance": self.tolerance,
            "result": EQUAL if self.equal else DIFFERS,
            "files": len(self.files),
            **{each: self.count(each) for each in (EQUAL, DIFFERS, FAILED, REFUSED)},
            "first": self.first,
            "stages": self.stages,
            "effect": self.effect,
            "note": self.note,
            "by_file": [each.as_json for each in self.files],
        }

    def write_html(self, path: str | Path) -> None:
        """Write the report, one page that needs no network."""
        report = importlib.import_module("headrace.host.compare.report")  # which reads this class
        Path(path).write_text(report.html(self), "utf-8")


def compare(
    reference: str,
    candidate: str | Callable[[bytes], Any],
    inputs: str | Path = curated.NAME,
    *,
    tolerance: float = 0.0,
    timeout_s: float = TIMEOUT_S,
    model: str | None = None,
    on_start: Callable[[int], None] = lambda _: None,
    on_done: Callable[[], None] = lambda: None,
) -> Comparison:
    """Compare the tensors of a front end with those of transformers, and say at which stage they first differ.

    Args:
        reference: "transformers:NAME" or "transformers:FOLDER", an image processor or a feature extractor.
        candidate: A built-in candidate such as "opencv", "headrace", "headrace:sw_emu", "module:function", a URL, or a
            function. A function takes the bytes of a file, and returns a tensor or several by name.
        inputs: A folder with images or sounds, or "curated" for those that Headrace makes.
        tolerance: Largest difference of a value that counts as equal.
        timeout_s: Longest time for a file that a function or a URL may take, in seconds.
        model: "module:name" of a network of PyTorch, whose logits are compared, too.
        on_start, on_done: Called with the number of files, and after each file.

    Raises:
        UsageError: An argument is wrong, or the reference cannot be loaded.
    """
    if not 0 <= tolerance < np.inf:
        raise UsageError(f"tolerance is {tolerance}; give 0 or more")
    if not 0 < timeout_s < np.inf:
        raise UsageError(f"timeout_s is {timeout_s}; give a time above 0")
    check_name(candidate)
    _check_folder(inputs)
    loaded = Reference(reference)
    sources = list(_sources(inputs, loaded.audio))
    network = None if model is None else Model(model)
    other = candidate_of(candidate, loaded, timeout_s)
    on_start(len(sources))
    work = (_Audio if loaded.audio else _Images)(loaded, other, tolerance)
    results: list[FileResult] = []
    found: list[list[Match] | None] = []
    try:
        for name, read in sources:
            result, explained = work.file(name, read, network)
            results.append(_without_more_pictures(result, results))
            found.append(explained)
            on_done()
    finally:
        if other.opaque is not None:
            other.opaque.close()
    return Comparison(
        {"name": loaded.name, "class": loaded.class_name, "audio": loaded.audio, "versions": loaded.versions},
        {"name": other.name, "stages": other.staged, "versions": dict(other.versions)},
        str(inputs),
        tolerance,
        AUDIO_NAMES if loaded.audio else IMAGE_NAMES,
        tuple(_explained(results, found)),
        work.note,
    )


def _check_folder(inputs: str | Path) -> None:
    """Raise UsageError unless the inputs are a folder that is there, or the curated ones."""
    folder = Path(inputs)
    if str(inputs) != curated.NAME and not (str(inputs) and folder.is_dir()):
        reason = "Not a directory" if str(inputs) and folder.exists() else "No such file or directory"
        raise UsageError(f"--inputs {inputs}: {reason}; name a folder, or {curated.NAME}")


def _sources(inputs: str | Path, audio: bool) -> Iterator[tuple[str, Callable[[], bytes]]]:
    """Yield the name of each input and the function that reads it. Raises UsageError for a folder without inputs."""
    if str(inputs) == curated.NAME:
        yield from (curated.AUDIO if audio else curated.IMAGES).items()
        return
    folder = Path(inputs)
    endings = AUDIO_ENDINGS if audio else IMAGE_ENDINGS
    paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in endings and path.is_file())
    if not paths:
        raise UsageError(f"--inputs {folder}: it holds no {' or '.join(endings)} file; name a folder with inputs")
    for path in paths:
        yield str(path.relative_to(folder)), path.read_bytes


def _without_more_pictures(result: FileResult, before: list[FileResult]) -> FileResult:
    """Keep the pictures of the first files alone, as a report with thousands of them cannot be opened."""
    full = sum(each.pictures is not None for each in before) >= MAX_PICTURES
    return replace(result, pictures=None) if full else result


def _explained(results: list[FileResult], found: list[list[Match] | None]) -> Iterator[FileResult]:
    """Yield the results with the hypotheses that explain most files."""
    of_files = iter(chosen([each for each in found if each is not None]))
    for result, matched in zip(results, found, strict=True):
        if matched is None:
            yield result
            continue
        best = next(of_files)
        grade = f" ({best.grade.words})" if matched else ""
        if not matched and result.result == FAILED:
            yield result
        else:
            yield replace(result, result=DIFFERS, first=best.stage, why=f"{best.text}{grade}")


def _form(values: NDArray[Any]) -> str:
    return f"{'x'.join(map(str, values.shape)) or 'one number'} {type_name(values.dtype)}"


class _Work:
    """The part of a comparison that images and audio share: one file after another, each with its own outcome."""

    def __init__(self, reference: Reference, candidate: Candidate, tolerance: float) -> None:
        self.reference = reference
        self.candidate = candidate
        self.tolerance = tolerance
        self.note: str | None = reference.why_no_spec and f"no stages are known: {reference.why_no_spec}"

    def file(
        self, name: str, read: Callable[[], bytes], network: Model | None
    ) -> tuple[FileResult, list[Match] | None]:
        """Return the result of a file, and the hypotheses that explain it. None means that none were asked for."""
        try:
            data = read()
        except OSError as error:
            return FileResult(name, REFUSED, why=f"{error.strerror}"), None
        try:
            expected = self.reference.tensors(data)
        except Refused as error:
            return FileResult(name, REFUSED, why=str(error)), None
        began = time.monotonic()
        try:
            result, explained, ours = self._compared(name, data, expected)
        except HeadraceError as error:
            return FileResult(name, FAILED, why=str(error), seconds=time.monotonic() - began), None
        except (
            ValueError,
            RuntimeError,
            OSError,
            MemoryError,
            cv2.error,
        ) as error:  # of a library that a candidate stands for
            return FileResult(name, FAILED, why=one_line(error), seconds=time.monotonic() - began), None
        if network is not None and ours is not None and result.result in (EQUAL, DIFFERS):
            try:
                result = replace(result, effect=network.effect(ours, expected, self.reference.main))
            except UsageError as error:
                result = replace(result, effect=str(error))
        return result, explained

    def _compared(
        self, name: str, data: bytes, expected: Tensors
    ) -> tuple[FileResult, list[Match] | None, Tensors | None]:
        """Return the result, the hypotheses that explain it, and the candidate's tensors."""
        raise NotImplementedError

    def _answered(self, data: bytes, opaque: Opaque) -> tuple[Tensors, str | None, float]:
        """Return the tensors of a candidate, a note, and the seconds it took. Raises CandidateError."""
        began = time.monotonic()
        found, note = opaque.tensors(data)
        took = time.monotonic() - began
        main = self.reference.main
        if set(found) == {""}:
            found = {main: found[""]}
        if main not in found:
            raise CandidateError(f"it answers {', '.join(found) or 'nothing'}; answer {main}, or one tensor")
        return found, note, took

    def _tensors(self, found: Tensors, expected: Tensors) -> dict[str, Difference | str]:
        """Return the difference of each tensor that both have, or its other form as a text."""
        made: dict[str, Difference | str] = {}
        for name, theirs in expected.items():
            if name not in found:
                continue
            ours = found[name]
            if ours.shape != theirs.shape:
                made[name] = f"{_form(ours)} in place of {_form(theirs)}"
            else:
                made[name] = difference([ours], [theirs], "values")
        return made

    def _same(self, found: Tensors, expected: Tensors, tensors: Mapping[str, Difference | str]) -> bool:
        """Tell whether all tensors are within the tolerance. Without a tolerance, their types must be equal, too."""
        if any(_differs(each, self.tolerance) for each in tensors.values()):
            return False
        return self.tolerance > 0 or all(found[name].dtype == expected[name].dtype for name in tensors)

    def _other_than_main(
        self, found: Tensors, expected: Tensors, tensors: Mapping[str, Difference | str]
    ) -> Match | None:
        """Return the difference for which the values of the main tensor are not the reason: a type, another tensor."""
        main = tensors[self.reference.main]
        if _differs(main, self.tolerance):
            return None
        for name in tensors:
            each = tensors[name]
            if _differs(each, self.tolerance):
                return Match("layout", f"{name} differs, and {self.reference.main} does not", Grade.EXACTLY)
            if found[name].dtype != expected[name].dtype:
                ours, theirs = type_name(found[name].dtype), type_name(expected[name].dtype)
                return Match("layout", f"{name} has the type {ours} in place of {theirs}", Grade.EXACTLY)
        return None

    def _first(self, stages: Mapping[str, Difference | str], names: tuple[str, ...]) -> str:
        """Return the first stage that differs. The tolerance is one of tensors, so it holds for their stages alone."""

        def differs(name: str) -> bool:
            return _differs(stages[name], self.tolerance if name in OF_TENSORS else 0)

        return next((name for name in names if name in stages and differs(name)), NO_STAGE)

    def _another_form(self, tensors: Mapping[str, Difference | str]) -> FileResult | None:
        """Return the failure of a candidate whose main tensor has a shape that nothing explains."""
        main = tensors[self.reference.main]
        if isinstance(main, str):
            return FileResult(
                "", FAILED, why=f"{self.reference.main} is {main}; answer the shape of {self.reference.class_name}"
            )
        return None


class _Images(_Work):
    def _compared(
        self, name: str, data: bytes, expected: Tensors
    ) -> tuple[FileResult, list[Match] | None, Tensors | None]:
        spec = self.reference.spec
        assert spec is None or isinstance(spec, ProcessorSpec)
        run = self._run(data, expected, spec)
        stages: dict[str, Difference | str] = {}
        note, began = None, time.monotonic()
        if self.candidate.images is not None and spec is not None:
            if run is None:
                raise CandidateError("the stages of the reference are not known for this file; compare its tensors")
            own = own_results(data, self.candidate.images, spec, run)
            stages = _stage_differences(own, results_of(run))
            began = time.monotonic()
            found: Tensors = run_image(data, self.candidate.images, spec).tensors
            took = time.monotonic() - began
        else:
            assert self.candidate.opaque is not None
            own = {}
            found, note, took = self._answered(data, self.candidate.opaque)
        tensors = self._tensors(found, expected)
        result = FileResult(name, EQUAL, stages=stages, tensors=tensors, note=note, seconds=took)
        if self._same(found, expected, tensors):
            return result, None, found
        main = self.reference.main
        result = replace(result, result=DIFFERS, first=NO_STAGE)
        if spec is not None and run is not None:
            in_levels = self._levels(found[main], expected[main], run, spec)
            result = replace(result, levels=in_levels, pictures=_pictures(stages, own, run, found, expected, spec))
        if stages:
            first = self._first(stages, IMAGE_NAMES)
            return replace(result, first=first, why=_words(stages.get(first))), None, found
        if (other := self._other_than_main(found, expected, tensors)) is not None:
            return replace(result, first=other.stage, why=other.text), None, found
        explained: list[Match] = []
        if spec is not None and run is not None:
            rounding = LEVEL_SHARE * float(levels(spec).max())
            explained = matches(
                found[main],
                expected[main],
                image_hypotheses.arrangements(spec, run),
                image_hypotheses.hypotheses(data, spec, run),
                rounding,
            )
        if not explained and (failed := self._another_form(tensors)) is not None:
            result = replace(result, result=FAILED, first=None, why=failed.why)
        return result, explained, found

    def _run(self, data: bytes, expected: Tensors, spec: ProcessorSpec | None) -> ImageRun | None:
        """Return the stages of the reference, if they give its tensor bit for bit."""
        if spec is None:
            return None
        try:
            run = run_image(data, IMAGE_STAGES, spec)
            ours, theirs = run.tensors[self.reference.main], expected[self.reference.main]
            if ours.shape == theirs.shape and not gap(ours, theirs).any():
                return run
            self.note = "some stages are not known: Headrace's stages do not give the tensors of this transformers"
        except HeadraceError as error:
            self.note = f"some stages are not known: {error}"
        return None

    def _levels(
        self, found: NDArray[Any], expected: NDArray[Any], run: ImageRun, spec: ProcessorSpec
    ) -> Difference | None:
        """Return the difference of the tensor in levels of a pixel."""
        if found.shape != expected.shape:
            return None
        planes = on_images(gap(found, expected), run.planes.shape, spec)
        if planes is None:
            return None
        slope = levels(spec).reshape(3, 1, 1)
        scaled = planes / np.where(slope == 0, 1, slope)
        return difference([scaled], [np.zeros(scaled.shape)], "levels")


def _stage_differences(
    own: Mapping[str, list[NDArray[Any]]], expected: Mapping[str, list[NDArray[Any]]]
) -> dict[str, Difference | str]:
    made: dict[str, Difference | str] = {}
    for name, theirs in expected.items():
        ours = own[name]
        if shapes(ours) != shapes(theirs):
            made[name] = f"{_form(ours[0])} in place of {_form(theirs[0])}"
        else:
            made[name] = difference(ours, theirs, "levels" if name in IN_LEVELS else "values")
    return made


def _differs(of: Difference | str, tolerance: float = 0.0) -> bool:
    """Tell whether values differ by more than a tolerance, or have another form."""
    return isinstance(of, str) or not of.within(tolerance)


def _words(of: Difference | str | None) -> str | None:
    if of is None or isinstance(of, str):
        return of
    return f"up to {of.max:.3g} {of.unit}, {of.share:.1%} of the values"


def _pictures(
    stages: Mapping[str, Difference | str],
    own: Mapping[str, list[NDArray[Any]]],
    run: ImageRun,
    found: Tensors,
    expected: Tensors,
    spec: ProcessorSpec,
) -> Pictures | None:
    """Return the image and the heat map of the first stage that differs and has pixels, or else of the tensor."""
    first = next((name for name in IN_LEVELS if name in stages and _differs(stages[name])), None)
    if first is not None and not isinstance(stages[first], str):
        theirs = results_of(run)[first]
        gaps = joined([gap(a, b).max(-1) for a, b in zip(own[first], theirs, strict=True)])
        return _picture(joined(theirs), gaps, first, "levels")
    main = next(iter(expected))
    if found[main].shape != expected[main].shape:
        return None
    planes = on_images(gap(found[main], expected[main]), run.planes.shape, spec)
    if planes is None:
        return None
    slope = levels(spec).reshape(3, 1, 1)
    gaps = joined(list((planes / np.where(slope == 0, 1, slope)).max(1)))
    return _picture(joined(run.placed), gaps, "tensor", "levels")


def _picture(image: NDArray[Any] | None, gaps: NDArray[np.float64], stage: str, unit: str) -> Pictures:
    finite = gaps[np.isfinite(gaps)]
    largest = float(finite.max(initial=0.0))
    full = max(largest, 1.0) if unit == "levels" else largest  # rounding far below a level stays dark
    source = None if image is None else thumbnail(image)
    words = f"the largest difference is {largest:.3g} {unit}, white is {full:.3g}"
    return Pictures(source, heat_map(gaps, full, keep_ratio=image is not None), stage, words)


class _Audio(_Work):
    def _compared(
        self, name: str, data: bytes, expected: Tensors
    ) -> tuple[FileResult, list[Match] | None, Tensors | None]:
        reference, main = self.reference, self.reference.main
        spec = reference.spec
        assert spec is None or isinstance(spec, AudioSpec)
        run = run_audio(data, AudioStages(reference.features), reference.rate)
        stages: dict[str, Difference | str] = {}
        note, began = None, time.monotonic()
        if self.candidate.audio is not None:
            own = own_audio_results(data, self.candidate.audio, reference.rate, run, main)
            stages = _stage_differences(
                {name: [each] for name, each in own.items()},
                {name: [each] for name, each in audio_results_of(run, main).items()},
            )
            began = time.monotonic()
            found = run_audio(data, self.candidate.audio, reference.rate).tensors
            took = time.monotonic() - began
        else:
            assert self.candidate.opaque is not None
            found, note, took = self._answered(data, self.candidate.opaque)
        tensors = self._tensors(found, expected)
        result = FileResult(name, EQUAL, stages=stages, tensors=tensors, note=note, seconds=took)
        if self._same(found, expected, tensors):
            return result, None, found
        result = replace(result, result=DIFFERS, first=NO_STAGE, pictures=self._heat(found[main], expected[main]))
        if stages:
            first = self._first(stages, AUDIO_NAMES)
            return replace(result, first=first, why=_words(stages.get(first))), None, found
        if (other := self._other_than_main(found, expected, tensors)) is not None:
            return replace(result, first=other.stage, why=other.text), None, found
        explained = matches(
            found[main],
            expected[main],
            audio_hypotheses.ARRANGEMENTS,
            audio_hypotheses.hypotheses(run, reference.features, reference.rate, main, spec),
            max(self.tolerance, audio_hypotheses.ROUNDING),
        )
        if not explained and (failed := self._another_form(tensors)) is not None:
            result = replace(result, result=FAILED, first=None, why=failed.why)
        return result, explained, found

    def _heat(self, found: NDArray[Any], expected: NDArray[Any]) -> Pictures | None:
        if found.shape != expected.shape:
            return None
        gaps = audio_hypotheses.as_matrix(gap(found, expected))
        return _picture(None, gaps[::-1], "features", "values")
