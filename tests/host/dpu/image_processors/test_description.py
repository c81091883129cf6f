"""Test the words and the shapes that the list of processors shows."""

from dataclasses import dataclass, replace

import pytest

from headrace.host.dpu.image_processors.description import known, size_rule, tensors
from headrace.host.dpu.image_processors.names import names, processor
from headrace.host.dpu.processors import Size, Tiles


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("clip-vit-base-patch32", "shortest edge 224, crop 224x224"),
        ("siglip-so400m-patch14-384", "384x384"),
        ("siglip2-base-patch16-naflex", "at most 256 patches of 16x16"),
        ("qwen2-vl", "multiples of 28, 3136 to 12845056 pixels"),
        ("glm-4.1v", "multiples of 28, 12544 to 9633792 pixels in 2 frames"),
        ("pixtral-12b", "at most 1024x1024, multiples of 16"),
        ("llava-next", "tiles of 336x336 on one of 5 canvases"),
        ("internvl3", "1 to 12 tiles of 448x448"),
        ("janus-pro", "longest edge 384, padded to a square"),
    ],
)
def test_the_size_rule_is_told_in_words(name, words):
    assert size_rule(processor(name)) == words


@dataclass(frozen=True)
class Third:
    part: int = 3

    def of(self, source, tile=None):
        return Size(source.width // self.part, source.height // self.part)


def test_a_rule_without_words_of_its_own_is_told_by_its_settings():
    spec = replace(processor("qwen2-vl"), size=Third())
    assert size_rule(spec) == "Third part 3"
    assert size_rule(replace(spec, size=None)) == "as it is"
    tiled = replace(spec, tiles=Tiles(Size(8, 4), Third(), True))
    assert size_rule(tiled) == "tiles of 8x4, Third part 3"


def test_shapes_follow_from_the_definitions():
    found = {row["name"]: row for row in known(Size(200, 150))}
    assert set(found) == set(names())
    grid = (14, 10)  # 196 and 140 pixels, the multiples of 28 that are next to the sides, in patches of 14
    assert found["qwen2-vl"]["tensors"] == {
        "pixel_values": {"shape": (grid[0] * grid[1], 3 * 2 * 14 * 14), "dtype": "float32"},
        "image_grid_thw": {"shape": (1, 3), "dtype": "int64"},
    }
    assert found["qwen2-vl"]["class"] == "Qwen2VLImageProcessor"
    assert tensors(processor("pixtral-12b"), Size(200, 150))["pixel_values"].shape == (1, 3, 160, 208)
