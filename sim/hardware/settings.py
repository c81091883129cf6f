"""The hardware of a simulation: an NPU, a GPU cut into MIG slices, measured latencies, a V100 with cells,
or a whole GPU with measured kernels."""

from headrace.batching.settings import setting, settings
from headrace.sim.hardware.gpu.mig import GPUS
from headrace.sim.hardware.gpu.slice import PRECISIONS

# PREBA does not say which precision it used. It cannot have been fp32: 25 s of audio through Conformer in 35 ms
# (Fig. 15) are nearly three times what the ordinary units of a 1g.5gb do.
PRECISION = "tf32"
# The GPUs with tables of measured kernels, and their names in mig.py. A100's tables are of the one with 80 GB.
MEASURED_GPUS = {"a100-measured": "a100-80gb", "h100-measured": "h100", "h200-measured": "h200"}


@settings()
class Accelerators:
    """Settings of any kind of hardware."""

    busy_w: float | None = setting(
        default=None, help="Power that a busy worker draws, in watts.", gt=0, advanced=True, kw_only=True
    )


@settings()
class Npu(Accelerators):
    """NPUs of LazyBatching's model: 128 x 128 systolic arrays (sim/hardware/npu.py)."""

    npus: int = setting(default=1, help="How many NPUs, or workers of a profile.", ge=1, le=1024)


@settings()
class V100(Accelerators):
    """V100 GPUs that run the recurrent networks of BatchMaker (sim/hardware/v100.py)."""

    npus: int = setting(default=1, help="How many NPUs, or workers of a profile.", ge=1, le=1024)


@settings()
class Measured(Accelerators):
    """Workers with the latencies of a file that `headrace profile` wrote."""

    profile: str | None = setting(default=None, help="From `headrace profile`: the latencies of one network, measured.")
    npus: int = setting(default=1, help="How many NPUs, or workers of a profile.", ge=1, le=1024)


@settings()
class MigGpu(Accelerators):
    """A GPU cut into MIG slices, each of which is a worker (sim/system/system.py)."""

    gpu: str = setting(default="a100-40gb", help="The GPU.", choices=tuple(GPUS))
    partition: str | None = setting(default=None, help="Slices, as PROFILE:COUNT by comma, 1g.5gb:7 for instance.")
    active_slices: int | None = setting(
        default=None, help="How many of the slices serve; all if not given.", ge=1, advanced=True
    )
    precision: str = setting(
        default=PRECISION, help="Precision of the networks on slices.", choices=tuple(PRECISIONS), advanced=True
    )
    prices: str | None = setting(
        default=None, help="Prices of parts in $, and of a kWh, as in node=6000,kwh=0.2.", advanced=True
    )


@settings()
class MeasuredGpu(Accelerators):
    """Whole GPUs with the latencies of NVIDIA's tables of measured kernels, in bf16 (sim/hardware/gpu/measured.py)."""

    gpu: str = setting(default="h100-measured", help="The GPU.", choices=tuple(MEASURED_GPUS))
    npus: int = setting(default=1, help="How many NPUs, or workers of a profile, or measured GPUs.", ge=1, le=1024)
    launch_us: float = setting(
        default=0.0,
        help="The host's time from one kernel's launch to the next, in us: 0 for a captured graph, 26 for a host that "
        "launches each kernel from Python.",
        ge=0,
        le=1000,
        advanced=True,
    )


Hardware = Npu | V100 | Measured | MigGpu | MeasuredGpu
ACCELERATORS: dict[str, type[Accelerators]] = {
    "npu": Npu,
    "profile": Measured,
    "v100": V100,
    **dict.fromkeys(GPUS, MigGpu),
    **dict.fromkeys(MEASURED_GPUS, MeasuredGpu),
}


def accelerator_name(hardware: Hardware) -> str:
    """Return the name of the hardware on the command line."""
    if isinstance(hardware, MigGpu | MeasuredGpu):
        return hardware.gpu
    return next(name for name, cls in ACCELERATORS.items() if cls is type(hardware))
