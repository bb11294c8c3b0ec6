"""What `check_sink` looks for besides the commit protocol, with the benches that an author lends: each sink that is wrong is told how."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from harness import broken_files as broken
from harness.broken_keyed import DropsWhenSent, MarkerFirst, QuietStore, SharedStaging
from scribengin.connectors.contract import ConnectorContext
from scribengin.connectors.files.options import SINK
from scribengin.connectors.files.sink import FilesSink
from scribengin.connectors.keyed.sink import KeyedSink
from scribengin.core.errors import Unreachable
from scribengin.core.types import parse_schema
from scribengin.testing.checker import read_output
from scribengin.testing.conformance import check_sink
from scribengin.testing.deaths import own_code
from scribengin.testing.records import SCHEMA, RecordKey, make_record
from scribengin.testing.sqlite_store import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from scribengin.connectors.contract import StagingSink
    from scribengin.core.options import NodeType
    from scribengin.core.types import Schema

    Kind = Callable[[ConnectorContext], StagingSink]

ROWS = [make_record(RecordKey("conformance", 0, seq)) for seq in range(4)]
POISON = [make_record(RecordKey("conformance", 0, broken.POISON)) | {"body": body} for body in ("one", "two")]
WIDER = (parse_schema(f"{SCHEMA}, colour STRING"), [row | {"colour": "red"} for row in ROWS[:2]])
SECRET = "s3cr3t-t0k3n"


def in_files(kind: Kind, folder: Path, **benches: Any) -> None:
    place = ConnectorContext("out", folder, SINK.filled({"path": "out", "format": "json"}) | {"token": SECRET})
    check_sink(
        lambda: kind(place),
        lambda: [each.row for each in read_output(folder / "out", "json")],
        schema=parse_schema(SCHEMA),
        rows=ROWS,
        **benches,
    )


def in_a_store(kind: Any, folder: Path, store: type[SqliteStore] = SqliteStore, **benches: Any) -> None:
    held = store(folder / "store.db", b'"seq":666')
    place = ConnectorContext("out", folder, flow="flow", work=folder / "work")
    check_sink(lambda: kind(place, held, key=(), connections=2), held.documents, schema=parse_schema(SCHEMA), rows=ROWS, **benches)


def told(check: Callable[[], None]) -> str:
    with pytest.raises(AssertionError) as raised:
        check()
    assert str(raised.value).startswith("the contract is broken: ")
    return str(raised.value)


def test_a_sink_that_is_right_passes_with_all_benches(place: Path) -> None:
    in_files(broken.HasToken, place / "files", wider=WIDER, secret=SECRET, folders=[place])
    in_files(broken.Picky, place / "picky", poison=POISON)
    in_a_store(KeyedSink, place, poison=POISON, wider=WIDER)


@pytest.mark.parametrize(("rows", "poison"), [(ROWS[:3], ()), (ROWS[:4], [POISON[0]] * 5)])
def test_too_few_rows_are_told_before_anything_is_written(place: Path, rows: Any, poison: Any) -> None:
    with pytest.raises(ValueError, match=f"check_sink needs at least {max(4, len(poison))} rows"):
        check_sink(lambda: pytest.fail("no sink is made"), list, schema=parse_schema(SCHEMA), rows=rows, poison=poison)


def test_a_sink_that_is_right_outlives_a_death_at_each_line(place: Path) -> None:
    in_a_store(KeyedSink, place, every_line=True)


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (broken.CopiesIntoPlace, "a driver dies at publish.renamed: readers see decided rows whole, or not yet; a reader met this"),
        (broken.CleansUp, "a driver is killed at publish.record.after and comes again: the place has each decided row once; lost: "),
        (broken.LocksItsUnit, "a killed task blocks no other; FileExistsError"),
        (broken.OneAtATime, "two attempts at one unit may write at once; SinkError"),
        (
            broken.SharesItsWriter,
            "of two attempts that write at once, those rows become visible that were decided, and those only; doubled",
        ),
    ],
)
def test_a_sink_that_does_not_outlive_it_is_told_what(kind: Kind, sentence: str, place: Path) -> None:
    assert sentence in told(lambda: in_files(kind, place))


def test_at_each_line_of_its_code_a_driver_can_die(place: Path) -> None:
    said = told(lambda: in_files(broken.CleansUp, place, every_line=True))
    assert re.search(
        r"a driver dies at harness/broken_files\.py:\d+ and comes again: the place has each decided row once; lost: 1 x ", said
    )


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (MarkerFirst, "a driver dies at offer.sent and comes again: the place has each decided row once; lost: 1 x "),
        (DropsWhenSent, "a driver dies at publish.record.before and comes again: it finds all that it needs; "),
        (SharedStaging, "attempts leave alone what another one has staged"),
    ],
)
def test_a_keyed_sink_that_does_not_outlive_it_is_told_what(kind: type[KeyedSink], sentence: str, place: Path) -> None:
    assert sentence in told(lambda: in_a_store(kind, place))


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (broken.Forgets, "and no other; rows [1, 3] are wrong, what came back: []"),
        (broken.RefusesAll, "and no other; rows [1, 3] are wrong, what came back: [(0, "),
        (broken.Fails, "a row that the place never takes is no reason to fail; SinkError"),
        (broken.SaysNoReason, "a row that comes back has a reason and a message"),
    ],
)
def test_of_rows_that_are_never_taken_each_comes_back(kind: Kind, sentence: str, place: Path) -> None:
    assert sentence in told(lambda: in_files(kind, place, poison=POISON))


def test_a_store_that_leaves_out_what_it_does_not_take_is_told(place: Path) -> None:
    said = told(lambda: in_a_store(KeyedSink, place, QuietStore, poison=POISON))
    assert "each row that the place never takes comes back, from `write` or from `offer`, and no other; rows [1, 3] are wrong" in said


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (broken.DropsColumns, "a new column is written, or `unlike` tells that it is not; lost: "),
        (broken.FailsLate, "says so by `unlike`, before a start; it said: SinkError"),
        (broken.Mumbles, "`unlike` names the columns that the place does not take: ['colour'], it says ['the columns are different']"),
    ],
)
def test_a_new_column_is_written_or_told(kind: Kind, sentence: str, place: Path) -> None:
    assert sentence in told(lambda: in_files(kind, place, wider=WIDER))


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (broken.InItsText, "it is in the text of the sink"),
        (broken.InReceipts, "it is in a receipt"),
        (broken.InAFile, "it is in the file settings"),
        (broken.InErrors, "it is in a FencedError, or in what that came of"),
        (broken.InLogs, "it is in a log"),
    ],
)
def test_a_secret_is_shown_nowhere(kind: Kind, sentence: str, place: Path) -> None:
    said = told(lambda: in_files(kind, place, secret=SECRET, folders=[place]))
    assert sentence in said
    assert SECRET not in said


def test_a_secret_is_not_in_what_a_sink_says_of_a_place_that_does_not_answer(place: Path) -> None:
    def away() -> StagingSink:
        return Away(ConnectorContext("out", place, SINK.filled({"path": "out", "format": "json"}) | {"token": SECRET}))

    said = told(lambda: in_files(broken.HasToken, place, secret=SECRET, away=away))
    assert "it is in a Unreachable, or in what that came of" in said


class Away(broken.HasToken):
    def prepare(self, *, owner: str, lineage: str, adopt: bool = False) -> None:
        raise Unreachable("the place does not answer", remedy="wait") from ConnectionError(f"https://{self._token}@example.org")


def test_the_code_of_a_sink_is_what_lies_beside_its_classes(place: Path) -> None:
    where = ConnectorContext("out", place, SINK.filled({"path": "out", "format": "json"}) | {"token": SECRET})
    files = {path.rpartition("/")[2] for path in own_code(broken.HasToken(where))}
    assert {"broken_files.py", "sink.py", "sink_stream.py"} <= files
    assert not {"conformance.py", "deaths.py", "abc.py"} & files


# --- abilities ---


class Misspelled(FilesSink):
    def unlik(self, schema: Schema) -> list[str]:
        return []


class Undeclared(FilesSink):
    def unlike(self, schema: Schema) -> list[str]:
        return []


COMPARES = replace(SINK, abilities=SINK.abilities | {"compares_columns"})
NO_JSON = replace(SINK, abilities=SINK.abilities - {"takes_json"})
ORIGINS = replace(SINK, abilities=SINK.abilities | {"takes_origins"})


@pytest.mark.parametrize(
    ("kind", "declared", "sentence"),
    [
        (Misspelled, COMPARES, 'declares the ability "compares_columns", but its sink has no `unlike`'),
        (Undeclared, SINK, 'does not declare the ability "compares_columns", but its sink has `unlike`'),
        (FilesSink, ORIGINS, 'declares the ability "takes_origins", but its stream has no `wants_origins`'),
        (FilesSink, NO_JSON, 'does not declare the ability "takes_json", but its stream has `json_needs`, `write_json`'),
    ],
)
def test_a_type_that_declares_other_abilities_than_its_sinks_have_is_told(
    tmp_path: Path, kind: Kind, declared: NodeType, sentence: str
) -> None:
    found = told(lambda: in_files(kind, tmp_path, declared=declared))
    assert found == f"the contract is broken: a type declares what its objects have: sink type files {sentence}"


def test_a_type_that_declares_what_its_sinks_have_is_not_told(tmp_path: Path) -> None:
    in_files(Undeclared, tmp_path, declared=COMPARES)
