"""Test the words and the shapes that the list of processors shows."""

from dataclasses import dataclass, replace

import pytest

from headrace.host.dpu.hugging_face.description import known, size_rule
from headrace.host.dpu.hugging_face.names import names, processor
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
        ("donut-base", "shortest edge 1920, at most 1920x2560, padded to 1920x2560"),
        ("idefics3-8b", "longest edge 1456 and the other even, 1 to 64 tiles of 364x364"),
        ("llama-3.2-vision", "1 to 4 tiles of 560x560"),
        ("gemma-4", "at most 280 tokens of 48x48"),
        ("aria", "longest edge 980, padded to 980x980"),
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
    spec = replace(processor("qwen2-vl"), sizes=(Third(),))
    assert size_rule(spec) == "Third part 3"
    assert size_rule(replace(spec, sizes=())) == "as it is"
    tiled = replace(spec, tiles=Tiles(Size(8, 4), Third(), None))
    assert size_rule(tiled) == "Third part 3, tiles of 8x4, Third part 3"


def test_every_rule_of_a_known_model_has_words_of_its_own():
    """A rule without them is told by the name of its class, which begins with an upper letter."""
    for name in names():
        assert not any(letter.isupper() for letter in size_rule(processor(name))), name


def test_shapes_follow_from_the_definitions():
    found = {row["name"]: row for row in known(Size(200, 150))}
    assert set(found) == set(names())
    grid = (14, 10)  # 196 and 140 pixels, the multiples of 28 that are next to the sides, in patches of 14
    assert found["qwen2-vl"]["tensors"] == {
        "pixel_values": {"shape": (grid[0] * grid[1], 3 * 2 * 14 * 14), "dtype": "float32"},
        "image_grid_thw": {"shape": (1, 3), "dtype": "int64"},
    }
    assert found["qwen2-vl"]["class"] == "Qwen2VLImageProcessor"
    assert found["llama-4-scout"]["tensors"]["pixel_values"] == {"shape": (1, 3, 336, 336), "dtype": "bfloat16"}
    assert found["pixtral-12b"]["tensors"]["pixel_values"]["shape"] == (1, 3, 160, 208)
