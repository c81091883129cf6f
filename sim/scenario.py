"""One simulated run, described by its settings: a workload, hardware, a policy, preprocessing, and maybe a fleet.

A `Scenario` is composed of classes of settings, each of which stands in its own room. The command line, TOML files and
sweeps name all settings in one flat list instead (`rate_rps`, `npus`, `window_ms`), because each name is unique:

    Scenario(Workload("gnmt", traffic=Poisson(rate_rps=500)), Npu(2), Lazy(coverage=0.95))
    Scenario.of(model="gnmt", rate_rps=500, npus=2, policy="lazy", coverage=0.95)  # the same
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

from headrace.batching.errors import LONGEST_NAME, UsageError
from headrace.batching.policies.lazy import Lazy
from headrace.batching.registry import (
    PolicyEntry,
    PolicySettings,
    entry_of,
    find_policy,
    policy_names,
    usable_step_policies,
)
from headrace.batching.settings import FORMER, Setting, option, read_settings, setting, settings, settings_of
from headrace.sim.decoding.scenario import DECODING
from headrace.sim.fleet.settings import FleetSettings
from headrace.sim.hardware.settings import ACCELERATORS, Hardware, MeasuredGpu, MigGpu, Npu, accelerator_name
from headrace.sim.system.settings import IDEAL, SIZE_SETTINGS, Preprocess, check_sizes
from headrace.sim.workload.settings import (
    TRAFFICS,
    Bursty,
    Deterministic,
    Poisson,
    Replay,
    Workload,
    traffic_class,
    traffic_name,
)

POLICY, ACCELERATOR, TRAFFIC = "policy", "accelerator", "traffic"  # settings that choose a class of settings


@settings()
class RunSettings:
    """Settings of a simulated run as a whole."""

    overhead_ms: float = setting(
        default=0.0,
        help="Time of a request outside preprocessing, queue and batch: network, protocol and copies.",
        ge=0,
        advanced=True,
    )
    drop_late: bool = setting(default=False, help="Drop requests that have not begun in time for their deadline.")
    seed: int = setting(default=0, help="The seed of all random numbers; a run is a function of it.", ge=0)


@settings()
class Scenario(RunSettings):
    """A simulated run. Raises UsageError for values out of their range.

    `preprocess` counts for a GPU in slices only. With a `fleet`, so many equal servers stand behind a router."""

    workload: Workload = Workload()
    hardware: Hardware = Npu()
    policy: PolicySettings = Lazy()
    preprocess: Preprocess = Preprocess()
    fleet: FleetSettings | None = None

    @classmethod
    def of(cls, **given: Any) -> "Scenario":
        """Return the scenario of settings by their flat names. Settings without effect are ignored.

        Raises UsageError."""
        return scenario_of(given)[0]

    def having(self, **changes: Any) -> "Scenario":
        """Return this scenario with some settings changed, by their flat names.

        Settings that a new policy, accelerator or traffic does not have are left out, and so are changes of random
        traffic where a trace is replayed."""
        changes = renamed(changes)
        own = {each.name for each in settings_of(type(self.policy))}
        given = {name: value for name, value in self.given().items() if name not in own}
        traffic = _traffic({**given, **changes}, option)
        if traffic is not type(self.workload.traffic):
            left = _OF_TRAFFIC - {each.name for each in settings_of(traffic)}
            left |= {TRAFFIC, "lengths", "corpus"} if traffic is Replay else set()
            given = {name: value for name, value in given.items() if name not in left}
        if traffic is Replay:
            changes = {name: value for name, value in changes.items() if name not in _DRAWN}
        if POLICY in changes:
            kept = {name: value for name, value in self.given().items() if name in own and name in every_setting()}
            return scenario_of({**given, **kept, **changes})[0]
        policy = replace(cast(Any, self.policy), **{name: changes.pop(name) for name in own if name in changes})
        return scenario_of({**given, **changes, POLICY: policy})[0]

    def flat(self) -> dict[str, Any]:
        """Return all settings by their flat names."""
        found: dict[str, Any] = {ACCELERATOR: accelerator_name(self.hardware), POLICY: entry_of(self.policy).name}
        if self.workload.trace is None:
            found[TRAFFIC] = traffic_name(self.workload.traffic)
        for part in self.parts():
            found |= {each.name: getattr(part, each.name) for each in settings_of(type(part)) if each.name != "gpu"}
        return found

    def given(self) -> dict[str, Any]:
        """Return the settings that are not what they are by default, by their flat names."""
        usual = Scenario().flat()
        every: dict[str, Any] = {}
        for part in self.parts():
            every |= {each.name: each.default for each in settings_of(type(part))}
        return {
            name: value
            for name, value in self.flat().items()
            if value != (usual[name] if name in (ACCELERATOR, POLICY, TRAFFIC) else every[name]) or (name == "servers")
        }

    def parts(self) -> list[Any]:
        """Return the objects of settings that the scenario is made of."""
        found = [self.workload.traffic, self.workload, self.hardware, self.preprocess, self.policy, self]
        return found if self.fleet is None else [*found, self.fleet]

    @property
    def entry(self) -> PolicyEntry:
        """Return the policy's entry in the registry."""
        return entry_of(self.policy)


def scenario_of(given: Mapping[str, Any], where: Callable[[str], str] = option) -> tuple[Scenario, list[str]]:
    """Return a scenario from settings by their flat names, and warnings about settings that have no effect in it.

    Args:
        given: Values, or texts as the command line has them. `policy` may be an object of settings.
        where: Makes the beginning of an error text from a setting's name.

    Raises UsageError."""
    given = renamed(given)
    if given.get("replay") is None:  # as if it were not given
        given.pop("replay", None)
    traffic = _traffic(given, where)
    accelerator = given.get(ACCELERATOR, "npu")
    if accelerator not in ACCELERATORS:
        raise UsageError(
            f"{where(ACCELERATOR)} {str(accelerator)[:LONGEST_NAME]!r}: choose from {', '.join(ACCELERATORS)}"
        )
    hardware = ACCELERATORS[accelerator]
    policy = given.get(POLICY, "lazy")
    entry = find_policy(policy, where(POLICY)) if isinstance(policy, str) else entry_of(policy)
    parts: dict[str, type] = {
        "traffic": traffic,
        "workload": Workload,
        "hardware": hardware,
        "preprocess": Preprocess,
        "policy": entry.cls,
        "run": RunSettings,
    }
    if "servers" in given:
        parts["fleet"] = FleetSettings
    known = {each.name: part for part, cls in parts.items() for each in settings_of(cls)}
    values: dict[str, dict[str, Any]] = {part: {} for part in parts}
    useless = []
    for name, value in given.items():
        if name in (POLICY, ACCELERATOR, TRAFFIC):
            continue
        if name in known:
            values[known[name]][name] = value
        elif name in every_setting():
            every_setting()[name].read(value, where(name))  # a wrong value is wrong even where it has no effect
            useless.append(name)
        else:
            raise UsageError(
                f"{where(name)}: there is no setting {name[:LONGEST_NAME]!r}; known are "
                f"{', '.join(sorted({*every_setting(), *known, POLICY, ACCELERATOR, TRAFFIC}))}"
            )
    _refuse_useless(useless, parts, given, where)
    made: dict[str, Any] = {
        part: read_settings(parts[part], values[part], where) for part in parts if part != "workload"
    }
    if isinstance(made["hardware"], MigGpu | MeasuredGpu):
        made["hardware"] = read_settings(hardware, {"gpu": accelerator, **values["hardware"]}, where)
    if not isinstance(policy, str):
        if values["policy"]:
            raise UsageError("the policy is given with its settings; leave out the others")
        made["policy"] = policy
    scenario = Scenario(
        workload=read_settings(Workload, values["workload"], where, traffic=made["traffic"]),
        hardware=made["hardware"],
        policy=made["policy"],
        preprocess=made["preprocess"],
        fleet=made.get("fleet"),
        **{each.name: getattr(made["run"], each.name) for each in settings_of(RunSettings)},
    )
    useless += _without_effect(scenario, given)
    return scenario, [_note(scenario, name) for name in given if name in useless]


def renamed(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings by their present names. Raises UsageError for one that is there by two names."""
    found: dict[str, Any] = {}
    for name, value in given.items():
        present = FORMER.get(name, name)
        if present in found:
            raise UsageError(f"{option(name)} is the former name of {option(present)}; give one of them")
        found[present] = value
    return found


def every_setting() -> dict[str, Setting]:
    """Return every setting that a scenario may have, by its flat name; of policies, those of all that are known.

    Scenarios of models that decode count, too (sim/decoding/scenario.py)."""
    if not _EVERY:
        classes = [Poisson, Deterministic, Bursty, Replay, Workload, *ACCELERATORS.values(), Preprocess]
        classes += [*(find_policy(name).cls for name in policy_names()), FleetSettings, RunSettings]
        classes += [*DECODING, *(entry.cls for entry in usable_step_policies())]
        for cls in classes:
            for each in settings_of(cls):
                _EVERY.setdefault(each.name, each)
        del _EVERY["gpu"]  # which `accelerator` says
    return _EVERY


_EVERY: dict[str, Setting] = {}


def _traffic(given: Mapping[str, Any], where: Callable[[str], str]) -> type:
    if given.get("replay") is not None:
        return Replay
    return traffic_class(str(given.get(TRAFFIC, "poisson")), where(TRAFFIC))


def _refuse_useless(
    useless: list[str], parts: Mapping[str, type], given: Mapping[str, Any], where: Callable[[str], str]
) -> None:
    """Raise UsageError for settings without effect where a warning would not be enough."""
    if parts["traffic"] is Replay:
        both = [name for name in (*useless, TRAFFIC) if name in given and (name == TRAFFIC or name in _DRAWN)]
        both += [name for name in ("corpus", "lengths") if given.get(name) is not None]
        if both:
            raise UsageError(
                f"--replay brings its own arrivals and lengths; leave out {', '.join(map(option, sorted(both)))}"
            )
    elif late := [name for name in ("replay_every", "replay_speed") if name in useless]:
        raise UsageError(f"{option(late[0])} is for --replay; leave it out")
    check_sizes([name for name in SIZE_SETTINGS if given.get(name) is not None])
    if "stream" in useless and given["stream"]:
        raise UsageError("--stream is for --traffic poisson")
    fleet = {each.name for each in settings_of(FleetSettings)}
    if alone := [name for name in useless if name in fleet]:
        raise UsageError(f"{option(alone[0])} is for a fleet; give --servers, too")


_DRAWN = {each.name for cls in TRAFFICS.values() for each in settings_of(cls)}
_OF_TRAFFIC = _DRAWN | {each.name for each in settings_of(Replay)}


def _without_effect(scenario: Scenario, given: Mapping[str, Any]) -> list[str]:
    """Return the names of settings that the scenario has, and that change nothing in it."""
    found: list[str] = []
    on_gpu = isinstance(scenario.hardware, MigGpu)
    if not on_gpu:
        found += [each.name for each in settings_of(Preprocess)]
    else:
        if not scenario.preprocess.preprocess.startswith("cpu"):
            found.append("cpu_costs")
        if scenario.preprocess.preprocess == IDEAL:
            found += [*SIZE_SETTINGS, "processor"]
        if not getattr(scenario.policy, "w2", 0.0):
            found.append("busy_w")
    return [name for name in found if name in given]


def _note(scenario: Scenario, name: str) -> str:
    of = f"--policy {scenario.entry.name}, --accelerator {accelerator_name(scenario.hardware)}"
    if scenario.workload.trace is None:
        of += f", --traffic {scenario.flat()[TRAFFIC]}"
    if isinstance(scenario.hardware, MigGpu):
        of += f", --preprocess {scenario.preprocess.preprocess}"
    return f"{option(name)} has no effect with {of}"
