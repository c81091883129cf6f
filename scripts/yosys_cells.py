"""Write sim/system/yosys_cells.csv: the cells of the RTL's units and compute units, as Yosys reports them.

    .venv/bin/headrace build --report --json > report.json
    .venv/bin/python scripts/yosys_cells.py report.json

The first command takes some twenty minutes if the cache has nothing. A test compares the file with the report."""

import csv
import json
import sys
from pathlib import Path

from headrace.sim.system.card import DELAY, PATH, REPORT, U55C

MODULES = (
    *("decode", "progressive_decoder", "resize", "crop", "scaler", "normalize", "patches", "image_cu"),
    *("wav", "resample", "mel", "audio_mel_cu", "mel_normalize", "audio_norm_cu"),
)


def main() -> int:
    modules = {row["unit"]: row for row in json.loads(Path(sys.argv[1]).read_text())["units"]}
    if wrong := [name for name in MODULES if name not in modules or modules[name]["error"]]:
        sys.exit(f"yosys_cells: the report has no cells of {', '.join(wrong)}; run the report again")
    with REPORT.open("w", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(["module", *U55C, DELAY, *PATH])
        for name in MODULES:
            cells, path = modules[name]["resources"], modules[name]["path_ps"]
            out.writerow([name, *(f"{cells[kind]}" for kind in U55C), modules[name]["abc9_delay_ps"], *path.values()])
    print(f"yosys_cells: wrote {len(MODULES)} modules")
    return 0


if __name__ == "__main__":
    sys.exit(main())
