"""Classes of settings: types, ranges and texts, which the command line and TOML files share."""

import math
from dataclasses import FrozenInstanceError, dataclass, field, make_dataclass
from pathlib import Path

import pytest

from headrace.batching import UsageError
from headrace.batching.settings import (
    check_values,
    option,
    parse_assignments,
    read_settings,
    setting,
    settings,
    settings_of,
)


@settings(tasks="nodes")
class Every:
    """Have a setting of each type."""

    window_ms: float = setting(default=5.0, help="A number.", ge=0)
    growth: float = setting(default=1.5, help="A number.", gt=1, lt=2)
    share: float = setting(default=0.5, help="A number.", gt=0, le=1)
    slo_ms: float = setting(default=100.0, help="A number.", gt=0, infinite=True)
    depth: float = setting(default=-1.0, help="A number.", le=0)
    max_batch: int = setting(default=64, help="A whole number.", ge=1, le=4096)
    many: int = setting(default=1, help="A whole number.", ge=1, le=100_000_000)
    free: int = setting(default=0, help="A whole number.")
    steps: int | None = setting(default=None, help="A whole number.", ge=1)
    merge: bool = setting(default=True, help="A truth value.", advanced=True)
    router: str = setting(default="random", help="A text.", choices=("random", "idle"))
    name: str = setting(default="", help="A text.")
    file: Path | None = setting(default=None, help="A file.")
    mean: tuple[float, ...] | None = setting(default=None, help="Numbers.", ge=0)
    std: tuple[float, ...] = setting(default=(1.0, 1.0, 1.0), help="Three numbers.", gt=0, count=3)

    def check(self):
        """Refuse what does not fit together."""
        if self.free > self.many:
            raise UsageError("--free is above --many; give less")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"window_ms": -1}, "--window-ms -1: give a number of 0 or more"),
        ({"window_ms": -0.5}, "--window-ms -0.5: give a number of 0 or more"),
        ({"window_ms": math.nan}, "--window-ms nan: give a number of 0 or more"),
        ({"window_ms": math.inf}, "--window-ms inf: give a finite number"),
        ({"window_ms": "5"}, "--window-ms '5': it must be of type float; give a number of 0 or more"),
        ({"window_ms": True}, "--window-ms True: it must be of type float"),
        ({"growth": 1.0}, "--growth 1: give a number above 1 and below 2"),
        ({"growth": 2.0}, "--growth 2: give a number above 1 and below 2"),
        ({"share": 1.1}, "--share 1.1: give a number above 0 and at most 1"),
        ({"slo_ms": -math.inf}, "--slo-ms -inf: give a number above 0"),
        ({"depth": 1.0}, "--depth 1: give a number at most 0"),
        ({"max_batch": 0}, "--max-batch 0: give 1 to 4096"),
        ({"max_batch": 4097}, "--max-batch 4097: give 1 to 4096"),
        ({"max_batch": 2.0}, "--max-batch 2: it must be of type int; give 1 to 4096"),
        ({"max_batch": True}, "--max-batch True: it must be of type int"),
        ({"max_batch": None}, "--max-batch None: it must be of type int"),
        ({"many": 0}, "--many 0: give 1 to 100000000"),
        ({"free": "x"}, "--free 'x': it must be of type int; give a whole number"),
        ({"steps": 0}, "--steps 0: give a whole number of 1 or more"),
        ({"merge": 1}, "--merge 1: it must be of type bool; give true or false"),
        ({"router": "best"}, "--router 'best': choose from random, idle"),
        ({"router": 1}, "--router 1: it must be of type str; choose from random, idle"),
        ({"name": b"x"}, "it must be of type str; give a text"),
        ({"mean": (0.5, -1.0)}, "--mean -1: give a number of 0 or more"),
        ({"mean": 0.5}, "--mean 0.5: give a number of 0 or more"),
        ({"std": (1.0, 2.0)}, "--std (1.0, 2.0): give 3 numbers above 0, by comma"),
        ({"std": (1.0, 2.0, 0.0)}, "--std 0: give 3 numbers above 0, by comma"),
        ({"free": 2}, "--free is above --many; give less"),
    ],
)
def test_a_wrong_value_is_refused_where_it_is_made(given, text):
    with pytest.raises(UsageError) as refused:
        Every(**given)
    assert text in str(refused.value)


def test_right_values_stay_as_they_are_and_no_value_can_be_changed():
    made = Every(window_ms=0, slo_ms=math.inf, max_batch=4096, steps=None, mean=(0.0, 1.0), file=Path("x"))
    assert (made.window_ms, made.slo_ms, made.max_batch, made.mean) == (0, math.inf, 4096, (0.0, 1.0))
    assert made == Every(window_ms=0, slo_ms=math.inf, max_batch=4096, mean=(0.0, 1.0), file=Path("x"))
    assert hash(made) != hash(Every()) and Every.tasks == "nodes"
    with pytest.raises(FrozenInstanceError):
        made.max_batch = 1


def test_the_settings_of_a_class_are_its_fields():
    found = {each.name: each for each in settings_of(Every)}
    assert list(found)[:3] == ["window_ms", "growth", "share"] and len(found) == 15
    steps, mean, merge = found["steps"], found["mean"], found["merge"]
    assert (steps.kind, steps.optional, steps.many, steps.default) == (int, True, False, None)
    assert (mean.kind, mean.optional, mean.many) == (float, True, True)
    assert (merge.kind, merge.optional, merge.advanced, merge.default) == (bool, False, True, True)
    assert found["file"].kind is Path and found["router"].choices == ("random", "idle")
    erased = make_dataclass("Erased", [("rule", type, setting(default=None, help="A text.", choices=("a", "b")))])
    (rule,) = settings_of(erased)  # mypyc leaves such annotations
    assert (rule.kind, rule.optional, rule.default, rule.choices) == (str, True, None, ("a", "b"))
    assert steps.option == option("steps") == "--steps" and option("max_batch") == "--max-batch"


@pytest.mark.parametrize(
    ("name", "given", "value"),
    [
        ("window_ms", " 2.5 ", 2.5),
        ("window_ms", 2, 2.0),
        ("max_batch", "8", 8),
        ("merge", "false", False),
        ("merge", "Yes", True),
        ("merge", "0", False),
        ("steps", None, None),
        ("router", "idle", "idle"),
        ("name", Path("a/b"), "a/b"),
        ("file", "a/b", Path("a/b")),
        ("mean", "0.5,1,2", (0.5, 1.0, 2.0)),
        ("mean", [0.5, 1], (0.5, 1.0)),
    ],
)
def test_texts_and_values_of_files_become_values_of_the_type(name, given, value):
    read = getattr(read_settings(Every, {name: given}), name)
    assert read == value and type(read) is type(value)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"max_batch": "2.5"}, "--max-batch '2.5': it must be of type int; give 1 to 4096"),
        ({"max_batch": ""}, "--max-batch '': it must be of type int; give 1 to 4096"),
        ({"max_batch": "0"}, "--max-batch 0: give 1 to 4096"),
        ({"merge": "perhaps"}, "--merge 'perhaps': it must be of type bool; give true or false"),
        ({"window_ms": "inf"}, "--window-ms inf: give a finite number"),
        ({"window_ms": "nan"}, "--window-ms nan: give a number of 0 or more"),
        ({"mean": 0.5}, "--mean 0.5: give a number of 0 or more"),
        ({"std": "1,2"}, "--std '1,2': give 3 numbers above 0, by comma"),
        ({"mean": "1,x"}, "--mean 'x': it must be of type float; give a number of 0 or more"),
        ({"max_bach": 3}, "--max-bach: policy every has no setting 'max_bach'; known are window_ms, growth, share,"),
    ],
)
def test_a_text_that_is_no_value_is_refused_with_what_to_give(given, text):
    with pytest.raises(UsageError) as refused:
        read_settings(Every, given, what="policy every")
    assert text in str(refused.value)


def test_an_error_begins_with_where_the_value_stands():
    with pytest.raises(UsageError, match=r"run\.toml: max_batch is 0: give 1 to 4096"):
        read_settings(Every, {"max_batch": 0}, where=lambda name: f"run.toml: {name} is")


def test_a_long_value_is_told_in_part():
    with pytest.raises(UsageError) as refused:
        Every(router="x" * 10_000)
    assert len(str(refused.value)) < 400


def test_a_plain_dataclass_serves_as_well():
    @dataclass(frozen=True)
    class Plain:
        window_ms: float = field(default=5.0, metadata={"help": "A number.", "ge": 0})
        label: str = "x"
        parts: dict = field(default_factory=dict)

    found = settings_of(Plain)
    assert [each.name for each in found] == ["window_ms", "label"] and found[0].ge == 0
    with pytest.raises(UsageError, match="--window-ms -1: give a number of 0 or more"):
        check_values(Plain(window_ms=-1.0))
    with pytest.raises(UsageError, match="--window-ms -1: give a number of 0 or more"):
        read_settings(Plain, {"window_ms": "-1"})


def test_assignments_are_names_and_texts():
    assert parse_assignments(["coverage=0.95", "max-batch = 8", "name=a=b"]) == {
        "coverage": "0.95",
        "max_batch": "8",
        "name": "a=b",
    }
    for wrong in ("coverage", "=1", ""):
        with pytest.raises(UsageError, match=r"--set .*: give NAME=VALUE, as in coverage=0.95"):
            parse_assignments([wrong])
    with pytest.raises(UsageError, match="max_batch is given twice"):
        parse_assignments(["max-batch=1", "max_batch=1"])
