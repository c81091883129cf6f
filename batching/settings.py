"""Settings of classes. Each setting stands once, as a field of a frozen dataclass with type, range and help text.

The command line, TOML files, checks, error texts and the reference documentation derive from these fields.
`@settings()` makes a class of settings, and `setting(...)` makes its fields. A plain frozen dataclass works as well:
the `metadata` of its fields may have the keys `help`, `ge`, `gt`, `le`, `lt` and `choices`.

    @settings()
    class Graph:
        window_ms: float = setting(default=5.0, help="Longest wait of the oldest request.", ge=0)
        max_batch: int = setting(default=64, help="Largest batch.", ge=1, le=4096)

    Graph(window_ms=-1)  # UsageError: --window-ms -1: give a number of 0 or more

Units stand in the names (`window_ms`, `rate_rps`), so that no reader has to look them up. Values are checked when a
settings object is made, and nowhere else.
"""

import dataclasses
import math
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar, Union, dataclass_transform, get_args, get_origin, get_type_hints

from headrace.batching.errors import LONGEST_NAME, UsageError

T = TypeVar("T")
SCALARS = (bool, int, float, str, Path)
# Present names of settings by their former names, which options and TOML files still take.
FORMER = {"sla_ms": "slo_ms", "photos": "images", "photo_pixels": "image_pixels"}


def setting(
    *,
    default: Any,
    help: str,
    ge: float | None = None,
    gt: float | None = None,
    le: float | None = None,
    lt: float | None = None,
    choices: Sequence[str] = (),
    count: int | None = None,
    infinite: bool = False,
    advanced: bool = False,
    kw_only: bool = False,
) -> Any:
    """Return a field for a class of settings.

    Args:
        default: The value that is used if none is given. It is not checked.
        help: One sentence for the command line's help and the reference.
        ge, gt, le, lt: The range of a number: at least, above, at most, below.
        choices: The allowed values of a text. If empty, every text is allowed.
        count: How many values there must be, of a setting with several.
        infinite: Whether infinity is allowed.
        advanced: Whether the command line shows the setting under `--help-all` only.
        kw_only: Whether Python takes the setting by its name only.
    """
    return field(
        default=default,
        kw_only=kw_only,
        metadata={
            "help": help,
            "ge": ge,
            "gt": gt,
            "le": le,
            "lt": lt,
            "choices": tuple(choices),
            "count": count,
            "infinite": infinite,
            "advanced": advanced,
        },
    )


@dataclass_transform(frozen_default=True, field_specifiers=(setting, field))
def settings(**attributes: Any) -> Callable[[type[T]], type[T]]:
    """Return a decorator that makes a class a frozen dataclass with checked values.

    The values are checked when an object is made, which raises UsageError. Then the class's own method `check(self)` is
    called, if it has one. `attributes` are set on the class."""

    def made(cls: type[T]) -> type[T]:
        own_check: Callable[[Any], None] | None = getattr(cls, "check", None)

        def check_all(self: Any) -> None:
            check_values(self)
            if own_check is not None:
                own_check(self)

        cls.__post_init__ = check_all  # type: ignore[attr-defined]
        for name, value in attributes.items():
            setattr(cls, name, value)
        return dataclass(frozen=True)(cls)

    return made


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting, as the command line, TOML files and the reference see it.

    `kind` is one of SCALARS. `optional` says whether None is a value, and `many` whether the value is a tuple of such
    values. `setting` explains the other fields."""

    name: str
    kind: type
    optional: bool
    many: bool
    default: Any
    help: str
    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
    choices: tuple[str, ...] = ()
    count: int | None = None
    infinite: bool = False
    advanced: bool = False

    @property
    def option(self) -> str:
        """Return the setting's name on the command line."""
        return option(self.name)

    def allowed(self) -> str:
        """Return the advice for a user about the allowed values, such as "give a number above 0"."""
        if self.many and self.count is not None:
            return f"give {self.count} numbers{self._bounds()}, by comma"
        if self.choices:
            return f"choose from {', '.join(self.choices)}"
        if self.kind is bool:
            return "give true or false"
        if self.kind not in (int, float):
            return "give a text"
        if self.ge is not None and self.le is not None:
            return f"give {_number(self.ge)} to {_number(self.le)}"
        return f"give a {'whole number' if self.kind is int else 'number'}{self._bounds()}"

    def _bounds(self) -> str:
        """Return the range as words after "number"."""
        low = self.ge if self.ge is not None else self.gt
        high = self.le if self.le is not None else self.lt
        above = (
            "" if low is None else f" of {_number(low)} or more" if self.ge is not None else f" above {_number(low)}"
        )
        below = "" if high is None else f"{'at most' if self.le is not None else 'below'} {_number(high)}"
        return above + (" and " if above and below else " " if below else "") + below

    def check(self, value: Any, where: str) -> None:
        """Raise UsageError, with a text that begins with `where`, unless the value has the setting's type and range."""
        if value is None and self.optional:
            return
        if self.many and (not isinstance(value, tuple) or (self.count is not None and len(value) != self.count)):
            raise UsageError(f"{where} {_shown(value)}: {self.allowed()}")
        for each in value if self.many else (value,):
            self._check_one(each, where)

    def _check_one(self, value: Any, where: str) -> None:
        kinds = (int, float) if self.kind is float else (self.kind,)
        fits = type(value) in kinds if self.kind in (bool, int, float) else isinstance(value, kinds)
        if not fits:
            raise UsageError(f"{where} {_shown(value)}: it must be of type {self.kind.__name__}; {self.allowed()}")
        if self.choices and value not in self.choices:
            raise UsageError(f"{where} {_shown(value)}: {self.allowed()}")
        if self.kind in (int, float) and not self._in_range(value):
            unbounded = self.le is None and self.lt is None
            advice = "give a finite number" if unbounded and math.isinf(value) and value > 0 else self.allowed()
            raise UsageError(f"{where} {_shown(value)}: {advice}")

    def _in_range(self, value: float) -> bool:
        if math.isnan(value) or (math.isinf(value) and not self.infinite):
            return False
        return (
            (self.ge is None or value >= self.ge)
            and (self.gt is None or value > self.gt)
            and (self.le is None or value <= self.le)
            and (self.lt is None or value < self.lt)
        )

    def read(self, value: Any, where: str) -> Any:
        """Return the value that a text of the command line or a value of a TOML file stands for. Raises UsageError."""
        if value is None and self.optional:
            return None
        if self.many:
            parts = value.split(",") if isinstance(value, str) else value
            if not isinstance(parts, list | tuple) or (self.count is not None and len(parts) != self.count):
                raise UsageError(f"{where} {_shown(value)}: {self.allowed()}")
            return tuple(self._read_one(each, where) for each in parts)
        return self._read_one(value, where)

    def _read_one(self, value: Any, where: str) -> Any:
        made = value
        if hasattr(value, "item") and getattr(value, "ndim", None) == 0:  # a number of numpy
            value = made = value.item()
        if isinstance(value, str) and self.kind is not str:
            made = _from_text(self.kind, value.strip())
        elif self.kind is float and type(value) is int:
            made = float(value)
        elif self.kind is str and isinstance(value, Path):
            made = str(value)
        self._check_one(made, where)
        return made


def _number(value: float) -> str:
    """Return a number without an exponent where it is whole."""
    return str(int(value)) if float(value).is_integer() else f"{value:g}"


def _from_text(kind: type, text: str) -> Any:
    if kind is bool:
        return {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}.get(text.lower(), text)
    try:
        return kind(text)
    except ValueError:
        return text  # the check then raises an error that says which values are allowed


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else f"{value:g}" if isinstance(value, float) else str(value)
    return (repr(text) if isinstance(value, str) else text)[:LONGEST_NAME]


def option(name: str) -> str:
    """Return the name of a setting on the command line."""
    return "--" + name.replace("_", "-")


_KNOWN: dict[type, tuple[Setting, ...]] = {}


def settings_of(cls: type) -> tuple[Setting, ...]:
    """Return the settings of a dataclass, in their order. Fields whose type is not one of SCALARS are left out."""
    if cls not in _KNOWN:
        hints = _hints(cls)
        made = (_setting_of(each, hints.get(each.name, each.type)) for each in fields(cls))
        _KNOWN[cls] = tuple(each for each in made if each is not None)
    return _KNOWN[cls]


def _hints(cls: type) -> Mapping[str, Any]:
    try:
        return get_type_hints(cls)
    except (NameError, TypeError):  # the class is defined in a function, or mypyc compiled it
        return {}


def _setting_of(each: "dataclasses.Field[Any]", hint: Any) -> Setting | None:
    kinds = [kind for kind in (get_args(hint) if _is_union(hint) else (hint,)) if kind is not type(None)]
    many = len(kinds) == 1 and get_origin(kinds[0]) is tuple
    kind = get_args(kinds[0])[0] if many else kinds[0]
    if kind not in SCALARS:  # mypyc does not keep the annotation
        kind = str if each.metadata.get("choices") else type(each.default)
    if kind not in SCALARS:
        return None
    known = {key: value for key, value in each.metadata.items() if key in Setting.__dataclass_fields__}
    default = None if each.default is dataclasses.MISSING else each.default
    return Setting(
        name=each.name,
        kind=kind,
        optional=default is None or _is_union(hint),
        many=many,
        default=default,
        **{"help": "", **known},
    )


def _is_union(hint: Any) -> bool:
    return get_origin(hint) in (Union, types.UnionType)


def check_values(made: Any) -> None:
    """Check every setting of an object. Raise UsageError that names the option to change."""
    for each in settings_of(type(made)):
        value = getattr(made, each.name)
        if value is not each.default:
            each.check(value, each.option)


def read_settings(
    cls: type[T], given: Mapping[str, Any], where: Callable[[str], str] = option, what: str = "", **others: Any
) -> T:
    """Return an object of `cls` from values by name.

    Args:
        cls: The class of settings.
        given: Texts or values of a TOML file, by the settings' names.
        where: Makes the beginning of an error text from a setting's name.
        what: Says in an error text whose settings these are.
        others: Values of other fields of `cls`, as they are.

    Raises:
        UsageError: A value is wrong, or `cls` has no setting of that name.
    """
    known = {each.name: each for each in settings_of(cls)}
    read = {name: _known(known, name, where, what).read(value, where(name)) for name, value in given.items()}
    return cls(**read, **others)


def check_policy_object(policy: object, protocol: type, given: Mapping[str, Any] | None) -> None:
    """Check settings of a policy that a caller made, where a name could stand.

    Args:
        policy: What the caller gave.
        protocol: The protocol of such settings, with a method `build(context)`.
        given: Values by the settings' names, which only a name can have.

    Raises:
        UsageError: It is no such object, or values are given.
    """
    if given:
        raise UsageError("the policy is given with its settings; leave out the others")
    if not isinstance(policy, protocol) or isinstance(policy, type):
        raise UsageError(f"policy {policy!r}: give a name, or an object that has build(context)")


def _known(known: Mapping[str, Setting], name: str, where: Callable[[str], str], what: str) -> Setting:
    if name not in known:
        raise UsageError(
            f"{where(name)}: {what or 'this'} has no setting {name[:LONGEST_NAME]!r}; known are "
            f"{', '.join(known) or 'none'}"
        )
    return known[name]


def parse_assignments(texts: Iterable[str], where: str = "--set") -> dict[str, str]:
    """Return the settings in texts such as "coverage=0.95", by name. Raises UsageError."""
    assignments: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or not name:
            raise UsageError(f"{where} {text!r}: give NAME=VALUE, as in coverage=0.95")
        if name in assignments:
            raise UsageError(f"{where} {text!r}: {name} is given twice")
        assignments[name] = value.strip()
    return assignments
