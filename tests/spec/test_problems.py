from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import scribengin.spec
from scribengin.spec.foreign_terms import WORDS, old_word, translate
from scribengin.spec.problem_entry import ProblemEntry, example_flow
from scribengin.spec.problems import CATALOG, CODES


@pytest.mark.parametrize("entry", [entry for entry in CATALOG if entry.example], ids=lambda entry: entry.code)
def test_each_example_makes_its_problem_and_no_other(entry: ProblemEntry, parse: Any) -> None:
    parsed = parse(example_flow(entry), environment={"HOME": "/home"})
    assert [(problem.code, problem.severity) for problem in parsed.problems] == [(entry.code, entry.severity)]
    (problem,) = parsed.problems
    assert problem.place.line > 0
    assert problem.remedy


def test_the_flow_around_the_examples_is_right(parse: Any) -> None:
    assert parse(example_flow(ProblemEntry("", "", "", "", "", slot="top"))).problems == ()


def test_every_code_that_is_told_is_in_the_catalog_and_the_reverse() -> None:
    folder = Path(scribengin.spec.__file__).parent
    source = "".join(file.read_text() for file in folder.glob("*.py") if not file.stem.endswith("problems"))
    told = set(re.findall(r'"([a-z]+(?:-[a-z0-9]+)*)"', source))
    calls = re.findall(r'(?:error|error_inside|problem|Problem|_failed|Fault)\(\s*"([a-z-]+)"', source)
    assert set(calls) <= CODES
    assert told >= CODES
    assert len(CATALOG) == len(CODES)


def test_every_word_of_the_others_is_known_by_any_spelling() -> None:
    for word in WORDS:
        assert f'"{word.ours}"' in translate(word.word.upper()) or f'"{word.ours}"' in old_word(word.word, [word.ours])
    assert "end_to_end" in translate("e2e")
    assert "limit" in translate("choke")
