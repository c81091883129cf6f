"""The search space: hardware, and settings of policies on it."""

from collections import Counter
from dataclasses import replace
from itertools import product
from typing import Final

from headrace.batching.errors import UsageError
from headrace.sim.hardware.gpu.mig import gpu_named, partitions
from headrace.sim.planner.bounds import bounds_of
from headrace.sim.planner.target import Candidate, Hardware, Target
from headrace.sim.system.card import too_many
from headrace.sim.system.processors import check_kind
from headrace.sim.system.system import CORES
from headrace.sim.workload.settings import Workload
from headrace.sim.zoo.traced import traced

CUS: Final = (1, 2, 4, 8)  # CUs of each kind, as far as a card has room for them
SOCKETS: Final = (1, 2)  # CPUs of CORES each; fewer cores are not cheaper, because they come with their CPU
WINDOWS: Final = (0.0, 1 / 16, 1 / 4)  # the windows of `graph`, as shares of the SLO
BUCKETS_S: Final = (2.5, 5.0)  # the buckets of audio; the first is PREBA's


def preprocessings(target: Target) -> list[str]:
    """Return the ways of preprocessing to try. Raises UsageError for a processor of other inputs than the model's."""
    networks = [traced(name) for name in Workload(target.model).models()]
    texts = [network.name for network in networks if network.step_s is None and len(network.graphs) > 1]
    if texts and target.processor is not None:
        raise UsageError(f"--processor {target.processor}: {texts[0]} takes text; leave it out")
    if texts:
        return ["ideal"]
    images = all(network.step_s is None for network in networks)
    if target.processor is not None:
        check_kind(target.processor, "image" if images else "audio")
    ways = [f"cpu:{CORES * sockets}" for sockets in SOCKETS]
    decoders = ["nvjpg"] if images and target.processor is None else []
    return [*ways, *decoders, *(f"dpu:{cus}" for cus in CUS)]


def hardware_of(target: Target) -> tuple[list[Hardware], list[str]]:
    """Return all hardware that can be, whatever its rate, and the reasons why other hardware cannot."""
    possible, refused = [], []
    gpu = gpu_named(target.gpu)
    alike: set[tuple[object, ...]] = set()
    for profiles, way in product(partitions(gpu, full=True), preprocessings(target)):
        # Profiles that differ only in JPEG engines count as one where these are not used.
        shape = way, *sorted((p.sms, p.memory_slices, p.jpeg_engines * (way == "nvjpg")) for p in profiles)
        if shape in alike:
            continue
        alike.add(shape)
        parts = ",".join(f"{name}:{count}" for name, count in Counter(each.name for each in profiles).items())
        one = Hardware(1, parts, way)
        try:
            if (excess := too_many(bounds_of(target, one).system.preprocessor)) is not None:
                raise UsageError(f"{way}: {excess}")
        except UsageError as error:
            if way != "nvjpg":  # most partitions of an A100 have no engines for nvjpg
                refused.append(str(error))
            continue
        possible += [replace(one, servers=servers) for servers in range(1, target.gpus + 1)]
    return possible, refused


def settings_of(target: Target, hardware: Hardware) -> list[Candidate]:
    """Return the policies and parameters that are tried on the hardware."""
    known = bounds_of(target, hardware)
    takes_audio = any(network.step_s is not None for network in known.system.networks)
    buckets: list[tuple[tuple[str, float], ...]] = (
        [(("bucket_s", width),) for width in BUCKETS_S] if takes_audio else [()]
    )
    candidates = [Candidate(hardware, policy, bucket) for policy in ("preba", "preba-lazy") for bucket in buckets]
    for batch in known.batches:
        largest = ("max_batch", batch)
        candidates += [
            Candidate(hardware, "graph", (("window_ms", float(f"{share * target.slo_ms:.4g}")), largest))
            for share in WINDOWS
        ]
        candidates.append(Candidate(hardware, "smdp", (largest,)))
        if target.traffic == "mmpp":
            candidates.append(Candidate(hardware, "smdp", (largest, ("by_phase", True))))
    ends = dict.fromkeys([*known.batches[:1], *known.batches[-1:]])  # `lazy` takes by far the longest to simulate
    candidates += [Candidate(hardware, "lazy", (("max_batch", batch),)) for batch in ends]
    return candidates
