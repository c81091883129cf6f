"""How long the kernels of a GPU compute: matrix products and attention, by the hardware's numbers and a few constants.

The library cuts a product into tiles of its output, which the SMs take in waves. It chooses the shape of the tile, and
the number of parts of each sum, from a few. `Kernels` holds the constants: how well kernels use the hardware. There are
two kinds of evidence:

- `FITTED` comes from networks on MIG slices of an A100 (ParvaGPU; scripts/calibrate_gpu_slice.py).
- `AMPERE_WHOLE` and `HOPPER_WHOLE` come from products and attention, one by one, on whole GPUs: half of the sizes in
  NVIDIA's tables (scripts/calibrate_gpu_kernels.py). `headrace reproduce gpu` compares them with the other half.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Format = Literal["fp32", "tf32", "fp16"]
ELEMENT_BYTES: dict[Format, int] = {"fp32": 4, "tf32": 4, "fp16": 2}

_TILES = ((256, 128), (128, 128), (128, 64), (64, 64))  # as in cuBLAS
_STEP = 32  # the step of a tile's sum
# Bytes that an SM reads from the L2 cache a clock: A100's whitepaper. Hopper is taken to be alike in convolutions.
L2_BYTES = 5120 / 108
_QUERIES = (128, 64, 16)  # the rows of an attention tile
_MIN_KEYS = 64
_MIN_HEAD = 64
_FEW_SPLITS, _SPLITS = (1, 2, 4), (1, 2, 4, 8, 16, 32)


@dataclass(frozen=True, slots=True)
class Attention:
    """How well kernels that compute attention as a whole use the hardware.

    Attributes:
        macs: The share of the tensor cores' multiply-accumulates.
        memory: The share of the memory's bandwidth.
        kernel_s: The time to begin and to end.
        tile_clocks: The clocks to begin and to end a tile.
        split_s: The time to add the parts, where several tiles share the keys of a query.
        soft_waves: As in `Kernels`.
    """

    macs: float
    memory: float
    kernel_s: float
    tile_clocks: float
    split_s: float
    soft_waves: float


@dataclass(frozen=True, slots=True)
class Kernels:
    """How well the framework's kernels use the hardware.

    Attributes:
        grouped: Multiply-accumulates of an SM a clock, in a grouped convolution.
        memory: The share of the memory's bandwidth that kernels reach.
        sm_bytes: The bytes that an SM moves to and from memory a clock.
        kernel_s: The time to begin and to end a kernel.
        macs: The share of the multiply-accumulates of an SM that tiles reach.
        operand_bytes: The bytes of operands that an SM loads a clock for a product that is no convolution.
        soft_tiles: How far the last tile of a row or column costs only its part: 0 is a whole tile, 1 is the part.
        soft_waves: How far the last wave of tiles costs only its part.
        tile_clocks: The clocks to begin and to end a tile.
        splits: The numbers of parts into which a sum may be cut.
        split_s: The time to add the parts, beyond that of their bytes.
        overlap: Computing and moving bytes take (compute ** overlap + bytes ** overlap) ** (1 / overlap). 1 is one
            after the other, and infinity is the longer of both.
        products: The constants of kernels that multiply matrices and do not convolve, where they have their own.
        attention: The constants of kernels that compute attention as a whole. None counts their products alone.
    """

    grouped: float
    memory: float
    sm_bytes: float
    kernel_s: float
    macs: float = 1.0
    operand_bytes: float = L2_BYTES
    soft_tiles: float = 0.0
    soft_waves: float = 0.0
    tile_clocks: float = 0.0
    splits: tuple[int, ...] = _FEW_SPLITS
    split_s: float = 0.0
    overlap: float = math.inf
    products: "Kernels | None" = None
    attention: Attention | None = None

    def together(self, compute_s: Floats, memory_s: Floats) -> Floats:
        """Return the seconds of computing and of moving bytes, where both overlap."""
        longer: Floats = np.maximum(compute_s, memory_s)
        if math.isinf(self.overlap):
            return longer
        shorter = np.minimum(compute_s, memory_s)
        share = np.divide(shorter, longer, out=np.zeros_like(longer), where=longer > 0)
        return longer * (1 + share**self.overlap) ** (1 / self.overlap)


# scripts/calibrate_gpu_slice.py fitted these to ParvaGPU's measurements on slices of an A100-80GB, and its host there,
# with PyTorch 1.11, Python 3.8, and inputs in pageable memory.
FITTED = Kernels(grouped=3.1, memory=0.87, sm_bytes=14.5, kernel_s=3.4e-6)


@dataclass(frozen=True, slots=True)
class Architecture:
    """A GPU generation.

    `macs` are the multiply-accumulates that an SM does in a clock, by number format: fp32 on its ordinary units, the
    others, dense, on its tensor cores. `l2_bytes` is the cache of the whole GPU. `whole` are the constants of a whole
    GPU, and `sliced` those of a MIG slice."""

    clock_hz: float
    l2_bytes: float
    macs: dict[Format, int]
    whole: Kernels
    sliced: Kernels


def product_clocks(
    rows: Floats,
    k: Floats,
    n: Floats,
    count: Floats,
    convolves: NDArray[np.bool_],
    macs: Floats,
    element: Floats,
    sms: int,
    clock_hz: float,
    kernels: Kernels,
) -> Floats:
    """Return the clocks of `count` products (rows x k) @ (k x n), with the tile and the split that are fastest.

    Plain products hide the load of their operands behind computing. Convolutions, whose operands are gathered, do not.

    Args:
        rows, k, n, count: The sizes, in elements; arrays that broadcast.
        convolves: Whether a product is a convolution.
        macs: The multiply-accumulates of an SM a clock, in the product's format.
        element: The bytes of an element.
        sms: The SMs.
        clock_hz: Their clock.
        kernels: How well kernels use them.
    """
    best = np.full(np.broadcast(rows, k, n, count).shape, np.inf)
    for height, width in _TILES:
        tiles = count * _softened(rows / height, kernels.soft_tiles) * _softened(n / width, kernels.soft_tiles)
        compute = height * width / (kernels.macs * macs)
        operands = element * (height + width)
        step = np.where(convolves, compute + operands / L2_BYTES, np.maximum(compute, operands / kernels.operand_bytes))
        for splits in kernels.splits:
            waves = _softened(tiles * splits / sms, kernels.soft_waves)
            clocks = waves * _STEP * np.ceil(k / (_STEP * splits)) * step + waves * kernels.tile_clocks
            if splits > 1:  # the parts of the sum are written, read and added
                clocks = clocks + 2 * element * splits * count * rows * n / (kernels.sm_bytes * sms)
                clocks = clocks + kernels.split_s * clock_hz
            best = np.minimum(best, clocks)
    return best


def attention_clocks(
    queries: Floats,
    keys: Floats,
    head: Floats,
    count: Floats,
    causal: NDArray[np.bool_],
    macs: float,
    sms: int,
    clock_hz: float,
    attention: Attention,
) -> Floats:
    """Return the clocks of attention of `count` heads, with the tile and the split that are fastest.

    A tile has some queries of a head and passes over the keys. Where attention is causal, it passes over those before
    its queries alone.

    Args:
        queries, keys: How many a head has.
        head: The length of a query.
        count: The heads of all requests.
        causal: Whether a query sees the keys before it alone.
        macs: The multiply-accumulates of an SM a clock.
        sms: The SMs.
        clock_hz: Their clock.
        attention: How well the kernels use them.
    """
    best = np.full(np.broadcast(queries, keys, head, count).shape, np.inf)
    for height in _QUERIES:
        seen = np.maximum(np.where(causal, np.minimum(keys, (keys + height) / 2), keys), _MIN_KEYS)
        work = 2 * height * np.maximum(head, _MIN_HEAD) * seen / (attention.macs * macs)
        tiles = count * np.maximum(queries / height, 1)
        for splits in _SPLITS:
            clocks = _softened(tiles * splits / sms, attention.soft_waves) * (work / splits + attention.tile_clocks)
            if splits > 1:
                clocks = clocks + attention.split_s * clock_hz
            best = np.minimum(best, clocks)
    return best


def _softened(count: Floats, softness: float) -> Floats:
    """Return a number of tiles or waves: whole ones at softness 0, and a fraction above the first at softness 1."""
    return (1 - softness) * np.ceil(count) + softness * np.maximum(count, 1.0)


# The constants of products were fitted to half of the sizes of NVIDIA's tables of vLLM's bf16 kernels (tables.py), and
# those of attention to half of its. No network played a part. The tables have no other kernels: these are as in FITTED.
AMPERE_WHOLE = replace(
    FITTED,
    products=Kernels(
        grouped=FITTED.grouped,
        memory=0.950,
        sm_bytes=12.2,
        kernel_s=1.98e-6,
        macs=0.909,
        operand_bytes=math.inf,
        soft_tiles=0.60,
        soft_waves=0.54,
        tile_clocks=2580,
        splits=_SPLITS,
        split_s=1.97e-6,
        overlap=1.40,
    ),
    attention=Attention(0.589, 0.877, 7.79e-6, tile_clocks=4080, split_s=10.4e-6, soft_waves=0.0),
)
HOPPER_WHOLE = replace(
    FITTED,
    products=Kernels(
        grouped=FITTED.grouped,
        memory=0.902,
        sm_bytes=17.5,
        kernel_s=2.37e-6,
        macs=0.845,
        operand_bytes=math.inf,
        soft_tiles=0.97,
        soft_waves=0.76,
        tile_clocks=570,
        splits=_SPLITS,
        split_s=2.88e-6,
        overlap=1.76,
    ),
    attention=Attention(0.554, 1.0, 7.28e-6, tile_clocks=4840, split_s=0.74e-6, soft_waves=0.15),
)

# NVIDIA A100 Tensor Core GPU Architecture (whitepaper, 2020), Tables 1 to 3: boost clock, 40 MB of L2 cache, and per SM
# and clock 64 FP32, 512 TF32 and 1,024 FP16 fused multiply-adds.
AMPERE = Architecture(
    1410e6, 40 * (1 << 20), {"fp32": 64, "tf32": 512, "fp16": 1024}, whole=AMPERE_WHOLE, sliced=FITTED
)
# NVIDIA H100 Tensor Core GPU Architecture (whitepaper, 2022): 50 MB of L2, twice A100's arithmetic per SM and clock.
# The clock follows from its 494.7 dense TF32 TFLOPS of 132 SMs. `headrace reproduce gpu` has the errors by size
# (docs/explanation/measured_gpus.md). No slice of it was measured: the constants are those of the whole GPU.
HOPPER = Architecture(
    1830e6, 50 * (1 << 20), {"fp32": 128, "tf32": 1024, "fp16": 2048}, whole=HOPPER_WHOLE, sliced=HOPPER_WHOLE
)
