"""Tables of settings, from the classes that define them."""

from collections.abc import Mapping

from headrace.batching.registry import find_policy, policy_names, step_policy_entry
from headrace.batching.settings import Setting, settings_of
from headrace.host.server.settings import ModelSettings
from headrace.sim.decoding.scenario import DecoderGpus, DecodingWorkload, StepTimes, TokenReplay
from headrace.sim.fleet.settings import FleetSettings
from headrace.sim.hardware.settings import V100, Measured, MeasuredGpu, MigGpu, Npu
from headrace.sim.scenario import RunSettings
from headrace.sim.system.settings import Preprocess
from headrace.sim.workload.settings import Bursty, Deterministic, Poisson, Replay, Workload
from reference.markdown import named, table, unit

CLASSES: Mapping[str, type] = {
    "Workload": Workload,
    "Poisson": Poisson,
    "Bursty": Bursty,
    "Deterministic": Deterministic,
    "Replay": Replay,
    "Npu": Npu,
    "MigGpu": MigGpu,
    "MeasuredGpu": MeasuredGpu,
    "Measured": Measured,
    "V100": V100,
    "DecodingWorkload": DecodingWorkload,
    "TokenReplay": TokenReplay,
    "DecoderGpus": DecoderGpus,
    "StepTimes": StepTimes,
    "Preprocess": Preprocess,
    "Fleet": FleetSettings,
    "RunSettings": RunSettings,
    "ModelSettings": ModelSettings,
}
KINDS = {"int": "whole number", "float": "number", "str": "text", "bool": "true or false", "Path": "path"}


def value(each: Setting) -> str:
    """Return the type, the unit and the range of a setting."""
    if each.choices:
        return ", ".join(f"`{choice}`" for choice in each.choices)
    words = [KINDS[each.kind.__name__]]
    if each.many:
        words = [f"{each.count or 'several'} {words[0]}s by comma"]
    if stated := unit(each.name):
        words.append(stated)
    if each.kind in (int, float) and not each.many:
        bounds = each.allowed().removeprefix("give ").removeprefix("a ")
        words.append(bounds.removeprefix("whole ").removeprefix("number").removeprefix(" of").strip())
    return ", ".join(filter(None, words))


def default(each: Setting) -> str:
    """Return the default of a setting, empty if it has none."""
    if each.default is None or each.default == "":
        return ""
    return f"`{str(each.default).lower() if each.kind is bool else each.default}`"


def row(each: Setting) -> tuple[str, str]:
    """Return the row of a setting in a table."""
    return named(f"`{each.name}`", value(each), default(each)), each.help


def of_class(cls: type) -> str:
    """Return the settings of a class as a table."""
    rows = [row(each) for each in settings_of(cls)]
    return table(("setting", "meaning"), rows) if rows else "It has no settings.\n"


def settings(name: str) -> str:
    """Return the settings of a class in CLASSES, or of a policy."""
    return of_class(CLASSES[name] if name in CLASSES else find_policy(name).cls)


def step_settings(name: str) -> str:
    """Return the settings of a policy of models that decode."""
    return of_class(step_policy_entry(name).cls)


def policy_settings() -> str:
    """Return the settings of all policies, each with the policies that have it."""
    found: dict[tuple[str, str], list[str]] = {}
    for name in policy_names():
        entry = find_policy(name)
        if entry.package == "headrace":
            for each in entry.settings:
                found.setdefault(row(each), []).append(f"[{name}](policies/{name}.md)")
    rows = ((setting, text, ", ".join(names)) for (setting, text), names in found.items())
    return table(("setting", "meaning", "policies"), rows)


GENERATORS = {"settings": settings, "step-settings": step_settings, "policy-settings": policy_settings}
