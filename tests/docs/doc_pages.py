"""The pages that people wrote, and the code blocks in them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
GENERATED = (
    "docs/flow-file.md",
    "docs/problems.md",
    "docs/registry.md",
    "docs/metrics.md",
    "docs/cookbook.md",
    "docs/cli.md",
    "docs/formats.md",
    "docs/glossary.md",
)  # their own tests hold their blocks to account
RECIPES = ("CONTRIBUTING.md",)
"""code for a copy of the package: test_recipes carries it out"""
PAGES = sorted(str(page.relative_to(ROOT)) for pattern in ("*.md", "docs/**/*.md", "examples/**/*.md") for page in ROOT.glob(pattern))
WRITTEN = [page for page in PAGES if page not in (*GENERATED, *RECIPES)]
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# ([\w./-]+\.(?:yaml|py))\n")


@dataclass(frozen=True)
class CodeBlock:
    """`file` is the name that the block's first line gives it (`# flow.yaml`), or empty."""

    page: str
    line: int
    language: str
    text: str

    @property
    def file(self) -> str:
        named = _FILE.match(self.text)
        return named[1] if named else ""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def code_blocks(*languages: str) -> list[CodeBlock]:
    """Those of all written pages, in order."""
    return [block for page in WRITTEN for block in blocks_of(page) if block.language in languages]


def blocks_of(page: str) -> list[CodeBlock]:
    """Those of one page, in order."""
    text = (ROOT / page).read_text()
    return [CodeBlock(page, text.count("\n", 0, found.start()) + 1, found[1], found[2]) for found in _FENCE.finditer(text)]


def write_named(folder: Path, page: str) -> None:
    """Put the page's named blocks into a folder, as a reader would."""
    for block in blocks_of(page):
        if block.file:
            (folder / block.file).write_text(block.text)


def run_commands(lines: list[str], folder: Path, **environment: str) -> None:
    """As a reader types them; `make` only says what it would do, and `pip` is left out (tests of their own install)."""
    typed = [line if not line.startswith("make ") else f'make -n -C "{ROOT}" {line.split()[1]} > {os.devnull}' for line in lines]
    script = "\n".join(["set -eu", *(line for line in typed if not line.startswith("pip "))])
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    settings = os.environ | {"PATH": path, "PYTHONWARNINGS": "", **environment}
    ended = subprocess.run(["bash", "-c", script], cwd=folder, env=settings, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, f"{script}\n{ended.stdout}\n{ended.stderr}"
