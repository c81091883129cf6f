"""Test the report: one page that holds what was found, and asks no network."""

import base64
import html.parser
import io
import re

import front_ends
import numpy as np
import pytest
from PIL import Image

from headrace.host.compare import curated
from headrace.host.compare.comparison import MAX_PICTURES, compare
from headrace.host.compare.difference import difference, gap, heat_map, on_images
from headrace.host.compare.report import html as page_of
from headrace.host.compare.report import verdict
from headrace.host.dpu.hugging_face.names import image_processor
from headrace.host.dpu.processors import BFLOAT16
from headrace.host.dpu.reference.processor import laid_out

CLIP = "transformers:clip-vit-base-patch32"


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    for name in ("jpeg-420.jpg", "rgb.png"):
        (folder / name).write_bytes(curated.IMAGES[name]())
    (folder / "<b>&.jpg").write_bytes(b"no image")
    return compare(CLIP, "dali-like", folder)


class Page(html.parser.HTMLParser):
    """The tags and the text of a page. A tag that is not closed is an error."""

    def __init__(self, text):
        super().__init__()
        self.open, self.text, self.images, self.links = [], [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.links += [value for name, value in attributes if name in ("src", "href")]
        if tag == "img":
            self.images.append(dict(attributes)["src"])
        elif tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def test_the_page_says_what_was_found_and_asks_no_network(found):
    text = page_of(found)
    page = Page(text)
    shown = " ".join(page.text)
    assert "1 of 2 inputs differ. The earliest stage that differs is decode." in shown
    assert "CLIPImageProcessor of transformers" in shown and "<b>&.jpg" in shown
    assert all(link.startswith("data:") for link in page.links)
    assert "prefers-color-scheme: dark" in text and "http" not in text


def test_the_page_has_the_image_and_the_heat_map(found):
    source, heat = (base64.b64decode(each.partition("base64,")[2]) for each in Page(page_of(found)).images)
    assert Image.open(io.BytesIO(source)).size == (320, 240)
    pixels = np.asarray(Image.open(io.BytesIO(heat)))
    assert pixels.shape == (240, 320, 3) and pixels.any() and not pixels.all(-1).all()


def test_a_page_has_a_bounded_number_of_pictures(tmp_path):
    for number in range(MAX_PICTURES + 3):
        (tmp_path / f"{number}.jpg").write_bytes(curated.IMAGES["pixel-2x2.jpg"]())
    found = compare(CLIP, "torch-float", tmp_path)
    assert found.count("differs") == MAX_PICTURES + 3
    assert page_of(found).count("<figure>") == MAX_PICTURES


def test_the_verdict_is_one_sentence_or_two(tmp_path):
    (tmp_path / "a.jpg").write_bytes(curated.IMAGES["pixel-2x2.jpg"]())
    assert verdict(compare(CLIP, "headrace", tmp_path)) == "1 of 1 inputs are equal to those of transformers."
    (tmp_path / "a.jpg").write_bytes(b"no image")
    assert verdict(compare(CLIP, "headrace", tmp_path)) == "Nothing was compared."

    def fails(data):
        raise ValueError

    (tmp_path / "a.jpg").write_bytes(curated.IMAGES["pixel-2x2.jpg"]())
    assert verdict(compare(CLIP, fails, tmp_path)) == "1 of 1 inputs failed."


def test_json_has_every_input_and_no_number_that_json_does_not_have(found):
    import json

    text = json.dumps(found.as_json, allow_nan=False)
    made = json.loads(text)
    assert made["first"] == {"decode": 1} and (made["equal"], made["differs"], made["refused"]) == (1, 1, 1)
    assert [each["file"] for each in made["by_file"]] == ["<b>&.jpg", "jpeg-420.jpg", "rgb.png"]
    assert made["by_file"][1]["stages"]["decode"]["unit"] == "levels"
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", made["reference"]["versions"]["transformers"])


def test_the_effect_is_in_the_page(tmp_path):
    (tmp_path / "a.jpg").write_bytes(curated.IMAGES["jpeg-420.jpg"]())
    network = f"{front_ends.__name__}:Net"
    text = " ".join(Page(page_of(compare(CLIP, front_ends.bgr, tmp_path, model=network))).text)
    assert "The first class changes for 1 of 1 inputs." in text or "The first class changes for 0 of 1 inputs." in text


# ---- differences ----


def test_a_difference_counts_values_and_what_is_no_number():
    ours = np.array([1.0, 2.0, np.nan, np.nan, np.inf, 5.0], np.float32)
    theirs = np.array([1.0, 4.0, np.nan, 1.0, np.inf, 5.5], np.float32)
    found = difference([ours], [theirs], "values")
    assert (found.max, found.not_finite, found.values) == (2.0, 1, 6)
    assert found.share == pytest.approx(3 / 6) and found.mean == pytest.approx(2.5 / 5)
    assert not found.within(10) and difference([theirs], [theirs], "values").within(0)


def test_bfloat16_is_compared_as_numbers():
    bits = np.array([0x3F80, 0x4000], np.uint16).view(BFLOAT16)  # 1 and 2
    assert gap(bits, np.array([1.0, 2.5])).tolist() == [0.0, 0.5]


@pytest.mark.parametrize("name", ["clip-vit-base-patch32", "qwen2-vl", "siglip2-base-patch16-naflex", "llava-next"])
def test_a_difference_of_a_tensor_is_at_its_place_in_the_image(name):
    spec = image_processor(name)
    side = 224
    planes = np.zeros((1, 3, side, side))
    planes[0, 1, 37, 90] = 4.0
    found = on_images(laid_out(planes, spec.layout), planes.shape, spec)
    assert np.array_equal(found, planes)


def test_a_single_pixel_is_still_seen_in_a_heat_map_that_shrinks():
    gaps = np.zeros((2000, 3000))
    gaps[1234, 567] = 1e-3
    pixels = np.asarray(Image.open(io.BytesIO(heat_map(gaps, 1.0))))
    assert max(pixels.shape) <= 320 and np.count_nonzero(pixels.any(-1)) == 1
