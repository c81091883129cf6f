"""Policies by name: built-in policies, those of installed packages, and a user's own.

Wherever a policy is expected, it can be named in one of three ways:

- a built-in name, such as `lazy`;
- the name of an entry point in the group `headrace.policies` of an installed package;
- `module:Class`, where Python finds the module, or where it lies in the current folder.

Each name stands for a class of settings. That is a frozen dataclass with a method `build(context)`, which returns the
policy for one run (batching/policy.py). The class may have two more attributes:

- `tasks`: "graph" if tasks are whole graphs (the default), "nodes" if tasks may end at any node, or "cells".
- `limits_from_profile`: True if the batch limits come from measured profiles.
"""

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, is_dataclass
from functools import cache
from typing import Any, Protocol, cast, runtime_checkable

from headrace.batching.context import PolicyContext
from headrace.batching.docstrings import docstrings
from headrace.batching.errors import LONGEST_NAME, UsageError
from headrace.batching.named import installed, is_own, own
from headrace.batching.policies import BUILT_IN
from headrace.batching.policy import Policy
from headrace.batching.settings import Setting, check_policy_object, read_settings, settings_of
from headrace.batching.steps.registry import STEP_GROUP, STEPS, find_step_policy, step_policy_names

GROUP = "headrace.policies"  # the group of entry points
TASKS = ("graph", "nodes", "cells")
POLICIES = tuple(BUILT_IN)


@runtime_checkable
class PolicySettings(Protocol):
    """The settings of a policy. They make the policy for one run."""

    def build(self, context: PolicyContext) -> Policy:
        """Return the policy for one run on the models and workers of `context`. Raises UsageError."""
        ...


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """A policy that can be named.

    Args:
        name: The name that users give.
        cls: The class of the policy's settings.
        source: The module and class, or the value of the entry point.
        package: The package that the policy came with; None for a class that was named as `module:Class`.
    """

    name: str
    cls: type[PolicySettings]
    source: str
    package: str | None

    @property
    def settings(self) -> tuple[Setting, ...]:
        """Return the policy's settings, in the order of their definition."""
        return settings_of(self.cls)

    @property
    def tasks(self) -> str:
        """Return the kind of the policy's tasks: "graph", "nodes" or "cells"; "steps" for models that decode."""
        return str(getattr(self.cls, "tasks", "graph"))

    @property
    def limits_from_profile(self) -> bool:
        """Return whether the batch limits come from measured profiles."""
        return bool(getattr(self.cls, "limits_from_profile", False))

    @property
    def summary(self) -> str:
        """Return the first paragraph of the docstring of the settings class."""
        text = " ".join(docstrings(self.cls)[1].split("\n\n")[0].split())
        return text or "(has no description)"

    @property
    def paper(self) -> str:
        """Return where the policy comes from: the paragraph "Source: ..." or "Sources: ..." of its module's docstring,
        empty if it has none."""
        paragraphs = (" ".join(text.split()) for text in docstrings(self.cls)[0].split("\n\n"))
        heads = ("Source: ", "Sources: ")
        return next((text.partition(": ")[2] for text in paragraphs if text.startswith(heads)), "")


def policy_names() -> list[str]:
    """Return the names of all policies: built-in ones, then those of installed packages."""
    return [*POLICIES, *sorted(name for name in installed(GROUP) if name not in BUILT_IN)]


def find_policy(name: str, where: str = "--policy") -> PolicyEntry:
    """Return the policy with this name. The head of this file lists the kinds of names.

    Raises UsageError that begins with `where`."""
    if name in BUILT_IN:
        return _built_in(name)
    if name in step_policy_names() and name not in installed(GROUP):
        raise _decodes(name, where)
    if not is_own(name, GROUP):
        raise UsageError(
            f"{where} {name[:LONGEST_NAME]!r}: there is no such policy; choose from {', '.join(policy_names())}, or "
            "give module:Class"
        )
    point = installed(GROUP).get(name)
    package = None if point is None or point.dist is None else point.dist.name
    found = own(where, name, GROUP)
    if getattr(found, "tasks", None) == STEPS:
        raise _decodes(name, where)
    return _entry(name, found, name if point is None else point.value, package)


def _decodes(name: str, where: str) -> UsageError:
    return UsageError(
        f"{where} {name!r}: it is for models that decode; give such a model, as in --model llama-3.1-8b, or choose "
        f"from {', '.join(policy_names())}"
    )


def step_policy_entry(name: str, where: str = "--policy") -> PolicyEntry:
    """Return the policy of models that decode with this name (steps/registry.py). Its tasks are "steps".

    Raises UsageError that begins with `where`."""
    found = find_step_policy(name, where)
    return PolicyEntry(name, cast("type[PolicySettings]", found.cls), found.source, found.package)


def entries_named(name: str, where: str = "--policy") -> list[PolicyEntry]:
    """Return the policies of a name: that of networks, that of models that decode, or first one and then the other.

    Raises UsageError that begins with `where`."""
    of_steps = name in step_policy_names()
    if ":" in name and name not in installed(GROUP):
        of_steps = getattr(own(where, name, STEP_GROUP), "tasks", None) == STEPS
    entries = [step_policy_entry(name, where)] if of_steps else []
    if entries and name not in policy_names():
        return entries
    return [find_policy(name, where), *entries]


def usable_policies() -> Iterator[PolicyEntry]:
    """Yield the policies that can be loaded. A broken package shows its error only where its policy is named."""
    for name in policy_names():
        try:
            entry = find_policy(name)
        except UsageError:
            continue
        yield entry


def usable_step_policies() -> Iterator[PolicyEntry]:
    """Yield the policies of models that decode that can be loaded."""
    for name in step_policy_names():
        try:
            entry = step_policy_entry(name)
        except UsageError:
            continue
        yield entry


def entry_of(settings: PolicySettings) -> PolicyEntry:
    """Return the policy to which these settings belong."""
    cls = type(settings)
    for name, place in BUILT_IN.items():
        module, _, attribute = place.partition(":")
        if cls.__module__ == f"headrace.batching.policies.{module}" and cls.__name__ == attribute:
            return _built_in(name)
    for name, point in installed(GROUP).items():
        if point.value == f"{cls.__module__}:{cls.__name__}":
            return find_policy(name)
    return _entry(f"{cls.__module__}:{cls.__qualname__}", cls, f"{cls.__module__}:{cls.__qualname__}", None)


def policy_settings(policy: "str | PolicySettings", given: Mapping[str, Any] | None = None) -> PolicySettings:
    """Return the settings of a policy.

    Args:
        policy: The policy's name, or settings that are made already.
        given: Values by the settings' names, as Python values or as texts from the command line.

    Raises:
        UsageError: The name or a value is wrong, or values are given for settings that are made already.
    """
    if not isinstance(policy, str):
        check_policy_object(policy, PolicySettings, given)
        return policy
    entry = find_policy(policy)
    return read_settings(entry.cls, given or {}, what=f"policy {policy}")


def policy_with(name: str, **values: Any) -> PolicySettings:
    """Return the settings of a policy with those of the values that the policy has a setting for.

    A comparison of policies can therefore give the same values to all of them. Raises UsageError."""
    own = {each.name for each in find_policy(name).settings}
    return policy_settings(name, {key: value for key, value in values.items() if key in own})


@cache
def _built_in(name: str) -> PolicyEntry:
    module, _, attribute = BUILT_IN[name].partition(":")
    path = f"headrace.batching.policies.{module}"
    return _entry(name, getattr(importlib.import_module(path), attribute), f"{path}:{attribute}", "headrace")


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
