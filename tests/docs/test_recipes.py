"""CONTRIBUTING.md: the code of its recipes, written into a copy of the package, does what the tests of the recipes expect."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from doc_pages import ROOT, blocks_of

if TYPE_CHECKING:
    from pathlib import Path

PAGE = "CONTRIBUTING.md"
RECIPES = ("Add a connector", "Add a verb", "Add a rule")
_TARGET = re.compile(r"# ((?:src|tests)/[\w/]+\.py)(?:, below: (.+))?\n")


def section_of(title: str) -> tuple[str, range]:
    """The text of a recipe, and the lines of the page that it takes."""
    before, _, rest = (ROOT / PAGE).read_text().partition(f"\n## {title}\n")
    text = rest.partition("\n## ")[0]
    first = before.count("\n") + 2
    return text, range(first, first + text.count("\n") + 1)


def follow(title: str, root: Path) -> list[str]:
    """Write the blocks of a recipe where they say, below `root`. Returns the files that are new or have more lines."""
    _, lines = section_of(title)
    written = []
    for block in blocks_of(PAGE):
        if block.line not in lines or block.language != "python":
            continue
        target = _TARGET.match(block.text)
        assert target is not None, f"{block}: the first line names the file"
        name, above = target.groups()
        file, text = root / name, block.text[target.end() :]
        file.parent.mkdir(parents=True, exist_ok=True)
        if above is None:
            assert not file.exists(), f"{block}: {name} exists"
            file.write_text(text)
        else:
            there = file.read_text().splitlines(keepends=True)
            places = [number for number, line in enumerate(there, start=1) if line.strip() == above]
            assert places, f"{block}: {name} has no line: {above}"
            file.write_text("".join([*there[: places[0]], text, *there[places[0] :]]))
        written.append(name)
    return list(dict.fromkeys(written))


@dataclass(frozen=True)
class Followed:
    """A recipe whose code is written into a copy of the package."""

    title: str
    root: Path
    written: list[str]


@pytest.fixture(scope="module", params=RECIPES)
def followed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Followed:
    root = tmp_path_factory.mktemp("recipe")
    shutil.copytree(ROOT / "src/scribengin", root / "src/scribengin", ignore=shutil.ignore_patterns("__pycache__"))
    return Followed(request.param, root, follow(request.param, root))


@pytest.mark.timeout(300)
def test_the_code_of_a_recipe_does_what_its_tests_expect(followed: Followed) -> None:
    tests = [name for name in followed.written if name.startswith("tests/")]
    assert tests
    settings = os.environ | {"PYTHONPATH": str(followed.root / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    options = ["-q", "-c", os.devnull, "-p", "no:cacheprovider", "-p", "no:schemathesis"]
    for command in (
        ["pytest", *options, *tests],
        ["ruff", "check", "--no-cache", "--config", str(ROOT / "pyproject.toml"), *followed.written],
    ):
        line = [sys.executable, "-m", *command]
        ended = subprocess.run(line, cwd=followed.root, env=settings, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stdout + ended.stderr


def test_a_recipe_lists_the_files_that_its_code_touches(followed: Followed) -> None:
    rows = re.findall(r"^\| (`.+?) \|", section_of(followed.title)[0], re.MULTILINE)
    listed = [name for row in rows for name in re.findall(r"`(\S+)`", row)]
    for name in followed.written:
        assert any(name == each or (each.endswith("/") and name.startswith(each)) for each in listed), f"list {name}"


def test_the_files_that_a_recipe_names_exist(followed: Followed) -> None:
    named = set(re.findall(r"`((?:src|tests|docs)/[\w./-]+)`", section_of(followed.title)[0]))
    assert named
    assert [name for name in sorted(named) if not (ROOT / name).exists() and not (followed.root / name).exists()] == []
