"""The prose of the pages is written in the words of docs/glossary.toml."""

from __future__ import annotations

import re

import pytest
from doc_pages import GENERATED, PAGES, ROOT

from tests.words import RULES, faults_of

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


@pytest.mark.parametrize("page", sorted(NOT_YET))
def test_a_page_that_has_become_clean_is_taken_off_the_list(page: str) -> None:
    assert page in HELD
    if page not in GENERATED:  # those become clean with the code that they are made from
        assert faults_in(page), f"take {page} off NOT_YET"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["words"])
def test_every_rule_finds_its_own_examples(rule: dict[str, str]) -> None:
    examples = rule["words"].partition(" (")[0].split(", ")
    assert all(
        re.search(rule["pattern"], text, re.IGNORECASE) or re.search(rule["pattern"], f"{text} of", re.IGNORECASE) for text in examples
    )
