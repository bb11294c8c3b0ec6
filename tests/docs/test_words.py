"""The prose of the pages, messages and docstrings are written in the words of docs/glossary.toml."""

from __future__ import annotations

import ast
import re

import pytest
from doc_pages import GENERATED, PAGES, ROOT

from tests.words import RULES, faults_of

SOURCES = ROOT / "src" / "scribengin"
HELD = [page for page in PAGES if not page.startswith(("docs/decisions/", "docs/faults")) and page != "CHANGELOG.md"]
"""decisions, the changes and the report of faults are records of their time"""
NOT_YET = frozenset(
    {
        "docs/flow-file.md",
        "docs/metrics.md",
        "docs/problems.md",
        "docs/registry.md",
    }
)
"""pages with words that the glossary replaces; one that is clean is taken off, and none is added"""
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_NOT_PROSE = re.compile(r"`[^`]*`|(?<=\])\([^)\s]+\)|<!--.*?-->")


def prose_of(page: str) -> list[str]:
    """The paragraphs of a page, each in one line, without code and the targets of links."""
    text = _NOT_PROSE.sub("", _FENCE.sub("", (ROOT / page).read_text(encoding="utf-8")))
    return [" ".join(paragraph.split()) for paragraph in re.split(r"\n\s*\n|\n(?=\s*(?:[-|*#>]|\d+\.) ?)", text)]


def faults_in(page: str) -> list[str]:
    return [f"{fault}, in: {text}" for text in prose_of(page) for fault in faults_of(text, "page")]


@pytest.mark.parametrize("page", [page for page in HELD if page not in NOT_YET])
def test_a_page_is_written_in_words_that_people_know(page: str) -> None:
    assert not faults_in(page)


@pytest.mark.parametrize("page", HELD)
def test_query_is_not_a_proper_name(page: str) -> None:
    """Spark, SQL and the reader write it in lower case; at the start of a sentence or a cell it may be a capital."""
    found = [text for text in prose_of(page) for hit in re.finditer(r"\bQuer(?:y|ies)\b", text) if not _begins(text[: hit.start()])]
    assert not found


def _begins(before: str) -> bool:
    return not before.strip(" |*#->") or re.search(r"(?:[.!?:]|\*\*|\|) $", before) is not None


@pytest.mark.parametrize("page", sorted(NOT_YET))
def test_a_page_that_has_become_clean_is_taken_off_the_list(page: str) -> None:
    assert page in HELD
    if page not in GENERATED:  # those become clean with the code that they are made from
        assert faults_in(page), f"take {page} off NOT_YET"


def texts_of(source: str) -> list[str]:
    """Messages, their parts, and docstrings, each in one line and without code."""
    values = (node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant))
    return [" ".join(_NOT_PROSE.sub("", value).split()) for value in values if isinstance(value, str) and " " in value]


@pytest.mark.parametrize("package", sorted(path.name for path in SOURCES.iterdir() if (path / "__init__.py").is_file()))
def test_messages_and_docstrings_are_written_in_words_that_people_know(package: str) -> None:
    files = sorted((SOURCES / package).rglob("*.py"))
    assert files
    assert not {(file.name, text): faults for file in files for text in texts_of(file.read_text()) if (faults := faults_of(text, "page"))}


def test_a_message_in_other_words_is_found() -> None:
    (text,) = texts_of('def f(x):\n    raise ValueError(f"{x} is no time")\n')
    assert faults_of(text, "page") == ['"is no time": write is not a valid ...']


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["words"])
def test_every_rule_finds_its_own_examples(rule: dict[str, str]) -> None:
    examples = rule["words"].partition(" (")[0].split(", ")
    assert all(
        re.search(rule["pattern"], text, re.IGNORECASE) or re.search(rule["pattern"], f"{text} of", re.IGNORECASE) for text in examples
    )
