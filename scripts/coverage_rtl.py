"""Report what the tests of the RTL cover: lines, branches, toggles and cover properties; list what no test reaches.

    .venv/bin/python scripts/coverage_rtl.py [--json FILE] [--report] [SUITE ...]

Runs tests/hls, the benches of all units and the cocotb tests, with models that count. The counts of a source line are
added over all instances and models. With names of suites (tests/hls/test_<suite>.py) only these run again. The tables
then also have the last counts of the other suites, if their sources have not changed since. `--report` runs nothing.

line       executed statements. A line with several statements, such as an `if` with its `else`, needs all of them.
branch     taken ways: both ways of each `if`, also if no `else` is written; `case` items; both ways of `?:`.
toggle     bits of ports and variables that rose and fell after reset.
cover      cover properties in the RTL, which name rare situations. tests/hls/test_covers.py reaches each one.

The tables leave out assertions, arrays that Verilator does not count (memories), and the lines of functions that
return, because Verilator counts them after the return. Each line and bit that no test reaches is listed with its reason
from UNREACHED and UNTOGGLED. The exit status is 1 if a line, branch or cover property has no reason. A report of all
suites also lists the reasons that match nothing.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from headrace.bitstreams.sources import hls_folder

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "coverage"
TESTS = ROOT / "tests" / "hls"
SUITES = (
    "image_cu",
    "memory_errors",
    "decode",
    "decode_scans",
    "progressive_rtl",
    "pairs",
    "image_cu_progressive",
    "image_cu_protocol",
    "image_program",
    "image_stream",
    "image_stream_protocol",
    "sampling",
    "transform",
    "render",
    "audio_norm_cu",
    "audio_mel_cu",
    "covers",
    "mel",
    "resize",
    "scaler",
    "patches",
    "audio_norm_cu_protocol",
    "audio_mel_cu_protocol",
    "job_ring",
    "crop",
    "wav",
    "resample",
    "mel_normalize",
    "normalize",
    "axi",
    "axi_share",
    "axi_write",
    "store",
    "sound_store",
)  # the longest first
TIMEOUT_S = 1800  # for one test, because models that count are slower

WAYS = {
    "if": "never true",
    "elsif": "never true",
    "else": "never false",
    "case": "never",
    "cond_then": "never true",
    "cond_else": "never false",
}

# Why lines and branches stay unreached. Each entry has a part of the file's name, a part of the line's text, "line" or
# a way ("" for any), and the reason.
UNREACHED: tuple[tuple[str, str, str, str], ...] = (
    ("", "default:", "", "no state has this code; the line is a way out after an upset"),
    (
        "entropy_data",
        "if (token_ready_i) escaped_d = 1'b0;",
        "else",
        "a leading 0xFF is taken when there is room for a token, and makes none; only a token leaves less room",
    ),
    (
        "job_ring",
        "if (ask) state_d =",
        "else",
        "the words of the last read come before this state, and the CU begins a run only when the ring is idle",
    ),
    (
        "wav_words",
        "else if (used_up)",
        "",
        "words are off only after all of them were taken, and then nothing is used up",
    ),
    (
        "render.sv",
        "samples_valid_i && samples_i.done",
        "",
        "without a scan the end beat comes alone, and an offered beat stays",
    ),
)
# Why bits do not toggle. Each entry has a part of the file's name, the bits, and the reason. The first match counts.
STATUS = "status codes end at 24, the codes of images at 19, those inside decode at 14"
ALIGNED = "addresses are aligned to 16 bytes, addresses of registers to 4"
SOURCE = "a source is at most 8192 wide"
RESERVE = "these queues never fill up, because their sources keep a reserve"
SIZES = "these bits need images that take minutes; the slow tests have some"
CONSTANT = "constant by construction: low bits of even multiples, or more bits than any value needs"
LENGTHS = "the tests' audio is a few seconds long; longer audio would take minutes"
FIELDS = "fields of 32 bits; the tests' audio is a few seconds long, and codes and rates are small"
BOUND = "bounds of a sum with every term at its own bound; the tests' audio does not come near"
LAST_LANE = "no table has a tap there for the second pass, so only the half for rounding stays"
UNTOGGLED: tuple[tuple[str, str, str], ...] = (
    ("parse/", r"(\w+_)?request(_[io])?\..*", "no reader of segments uses every field of a request"),
    # Files of several scans
    ("coefficient_send", r"coefficient_o\.(done|status\[\d\])", "the next stage makes the end beat"),
    ("progressive_decoder", r"coefficient\.(done|status\[\d\])", "the next stage makes the end beat"),
    ("progressive_decoder", r"state_[dq]\[3\]", "eight states"),
    ("progressive/", r"pass_[dqi]\.base\[0\]\[\d+\]", "the first component's blocks are the first"),
    ("", r"(workspace_)?needed(_o)?\[[0-6]\]", "blocks of 128 bytes"),
    ("progressive/", r"a[rw]len_o\[3\]", "a block has eight words"),
    ("decode/decode.sv", r"a[rw]len_o\[3\]", "a block has eight words"),
    (
        "progressive/",
        r"new_word\.rest\[0\]|sent_q\[[01]\]|less\[0\]",
        "after the first or the second of eight",
    ),
    ("band_decoder", r"first_mask_q\[7\]|end_mask_q\[0\]", "one coefficient of a word is always in the band"),
    ("band_decoder", r"minus_q\[15\]", "the sign, which does not depend on the bit"),
    ("band_decoder", r"filled\[[0-6]\]", "two bytes follow at most 32 bits, and end above the last seven bits"),
    ("huffman_search", r"above_q\[0\]", "a code has at least one bit"),
    (
        "huffman_search",
        r"gen_length\[1\]\.(limits\[\d\]|offset)\[[0-7]\]|place_q\[1\]\[[1-7]\]",
        "codes of one bit come first: their offset is 0, their place 0 or 1",
    ),
    ("", r"(.*status\w*|failure(_q)?)\[[4-7]\]", STATUS),
    ("image_cu/", r"outputs_[iq]\.status.*|record_i\[([5-9]|[12]\d|3[01])\]", STATUS),
    (
        "",
        r".*a[rw]burst.*|.*a[rw]size.*|.*a[rw]cache.*|.*a[rw]prot.*|.*[br]resp(_o)?\[.*",
        "constant: bursts of whole words, registers without errors",
    ),
    ("record_write", r"awlen_o.*|wlast_o|wstrb_o.*|bready_o", "constant: bursts of one word"),
    ("", r"(m_axi_gmem1_)?wstrb(_o)?\[.*", "constant: whole words"),
    ("", r".*(r|b)ready(_o)?", "never falls: a burst starts only when there is room for all of it"),
    ("", r".*a[rw]len(_o)?\[[4-7]\]", "bursts have at most 64 words of the file, 32 of the tensor, 16 of tables"),
    ("", r".*(a[rw]addr|address_i).*\[[0-3]\]|[rw]addr_q\[[01]\]", ALIGNED),
    ("", r".*(frame_\w|_frame)\.width\[1[3-5]\]|(src_)?width_\w\[1[3-5]\]|in\[1[3-5]\]", SOURCE),
    ("resize", r".*\.size_in\[1[3-5]\]|shorter_q\[.*", SOURCE),
    ("row_reader", r"stride\[.*", SOURCE),
    ("row_reader", r"available_q\[10\]", "of at most 1024 MCU rows, one has begun"),
    (
        "image_cu/",
        r"(outputs_\w\.|record_i|wdata_o).*",
        "sizes are below 65536, in fields of 32 bits",
    ),
    ("image_cu/", r"bytes(_[qo])?\[.*|three_q.*|plane_bytes_q.*", "outputs of the tests have at most a few MiB"),
    ("resize", r"words\[5\]", RESERVE),
    ("", r"(jpeg_bytes_i|jpeg_words|words(_[iq])?|owed_q|left_q)\[.*", "files of the tests have at most 20 MB"),
    ("image_cu/image_cu", r"packed_pixels\.value.*", "interleaved output has 8 bits a sample"),
    ("", r".*keep(_o)?\[0\]", "constant: each beat with pixels has a left one"),
    ("color", r".*", CONSTANT),
    ("idct", r".*", CONSTANT),
    ("upsample", r"half.*", CONSTANT),
    ("image_cu/store", r"offset\[0\].*|offset\[2\]\[0\]", CONSTANT),
    ("huffman_table", r"gen_length.*\.limits.*\[([89]|1[0-3])\]|limit_q.*|groups_q\[5\]|write_q\.ac", CONSTANT),
    ("entropy_decoder", r"\w*_entry_dc\.symbol.*|k_q\[6\]|across_left_q.*", CONSTANT),
    ("huffman_definition", r"code_[dq]\[0\]", CONSTANT),
    ("image_cu/store_pack", r".*", CONSTANT),
    ("resize", r"ahead\[0\]|den_q\[53\]|next_rem\[0\]|.*start_carry|start_remainder_q\[17\]", CONSTANT),
    ("coefficient_buffer", r"mask_q\[7\]\[7\]", "the last coefficient of a block leaves with it"),
    ("", r".*(fifo_ready|frame_ready(_o)?)|ready_o|(.*count(_o)?|beats)(\[\d\])?\[[59]\]", RESERVE),
    ("image_cu/store", r"waiting.*|outstanding_q.*|beat_q\[5\]", RESERVE),
    ("stream_fifo", r"memory.*", "bits of width and status in the frames between units; see the entries of these"),
    ("resize", r".*(error|quotient|remainder|position|short).*", SIZES),
    # Audio
    ("", r".*counters\w*(\.|\[\d\]\[).*", "these bits need runs that take minutes"),
    (
        "_cu/",
        r"outputs_q\.(source_)?(count|rate)\[.*|outputs_q\.status\[.*|record_q\[.*",
        FIELDS,
    ),
    ("rtl/", r"outputs_i\[.*|record_i\[.*|wdata_o\[.*", FIELDS),
    ("audio_norm_cu/", r"status_q\[[23]\]", "the unit has only errors of arguments and of the bus"),
    ("audio_", r".*address(_[io])?\[[0-3]\]", ALIGNED),
    (
        "audio_",
        r"(.*a[rw]addr(_o)?|.*address(_[io])?)\[([4-9]|\d\d)\]",
        "tests use some addresses of 64 bits, most of them low",
    ),
    (
        "audio_",
        r"source_rate_q\[3\]|mels_[iq]\[.*|quads_q\[.*",
        "rates end at 48,000 Hz; the numbers of mels are those of a few models",
    ),
    ("tensor_rows", r"(tile_words|column_q)\[[0-3]\]", "a tile has 16 words or 32"),
    ("audio_", r"(source_)?(count|bytes|capacity)(_[iqo])?\[.*", LENGTHS),
    ("audio_", r"(table_words|values|frames|product|pitch|row|column)_[iq]\[.*|word\[.*|wav_words\[.*", LENGTHS),
    ("", r"(sound_\w|\w+_sound)\.count\[.*|frames_o\.count\[.*", LENGTHS),
    ("mel/", r"(count_i|frames_i|samples_left_q|frame_count|frames_left_q)\[.*", LENGTHS),
    ("resample/", r"(count_i|inputs_q|outputs_q|factor_q|product_q)\[.*", LENGTHS),
    ("wav/", r"(bytes_i|rest_q|frames_q|pass_q|skipped_to)\[.*", LENGTHS),
    ("audio_mel_cu/sound_store", r"(s[1-4]_(magnitude|shift|low|high|square)_q|float)\[.*", CONSTANT),
    ("audio_mel_cu/sound_store", r"squares\[.*", LENGTHS),
    ("axi_write", r"beat_q\[5\]|waiting_q\[7\]", RESERVE),
    ("fft_stage", r".*\.factors\[.*", "values of a table"),
    ("mel/", r".*factor_\d\[.*|sine_\w\[26\]|(re|im)_low\[17\]|\w+_sin_low_2\[.*|table_\d\[16\]|zeros.*", CONSTANT),
    ("spectrum/power", r"(re|im)_(high|low)_1\[1\]|high_3\[0\]", CONSTANT),
    ("mel/", r"first_q\[[0-3]\]|level_q\[9\]|mel_q\[7\]|.*(count|total)\w*(\[\d\])?\[8\]", CONSTANT),
    ("mel/filter_lane", r".*\.(low_2\[26\]|rounded\[41\])", CONSTANT),
    ("mel/", r"(power_[io]|up(_[io])?|down(_[io])?|(re|im)_high_1|high_2)\[.*", BOUND),
    ("mel/", r".*energy(_[io])?\[.*|(leaving|next)(_q)?\[.*|(up|down)_[12]\[.*|sum_[34]\[.*", BOUND),
    ("mel/filter_lane", r"weighted_3.*|.*\.high_[12]\[.*", BOUND),
    ("norm_divide", r"(rest_i|bits_i|rest\[0\])\[.*|.*\.divisor\[0\]", CONSTANT),
    ("norm_fixed", r"mantissa_q\[23\]", CONSTANT),
    ("norm_lane", r"(exponent_10|rounded_11|upper_3|product_[4-79])_q\[.*|upper\[33\]", CONSTANT),
    ("norm_root", r"(rest|root)\[[0-3]\]\[.*", CONSTANT),
    ("norm_statistics", r"(pairs|numerator|sum_1)_q\[.*|shift_q\[\d\]\[.*", CONSTANT),
    (
        "resample/",
        r".*ratio(_q)?\.(up|down)\[.*|(up|down)_[iq]\[.*|load_words_q\[2\]",
        "the eight ratios have no such factor",
    ),
    ("resample_lanes", r"gen_lane\[87\]\.(memory\[1\]|base)\[.*", LAST_LANE),
)


RETURN = re.compile(r"\breturn\b")


@dataclass
class Coverage:
    """The counts of one source file, added over its instances. Keys are (line, column, kind)."""

    points: dict[tuple[int, int, str], int] = field(default_factory=lambda: defaultdict(int))
    lines_of: dict[tuple[int, int, str], set[int]] = field(default_factory=lambda: defaultdict(set))
    bits: dict[tuple[int, str], dict[str, int]] = field(default_factory=lambda: defaultdict(Counter))
    covers: Counter[str] = field(default_factory=Counter)  # by name

    def lines(self) -> dict[int, bool]:
        """Return for each line with statements whether all of them ran."""
        covered: dict[int, bool] = {}
        for point, lines in self.lines_of.items():
            if point[2].startswith("cond_"):
                continue
            for line in lines:
                covered[line] = covered.get(line, True) and self.points[point] > 0
        return covered

    def branches(self) -> dict[tuple[int, int, str], bool]:
        return {point: count > 0 for point, count in self.points.items() if point[2] != "block"}

    def toggles(self) -> dict[tuple[int, str], bool]:
        """Return for each bit, by the line of its declaration and its name, whether it rose and fell."""
        return {bit: ways["0->1"] > 0 and ways["1->0"] > 0 for bit, ways in self.bits.items()}


def run_tests(suites: Iterable[str]) -> None:
    """Run each test file in a process, one process per core at a time. Raises SystemExit if a test fails."""

    def run(suite: str) -> None:
        begin = time.monotonic()
        path, counts = TESTS / f"test_{suite}.py", FOLDER / suite
        shutil.rmtree(counts, ignore_errors=True)
        counts.mkdir(parents=True)
        command = [sys.executable, "-m", "pytest", str(path), "-k", "not csim", "-q", "-o", f"timeout={TIMEOUT_S}"]
        environment = {**os.environ, "HEADRACE_RTL_COVERAGE": str(counts)}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{path.name} failed:\n{done.stdout[-5000:]}")
        print(f"{path.name}: {done.stdout.splitlines()[-1]}, {time.monotonic() - begin:.0f} s", file=sys.stderr)

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        list(threads.map(run, suites))


def entries(text: str) -> Iterator[tuple[dict[str, str], int]]:
    """Yield the keys and the count of each line in Verilator's format."""
    for line in text.splitlines():
        if line.startswith("C '"):
            keys, count = line[3:].rsplit("' ", 1)
            yield dict(part.split("\2", 1) for part in keys.split("\1") if part), int(count)


def line_numbers(ranges: str) -> Iterator[int]:
    """Yield the numbers of ranges such as "12,14-16"."""
    for part in filter(None, ranges.split(",")):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def without_synthesis(path: Path) -> set[int]:
    """Return the lines that are for simulation only: assertions and their declarations."""
    inside, lines = False, set()
    for number, line in enumerate(path.read_text().splitlines(), 1):
        inside = (inside or line.startswith("`ifndef SYNTHESIS")) and not line.startswith("`endif")
        if inside:
            lines.add(number)
    return lines


def collect(data: Iterable[Path]) -> dict[Path, Coverage]:
    files: dict[Path, Coverage] = {}
    ignored: dict[Path, set[int]] = {}
    returns: dict[Path, set[int]] = {}
    for path in data:
        for keys, count in entries(path.read_text()):
            source = Path(keys["f"])
            if not source.is_relative_to(hls_folder()):
                continue
            if source not in files:
                files[source], ignored[source] = Coverage(), without_synthesis(source)
                returns[source] = {
                    n for n, text in enumerate(source.read_text().splitlines(), 1) if RETURN.search(text)
                }
            coverage, line = files[source], int(keys["l"])
            if keys.get("page", "").startswith("v_user"):
                coverage.covers[keys["o"]] += count
                continue
            if line in ignored[source]:
                continue
            if keys["t"] == "toggle":
                name, way = keys["o"].rsplit(":", 1)
                coverage.bits[line, name][way] += count
            elif not returns[source] & (lines := set(line_numbers(keys.get("S", "")))):
                point = (line, int(keys["n"]), keys["o"])
                coverage.points[point] += count
                coverage.lines_of[point] |= lines
    return dict(sorted(files.items()))


def signals(bits: Iterable[str]) -> list[str]:
    """Join the names of bits of the same vector: a[0], a[1], a[2].b become a[1:0], a[2].b."""
    numbers: dict[str, list[int]] = defaultdict(list)
    names = []
    for bit in bits:
        vector = re.fullmatch(r"(.*)\[(\d+)\]", bit)
        if vector:
            numbers[vector[1]].append(int(vector[2]))
        else:
            names.append(bit)
    for name, several in numbers.items():
        several.sort()
        first = 0
        for i in range(1, len(several) + 1):
            if i == len(several) or several[i] != several[i - 1] + 1:
                low, high = several[first], several[i - 1]
                names.append(f"{name}[{high}:{low}]" if high > low else f"{name}[{low}]")
                first = i
    return names


# ---- Report ----


def share(covered: Iterable[bool]) -> list[int]:
    """Return [number covered, number of all]."""
    each = list(covered)
    return [sum(each), len(each)]


def report(files: dict[Path, Coverage]) -> dict:
    """Return the contents of the tables by unit and file, with names and reasons."""
    units: dict[str, dict] = {}
    for path, coverage in files.items():
        name = str(path.relative_to(hls_folder()))
        text = path.read_text().splitlines()
        missing = []  # lines and ways of branches, each with its text and reason
        for line, covered in sorted(coverage.lines().items()):
            if not covered:
                missing.append((line, "line"))
        lines = {line for line, _ in missing}
        ways = {(line, what) for (line, _, what), covered in coverage.branches().items() if not covered}
        missing += sorted((line, what) for line, what in ways if line not in lines)
        bits: dict[str, list[str]] = defaultdict(list)
        for (_, bit), covered in coverage.toggles().items():
            if not covered:
                bits[why_untoggled(name, bit)].append(bit)
        units.setdefault(str(path.parent.relative_to(hls_folder())), {})[name] = {
            "lines": share(coverage.lines().values()),
            "branches": share(coverage.branches().values()),
            "toggles": share(coverage.toggles().values()),
            "covers": dict(sorted(coverage.covers.items())),
            "not_reached": [
                {
                    "line": line,
                    "what": what,
                    "text": text[line - 1].strip(),
                    "why": why_unreached(name, text[line - 1], what),
                }
                for line, what in missing
            ],
            "not_toggled": {why: signals(names) for why, names in sorted(bits.items())},
        }
    return units


def why_unreached(file: str, text: str, what: str) -> str:
    return next((why for path, part, way, why in UNREACHED if path in file and part in text and way in ("", what)), "")


def why_untoggled(file: str, bit: str) -> str:
    return next((why for path, pattern, why in UNTOGGLED if path in file and re.fullmatch(pattern, bit)), "")


def add(shares: Iterable[dict], key: str) -> list[int]:
    return [sum(one[key][i] for one in shares) for i in range(2)]


def print_tables(units: dict) -> None:
    every = [one for files in units.values() for one in files.values()]
    explained = Counter()
    print("| file | lines | branches | toggles |\n| --- | ---: | ---: | ---: |")
    for unit, files in units.items():
        for name, one in [*files.items(), (f"**{unit}**", None)] if len(files) > 1 else files.items():
            shares = [one] if one else list(files.values())
            print(
                f"| {name} | " + " | ".join(part(add(shares, key)) for key in ("lines", "branches", "toggles")) + " |"
            )
    print("| **all** | " + " | ".join(part(add(every, key)) for key in ("lines", "branches", "toggles")) + " |")

    print("\nNot reached:")
    for files in units.values():
        for name, one in files.items():
            for miss in one["not_reached"]:
                what = "" if miss["what"] == "line" else f" ({WAYS[miss['what']]})"
                print(f"  {name}:{miss['line']}{what}: {miss['text']}\n      {miss['why'] or 'NO TEST'}")

    print("\nCover properties, and how often they held:")
    for files in units.values():
        for name, one in files.items():
            for cover, count in one["covers"].items():
                print(f"  {name} {cover}: {count or 'NO TEST'}")

    print("\nBits that never rose or never fell:")
    reasons: dict[str, list[str]] = defaultdict(list)
    for files in units.values():
        for name, one in files.items():
            for why, names in one["not_toggled"].items():
                explained[why] += sum(bits_of(signal) for signal in names)
                reasons[why].append(f"{Path(name).stem}: {' '.join(names)}")
    for why, names in sorted(reasons.items()):
        print(f"  {why or 'NO TEST'} ({explained[why]} bits)")
        for line in names:
            print(textwrap.fill(line, 118, initial_indent=" " * 6, subsequent_indent=" " * 8))


def unneeded(units: dict) -> Iterator[str]:
    """Yield the reasons that match nothing."""
    every = {name: one for files in units.values() for name, one in files.items()}
    for path, text, way, _ in UNREACHED:
        if not any(
            path in name and text in miss["text"] and way in ("", miss["what"])
            for name, one in every.items()
            for miss in one["not_reached"]
        ):
            yield f"UNREACHED: {path} {text} {way}"
    used = {(name, why) for name, one in every.items() for why in one["not_toggled"]}
    for path, pattern, why in UNTOGGLED:
        if not any(path in name and why == reason for name, reason in used):
            yield f"UNTOGGLED: {path} {pattern}"


def part(pair: list[int]) -> str:
    covered, all_of = pair
    return f"{covered} / {all_of}" + (f" ({100 * covered / all_of:.1f} %)" if covered < all_of else "")


def bits_of(signal: str) -> int:
    vector = re.search(r"\[(\d+):(\d+)\]$", signal)
    return int(vector[1]) - int(vector[2]) + 1 if vector else 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the tables to FILE")
    parser.add_argument("--report", action="store_true", help="run nothing; print the tables of the last counts")
    parser.add_argument("suites", nargs="*", metavar="SUITE", help="run only these")
    options = parser.parse_args()
    if unknown := sorted({*options.suites} - {*SUITES}):
        parser.error(f"no suite {' '.join(unknown)}; choose from {' '.join(SUITES)}")
    if not options.report:
        run_tests(suite for suite in SUITES if suite in (options.suites or SUITES))
    units = report(collect(sorted(FOLDER.glob("*/*.dat"))))
    print_tables(units)
    if options.json:
        options.json.write_text(json.dumps(units, indent=1) + "\n")
    if not options.suites:
        print("\nReasons that match nothing:", *unneeded(units), sep="\n  ")
    every = [one for files in units.values() for one in files.values()]
    if any(not miss["why"] for one in every for miss in one["not_reached"]):
        raise SystemExit("no test reaches some lines or branches that have no reason in UNREACHED; see 'NO TEST' above")
    if any(not count for one in every for count in one["covers"].values()):
        raise SystemExit("no test reaches some cover properties; see 'NO TEST' above")


if __name__ == "__main__":
    main()
