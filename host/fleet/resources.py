"""The resources that a replica needs on its node, as Ray counts them."""

import math
import re
from collections.abc import Mapping
from typing import Any

from headrace.batching import UsageError

DEFAULT = "CPU=1"


def parsed_resources(text: str) -> dict[str, float]:
    """Parse NAME=AMOUNT, several separated by commas.

    Example: "mig-1g.5gb=1,fpga=1". Raises UsageError."""
    resources: dict[str, float] = {}
    for part in text.split(","):
        name, _, amount = part.partition("=")
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._:-]*", name) or not re.fullmatch(r"[0-9]+(\.[0-9]+)?", amount):
            raise UsageError(
                f"--resources {part!r}: give NAME=AMOUNT, several separated by commas, such as mig-1g.5gb=1,fpga=1"
            )
        if name in resources:
            raise UsageError(f"--resources: {name} is given twice; give it once")
        number = float(amount)
        if not 0 < number < 1e6 or (number > 1 and not number.is_integer()):
            raise UsageError(f"--resources {part!r}: give an amount above 0; above 1 it must be a whole number")
        resources[name] = number
    return resources


def actor_options(resources: Mapping[str, float]) -> dict[str, Any]:
    """Return the options of Ray's actor. Ray has separate options for CPU and GPU."""
    others = {name: amount for name, amount in resources.items() if name not in ("CPU", "GPU")}
    return {"num_cpus": resources.get("CPU", 0), "num_gpus": resources.get("GPU", 0), "resources": others}


def check_total(resources: Mapping[str, float], replicas: int, total: Mapping[str, float]) -> None:
    """Raise UsageError if the whole cluster has less of a resource than the replicas need together."""
    for name, amount in resources.items():
        has = total.get(name, 0.0)
        max_replicas = math.floor(has / amount + 1e-9)
        if max_replicas < replicas:
            raise UsageError(
                f"--replicas {replicas}: each needs {amount:g} {name}, and the cluster has {has:g}; give at most "
                f"{max_replicas}, or start nodes with `ray start --resources`"
                if max_replicas
                else f"--resources {name}={amount:g}: the cluster has {has:g} {name}; start nodes that have it with "
                "`ray start --resources`"
            )
