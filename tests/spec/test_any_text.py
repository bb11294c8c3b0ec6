from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from scribengin.connectors.catalog import sink_types, source_types
from scribengin.core.errors import InputError
from scribengin.spec.dump import dump_flow
from scribengin.spec.fmt import format_text
from scribengin.spec.parse import Parsed, parse_flow
from scribengin.spec.problem_entry import example_flow
from scribengin.spec.problems import CATALOG
from tests.design_flow import TWEETS

TYPES = {"source_types": source_types(), "sink_types": sink_types()}
SEEDS = [TWEETS, *(example_flow(entry) for entry in CATALOG if entry.example)]
SPLINTERS = [
    "\n", "  ", "\t", ": ", "- ", "{", "}", "[", "]", ",", "'", '"', "|", ">",
    "#", " #", "&a ", "*a", "!", "%", "@", "?", "${", "$${", "}", "~",
    "null", "5", "from", "x-", "\\", "é", "\r\n", "---\n", "<<: ", "schema: ", "steps:", "🙂", "\x85", "\u2028",
]  # fmt: skip


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """A flow file into which pieces were put, and out of which pieces were cut."""
    text = draw(st.sampled_from(SEEDS))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.sampled_from([0, 0, 1, 5, 40])))
        text = text[:start] + draw(st.sampled_from(SPLINTERS)) + text[end:]
    return text


def read(text: str) -> Parsed:
    return parse_flow(text, "f.yaml", folder=Path(), environment={}, **TYPES)


@settings(max_examples=400)
@given(damaged())
def test_any_text_gives_problems_with_places_and_never_an_exception(text: str) -> None:
    parsed = read(text)
    lines = text.removeprefix("\ufeff").splitlines(keepends=True)
    for problem in parsed.problems:
        assert problem.message
        assert problem.remedy
        assert 1 <= problem.place.line <= len(lines) + 1
        assert problem.place.column >= 1
    if parsed.ok:
        assert parsed.flow is not None
        assert read(dump_flow(parsed.flow, **TYPES)).flow == parsed.flow


@settings(max_examples=60)
@given(damaged())
def test_laying_out_any_text_keeps_its_meaning_or_refuses_it(text: str) -> None:
    try:
        laid_out = format_text(text)
    except InputError:
        return
    assert read(laid_out).flow == read(text).flow
    assert format_text(laid_out) == laid_out
