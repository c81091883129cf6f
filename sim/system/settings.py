"""How a simulated server makes tensors of images and audio, and what images come."""

from headrace.batching.errors import UsageError
from headrace.batching.settings import setting, settings
from headrace.sim.hardware.inputs import TYPICAL_PIXELS
from headrace.sim.workload.images import MAX_PIXELS

IDEAL = "ideal"
SIZE_SETTINGS = ("images", "image_sizes", "image_pixels")  # the settings that tell sizes of images, of which one counts


@settings()
class Preprocess:
    """Preprocessing in front of a GPU's slices (sim/system/preprocessors.py)."""

    preprocess: str = setting(
        default=IDEAL, help="What prepares inputs: ideal, cpu:32, dpu:4, dpu:4:queue:p2p, nvjpg, and others."
    )
    processor: str | None = setting(
        default=None,
        help="The image processor or feature extractor of Hugging Face that makes the tensors: a name that "
        "`headrace preprocess processors` lists, a preprocessor_config.json, or the folder of a model.",
        advanced=True,
    )
    image_sizes: str | None = setting(
        default=None,
        help="Sizes of the images with weights, such as 500x375,1024x768:2, from which those of requests are drawn.",
        advanced=True,
    )
    cpu_costs: str | None = setting(
        default=None, help="From `headrace profile --cpu-preprocessing`, for --preprocess cpu.", advanced=True
    )
    image_pixels: int = setting(
        default=TYPICAL_PIXELS, help="Pixels of each image.", ge=1, le=MAX_PIXELS, advanced=True
    )
    images: str | None = setting(
        default=None,
        help="A CSV file with the sizes of images, from which those of requests are drawn: width, height, and maybe "
        "weight and file_bytes. To plan for a model that decodes: COUNT:SIZE[,SIZE...], such as 1:2048x2048.",
        advanced=True,
    )

    def check(self) -> None:
        """Refuse values that contradict each other."""
        pixels = self.image_pixels != TYPICAL_PIXELS
        check_sizes(
            [
                name
                for name, given in zip(
                    SIZE_SETTINGS, (self.images is not None, self.image_sizes is not None, pixels), strict=True
                )
                if given
            ]
        )
        if pixels and self.processor is not None:
            raise UsageError(
                "--processor works by width and height, which --image-pixels does not tell; give --image-sizes"
            )


def check_sizes(given: list[str]) -> None:
    """Raise UsageError if more than one of SIZE_SETTINGS is given."""
    if len(given) > 1:
        first, second = (f"--{name.replace('_', '-')}" for name in given[:2])
        raise UsageError(f"{first} and {second} both tell sizes; give one of them")
