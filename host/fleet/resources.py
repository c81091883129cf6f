"""What a replica needs of its node, as Ray counts it."""

import math
import re
from collections.abc import Mapping
from typing import Any

from headrace.batching import UsageError

DEFAULT = "CPU=1"


def parsed_resources(text: str) -> dict[str, float]:
    """NAME=AMOUNT, several by comma. Raises UsageError."""
    found: dict[str, float] = {}
    for part in text.split(","):
        name, _, amount = part.partition("=")
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._:-]*", name) or not re.fullmatch(r"[0-9]+(\.[0-9]+)?", amount):
            raise UsageError(f"--resources {part!r}: give NAME=AMOUNT, several by comma, as in mig-1g.5gb=1,fpga=1")
        if name in found:
            raise UsageError(f"--resources: {name} stands there twice; say it once")
        number = float(amount)
        if not 0 < number < 1e6 or (number > 1 and not number.is_integer()):
            raise UsageError(f"--resources {part!r}: give an amount above 0, and a whole one above 1")
        found[name] = number
    return found


def actor_options(resources: Mapping[str, float]) -> dict[str, Any]:
    """For Ray, which has names of its own for its own resources."""
    others = {name: amount for name, amount in resources.items() if name not in ("CPU", "GPU")}
    return {"num_cpus": resources.get("CPU", 0), "num_gpus": resources.get("GPU", 0), "resources": others}


def check_total(resources: Mapping[str, float], replicas: int, total: Mapping[str, float]) -> None:
    """Raises UsageError where the whole cluster has less of something than the replicas need."""
    for name, amount in resources.items():
        has = total.get(name, 0.0)
        most = math.floor(has / amount + 1e-9)
        if most < replicas:
            raise UsageError(
                f"--replicas {replicas}: each needs {amount:g} {name}, and the cluster has {has:g}: give at most "
                f"{most}, or start nodes by `ray start --resources`"
                if most
                else f"--resources {name}={amount:g}: the cluster has {has:g} {name}; start nodes that have it by "
                f"`ray start --resources`"
            )
