"""How a simulated server makes tensors of images and audio, and what images come."""

from headrace.batching.errors import UsageError
from headrace.batching.settings import setting, settings
from headrace.sim.hardware.inputs import TYPICAL_PIXELS
from headrace.sim.workload.images import MAX_PIXELS

IDEAL = "ideal"


@settings()
class Preprocess:
    """Preprocessing in front of a GPU's slices (sim/system/preprocessors.py)."""

    preprocess: str = setting(
        default=IDEAL, help="What prepares inputs: ideal, cpu:32, dpu:4, dpu:4:queue:p2p, nvjpg, and others."
    )
    cpu_costs: str | None = setting(
        default=None, help="From `headrace profile --cpu-preprocessing`, for --preprocess cpu.", advanced=True
    )
    image_pixels: int = setting(
        default=TYPICAL_PIXELS, help="Pixels of each image.", ge=1, le=MAX_PIXELS, advanced=True
    )
    images: str | None = setting(
        default=None, help="A file with the sizes of images, from which those of requests are drawn.", advanced=True
    )

    def check(self) -> None:
        """Refuse values that contradict each other."""
        if self.images is not None and self.image_pixels != TYPICAL_PIXELS:
            raise UsageError("--images and --image-pixels both tell sizes; give one of them")
