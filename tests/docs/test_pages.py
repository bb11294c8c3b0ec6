"""What the pages say can be done: links lead somewhere, flows are right, Python runs, commands work."""

from __future__ import annotations

import os
import re
import tomllib
from typing import TYPE_CHECKING

import pytest
import yaml
from doc_pages import PAGES, ROOT, CodeBlock, blocks_of, code_blocks, run_commands, write_named

from scribengin.plan.validate import validate_file

if TYPE_CHECKING:
    from pathlib import Path

_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_MACHINE = re.compile(r"/(?:home|root|tmp|work|Users)/|localhost:\d|\b\d+\.\d+\.\d+\.\d+:\d")


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files_and_headings_that_are_there(page: str) -> None:
    for link in _LINK.findall((ROOT / page).read_text()):
        target, _, heading = link.partition("#")
        if "://" in target:
            continue
        file = (ROOT / page).parent / target if target else ROOT / page
        assert file.exists(), f"{page}: {link}"
        if heading:
            assert heading in anchors(file), f"{page}: {link}"


def anchors(file: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", file.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", [page for page in PAGES if page.count("/") == 1 and page.startswith("docs/") and page != "docs/faults.md"])
def test_a_page_begins_with_a_sentence_that_says_what_it_is_for(page: str) -> None:
    first = " ".join((ROOT / page).read_text().split("\n\n")[1].split())
    assert re.match(r"[A-Z`]", first), f"{page}: {first}"
    assert 4 <= len(first.partition(". ")[0].split()) <= 40, f"{page}: {first}"


@pytest.mark.parametrize("page", PAGES)
def test_no_page_names_a_path_or_a_port_of_some_machine(page: str) -> None:
    assert not _MACHINE.search((ROOT / page).read_text())


def test_every_decision_is_in_their_index() -> None:
    index = (ROOT / "docs/decisions/README.md").read_text()
    assert list(_LINK.findall(index)) == sorted(path.name for path in (ROOT / "docs/decisions").glob("0*.md"))


@pytest.mark.parametrize("block", code_blocks("yaml"), ids=str)
def test_a_flow_on_a_page_has_no_problem(block: CodeBlock, tmp_path: Path) -> None:
    assert "version" in yaml.safe_load(block.text), "show whole flows: a part cannot be checked"
    write_named(tmp_path, block.page)
    (tmp_path / "data").mkdir()
    path = tmp_path / (block.file or "flow.yaml")
    path.write_text(block.text)
    _, problems = validate_file(path, os.environ)
    assert not problems


@pytest.mark.parametrize("block", code_blocks("python"), ids=str)
def test_python_on_a_page_runs(block: CodeBlock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_named(tmp_path, block.page)
    monkeypatch.chdir(tmp_path)
    exec(compile(block.text, str(block), "exec"), {"__name__": block.file or str(block)})


@pytest.mark.parametrize("block", code_blocks("toml"), ids=str)
def test_toml_on_a_page_is_toml(block: CodeBlock) -> None:
    assert tomllib.loads(block.text)


def test_every_block_has_a_language_that_is_tested_or_none() -> None:
    assert {block.language for page in PAGES for block in blocks_of(page)} <= {"", "sh", "yaml", "python", "toml", "json"}


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "page",
    ["README.md", "docs/packages.md", *(pytest.param(f"docs/{name}.md", marks=pytest.mark.long) for name in ("preview", "utilities"))],
)
def test_the_commands_of_a_page_work_one_after_the_other(page: str, tmp_path: Path) -> None:
    lines = "".join(block.text for block in blocks_of(page) if block.language == "sh").splitlines()
    write_named(tmp_path, page)
    run_commands(lines, tmp_path)
