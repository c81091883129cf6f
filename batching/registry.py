"""Policies by name: the built-in ones, those of installed packages, and a user's own.

A policy is named in one of three ways, wherever a policy is asked for:

- by a built-in name, such as `lazy`;
- by the name of an entry point that an installed package has in the group `headrace.policies`;
- by `module:Class`, where Python finds the module.

What is named is a class of settings: a frozen dataclass with a method `build(context)`, which returns the policy for
one run (batching/policy.py). A class may say more by attributes:

- `tasks`: "graph" (the default: tasks are whole graphs), "nodes" (tasks may end at any node) or "cells".
- `limits_from_profile`: True if its batch limits come from measured profiles.
"""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import Any, Protocol, cast, runtime_checkable

from headrace.batching.context import PolicyContext
from headrace.batching.errors import LONGEST_NAME, UsageError, one_line
from headrace.batching.policy import Policy
from headrace.batching.settings import Setting, read_settings, settings_of

GROUP = "headrace.policies"  # of entry points
TASKS = ("graph", "nodes", "cells")
_BUILT_IN = {
    "serial": "serial:Serial",
    "graph": "graph:Graph",
    "static": "static:Static",
    "work-conserving": "work_conserving:WorkConserving",
    "bucketed-graph": "bucketed_graph:BucketedGraph",
    "dynamic-graph": "dynamic_graph:DynamicGraph",
    "cellular": "cellular:Cellular",
    "lazy": "lazy:Lazy",
    "oracle": "lazy:Oracle",
    "preba": "preba:Preba",
    "smdp": "smdp:Smdp",
    "preba-lazy": "preba_lazy:PrebaLazy",
    "deferred": "deferred:Deferred",
    "earliest-deadline": "earliest_deadline:EarliestDeadline",
}
POLICIES = tuple(_BUILT_IN)


@runtime_checkable
class PolicySettings(Protocol):
    """The settings of a policy, which make the policy for one run."""

    def build(self, context: PolicyContext) -> Policy:
        """Return the policy for one run of the models of a context. Raises UsageError."""
        ...


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """One policy that can be named.

    `source` is the module and class, or the entry point's, and `package` is the package that it came with: None for a
    class that was named as `module:Class`."""

    name: str
    cls: type[PolicySettings]
    source: str
    package: str | None

    @property
    def settings(self) -> tuple[Setting, ...]:
        """Return the policy's settings, in their order."""
        return settings_of(self.cls)

    @property
    def tasks(self) -> str:
        """Return what its tasks are: "graph", "nodes" or "cells"."""
        return str(getattr(self.cls, "tasks", "graph"))

    @property
    def limits_from_profile(self) -> bool:
        """Tell whether its batch limits come from measured profiles."""
        return bool(getattr(self.cls, "limits_from_profile", False))

    @property
    def summary(self) -> str:
        """Return the first sentence of its docstring."""
        text = " ".join((self.cls.__doc__ or "").split("\n\n")[0].split())
        return text or "(has no description)"


def policy_names() -> list[str]:
    """Return the names of all policies: built-in ones, then those of installed packages."""
    return [*POLICIES, *sorted(name for name in _installed() if name not in _BUILT_IN)]


def find_policy(name: str, where: str = "policy") -> PolicyEntry:
    """Return the policy of a name, as the head of this file has it. Raises UsageError that begins with `where`."""
    if name in _BUILT_IN:
        return _built_in(name)
    if name in _installed():
        point = _installed()[name]
        try:
            found = point.load()
        except Exception as error:
            raise UsageError(f"{where} {name!r} of entry point {point.value} fails: {one_line(error)}") from error
        return _entry(name, found, point.value, point.dist.name if point.dist is not None else None)
    module, colon, attribute = name.partition(":")
    if not colon or not module or not attribute:
        raise UsageError(
            f"{where} {name[:LONGEST_NAME]!r}: there is no such policy; choose from {', '.join(policy_names())}, or "
            "give module:Class"
        )
    try:
        found = getattr(importlib.import_module(module), attribute)
    except AttributeError:
        raise UsageError(f"{where} {name!r}: module {module} has no {attribute}") from None
    except ImportError as error:
        raise UsageError(f"{where} {name!r}: {error}") from error
    except Exception as error:
        raise UsageError(f"{where} {name!r}: module {module} fails: {one_line(error)}") from error
    return _entry(name, found, name, None)


def entry_of(settings: PolicySettings) -> PolicyEntry:
    """Return the policy that these settings are of."""
    cls = type(settings)
    for name, place in _BUILT_IN.items():
        module, _, attribute = place.partition(":")
        if cls.__module__ == f"headrace.batching.policies.{module}" and cls.__name__ == attribute:
            return _built_in(name)
    for name, point in _installed().items():
        if point.value == f"{cls.__module__}:{cls.__name__}":
            return find_policy(name)
    return _entry(f"{cls.__module__}:{cls.__qualname__}", cls, f"{cls.__module__}:{cls.__qualname__}", None)


def policy_settings(policy: "str | PolicySettings", given: Mapping[str, Any] | None = None) -> PolicySettings:
    """Return the settings of a policy, from its name and values by name; settings that are made already stay.

    Values may be texts, as the command line has them. Raises UsageError."""
    if not isinstance(policy, str):
        if given:
            raise UsageError("the policy is given with its settings; leave out the others")
        if not isinstance(policy, PolicySettings) or isinstance(policy, type):
            raise UsageError(f"policy {policy!r}: give a name, or an object that has build(context)")
        return policy
    entry = find_policy(policy)
    return read_settings(entry.cls, given or {}, what=f"policy {policy}")


def policy_with(name: str, **values: Any) -> PolicySettings:
    """Return the settings of a policy with those of the values that it has; the others are left out.

    A comparison of policies gives the same values to all of them. Raises UsageError."""
    own = {each.name for each in find_policy(name).settings}
    return policy_settings(name, {key: value for key, value in values.items() if key in own})


def build_policy(policy: "str | PolicySettings", context: PolicyContext, **given: Any) -> Policy:
    """Return a new policy for one run, from its name and settings. Raises UsageError."""
    return policy_settings(policy, given).build(context)


@cache
def _built_in(name: str) -> PolicyEntry:
    module, _, attribute = _BUILT_IN[name].partition(":")
    path = f"headrace.batching.policies.{module}"
    return _entry(name, getattr(importlib.import_module(path), attribute), f"{path}:{attribute}", "headrace")


@cache
def _installed() -> Mapping[str, Any]:
    return {point.name: point for point in entry_points(group=GROUP)}


def _entry(name: str, found: Any, source: str, package: str | None) -> PolicyEntry:
    if not isinstance(found, type) or not is_dataclass(found) or not callable(getattr(found, "build", None)):
        raise UsageError(
            f"policy {name!r}: {source} must be a dataclass of settings with a method build(context); see "
            "`headrace policies`"
        )
    tasks = getattr(found, "tasks", "graph")
    if tasks not in TASKS:
        raise UsageError(f"policy {name!r}: its tasks are {tasks!r}; choose from {', '.join(TASKS)}")
    return PolicyEntry(name, cast("type[PolicySettings]", found), source, package)
