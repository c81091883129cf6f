"""A job is a request of one image to an image CU: registers, a program, and the form of the output."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from headrace.batching import CorruptInput, UnsupportedInput
from headrace.host.dpu.preprocessor import PIXEL_VALUES
from headrace.host.dpu.processors import ProcessorSpec, Size, tensor
from headrace.host.dpu.reference import image_file
from headrace.host.dpu.reference.image import upright
from headrace.host.dpu.reference.orientation import orientation
from headrace.host.dpu.specs import IMAGE_FORMATS, MAX_MEGAPIXELS, ImageSpec, ImageStage, Orientation
from headrace.host.dpu.units import program as programs

CENTRED: Final = -1  # crop offset register: 0xFFFFFFFF centres the window
NO_PROGRAM: Final = np.empty(0, np.uint8)
JPEG_SIGNATURE: Final = b"\xff\xd8"
START_OF_SCAN: Final = b"\xff\xda"
LARGEST_MCU: Final = 32  # pixels on a side of a minimum coded unit, at most
# Files of several scans need a workspace: three components without subsampling, 16 bits each, in whole MCUs.
COEFFICIENT_BYTES: Final = 6  # for each pixel
NO_NAME: Final = ""  # of the tensor of an ImageSpec

# Output bytes, width and height to the tensors by name. A stage of an ImageSpec has one tensor without a name.
Finish = Callable[[NDArray[np.uint8], int, int], Mapping[str, NDArray[Any]]]


class Registers(NamedTuple):
    """The registers of a request that are no buffers, in their order."""

    stage: int
    format: int
    resize_short: int = 0
    crop_width: int = 0
    crop_height: int = 0
    crop_x: int = 0
    crop_y: int = 0


@dataclass(frozen=True, slots=True)
class Job:
    """A request of one image to a CU.

    Args:
        registers: The registers.
        orientation: Orientation of the file.
        finish: Makes the tensors of the output. It copies the bytes.
        program: The program, empty without one.
        tensor_bytes, workspace_bytes: Room that the program needs. Without a program the CU says what it needs.
    """

    registers: Registers
    orientation: Orientation
    finish: Finish
    program: NDArray[np.uint8] = field(default_factory=NO_PROGRAM.copy)
    tensor_bytes: int = 0
    workspace_bytes: int = 0


class Jobs(Protocol):
    """Makes the jobs of a spec.

    Attributes:
        tables: The content of the CU's `tables`.
        tensor_bytes: Bytes of a usual tensor.
        max_megapixels: Largest image, by which the workspace is bounded.
    """

    tables: NDArray[np.uint8]
    tensor_bytes: int
    max_megapixels: int

    def job(self, jpeg: bytes, stage: ImageStage) -> Job:
        """Return the job of a file. Raises UnsupportedInput if no CU does it."""
        ...


class ImageJobs:
    """The jobs of an ImageSpec."""

    def __init__(self, spec: ImageSpec) -> None:
        self._spec = spec
        table = spec.tables()
        self.tables = table_words(table)
        self.tensor_bytes = int(np.prod(spec.tensor_shape)) * table.itemsize
        self.max_megapixels = spec.max_megapixels

    def job(self, jpeg: bytes, stage: ImageStage) -> Job:
        exif = orientation(jpeg)
        spec = self._spec.as_stored(exif)
        registers = Registers(
            int(stage),
            IMAGE_FORMATS.index(spec.dtype),
            spec.resize_short,
            spec.crop_width,
            spec.crop_height,
            CENTRED if spec.crop_x is None else spec.crop_x,
            CENTRED if spec.crop_y is None else spec.crop_y,
        )

        def finish(output: NDArray[np.uint8], width: int, height: int) -> Mapping[str, NDArray[Any]]:
            planar = stage == ImageStage.NORMALIZE
            shape = (3, height, width) if planar else (height, width, 3)
            image = output.view(spec.dtype if planar else np.uint8).reshape(shape).copy()
            return {NO_NAME: upright(image, self._spec.turn(exif), stage)}

        return Job(registers, exif, finish)


class ProcessorJobs:
    """The jobs of a ProcessorSpec. It has no stages."""

    def __init__(self, spec: ProcessorSpec, max_megapixels: int) -> None:
        self._spec = spec
        self.tables = table_words(spec.table())
        self.tensor_bytes = 1 << 20
        self.max_megapixels = max_megapixels

    def job(self, jpeg: bytes, stage: ImageStage) -> Job:
        made = program_of(jpeg, self._spec, self.max_megapixels)

        def finish(output: NDArray[np.uint8], width: int, height: int) -> Mapping[str, NDArray[Any]]:
            extras = {name: tensor(what, made.plan, self._spec.layout) for name, what in self._spec.extras}
            return {PIXEL_VALUES: made.pixel_values(output), **extras}

        registers = Registers(programs.STAGE, made.format)
        return Job(registers, made.turn, finish, made.data, made.tensor_bytes, made.workspace_bytes)


def program_of(jpeg: bytes, spec: ProcessorSpec, max_megapixels: int = MAX_MEGAPIXELS) -> programs.Program:
    """Return the program for a file. Raises UnsupportedInput if no CU takes it, and UsageError for its size.

    A program tells how much memory it needs before anything is decoded. So a header that claims a larger image than
    `max_megapixels` gets none."""
    try:
        stored = Size(*image_file.size(jpeg))
    except CorruptInput as error:  # the CPU path says what is wrong
        raise UnsupportedInput(f"no program for a file without a size: {error}") from error
    if not jpeg.startswith(JPEG_SIGNATURE):
        raise UnsupportedInput("the file is no JPEG file")
    if 0 in stored:
        raise UnsupportedInput("the size of the image is not in its header")
    if stored.width * stored.height > max_megapixels * 10**6:
        raise UnsupportedInput(f"the header claims {stored.width}x{stored.height}, above {max_megapixels} megapixels")
    turn = orientation(jpeg)
    source = stored.exchanged if turn.exchanges_sides else stored
    return programs.program(spec, source, _coefficient_bytes(jpeg, stored), turn)


def _coefficient_bytes(jpeg: bytes, source: Size) -> int:
    """Return the most bytes of coefficients of a file, which are none if it has one scan."""
    if jpeg.count(START_OF_SCAN) == 1:
        return 0
    width, height = (-(-side // LARGEST_MCU) * LARGEST_MCU for side in source)
    return COEFFICIENT_BYTES * width * height


def jobs_of(spec: ImageSpec | ProcessorSpec, max_megapixels: int) -> ImageJobs | ProcessorJobs:
    """Return the jobs of a spec. An ImageSpec has the largest image itself."""
    return ProcessorJobs(spec, max_megapixels) if isinstance(spec, ProcessorSpec) else ImageJobs(spec)


def table_words(table: NDArray[Any]) -> NDArray[np.uint8]:
    """Return the content of `tables` for a table of shape (3, 256)."""
    words = np.zeros((3, 256), np.uint32)  # the CU takes the low bits that the format needs
    words[:] = np.ascontiguousarray(table).view(f"u{table.dtype.itemsize}")
    return words.view(np.uint8).reshape(-1)
