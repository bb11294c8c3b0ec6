"""Sources whose place changes: the built-in ones keep the contract, and each that is broken on purpose is caught."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from harness.broken_sources import BROKEN, BROKEN_ONCE, DECLARED, ONCE, LinesPlace, LinesSource
from scribengin.connectors.catalog import open_source, source_types
from scribengin.connectors.contract import ConnectorContext
from scribengin.core.options import NodeType, Option
from scribengin.core.types import parse_schema
from scribengin.testing.conformance import check_source
from scribengin.testing.conformance_sources import Bench, check_bounded_source, check_changing_source

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.connectors.contract import SourceConnector

SAID = {
    "resumes_one_early": "from exactly where the last one stopped; 1 records were handed out before",
    "resumes_one_late": "from exactly where the last one stopped; 4 records came, 3 were handed out",
    "growth_unseen": "from exactly where the last one stopped; 4 records came, 0 were handed out",
    "whole_part_again": "from exactly where the last one stopped; 5 records were handed out before",
    "new_part_unseen": "a reader that keeps running takes what one that is restored takes",
    "position_at_the_place": "from exactly where the last one stopped; 4 records came, 2 were handed out",
    "other_rows": "hands out the same rows again, or raises SourceError; 1 records are missing, 1 are new",
    "range_without_end": "a new reader hands out what is there; 5 records came, ",
    "gone_is_empty": "of a part that is gone is read whole, or SourceError says that it is not; 3 records are missing",
    "consumed_by_reading": "whose reader was killed in its midst is read again from its beginning, whole",
}
SAID_ONCE = {
    "never_through": "hands out nothing of what comes when it is through; 0 records came, 4 were handed out",
    "position_at_the_place": "also what an earlier one has handed out that was never logged; 5 records came, 3 were handed out",
    "other_rows": "hands out the same rows again, or raises SourceError; 1 records are missing, 1 are new",
    "range_without_end": "also what an earlier one has handed out that was never logged; 5 records came, ",
    "consumed_by_reading": "whose reader was killed in its midst is read again from its beginning, whole",
}


def bench(make: type[LinesSource], folder: Path, declared: NodeType = DECLARED, *, within_s: float = 60.0, **options: Any) -> Bench:
    place = LinesPlace(folder)
    return Bench(lambda: make(folder), place.add, declared, options, place.add_part, place.remove_part, place.change, within_s=within_s)


def test_a_source_that_is_right_passes(tmp_path: Path) -> None:
    check_changing_source(bench(LinesSource, tmp_path))


@pytest.mark.parametrize("name", BROKEN)
def test_each_broken_source_is_caught(name: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError) as told:
        check_changing_source(bench(BROKEN[name], tmp_path, within_s=3.0))
    assert SAID[name] in str(told.value)


def test_a_source_that_reads_once_and_is_right_passes(tmp_path: Path) -> None:
    check_bounded_source(bench(ONCE, tmp_path))


@pytest.mark.parametrize("name", BROKEN_ONCE)
def test_each_broken_source_that_reads_once_is_caught(name: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError) as told:
        check_bounded_source(bench(BROKEN_ONCE[name], tmp_path))
    assert SAID_ONCE[name] in str(told.value)


def test_a_source_that_says_it_cannot_replay_has_its_guarantee_lowered(tmp_path: Path) -> None:
    again = Option("again", "choice", "", "no", ("yes", "no"), adds={"yes": frozenset({"replayable"})})
    declared = NodeType("lines", "source", "", (again,), frozenset({"bounded"}))
    check_changing_source(bench(BROKEN["other_rows"], tmp_path, declared))


@pytest.mark.parametrize("extra", ["verifies", "checks_keys"])
def test_a_source_without_what_its_type_declares_is_caught(tmp_path: Path, extra: str) -> None:
    with pytest.raises(AssertionError, match=f'source type lines declares the ability "{extra}", but its (reader|source) has no'):
        check_changing_source(bench(LinesSource, tmp_path, replace(DECLARED, abilities=DECLARED.abilities | {extra})))


def test_a_reader_with_what_its_type_does_not_declare_is_caught(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("one\n")
    type_ = source_types()["files"]
    place = ConnectorContext("in", tmp_path, type_.filled({"path": "in", "format": "text"}), parse_schema("value STRING"))
    declared = replace(type_, abilities=type_.abilities - {"holds_back"})
    with pytest.raises(AssertionError, match='does not declare the ability "holds_back", but its reader has `hold`, `let_go`'):
        check_source(open_source("files", place), declared=declared)


def test_the_files_source_keeps_the_contract(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    place = LinesPlace(tmp_path / "in")
    options = {"path": "in", "format": "text", "growing": True, "settle": 0.0, "split": 16}
    given = source_types()["files"].filled(options)

    def opened() -> SourceConnector:
        return open_source("files", ConnectorContext("in", tmp_path, given, parse_schema("value STRING")))

    check_changing_source(Bench(opened, place.add, source_types()["files"], options, place.add_part, place.remove_part))


def test_files_that_do_not_grow_keep_the_contract_and_tell_a_change(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    place = LinesPlace(tmp_path / "in")
    names = count()
    options = {"path": "in", "format": "text", "settle": 0.0}
    given = source_types()["files"].filled(options)

    def opened() -> SourceConnector:
        return open_source("files", ConnectorContext("in", tmp_path, given, parse_schema("value STRING")))

    def add(rows: int) -> None:
        number = next(names)
        place.add(rows, f"part-{number}.txt" if not number else f"more-{number}.txt")

    check_changing_source(Bench(opened, add, source_types()["files"], options, change=place.change))


def test_the_sequence_source_keeps_the_contract(tmp_path: Path) -> None:
    options: dict[str, Any] = {"rows": 0, "max_rows": 3}

    def opened() -> SourceConnector:
        return open_source("sequence", ConnectorContext("n", tmp_path, source_types()["sequence"].filled(options)))

    def add(rows: int) -> None:
        options["rows"] += rows

    # where it ends stands in its options: only a new one knows another end
    check_changing_source(Bench(opened, add, source_types()["sequence"], options, follows=False))
