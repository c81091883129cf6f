"""Write the cells of the units that PREBA's Table 1 has, as Yosys reports them, for `headrace reproduce preba`.

    .venv/bin/headrace build --report --json > report.json
    .venv/bin/python scripts/yosys_cells.py report.json

The first command takes about half an hour if the cache has nothing. A test compares the file with the report."""

import csv
import json
import sys
from pathlib import Path

from headrace.sim.experiments.preba.table1 import CELLS, KINDS, OWN


def main() -> int:
    units = {row["unit"]: row for row in json.loads(Path(sys.argv[1]).read_text())["units"]}
    wanted = list(dict.fromkeys(own for by_unit in OWN.values() for owns in by_unit.values() for own in owns))
    for unit in wanted:
        if unit not in units or units[unit]["error"]:
            sys.exit(f"yosys_cells: the report has no cells of {unit}; run the report again")
    with CELLS.open("w", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(["unit", *KINDS])
        out.writerows([unit, *(units[unit]["resources"][kind] for kind in KINDS)] for unit in wanted)
    print(f"yosys_cells: wrote {len(wanted)} units to {CELLS.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
