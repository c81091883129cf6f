"""The drawings of the compute units are those of the script, and hold what their frame shows."""

import re
import runpy
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "draw_units.py"))
SVG = "{http://www.w3.org/2000/svg}"
FILES = SCRIPT["files"]()
drawings = pytest.mark.parametrize("name", FILES)


@drawings
def test_the_drawing_in_the_repository_is_the_scripts(name):
    assert (ROOT / "docs" / "images" / name).read_text() == FILES[name]


@drawings
def test_everything_lies_within_the_frame_and_has_a_style(name):
    root = ElementTree.fromstring(FILES[name])
    width, height = (float(value) for value in root.attrib["viewBox"].split()[2:])
    assert width == 800
    for box in root.iter(f"{SVG}rect"):
        right, lower = (float(box.get(a, 0)) + float(box.get(b, 0)) for a, b in (("x", "width"), ("y", "height")))
        assert 0 <= right <= width and 0 <= lower <= height
    for text in root.iter(f"{SVG}text"):
        assert 0 < float(text.attrib["x"]) < width and 0 < float(text.attrib["y"]) < height
    for path in root.iter(f"{SVG}path"):
        numbers = [float(number) for number in re.findall(r"\d+", path.attrib["d"])]
        assert max(numbers[0::2]) <= width and max(numbers[1::2]) <= height
    used = {element.get("class") for element in root.iter() if element.get("class")}
    style = root.find(f"{SVG}style").text
    assert used == {kind for kind in used if re.search(rf"\.{kind}\b[^{{]*\{{[^}}]*fill:", style)}


def test_both_themes_colour_the_same_kinds_otherwise():
    light, dark = (dict(re.findall(r"^  (\S.*?) \{(.*)\}", SCRIPT[name], re.M)) for name in ("LIGHT", "DARK"))
    assert light.keys() == dark.keys() and all(light[kind] != dark[kind] for kind in light)


@pytest.mark.parametrize(
    ("name", "units"),
    [
        ("image_unit", ("resize", "crop", "normalize", "band_decoder", "entropy_decoder", "cu_shell", "store")),
        ("image_unit", ("scaler", "patches", "image_keep", "image_read", "tensor_write")),
        ("audio_units", ("wav", "resample", "mel", "sound_store", "tensor_rows", "audio_mel_cu", "audio_norm_cu")),
    ],
)
def test_the_units_that_it_names_exist(name, units):
    text = FILES[f"{name}-light.svg"]
    for unit in units:
        assert unit in text or unit.replace("_", " ") in text
        assert list((ROOT / "hls").rglob(f"{unit}.sv"))
