"""scripts/draw_pages.py runs the blocks of a page, and takes the picture that they write."""

import runpy
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "draw_pages.py"))
PAGE = """# A page

<!-- file: colours.py -->
```python
NAME = "red"
```

```python
from pathlib import Path
import colours
assert Path("examples/trace.csv").exists()
```

```python
Path("picture.png").write_text(colours.NAME)
```

```python
raise SystemExit("a block after the picture")
```
"""


def test_blocks_run_up_to_the_one_that_writes_the_picture():
    assert SCRIPT["drawn"](PAGE, "picture.png") == b"red"


def test_a_block_that_fails_ends_the_program():
    with pytest.raises(subprocess.CalledProcessError):
        SCRIPT["drawn"](PAGE.replace("import colours", "import colors"), "picture.png")


def test_a_dark_picture_has_a_dark_ground():
    page = PAGE.replace('"red"', '__import__("matplotlib").rcParams["figure.facecolor"]')
    light, dark = (SCRIPT["drawn"](page, "picture.png", dark=each).decode() for each in (False, True))
    assert int(light[1:3], 16) > 0xC0 > 0x40 > int(dark[1:3], 16)


@pytest.mark.parametrize("page", SCRIPT["PICTURES"])
def test_a_page_shows_its_pictures_and_its_blocks_write_them(page):
    text = (ROOT / "docs" / f"{page}.md").read_text()
    assert SCRIPT["PICTURES"][page] in text
    for name in (f"{page}.png", f"{page}-dark.png"):
        assert f'="../images/{name}"' in text
        assert (ROOT / "docs" / "images" / name).read_bytes().startswith(b"\x89PNG")
