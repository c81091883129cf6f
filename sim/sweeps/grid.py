"""A grid of scenarios: settings of which each may be a list, and every combination of them."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, Final

from headrace.batching.errors import OutOfMemory, Unstable, UsageError
from headrace.sim.decoding.run import run_decoding
from headrace.sim.decoding.scenario import DecodingScenario
from headrace.sim.run import run_scenario
from headrace.sim.scenario import Scenario
from headrace.sim.scenario_files import checked_setting, flattened
from headrace.sim.text_files import read_toml

MAX_RUNS: Final = 100_000


@dataclass(frozen=True, slots=True)
class Grid:
    """The values of each setting, by its flat name in a `Scenario`, in the order of the file; `seed` comes last."""

    values: Mapping[str, Sequence[Any]]

    def __len__(self) -> int:
        return math.prod(len(each) for each in self.values.values())

    def combinations(self) -> Iterator[dict[str, Any]]:
        """The last setting varies fastest."""
        for each in product(*self.values.values()):
            yield dict(zip(self.values, each, strict=True))

    def varied(self) -> list[str]:
        """The settings that have several values, but for the seed."""
        return [name for name, each in self.values.items() if len(each) > 1 and name != "seed"]


def read_grid(path: Path) -> Grid:
    """Read a grid from a TOML file: settings by their flat names, dashes allowed, each with a value or a list of
    values.

    `seeds` is a list, too, or how many seeds there are, from 0 on. Raises UsageError, also if there are more than
    MOST_RUNS combinations."""
    where = f"--grid {path}"
    body = read_toml(where, path)
    given = flattened(where, body)
    if "seeds" in given:
        if "seed" in given:
            raise UsageError(f"{where}: give seed or seeds")
        seeds = given.pop("seeds")
        if type(seeds) is int:
            if not 1 <= seeds <= MAX_RUNS:
                raise UsageError(f"{where}: seeds is {seeds}; give 1 to {MAX_RUNS}, or a list")
            seeds = list(range(seeds))
        given["seed"] = seeds
    elif "seed" in given:
        given["seed"] = given.pop("seed")
    values: dict[str, Sequence[Any]] = {}
    for key, value in given.items():
        each = value if isinstance(value, list) else [value]
        if not each:
            raise UsageError(f"{where}: {key} is an empty list; give a value or several")
        values[key] = [checked_setting(where, key, one, given) for one in each]
        if len(set(values[key])) < len(each):
            raise UsageError(f"{where}: {key} has a value twice")
    grid = Grid(values)
    if len(grid) > MAX_RUNS:
        raise UsageError(f"{where}: {len(grid):,} combinations; leave out values, for at most {MAX_RUNS:,} at a time")
    return grid


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a run without `wall_s`, which is no function of the seed; or the reason why it `failed`: there
    was no stable policy, or the memory of a slice was too small."""

    result: Mapping[str, Any] = field(default_factory=dict)
    warnings: Sequence[str] = ()
    failed: str | None = None


def run(scenario: Scenario | DecodingScenario) -> Found:
    try:
        if isinstance(scenario, DecodingScenario):
            decoded = run_decoding(scenario)
            return Found(_without_wall_s(decoded.as_dict()), decoded.warnings)
        done, warnings = run_scenario(scenario)
    except (OutOfMemory, Unstable) as error:
        return Found({}, [], str(error))
    return Found(_without_wall_s(done.result), warnings)


def _without_wall_s(result: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: value for name, value in result.items() if name != "wall_s"}
