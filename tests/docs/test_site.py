"""`make docs`: the site is built without a warning, and has every page and the reference of modules."""

from __future__ import annotations

import doctest
import importlib.util
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from doc_pages import PAGES, ROOT

import scribengin

if TYPE_CHECKING:
    from pathlib import Path

PART_OF_ANOTHER = {"examples/cookbook/README.md"}
"""docs/cookbook.md begins with it"""


@pytest.fixture(scope="module")
def settings() -> Any:
    """The module docs/conf.py."""
    spec = importlib.util.spec_from_file_location("site_settings", ROOT / "docs/conf.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_page_is_in_the_table_of_contents_once(settings: Any) -> None:
    lines = f"{settings.contents(settings.CONTENTS)}\n{settings.contents(settings.DECISIONS)}".splitlines()
    listed = [f"{line.removeprefix('/')}.md" for line in lines if line.startswith("/")]
    assert len(listed) == len(set(listed))
    assert {*listed, f"{settings.root_doc}.md", f"{settings.CONTENTS}.md"} == set(PAGES) - PART_OF_ANOTHER


def test_sections_of_the_table_of_contents_have_their_titles(settings: Any) -> None:
    captions = re.findall(r"^:caption: (.+)$", settings.contents(settings.CONTENTS), re.MULTILINE)
    assert captions == re.findall(r"^## (.+)$", (ROOT / f"{settings.CONTENTS}.md").read_text(), re.MULTILINE)


def test_the_examples_of_the_reference_give_what_they_show() -> None:
    found = doctest.testmod(scribengin)
    assert found.attempted
    assert not found.failed


@pytest.mark.timeout(600)
def test_the_site_has_every_page_and_the_reference_of_modules(tmp_path: Path) -> None:
    (command,) = re.findall(r"-m (sphinx .+) build/site$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    built = subprocess.run([sys.executable, "-m", *command.split(), str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (built.returncode, built.stdout + built.stderr) == (0, "")
    assert [page for page in set(PAGES) - PART_OF_ANOTHER if not (tmp_path / page).with_suffix(".html").is_file()] == []
    assert "Sources are read inside the tail" in (tmp_path / "docs/decisions/README.html").read_text()
    assert (tmp_path / "index.html").read_text() == (tmp_path / "README.html").read_text()
    reference = (tmp_path / "docs/api.html").read_text()
    for name in (
        "Flow",
        "testing.run_flow",
        "reading.committed",
        "connectors.contract.SinkConnector",
        "connectors.keyed.contract.KeyedStore",
    ):
        assert f'id="scribengin.{name}"' in reference, name
    assert (tmp_path / "search.html").is_file()
