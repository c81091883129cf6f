"""How NVIDIA's Multi-Instance GPU (MIG) cuts a GPU: the profiles of A100, H100 and H200, which instances fit one GPU,
and where.

A GPU has seven compute slices and eight memory slices. An instance takes some of each. Its memory slices are adjacent
and begin at one of a few places, and two instances must not share one. This decides what fits, and not the number of
slices that are left. On an A100, 1g.5gb in places 0 and 4 leaves no room for 3g.20gb.

Sources: NVIDIA's Multi-Instance GPU User Guide (profiles, fractions, maximum counts of instances, JPEG engines);
go-nvml and listings of `nvidia-smi mig -lgip` and `-lgipp` (SMs, usable memory of the smallest profile, places).
Hopper's places are A100's, as its profiles have the same shapes. H100's 1g.20gb is listed with 26 SMs, more than a
seventh; that of H200 is taken to be alike. A100-80GB and H100 are those on SXM boards.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from headrace.batching.errors import UsageError

COMPUTE_SLICES, MEMORY_SLICES = 7, 8
_PLACES = {1: (0, 1, 2, 3, 4, 5, 6), 2: (0, 2, 4), 4: (0, 4), 8: (0,)}  # the places of profiles, by their memory slices
_WIDE_PLACES = (0, 2, 4, 6)  # of a profile with one compute and two memory slices


@dataclass(frozen=True, slots=True)
class InstanceProfile:
    """A size of instance.

    `max_count` is how many fit one GPU. `places` are the memory slices at which one may begin. `jpeg_engines` are its
    hardware JPEG decoders."""

    name: str
    compute_slices: int
    memory_slices: int
    sms: int
    max_count: int
    jpeg_engines: int = 0

    @property
    def places(self) -> tuple[int, ...]:
        if self.compute_slices == 1 and self.memory_slices == 2:
            return _WIDE_PLACES
        if self.compute_slices == 4:
            return (0,)
        return _PLACES[self.memory_slices]


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU and its profiles by name.

    `sms` and `bandwidth_bytes_s` are those of the whole GPU, without MIG. `slice_gib` is the memory that programs can
    use of an instance of one memory slice."""

    name: str
    sms: int
    bandwidth_bytes_s: float
    slice_gib: float
    profiles: Mapping[str, InstanceProfile]

    def bandwidth_of(self, profile: InstanceProfile) -> float:
        """Return the bytes a second of an instance: its share of the memory slices."""
        return self.bandwidth_bytes_s * profile.memory_slices / MEMORY_SLICES

    def memory_gib(self, profile: InstanceProfile) -> float:
        """Return the least memory that programs can use of an instance. Larger instances are listed with up to 9 %
        more."""
        return self.slice_gib * profile.memory_slices


@dataclass(frozen=True, slots=True)
class Instance:
    """An instance of a profile. `place` is its first memory slice."""

    profile: InstanceProfile
    place: int


def _gpu(name: str, sms: int, bandwidth_gb_s: float, slice_gib: float, *profiles: InstanceProfile) -> Gpu:
    return Gpu(name, sms, bandwidth_gb_s * 1e9, slice_gib, {profile.name: profile for profile in profiles})


GPUS: Mapping[str, Gpu] = {
    gpu.name: gpu
    for gpu in (
        _gpu(
            "a100-40gb",
            108,
            1555,
            4.75,
            InstanceProfile("1g.5gb", 1, 1, 14, 7),
            InstanceProfile("1g.5gb+me", 1, 1, 14, 1, 1),
            InstanceProfile("1g.10gb", 1, 2, 14, 4),
            InstanceProfile("2g.10gb", 2, 2, 28, 3),
            InstanceProfile("3g.20gb", 3, 4, 42, 2),
            InstanceProfile("4g.20gb", 4, 4, 56, 1),
            InstanceProfile("7g.40gb", 7, 8, 98, 1, 1),
        ),
        _gpu(
            "a100-80gb",
            108,
            2039,
            9.5,
            InstanceProfile("1g.10gb", 1, 1, 14, 7),
            InstanceProfile("1g.10gb+me", 1, 1, 14, 1, 1),
            InstanceProfile("1g.20gb", 1, 2, 14, 4),
            InstanceProfile("2g.20gb", 2, 2, 28, 3),
            InstanceProfile("3g.40gb", 3, 4, 42, 2),
            InstanceProfile("4g.40gb", 4, 4, 56, 1),
            InstanceProfile("7g.80gb", 7, 8, 98, 1, 1),
        ),
        _gpu(
            "h100",
            132,
            3350,
            9.62,
            InstanceProfile("1g.10gb", 1, 1, 16, 7, 1),
            InstanceProfile("1g.20gb", 1, 2, 26, 4, 1),
            InstanceProfile("2g.20gb", 2, 2, 32, 3, 2),
            InstanceProfile("3g.40gb", 3, 4, 60, 2, 3),
            InstanceProfile("4g.40gb", 4, 4, 64, 1, 4),
            InstanceProfile("7g.80gb", 7, 8, 132, 1, 7),
        ),
        _gpu(
            "h200",
            132,
            4800,
            16.0,
            InstanceProfile("1g.18gb", 1, 1, 16, 7, 1),
            InstanceProfile("1g.35gb", 1, 2, 26, 4, 1),
            InstanceProfile("2g.35gb", 2, 2, 32, 3, 2),
            InstanceProfile("3g.71gb", 3, 4, 60, 2, 3),
            InstanceProfile("4g.71gb", 4, 4, 64, 1, 4),
            InstanceProfile("7g.141gb", 7, 8, 132, 1, 7),
        ),
    )
}


def gpu_named(name: str) -> Gpu:
    """Return the GPU of this name. Raises UsageError for an unknown name."""
    if name not in GPUS:
        raise UsageError(f"there is no GPU {name!r}; choose from {', '.join(GPUS)}")
    return GPUS[name]


def partition(gpu: Gpu, text: str) -> tuple[Instance, ...]:
    """Return the instances that `text` asks for, in the order in which they are named.

    The text names each profile with its count (1 without), such as `1g.5gb:3,4g.20gb`. Raises UsageError for a text
    that cannot be read, and for instances that do not fit."""
    wanted: list[InstanceProfile] = []
    for part in text.split(","):
        name, colon, number = part.strip().partition(":")
        profile = gpu.profiles.get(name)
        if profile is None:
            raise UsageError(f"{gpu.name} has no profile {name!r}; choose from {', '.join(gpu.profiles)}")
        if colon and not (number.isascii() and number.isdigit() and len(number) < 5 and int(number) >= 1):
            raise UsageError(f"partition {part.strip()!r}: give a number of instances, 1 or more, after the colon")
        count = int(number) if colon else 1
        if count > profile.max_count:
            raise UsageError(
                f"{count} instances of {name} do not fit {gpu.name}, which has room for {profile.max_count}"
            )
        wanted += [profile] * count
    return placed(gpu, wanted)


def placed(gpu: Gpu, profiles: Sequence[InstanceProfile]) -> tuple[Instance, ...]:
    """Return an instance with a place for each profile, in the order given. Raises UsageError if they do not fit."""
    # The largest come first, because they have the fewest places. The result is the same for every order of the same
    # set.
    order = sorted(range(len(profiles)), key=lambda i: (-profiles[i].memory_slices, -profiles[i].compute_slices, i))
    places = _fit(tuple(profiles[i].name for i in order), gpu, 0)
    if places is None:
        wanted = ", ".join(f"{count} x {name}" for name, count in Counter(p.name for p in profiles).items())
        memory = sum(profile.memory_slices for profile in profiles)
        compute = sum(profile.compute_slices for profile in profiles)
        raise UsageError(
            f"{wanted} do not fit one {gpu.name}: they take {compute} of {COMPUTE_SLICES} compute and {memory} of "
            f"{MEMORY_SLICES} memory slices, and each may begin in some places only; use fewer or smaller ones"
        )
    place_of = dict(zip(order, places, strict=True))
    return tuple(Instance(profile, place_of[i]) for i, profile in enumerate(profiles))


def _fit(names: tuple[str, ...], gpu: Gpu, taken: int) -> tuple[int, ...] | None:
    """Return a place for each profile that uses none of the memory slices `taken` (a bit each); None if they do not
    fit."""
    if not names:
        return ()
    profile = gpu.profiles[names[0]]
    if names.count(names[0]) > profile.max_count:
        return None
    for place in reversed(profile.places):  # small instances from the end: 4g and 7g can only begin at 0
        slices = ((1 << profile.memory_slices) - 1) << place
        if not taken & slices:
            rest = _fit(names[1:], gpu, taken | slices)
            if rest is not None:
                return (place, *rest)
    return None


@cache
def _partitions(name: str) -> tuple[tuple[str, ...], ...]:
    gpu = GPUS[name]
    names = tuple(gpu.profiles)

    def larger(chosen: tuple[str, ...], start: int) -> Iterator[tuple[str, ...]]:
        for i in range(start, len(names)):
            more = (*chosen, names[i])
            try:
                placed(gpu, [gpu.profiles[each] for each in more])
            except UsageError:
                continue
            yield more
            yield from larger(more, i)

    return tuple(larger((), 0))


def partitions(gpu: Gpu, *, full: bool = False) -> Iterator[tuple[InstanceProfile, ...]]:
    """Yield every set of profiles that fits one GPU, each set once.

    With `full`, yield only those to which nothing can be added."""
    fitting = _partitions(gpu.name)
    sets = {tuple(sorted(names)) for names in fitting}
    for names in fitting:
        if full and any(tuple(sorted((*names, another))) in sets for another in gpu.profiles):
            continue
        yield tuple(gpu.profiles[name] for name in names)
