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


@pytest.mark.parametrize("page", SCRIPT["PICTURES"])
def test_a_page_shows_its_picture_and_its_blocks_write_it(page):
    text = (ROOT / "docs" / f"{page}.md").read_text()
    assert (f"(../images/{page}.png)" in text and f'path="{SCRIPT["PICTURES"][page]}"' in text) or "savefig" in text
    assert (ROOT / "docs" / "images" / f"{page}.png").read_bytes().startswith(b"\x89PNG")
