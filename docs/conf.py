"""Settings of the site that `make docs` builds with Sphinx. The build needs no network, and pages load nothing."""

import os
import re
import shutil
from importlib.metadata import version as installed
from pathlib import Path

from sphinx.application import Sphinx

project = "Headrace"
author = "The Headrace authors"
project_copyright = author
release = version = installed("headrace")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["notes", "**/_*"]

# Markdown as GitHub reads it: its anchors of headings, its tables and its links between files.
myst_enable_extensions = ["attrs_inline", "colon_fence"]
myst_heading_anchors = 4
myst_links_external_new_tab = False
# JSON and Python in pages may have "..." in place of a part.
suppress_warnings = ["misc.highlighting_failure"]

# Docstrings have the sections Args, Returns, Raises and Source.
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_custom_sections = ["Source"]
autodoc_typehints = "description"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "undoc-members": False}
# Types of other packages have no page here. Names of Headrace must have one.
nitpick_ignore_regex = [(r"py:.*", r"(?!headrace\.).*"), (r"py:.*", r"headrace\.(batching|bitstreams|host|sim)\..*")]

html_theme = "pydata_sphinx_theme"
html_title = "Headrace"
html_static_path = ["_static"]
html_css_files = ["headrace.css"]
html_js_files = ["pictures.js"]
html_show_sourcelink = False
html_copy_source = False
html_sidebars = {"index": []}
html_theme_options = {
    "logo": {"text": "Headrace"},
    "use_edit_page_button": False,
    "header_links_before_dropdown": 6,
    "navbar_align": "left",
    "primary_sidebar_end": [],
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": ["sphinx-version"],
    "show_toc_level": 2,
    "back_to_top_button": False,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
copybutton_exclude = ".linenos, .gp, .go"


DOCS = Path(__file__).parent
# A link to a Markdown file that is no page of the site, such as ../../tests/README.md.
OUTSIDE = re.compile(r"(?<!!)\[([^\]]+)\]\(((?:\.\./)+[^)#\s]+\.md)(?:#[^)\s]*)?\)")


def links_to_files(app: Sphinx, page: str, source: list[str]) -> None:
    """Let links to Markdown files outside docs/ download the file. The first page takes the place of the README."""
    folder = (DOCS / page).parent

    def replaced(link: re.Match[str]) -> str:
        words, target = link[1].replace("`", ""), (folder / link[2]).resolve()
        if target == DOCS.parent / "README.md":
            return f"[{link[1]}]({os.path.relpath(DOCS / 'index.md', folder)})"
        if target.is_relative_to(DOCS) or not target.exists():
            return link[0]
        return f"{{download}}`{words} <{link[2]}>`"

    source[0] = OUTSIDE.sub(replaced, source[0])


def copy_images(app: Sphinx, error: Exception | None) -> None:
    """Copy docs/images. Sphinx finds the images of Markdown, and not those of HTML, such as <picture>."""
    images = Path(app.srcdir) / "images"
    if error is None and images.is_dir():
        shutil.copytree(images, Path(app.outdir) / "images", dirs_exist_ok=True)


def setup(app: Sphinx) -> None:
    app.connect("source-read", links_to_files)
    app.connect("build-finished", copy_images)
