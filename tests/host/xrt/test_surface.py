"""Test that the emulated device has the API of XRT's Python module, by tables of its releases."""

import ast
import enum
import re
import runpy
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import numpy as np
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
    "hw_context.__init__(device: device, cfg_param: Mapping, mode: hw_context.access_mode)": "for add_config",
}
# Types of the tables that no value of Python becomes: pyxrt has no class or no conversion for them.
NOT_IN_PYTHON = ("std::", "axlf", "typing_extensions.CapsuleType", "elf")


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


class Signature(NamedTuple):
    """Hold types by parameter. The tables call parameters that are given by position alone arg0, arg1, ..."""

    name: str
    parameters: dict[str, str]
    result: str

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{name}: {kind}' for name, kind in self.parameters.items())})"


def signatures(release: str) -> list[Signature]:
    told = []
    for line in lines(release):
        match = re.match(r"([\w.]+) \| (?:\d+\. )?\w+\((.*)\) -> (.*)", line)
        if match is None or match[1] in ABSENT or match[1].split(".")[0] in ABSENT:
            continue
        shorter = r"pyxrt\.|xrt::|typing\.|collections\.abc\.|(?<=Mapping)\[.*?\]"
        name, parameters, result = (re.sub(shorter, "", part) for part in match.groups())
        named = dict(part.split(": ", 1) for part in re.split(r", (?=\w+: )", parameters) if ": " in part)
        told.append(Signature(name, {key: kind for key, kind in named.items() if key != "self"}, result))
    return told


EVERY = {str(one): one for release in ("2.13", "2.16", "head") for one in signatures(release) if str(one) not in ABSENT}
IMPOSSIBLE = {
    text: one for text, one in EVERY.items() if any(k.startswith(NOT_IN_PYTHON) for k in one.parameters.values())
}
CALLS = [
    one for text, one in EVERY.items() if text not in IMPOSSIBLE and one.name != "kernel.__call__"
]  # takes anything
RESULTS = {
    "None": type(None),
    "numpy.NDArray[numpy.int8]": np.ndarray,
    "memoryview": memoryview,
    "int": int,
    "str": str,
    "bool": bool,
}


class Samples:
    """Provide an object for each class, and so for each method, and a value for each other type."""

    def __init__(self, container: Path) -> None:
        self.device = emulation.device(0)
        self.xclbin = emulation.xclbin(str(container))
        self.uuid = self.device.register_xclbin(self.xclbin)
        self.hw_context = emulation.hw_context(self.device, self.uuid)
        self.kernel = emulation.kernel(self.hw_context, "vadd:{vadd_1}")
        self.bo = emulation.bo(self.device, 4096, emulation.bo.normal, 0)
        self.run = emulation.run(self.kernel)
        self.runlist = emulation.runlist(self.hw_context)

    def value(self, kind: str) -> object:
        match kind:
            case "SupportsInt | SupportsIndex":
                return 1
            case "str":
                return "vadd"
            case "typing_extensions.Buffer":
                return b"four"
            case "Mapping":
                return {}
        return getattr(self, kind, None) or next(iter(found(kind)))  # the last are enumerations

    def values(self, signature: Signature) -> list[object]:
        values = [self.value(kind) for kind in signature.parameters.values()]
        if signature.name == "run.set_arg":  # of vadd: buffers first, numbers from the fourth
            values[0] = 0 if values[1] is self.bo else 3
        return values

    def function(self, name: str) -> Callable[..., object]:
        owner, _, method = name.rpartition(".")
        if not owner or method == "__init__":
            return found(name.removesuffix(".__init__"))
        return getattr(getattr(self, owner, None) or found(owner)(), method)


def given(function: Callable[..., object], *values: object, **named: object) -> object:
    """Return the result or the error of a call. Only wrong types are a TypeError."""
    try:
        return function(*values, **named)
    except (IndexError, RuntimeError, TypeError) as error:
        return error


@pytest.mark.parametrize("signature", CALLS, ids=str)
def test_a_call_takes_what_its_signature_has_and_gives_what_it_says(signature, vadd_xclbin):
    samples = Samples(vadd_xclbin)
    function, values = samples.function(signature.name), samples.values(signature)
    names = list(signature.parameters)
    answer = given(function, *values)
    if signature.result in NOT_IN_PYTHON:
        assert isinstance(answer, TypeError)
        return
    assert not isinstance(answer, TypeError)
    if not isinstance(answer, Exception) and not signature.name.endswith("__init__"):
        if told := re.match(r"list\[(.*)\]", signature.result):
            assert answer and {type(one) for one in answer} == {found(told[1])}
        else:
            assert isinstance(answer, RESULTS.get(signature.result) or found(signature.result))
    by_name = given(function, **dict(zip(names, values, strict=True)))
    assert isinstance(by_name, TypeError) == any(name.startswith("arg") for name in names)


@pytest.mark.parametrize("signature", CALLS, ids=str)
def test_a_call_takes_nothing_that_no_signature_has(signature, vadd_xclbin):
    samples = Samples(vadd_xclbin)
    function, values = samples.function(signature.name), samples.values(signature)

    def plain(one: Signature) -> list[str]:
        """Return the types of the parameters. A value of an enumeration is also a number."""
        kinds = one.parameters.values()
        return ["number" if isinstance(samples.value(kind), int) else kind for kind in kinds]

    kinds = [plain(one) for one in CALLS if one.name == signature.name]
    mine = plain(signature)
    wrong = [[*values[:place], object(), *values[place + 1 :]] for place in range(len(values))]
    wrong += [[*values[:place], None, *values[place + 1 :]] for place in range(len(values))]
    wrong += [[*values[:place], 1.5, *values[place + 1 :]] for place in range(len(values))]
    wrong += [values[:few] for few in range(len(values)) if mine[:few] not in kinds]
    wrong += [
        [*values, more] for more in (1, "text", {}, samples.bo) if not any(k[: len(mine)] == mine != k for k in kinds)
    ]
    for values in wrong:
        assert isinstance(given(function, *values), TypeError), values
    assert isinstance(given(function, *samples.values(signature), surplus=1), TypeError)


@pytest.mark.parametrize("signature", IMPOSSIBLE.values(), ids=str)
def test_what_python_has_no_value_for_is_refused_as_by_pyxrt(signature, vadd_xclbin):
    samples = Samples(vadd_xclbin)
    function = samples.function(signature.name)
    for anything in (None, 1, print, timedelta(seconds=5), object()):
        values = [
            anything if kind.startswith(NOT_IN_PYTHON) else samples.value(kind)
            for kind in signature.parameters.values()
        ]
        assert isinstance(given(function, *values), TypeError), values


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


def test_values_exported_next_to_their_enumeration_are_the_same():
    for line in lines("head"):
        told = re.match(r"([\w.]+) = <(\w+)\.(\w+): (\d+)>", line)
        if told is not None and not told[1].startswith("graph"):
            assert found(told[1]) == int(told[4]) and isinstance(found(told[1]), enum.IntEnum)
            assert repr(found(told[1])) == f"<{told[2]}.{told[3]}: {told[4]}>"


@pytest.mark.parametrize("backend", [REAL[0]], indirect=True)
def test_the_module_that_tests_make_for_debians_xrt_is_its_release(backend):
    """Compare names, numbers of arguments and values. The texts of types depend on pybind11's release."""

    def told(lines):
        for line in lines:
            name, rest = re.match(r"([\w.]+) (.*)", line).groups()
            yield name, rest.partition(" mro")[0] if "ENUM" in rest else (rest[:1], rest.count("arg"))

    script = runpy.run_path(str(ROOT / "scripts/pyxrt_surface.py"))
    left_out = {("run.add_callback", ("|", 3))}  # Python has no function that it takes
    assert set(told(script["surface"](backend.pyxrt))) == set(told(lines("2.13"))) - left_out


def test_reasons_are_of_names_that_exist():
    names = {re.match(r"[\w.]+", line)[0] for line in lines("head")}
    assert set(ABSENT) <= names | set(map(str, signatures("head")))
