"""The emulated device has what XRT's Python module has: compared with tables of its releases."""

import ast
import enum
import re
import runpy
from pathlib import Path

import pytest
from backends import REAL, ROOT

from headrace.host.xrt import emulation

TABLES = Path(__file__).parent / "surfaces"
# What an Alveo card with compute units has no use for, and so this device does not have.
ABSENT = {
    "aie": "AI engines: Versal",
    "ext": "AI engines: Versal",
    "graph": "AI engines: Versal",
    "elf": "control code of Ryzen's NPU",
    "module": "control code of Ryzen's NPU",
    "program": "control code of Ryzen's NPU",
    "hw_context.add_config": "control code of Ryzen's NPU",
    "run.get_ctrl_scratchpad_bo": "control code of Ryzen's NPU",
    "xclbin.__init__": "an axlf by itself cannot be made in Python either",
}


def lines(release: str) -> list[str]:
    return (TABLES / f"{release}.txt").read_text().splitlines()


def found(name: str):
    thing = emulation
    for part in name.split("."):
        thing = getattr(thing, part)
    return thing


@pytest.mark.parametrize("release", ["2.13", "2.16", "head"])
def test_every_name_is_there_or_absent_for_a_reason(release):
    missing = set()
    for line in lines(release):
        name = re.match(r"[\w.]+", line)[0]
        try:
            found(name)
        except AttributeError:
            missing.add(name)
    assert {name for name in missing if name not in ABSENT and name.split(".")[0] not in ABSENT} == set()


@pytest.mark.parametrize("release", ["2.13", "2.16", "head"])
def test_enumerations_have_its_values_and_compare_with_int(release):
    seen = 0
    for line in lines(release):
        told = re.match(r"([\w.]+) ENUM (\{.*?\})", line)
        if told is None or told[1].startswith("graph"):
            continue
        seen += 1
        ours = found(told[1])
        values = ast.literal_eval(told[2])
        assert {key: int(ours[key]) for key in values} == values
        if release == "head":
            assert set(ours.__members__) == set(values)
        for key, value in values.items():
            assert ours[key] == value == ours(value) and hash(ours[key]) == hash(value)
            assert str(ours[key]) == f"{told[1].rpartition('.')[2]}.{key}" and ours[key].name == key
    assert seen >= 5


def test_what_is_exported_beside_its_enumeration_is_the_same():
    for line in lines("head"):
        told = re.match(r"([\w.]+) = <(\w+)\.(\w+): (\d+)>", line)
        if told is not None and not told[1].startswith("graph"):
            assert found(told[1]) == int(told[4]) and isinstance(found(told[1]), enum.IntEnum)
            assert repr(found(told[1])) == f"<{told[2]}.{told[3]}: {told[4]}>"


@pytest.mark.parametrize("backend", [REAL[0]], indirect=True)
def test_the_module_that_tests_make_for_debians_xrt_is_its_release(backend):
    """By names, counts of arguments and values; types are told in pybind11's words of the day."""

    def told(lines):
        for line in lines:
            name, rest = re.match(r"([\w.]+) (.*)", line).groups()
            yield name, rest.partition(" mro")[0] if "ENUM" in rest else (rest[:1], rest.count("arg"))

    script = runpy.run_path(str(ROOT / "scripts/pyxrt_surface.py"))
    left_out = {("run.add_callback", ("|", 3))}  # Python has no function that it takes
    assert set(told(script["surface"](backend.pyxrt))) == set(told(lines("2.13"))) - left_out


def test_reasons_are_of_names_that_exist():
    names = {re.match(r"[\w.]+", line)[0] for line in lines("head")}
    assert set(ABSENT) <= names
