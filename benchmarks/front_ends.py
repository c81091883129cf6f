"""Features of speech models: CPU time beside other libraries, and hours of speech for compute units and for a card.

    .venv/bin/python -m benchmarks.front_ends [--seconds 30] [--rounds 15] [--json [FILE]]
    .venv/bin/python -m benchmarks.front_ends --costs  # writes sim/system/processor_costs.csv

The cases take turns on one core. transformers computes Whisper's features by PyTorch, or by numpy where that is not
installed. The errors are the largest differences from the former. faster-whisper and asrfront take part where they are
installed (`pip install --no-deps faster-whisper==1.2.1 asrfront==0.2.2`). A line below the table names what is missing.
The last column is the hours of speech that a core prepares in an hour.

Below it are those of the compute units, by their cycle model and the clock that the estimates support: one CU A with a
CU B, and a card. LUTs and DSPs are those of both units, by Yosys. The microseconds of CU A are for a piece of 0.1 s of
a stream, with the samples before it that its first window needs. Nothing of this has run on a card.

With --costs, the time is that from the bytes of a WAV file of 16 kHz to the tensors, of each known model and of some
lengths, by our CPU path and by transformers with soundfile. They take turns, and the least of the rounds counts.
"""

import argparse
import importlib.util
import io
import math
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.core_costs import Cost, write_costs
from benchmarks.harness import Report, arguments, main, measure, progress, spread, summary, table
from headrace.batching import UsageError
from headrace.host.dpu.audio_work import mel_cu_clocks, norm_cu_clocks
from headrace.host.dpu.hugging_face.front import preprocess
from headrace.host.dpu.hugging_face.names import audio_names, audio_processor
from headrace.host.dpu.reference import audio
from headrace.host.dpu.specs import AudioSpec
from headrace.host.dpu.specs.feature_extractors import MODELS
from headrace.host.dpu.specs.front_ends import Lengths
from headrace.host.dpu.units.audio_cu import check
from headrace.sim.system.card import CUS, HBM_PORTS, MASTERS, USABLE, estimated_mhz, share_of_card

PIECE = 1600 + 400 - 160  # samples: 0.1 s, and the window's share of the time before
COST_S = ("0.1", "1", "5", "15", "30")  # lengths of the sounds of --costs
NAMES = (
    "whisper-tiny",
    "whisper-large-v3",
    "qwen3-asr",
    "parakeet-ctc-1.1b",
    "seamless-m4t-v2",
    "s2t-small-librispeech-asr",
    "ast-finetuned-audioset",
    "phi-4-multimodal",
)
OTHERS = {"asrfront": "asrfront", "faster-whisper": "faster_whisper"}  # packages, and their modules


def samples(seconds: float) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return tones with noise whose loudness changes, as speech has."""
    random, at = np.random.default_rng(1), np.arange(round(16000 * seconds)) / 16000
    tones = sum(np.sin(2 * np.pi * 130 * k * at) / k for k in range(1, 25))
    loudness = np.clip(np.sin(2 * np.pi * 1.7 * at), 0, 1)
    made = 0.2 * loudness * tones + 0.02 * random.standard_normal(len(at))
    return (np.rint(np.clip(made, -1, 1) * 32767) / 32768).astype(np.float32)


def _timed(call: Callable[[], object]) -> float:
    started = time.thread_time()
    call()
    return time.thread_time() - started


def _timed_again(call: Callable[[], object]) -> float:
    """Return the time of a second call, whose caches the case before did not fill."""
    call()
    return _timed(call)


def missing() -> list[str]:
    """Return the other libraries that are not installed."""
    return [name for name, module in OTHERS.items() if importlib.util.find_spec(module) is None]


def others(n_mels: int) -> dict[str, Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]]:
    """Return the other libraries that are installed and compute Whisper's features of 30 s, by name."""
    found: dict[str, Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]] = {}
    if "asrfront" not in missing():
        from asrfront import whisper

        found["asrfront"] = lambda clip: whisper.log_mel(clip, n_mels=n_mels)
    package = importlib.util.find_spec(OTHERS["faster-whisper"])
    if package is not None:  # without its __init__, which imports a decoder of media files
        (folder,) = package.submodule_search_locations or ()
        path = Path(folder, "feature_extractor.py")
        own = importlib.util.spec_from_file_location("faster_whisper_feature_extractor", path)
        assert own is not None and own.loader is not None
        module = importlib.util.module_from_spec(own)
        own.loader.exec_module(module)
        extractor = module.FeatureExtractor(feature_size=n_mels)

        def by_faster_whisper(clip: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
            padded = np.pad(clip[: extractor.n_samples], (0, max(0, extractor.n_samples - len(clip))))
            features: np.ndarray[Any, Any] = extractor(padded, padding=0)
            return features

        found["faster-whisper"] = by_faster_whisper
    return found


def extractor_of(name: str) -> tuple[Any, dict[str, Any]]:
    """Return the feature extractor of transformers for a known model, and arguments of its call."""
    import transformers

    settings = dict(MODELS[name])
    kind = str(settings.pop("feature_extractor_type"))
    more: dict[str, Any] = {"padding": True} if kind.startswith("Qwen3") else {}
    return getattr(transformers, kind)(**settings), {"sampling_rate": 16000, "return_tensors": "np", **more}


def costs(rounds: int) -> Report:
    """Measure the time of a core for files of some lengths, and write it for the simulator."""
    import soundfile
    import torch

    torch.set_num_threads(1)
    found: list[Cost] = []
    for name in audio_names():
        progress(name)
        extractor, more = extractor_of(name)

        def by_transformers(data: bytes, of: Any = extractor, more: Any = more) -> object:
            return of(soundfile.read(io.BytesIO(data), dtype="float32")[0], **more)

        def ours(data: bytes, name: str = name) -> object:
            return preprocess(data, name)

        cases: dict[tuple[str, str], Callable[[int], float]] = {}
        for seconds in COST_S:
            file = io.BytesIO()
            soundfile.write(file, samples(float(seconds)), 16000, format="WAV", subtype="PCM_16")
            data = file.getvalue()
            for library, made in (("ours", ours), ("transformers", by_transformers)):
                cases[library, seconds] = lambda _, made=made, data=data: _timed_again(lambda: made(data))
        times = {case: min(each) for case, each in measure(cases, rounds, warm_up=1).items()}
        found += [Cost(name, library, seconds, 1e3 * of) for (library, seconds), of in times.items()]
    write_costs(found)
    rows = [f"{each.processor} | {each.library} | {each.size} | {each.ms:.3g}" for each in found]
    return Report({"costs": [asdict(each) for each in found]}, table("model | library | seconds | CPU ms", rows))


def run(options: argparse.Namespace) -> Report:
    if options.costs:
        return costs(options.rounds)
    import torch
    from transformers.models.whisper import feature_extraction_whisper

    torch.set_num_threads(1)
    clip = samples(options.seconds)
    cases: dict[str, Callable[[int], float]] = {}
    errors: dict[str, float] = {}  # by name of the case
    for name in NAMES:
        spec, (extractor, more) = audio_processor(name), extractor_of(name)
        call = {"raw_speech": clip, **more}
        audio.prepare(spec)
        cases[f"{name}, Headrace"] = lambda _, spec=spec: _timed(lambda: audio.features(clip, spec))
        cases[f"{name}, transformers"] = lambda _, of=extractor, call=call: _timed(lambda: of(**call))
        if type(extractor).__name__.startswith("Whisper"):

            def by_numpy(_: int, of: Any = extractor, call: Any = call) -> float:
                feature_extraction_whisper.is_torch_available = lambda: False
                try:
                    return _timed(lambda: of(**call))
                finally:
                    feature_extraction_whisper.is_torch_available = lambda: True

            cases[f"{name}, transformers by numpy"] = by_numpy
        assert spec.tensors is not None
        theirs = np.asarray(extractor(**call)[spec.tensors.features])[0]
        errors[f"{name}, Headrace"] = float(np.abs(audio.features(clip, spec) - theirs).max())
        for library, compute in others(spec.n_mels).items() if name.startswith("whisper") else ():
            cases[f"{name}, {library}"] = lambda _, compute=compute: _timed(lambda: compute(clip))
            features = compute(clip)
            assert features.shape == theirs.shape, (library, features.shape)
            errors[f"{name}, {library}"] = float(np.abs(features - theirs).max())
    found = measure(cases, options.rounds, warm_up=2)
    rows = []
    for case, values in found.items():
        name, library = case.split(", ")
        error = f"{errors[case]:.1e}" if case in errors else ""
        hours = f"{options.seconds / median(values):,.0f}"
        rows.append(f"{name} | {library} | {spread([1e3 * each for each in values], '.1f')} | {error} | {hours}")
    text = table(f"model | library | CPU ms for {options.seconds:g} s | error | hours in an hour", rows)
    if absent := missing():
        text += f"\n\nNot installed, so not measured: {', '.join(absent)}."
    units = {name: of_units(audio_processor(name), options.seconds) for name in NAMES}
    lines = [
        f"{name} | {each['clocks_a']:,} | {each['samples_a_clock']:.3f} | {each['clocks_b']:,} | {each['lut']:,} | "
        f"{each['dsp']} | {each['mhz']} | {each['hours']:,.0f} | {each['cus_a']} | {each['hours_of_card']:,.0f} | "
        f"{each['piece_us']:.1f}"
        for name, each in units.items()
        if each is not None
    ]
    head = "model | clocks of CU A | samples a clock | clocks of CU B | LUTs | DSPs | MHz | hours in an hour"
    text += "\n\n" + table(f"{head} | CUs A of a card | hours of a card | us of 0.1 s", lines)
    if refused := [name for name, each in units.items() if each is None]:
        text += f"\n\nThe compute units do not take {', '.join(refused)}."
    figures = {"seconds": summary(found), "errors": errors, "not_installed": missing(), "units": units}
    return Report(figures, text)


def of_units(spec: AudioSpec, seconds: float) -> dict[str, float] | None:
    """Return the hours of speech in an hour for a CU A and for a card, and what they come from. None if the units do
    not take the spec.

    A card has as many CUs as its memory has ports, and the share of its cells allows. Each CU B serves as many of CU A
    as it keeps up with. LUTs and DSPs are those of one CU A and one CU B."""
    try:
        check(spec)
    except UsageError:
        return None
    samples = round(16000 * seconds)
    first, second = mel_cu_clocks(spec, samples), norm_cu_clocks(spec, samples)
    piece = mel_cu_clocks(replace(spec, lengths=Lengths(least=PIECE)), PIECE)
    mhz = estimated_mhz("mel cu", "norm cu")
    hours = 1e6 * mhz / first * seconds
    count = 0
    while True:
        cus = {"mel cu": count + 1, "norm cu": math.ceil((count + 1) * second / first)}
        ports = sum(number * MASTERS[name] for name, number in cus.items())
        if ports > HBM_PORTS or share_of_card(cus)[1] > USABLE:
            break
        count += 1
    return {
        "clocks_a": first,
        "samples_a_clock": samples / first,
        "clocks_b": second,
        "lut": round(CUS["mel cu"]["lut"] + CUS["norm cu"]["lut"]),
        "dsp": round(CUS["mel cu"]["dsp"] + CUS["norm cu"]["dsp"]),
        "mhz": mhz,
        "hours": hours,
        "cus_a": count,
        "hours_of_card": count * hours,
        "piece_us": piece / mhz,
    }


if __name__ == "__main__":
    parser = arguments(__doc__, rounds=15, seconds=30.0)
    parser.add_argument("--costs", action="store_true", help="write the times of a core for `headrace simulate`")
    main(parser, run)
