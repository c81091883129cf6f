#!/usr/bin/env python3
"""Measure how far the compute units' resampler is from soxr and librosa, and draw what was measured.

    .venv/bin/python scripts/resampling_figures.py measure [--voice FOLDER]
    .venv/bin/python scripts/resampling_figures.py draw

`measure` writes docs/results/measured/resampling.json, in a minute. `draw` makes the pictures of
docs/results/resampling.md from that file. The result does not depend on the machine.

- Response: that of each resampler's impulses, in float64. The impulses at all places between two outputs give its
  taps, as all of them are linear. That of the compute units is computed from their rounded taps.
- Sweep: a sine whose frequency grows evenly to that of the input's Nyquist frequency, in 16 bits. The C++ of the
  compute units makes its output, and each library makes its own. Up to the edge of the pass band the error is against
  the same sweep, sampled at 16 kHz. What comes out above that is the transition band and the aliases.
- Speech: the log-mel bands of the default spec, and Whisper's features, of speech that each resampler brought to
  16 kHz. At 8 kHz the speech is that of the tests. With --voice, WAV files of 44.1 or 48 kHz in that folder are taken,
  too.
"""

import argparse
import asyncio
import io
import json
import math
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.fft
import soundfile
import soxr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from headrace.batching import UsageError
from headrace.bitstreams.build import build_sw_emu
from headrace.host.dpu.driver import Dpu
from headrace.host.dpu.hugging_face.names import audio_processor
from headrace.host.dpu.reference import audio
from headrace.host.dpu.reference.resampling import PASS_BAND, TAP_ONE, fixed_taps
from headrace.host.dpu.specs import RATES, AudioSpec, AudioStage
from headrace.sim.plot_style import color, headed, legend, others, panels, picture, theme

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "docs" / "results" / "measured" / "resampling.json"
PICTURES = ROOT / "docs" / "images" / "results" / "resampling"
SPEECH = ROOT / "tests" / "host" / "dpu" / "speech"
TARGET = 16000
DRAWN = (8000, 44100, 48000)  # Hz, of the pictures
UNITS = "compute units"
POINTS = 400  # of a drawn response
SWEEP_S = 8.0
SWEEP_LEVEL = 0.9
BLOCK = 400  # samples at TARGET whose error is one point of a drawn sweep
FLOOR_DB = -150.0
LOUD = 6 * math.log(10)  # 60 dB of power
SOXR = "soxr HQ"

Resampler = Callable[[NDArray[Any], int, int], NDArray[Any]]


def by_kaiser_best(samples: NDArray[Any], source: int, target: int) -> NDArray[Any]:
    import librosa

    return np.asarray(librosa.resample(samples, orig_sr=source, target_sr=target, res_type="kaiser_best"))


LIBRARIES: Mapping[str, Resampler] = {
    SOXR: lambda samples, source, target: soxr.resample(samples, source, target, "HQ"),
    "soxr VHQ": lambda samples, source, target: soxr.resample(samples, source, target, "VHQ"),
    "librosa kaiser_best": by_kaiser_best,
}
STYLES = {UNITS: "-", SOXR: "-", "soxr VHQ": "--", "librosa kaiser_best": ":"}


# ---- Response ----


def taps_of(resample: Resampler, source: int) -> tuple[NDArray[np.float64], int]:
    """Return the taps of a linear resampler to TARGET, at `up` times `source`, with the place of its middle.

    An impulse at input n gives the taps at the places m * down - n * up of each output m. So the impulses at `down`
    inputs in turn give all of them."""
    up, down = _ratio(source)
    reach = 200 * max(1, math.ceil(source / TARGET))  # inputs on either side that taps may reach
    count = 2 * reach + down
    half = reach * up
    found = np.zeros(2 * half + 1)
    for n in range(reach, reach + down):
        impulse = np.zeros(count)
        impulse[n] = 1.0
        out = resample(impulse, source, TARGET)
        places = np.arange(len(out)) * down - n * up
        inside = np.abs(places) <= half
        found[half + places[inside]] = out[inside]
    return found, half


def unit_taps(source: int) -> tuple[NDArray[np.float64], int]:
    fixed = fixed_taps(source, TARGET) / TAP_ONE
    return fixed, len(fixed) // 2


def _ratio(source: int) -> tuple[int, int]:
    common = math.gcd(source, TARGET)
    return TARGET // common, source // common


def response_db(taps: tuple[NDArray[np.float64], int], source: int, hz: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the gain near each frequency, in dB: 0 is that of a resampler without error. The steps are below 4 Hz."""
    up, _ = _ratio(source)
    count = max(scipy.fft.next_fast_len(len(taps[0]), real=True), up * source // 4)
    gain = np.abs(scipy.fft.rfft(taps[0], count)) / up  # going up, the level stays if the taps add up to `up`
    near = np.rint(hz * count / (up * source)).astype(int)
    return np.asarray(np.maximum(20 * np.log10(np.maximum(gain[near], 1e-12)), FLOOR_DB))


def edges(taps: tuple[NDArray[np.float64], int], source: int) -> dict[str, float]:
    """Return the ripple up to the edge of the units' pass band, where a filter loses 0.1 and 3 dB, and the least
    attenuation from the lower Nyquist frequency on."""
    nyquist = min(source, TARGET) / 2
    edge = PASS_BAND * nyquist
    passed = response_db(taps, source, np.linspace(0, edge, 300))
    near = np.linspace(0.7 * nyquist, 1.1 * nyquist, 800)
    falling = response_db(taps, source, near)
    up, _ = _ratio(source)
    top = min(TARGET - nyquist if source < TARGET else source / 2, up * source / 2)
    stopped = response_db(taps, source, np.linspace(nyquist, top, 1500))
    return {
        "ripple_db": float(np.abs(passed).max()),
        "loss_0_1_db_hz": float(near[np.argmax(falling < -0.1)]),
        "loss_3_db_hz": float(near[np.argmax(falling < -3.0)]),
        "at_nyquist_db": float(response_db(taps, source, np.array([nyquist]))[0]),
        "stop_db": float(stopped.max()),
        "alias_60_db_hz": float(near[np.argmax(falling < -60.0)]) if (falling < -60).any() else math.nan,
    }


# ---- Sound ----


async def _units_resampled(clips: Mapping[str, tuple[NDArray[np.int16], int]]) -> dict[str, NDArray[np.float32]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "audio.xclbin"
        build_sw_emu(path, image_cus=0, mel_cus=1, norm_cus=1)
        async with Dpu(path, AudioSpec()) as dpu:
            made = {
                name: np.asarray((await dpu.process(_wav(samples, rate), AudioStage.RESAMPLE)).tensor)
                for name, (samples, rate) in clips.items()
            }
            assert dpu.counters.on_cpu == 0
    return made


def _wav(samples: NDArray[np.int16], rate: int) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format="WAV", subtype="PCM_16")
    return file.getvalue()


def resampled(clips: Mapping[str, tuple[NDArray[np.int16], int]]) -> dict[str, dict[str, NDArray[np.float64]]]:
    """Return each clip at TARGET, by resampler. The C++ of the compute units makes those of UNITS."""
    units = asyncio.run(_units_resampled(clips))
    found: dict[str, dict[str, NDArray[np.float64]]] = {}
    for name, (samples, rate) in clips.items():
        exact = samples / 32768
        found[name] = {UNITS: units[name].astype(np.float64)}
        found[name] |= {label: each(exact, rate, TARGET) for label, each in LIBRARIES.items()}
        count = min(map(len, found[name].values()))
        found[name] = {label: each[:count].astype(np.float64) for label, each in found[name].items()}
    return found


def sweep(rate: int, top: float) -> NDArray[np.float64]:
    """Return a sine at `rate` whose frequency grows evenly from 0 to `top` Hz within SWEEP_S."""
    time = np.arange(round(SWEEP_S * rate)) / rate
    return np.asarray(SWEEP_LEVEL * np.sin(np.pi * top / SWEEP_S * time**2))


def sweep_rows(made: Mapping[str, NDArray[np.float64]], source: int) -> dict[str, Any]:
    """Return the error of each resampler, by the frequency of the sweep.

    Up to the edge of the units' pass band the error is against the sweep at TARGET. Above it the level of the output
    counts: what is left of the tone and its alias."""
    top, edge = source / 2, PASS_BAND * min(source, TARGET) / 2
    exact = sweep(TARGET, top)
    hz = top / SWEEP_S * (np.arange(0, len(exact) - BLOCK, BLOCK) + BLOCK / 2) / TARGET
    rows: dict[str, Any] = {"hz": _rounded(hz, 1), "edge_hz": edge, "db": {}, "pass_rms": {}, "pass_max": {}}
    for label, output in made.items():
        count = min(len(output), len(exact))
        error = np.where(
            np.arange(count) / TARGET * top / SWEEP_S <= edge, output[:count] - exact[:count], output[:count]
        )
        blocks = error[: count // BLOCK * BLOCK].reshape(-1, BLOCK)[: len(hz)]
        level = np.sqrt((blocks**2).mean(1)) / (SWEEP_LEVEL / math.sqrt(2))
        rows["db"][label] = _rounded(np.maximum(20 * np.log10(np.maximum(level, 1e-12)), FLOOR_DB), 2)
        # The first 50 ms and the last before the edge lie within the reach of the taps.
        inner = slice(round(0.05 * TARGET), round(edge / top * SWEEP_S * TARGET) - round(0.05 * TARGET))
        rows["pass_rms"][label] = float(np.sqrt(np.mean((output - exact[: len(output)])[inner] ** 2)))
        rows["pass_max"][label] = float(np.abs((output - exact[: len(output)])[inner]).max())
    return rows


def speech_clips(voice: Path | None) -> dict[str, tuple[NDArray[np.int16], int]]:
    """Return recordings of speech: those of the tests at 8 kHz, and those of a folder at 44.1 and 48 kHz."""
    clips = {}
    for path in [*sorted(SPEECH.glob("*.flac")), *(sorted(voice.glob("*.wav")) if voice else [])]:
        samples, rate = soundfile.read(path, dtype="int16", always_2d=True)
        if rate in DRAWN:
            clips[path.stem] = (samples[:, 0].copy(), rate)
    if voice and not any(rate != 8000 for _, rate in clips.values()):
        raise UsageError(f"--voice {voice}: the folder has no WAV file at 44.1 or 48 kHz")
    return clips


def speech_rows(clips: Mapping[str, tuple[NDArray[np.int16], int]]) -> list[dict[str, Any]]:
    """Return a row for each rate: differences of features from those with soxr HQ.

    Log-mels are natural logarithms, and only those count that lie within LOUD of the greatest of the clip."""
    rows, made = [], resampled(clips)
    spec, whisper = AudioSpec(), audio_processor("whisper-tiny")
    bank = audio.filterbank(spec).astype(np.float64)
    hz = (bank @ np.arange(bank.shape[1])) / bank.sum(1) * spec.rate / spec.n_fft
    for rate in sorted({rate for _, rate in clips.values()}):
        names = [name for name, (_, each) in clips.items() if each == rate]
        below = hz < 0.85 * min(rate, TARGET) / 2
        row: dict[str, Any] = {"rate": rate, "clips": len(names), "bands_hz": _rounded(hz, 1)}
        row["seconds"] = round(sum(len(clips[name][0]) for name in names) / rate, 2)
        row |= {name: {} for name in ("by_band", "median", "below_999", "all_999", "whisper_999", "whisper_max")}
        for label in (UNITS, *LIBRARIES):
            if label == SOXR:
                continue
            differences, features = [], []
            for name in names:
                mine, exact = (_log_mels(made[name][each], spec) for each in (label, SOXR))
                differences.append(np.where(exact >= exact.max() - LOUD, np.abs(mine - exact), np.nan))
                mine, exact = (_features(made[name][each], whisper) for each in (label, SOXR))
                features.append(np.abs(mine - exact))
            every, speech = np.concatenate(differences, axis=1), np.concatenate(features, axis=1)
            heard = [line[~np.isnan(line)] for line in every]
            row["by_band"][label] = [_digits(float(np.median(line))) if len(line) else None for line in heard]
            row["median"][label] = _digits(float(np.nanmedian(every)))
            row["below_999"][label] = _digits(float(np.nanquantile(every[below], 0.999)))
            row["all_999"][label] = _digits(float(np.nanquantile(every, 0.999)))
            row["whisper_999"][label] = _digits(float(np.quantile(speech, 0.999)))
            row["whisper_max"][label] = _digits(float(speech.max()))
        rows.append(row)
    return rows


def _log_mels(samples: NDArray[np.float64], spec: AudioSpec) -> NDArray[np.float64]:
    return np.asarray(audio.log_mel(samples.astype(np.float32), spec), np.float64)


def _features(samples: NDArray[np.float64], spec: AudioSpec) -> NDArray[np.float64]:
    """Return the features of the frames that the sound fills."""
    made = np.asarray(audio.features(samples.astype(np.float32), spec), np.float64)
    return made[:, : -(-len(samples) // spec.hop)]


def _digits(value: float) -> float:
    return float(f"{value:.4g}")


def _rounded(values: NDArray[Any], places: int) -> list[float]:
    return [round(float(value), places) for value in values]


# ---- Both commands ----


def responses(sources: Sequence[int]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for source in sources:
        every = {UNITS: unit_taps(source)} | {label: taps_of(each, source) for label, each in LIBRARIES.items()}
        print(f"response from {source} Hz", file=sys.stderr)
        found[str(source)] = {
            label: {name: _digits(value) for name, value in edges(each, source).items()}
            for label, each in every.items()
        }
        found[str(source)][UNITS]["taps_an_output"] = math.ceil(len(every[UNITS][0]) / _ratio(source)[0])
        if source in DRAWN:
            hz = np.unique(
                np.concatenate(
                    [
                        np.linspace(0, max(source, TARGET) / 2, POINTS // 2),
                        np.linspace(0.85, 1.1, POINTS // 2) * min(source, TARGET) / 2,
                    ]
                )
            )
            curves = {label: _rounded(response_db(each, source, hz), 3) for label, each in every.items()}
            found[str(source)]["curves"] = {"hz": _rounded(hz, 1)} | curves
    return found


def measure(voice: Path | None) -> None:
    sources = [rate for rate in RATES if rate != TARGET]
    sweeps = {
        str(source): (np.clip(np.rint(sweep(source, source / 2) * 32768), -32768, 32767).astype(np.int16), source)
        for source in DRAWN
    }
    made = resampled(sweeps)
    figures = {
        "versions": {name: _version(name) for name in ("soxr", "librosa", "resampy", "numpy")},
        "response": responses(sources),
        "sweep": {source: sweep_rows(made[source], int(source)) for source in sweeps},
        "speech": speech_rows(speech_clips(voice)),
    }
    OUT.write_text(json.dumps(figures) + "\n")
    print(f"wrote {OUT.relative_to(ROOT)}")


def _version(name: str) -> str:
    from importlib.metadata import version

    return version(name)


# ---- Pictures ----


def _lines(panel: Axes, hz: Sequence[float], values: Mapping[str, Sequence[float | None]]) -> None:
    """Draw a line for each resampler that has values, in its own style."""
    fills = dict(zip((UNITS, *LIBRARIES), [color("dpu"), *others(len(LIBRARIES))], strict=True))
    for label, fill in fills.items():
        if label in values:
            shown = [math.nan if value is None else value for value in values[label]]
            width = 2.4 if label == UNITS else 1.3
            panel.plot(np.array(hz) / 1e3, shown, STYLES[label], color=fill, label=label, linewidth=width)
    panel.set_xlabel("kHz")


def _names(rates: Sequence[int]) -> list[str]:
    return [f"from {rate / 1e3:g} kHz" for rate in rates]


@picture
def response(figures: Mapping[str, Any]) -> Figure:
    """Draw the gain over all frequencies, and near the edge."""
    names = _names(DRAWN)
    drawn, grid = panels([*names, *(f"{name}: the edge" for name in names)], height_in=2.5)
    for place, rate in enumerate(DRAWN):
        curves = figures["response"][str(rate)]["curves"]
        lower = min(rate, TARGET) / 2e3
        for panel in (grid[place], grid[place + 3]):
            _lines(panel, curves["hz"], curves)
            panel.axvline(lower, color=theme().muted, linewidth=0.8)
        grid[place].set_ylim(-140, 5)
        grid[place + 3].set(xlim=(0.86 * lower, 1.08 * lower), ylim=(-12, 1))
    for row in (0, 3):
        grid[row].set_ylabel("gain, dB")
    legend(drawn, grid[0])
    headed(drawn, "Gain to 16 kHz; the vertical line is the lower Nyquist frequency")
    return drawn


@picture
def sweeps(figures: Mapping[str, Any]) -> Figure:
    """Draw the error of a sweep over its frequency."""
    drawn, grid = panels(_names(DRAWN), height_in=2.9, sharey=True)
    for panel, rate in zip(grid, DRAWN, strict=True):
        rows = figures["sweep"][str(rate)]
        _lines(panel, rows["hz"], rows["db"])
        panel.axvspan(0, rows["edge_hz"] / 1e3, color=theme().band, zorder=0)
        panel.set_ylim(-130, 5)
    grid[0].set_ylabel("dB of the sweep")
    legend(drawn, grid[0])
    headed(drawn, "A sweep: error (shaded: the pass band), then what is left of the tone and its alias")
    return drawn


@picture
def speech(figures: Mapping[str, Any]) -> Figure:
    """Draw how far log-mels of speech are from those with soxr HQ, by band."""
    rows = figures["speech"]
    names = [
        f"{name}, {row['clips']} clips" for name, row in zip(_names([row["rate"] for row in rows]), rows, strict=True)
    ]
    drawn, grid = panels(names, height_in=2.9)
    for panel, row in zip(grid, rows, strict=True):
        _lines(panel, row["bands_hz"], row["by_band"])
        panel.set(yscale="log", ylim=(1e-7, 10))
        panel.axvspan(0, PASS_BAND * min(row["rate"], TARGET) / 2e3, color=theme().band, zorder=0)
    grid[0].set_ylabel("difference, natural logarithm")
    legend(drawn, grid[0])
    headed(drawn, "Log-mel bands of speech: median difference from those with soxr HQ (shaded: the pass band)")
    return drawn


def draw() -> None:
    figures = json.loads(OUT.read_text())
    PICTURES.mkdir(parents=True, exist_ok=True)
    for name, write in (("response", response), ("sweeps", sweeps), ("speech", speech)):
        write(PICTURES / f"{name}.png", figures)
        print(f"drew {name}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("measure", "draw"))
    parser.add_argument("--voice", type=Path, help="a folder of WAV files with speech at 44.1 or 48 kHz")
    given = parser.parse_args()
    try:
        measure(given.voice) if given.command == "measure" else draw()
    except (UsageError, OSError) as error:
        print(f"resampling_figures: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
