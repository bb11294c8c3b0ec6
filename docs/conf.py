"""The static site, which `make docs` builds from the pages of this repository; `docs/README.md` is its table of contents."""

from __future__ import annotations

import re
from pathlib import Path
from shutil import copyfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

ROOT = Path(__file__).parents[1]
CONTENTS = "docs/README"
DECISIONS = "docs/decisions/README"

project = "Scribengin"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "README"
include_patterns = ["*.md", "docs/**.md", "examples/**.md"]
exclude_patterns = [
    ".*",
    "build",
    "dist",
    "src",
    "tests",
    "benchmarks",
    "examples/cookbook/README.md",
]  # the last is part of docs/cookbook.md
html_theme = "furo"
html_title = "Scribengin"
html_copy_source = False
myst_heading_anchors = 4
default_role = "literal"
autodoc_default_options = {"members": True, "undoc-members": False, "member-order": "bysource"}
autodoc_typehints_format = "short"
suppress_warnings = ["ref.python"]  # a field `bytes` and the type of that name

_PAGE = re.compile(r"\]\(([^)#\s]+\.md)\)")
_API = re.compile(r"^<!-- api (module|class): ([\w.]+) -->$", re.MULTILINE)


def contents(page: str) -> str:
    """The tables of contents that a page of links makes, one for each of its sections; a page counts where it is linked first."""
    parts, listed = [], {f"{root_doc}.md", f"{page}.md"}
    for section in re.split(r"^## ", (ROOT / f"{page}.md").read_text(encoding="utf-8"), flags=re.MULTILINE):
        title, _, text = section.partition("\n")
        caption = "" if title.startswith("#") else f":caption: {title}\n"
        links = [(ROOT / page).parent.joinpath(link).resolve().relative_to(ROOT).as_posix() for link in _PAGE.findall(text)]
        new = [link for link in dict.fromkeys(links) if link not in listed]
        listed.update(new)
        if new:
            parts.append("\n".join(["```{toctree}", f":hidden:\n{caption}", *(f"/{link.removesuffix('.md')}" for link in new), "```"]))
    return "\n\n".join(parts)


def complete(app: Sphinx, page: str, source: list[str]) -> None:  # noqa: ARG001 (Sphinx's)
    """Add what only the site has: the tables of contents, and the reference for `<!-- api module: NAME -->`."""
    if page == root_doc:
        source[0] += f"\n\n```{{toctree}}\n:hidden:\n\n/{CONTENTS}\n```\n\n{contents(CONTENTS)}"
    elif page == DECISIONS:
        source[0] += f"\n\n{contents(DECISIONS)}"
    source[0] = _API.sub(r"```{eval-rst}\n.. auto\1:: \2\n```", source[0])


def begin_with_readme(app: Sphinx, failure: Exception | None) -> None:
    """Show README.md to who opens the folder of the site."""
    if failure is None and app.builder.format == "html":
        copyfile(app.outdir / f"{root_doc}.html", app.outdir / "index.html")


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", complete)
    app.connect("build-finished", begin_with_readme)
