"""How Sphinx makes a site of the documents: `make site`; the pages need no network."""

import re
from pathlib import Path
from typing import Any

import shardc

GALLERY = Path(__file__).parent / "gallery"

project = "shardc"
author = "the authors of shardc"
release = version = shardc.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["gallery/plans"]
html_theme = "furo"
html_title = f"shardc {release}"
html_show_sphinx = False
myst_heading_anchors = 3
autodoc_typehints = "none"  # the signatures have them, and docstrings say what they mean
autodoc_member_order = "bysource"
# Pictures of text stay text: drawing them takes a script from the network.
suppress_warnings = ["misc.highlighting_failure"]


def setup(app: Any) -> None:
    """Docstrings have code in single backticks, as Markdown has it; Sphinx wants two. Pages of the
    gallery get a link to the report that `make site` puts beside them."""
    app.connect("autodoc-process-docstring", _mark_code)
    app.connect("source-read", _link_report)


def _mark_code(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    def marked(found: re.Match[str]) -> str:
        return f"``{found[1]}``" + (f"\\ {found[2]}" if found[2] else "")

    code = r"(?<!`)`([^`\n]+)`(?!`)(\w?)"
    lines[:] = re.sub(code, marked, "\n".join(lines)).split("\n")


def _link_report(app: Any, name: str, source: list[str]) -> None:
    folder, _, program = name.rpartition("/")
    if folder == "gallery" and (GALLERY / "plans" / f"{program}.json.gz").exists():
        link = f'<p><a href="reports/{program}.html">The HTML report of this plan</a></p>'
        title, _, rest = source[0].partition("\n\n")
        source[0] = f"{title}\n\n{link}\n\n{rest}"
