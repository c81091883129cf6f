"""Write the constants of hls/mel for both implementations: mel_tables.hpp and mel_tables_pkg.sv.

    .venv/bin/python scripts/mel_tables.py

A test compares the files with the result of `tables`."""

from pathlib import Path

import numpy as np

FOLDER = Path(__file__).resolve().parents[1] / "hls" / "mel"
# By the name in C++: the name in SystemVerilog, the number of bits, and a description.
ABOUT = {
    "COSINE": ("Cosine", 27, "cos(2 pi i / 512), i = 0 to 255, LSB 2^-25, signed"),
    "COSINE_400": ("Cosine400", 27, "cos(2 pi i / 400), i = 0 to 100, LSB 2^-25, signed"),
    "TURN_COSINE": ("TurnCosine", 27, "cos(2 pi i / 25), i = 0 to 24, LSB 2^-25, signed"),
    "TURN_SINE": ("TurnSine", 27, "sin(2 pi i / 25), i = 0 to 24, LSB 2^-25, signed"),
    "FIFTH": ("Fifth", 27, "sin(2 pi / 5), sin(4 pi / 5) and sqrt(5) / 2, LSB 2^-25"),
    "LOGARITHM": ("Logarithm", 26, "ln(1 + i / 512), i = 0 to 512, LSB 2^-26"),
    "EXPONENT": ("Exponent", 33, "(i - 64) ln 2, i = 0 to 127, LSB 2^-26, signed"),
}


def tables() -> dict[str, list[int]]:
    turn = 2 * np.pi * np.arange(25) / 25
    values = {
        "COSINE": np.cos(2 * np.pi * np.arange(256) / 512) * 2**25,
        "COSINE_400": np.cos(2 * np.pi * np.arange(101) / 400) * 2**25,
        "TURN_COSINE": np.cos(turn) * 2**25,
        "TURN_SINE": np.sin(turn) * 2**25,
        "FIFTH": np.array([np.sin(2 * np.pi / 5), np.sin(4 * np.pi / 5), np.sqrt(5) / 2]) * 2**25,
        "LOGARITHM": np.log1p(np.arange(513) / 512) * 2**26,
        "EXPONENT": (np.arange(128) - 64) * np.log(2) * 2**26,
    }
    return {name: [int(value) for value in np.rint(table)] for name, table in values.items()}


def _rows(values: list[str]) -> list[str]:
    """Return rows of comma-separated values, within 100 columns."""
    rows = [""]
    for value in values:
        if len(rows[-1]) + len(value) > 94:
            rows.append("")
        rows[-1] += f" {value}," if rows[-1] else f"{value},"
    rows[-1] = rows[-1].rstrip(",")
    return ["    " + row for row in rows]


def header() -> str:
    lines = [
        "// Constants of the mel unit, written by scripts/mel_tables.py.",
        "#pragma once",
        "",
        "#include <cstdint>",
    ]
    lines += ["", "namespace headrace {", ""]
    for name, values in tables().items():
        kind = "int64_t" if ABOUT[name][1] > 32 else "int32_t"
        lines += [f"// {ABOUT[name][2]}.", f"constexpr {kind} MEL_{name}[{len(values)}] = {{"]
        lines += [*_rows([str(value) for value in values]), "};", ""]
    return "\n".join([*lines, "}  // namespace headrace", ""])


def package() -> str:
    lines = ["// Constants of the mel unit, written by scripts/mel_tables.py.", "package mel_tables_pkg;", ""]
    for name, values in tables().items():
        camel, bits, what = ABOUT[name]
        lines += [
            f"  // {what[0].upper()}{what[1:]}.",
            f"  localparam logic [{bits - 1}:0] {camel}[{len(values)}] = '{{",
        ]
        lines += [*_rows([f"{bits}'h{value % 2**bits:x}" for value in values]), "  };", ""]
    return "\n".join([*lines, "endpackage", ""])


def main() -> None:
    (FOLDER / "mel_tables.hpp").write_text(header())
    (FOLDER / "mel_tables_pkg.sv").write_text(package())


if __name__ == "__main__":
    main()
