"""What a summary says of itself is so, whatever was changed in the flow between two Batches."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scribengin.cli.summary import show_summaries
from scribengin.connectors.contract import BatchId, Receipt
from scribengin.connectors.summary.forms import asked_of
from scribengin.core import numbered_log
from scribengin.core.records import seal, unseal
from scribengin.local import summaries
from scribengin.local.prepare import prepare
from scribengin.local.summaries import SummaryKeeper, SummaryState, load, read_summaries, snapshot_file, summaries_of
from scribengin.state.contract import Counts, Decision
from scribengin.state.decisions import Decisions
from scribengin.state.folder import StateFolder

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.core.errors import StepError
    from scribengin.spec.model import Flow

FLOW = """
version: 1
name: f
sources: {n: {type: files, path: data, format: json, schema: "x BIGINT"}}
sinks:
  s: {from: n, type: summary, HOW}
"""
CLASS = """
class Seen:
    def __init__(self):
        self.seen = set()

    def add(self, record):
        self.seen.add(record["x"])

    def merge(self, other):
        self.seen |= other.seen

    def result(self):
        return {"n": len(self.seen)}
"""


class Home:
    """A flow's folder, and Batches that are decided as under what the flow says at the moment."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.batches = 0
        self.told: list[str] = []
        self.query = StateFolder(path / ".scribengin", "f").query("s")
        (path / "steps.py").write_text(CLASS)

    def asks(self, how: str) -> None:
        """A start with this flow, of which the schema is not looked at."""
        (self.path / "flow.yaml").write_text(FLOW.replace("HOW", how))
        self.prepared = prepare(self.path / "flow.yaml", state=None)
        self.flow: Flow = self.prepared.plan.flow
        self.keeper = SummaryKeeper(self.flow, self.query, ["s"], self.told.append)

    def decides(self, *values: Any, sink: str = "s", at: str = "2026-01-01T00:00:00+00:00") -> None:
        asked = asked_of(self.flow.sinks["s"].options, lambda reference: load(self.flow, reference))
        part = asked.empty()
        part.add(pa.RecordBatch.from_pylist([{"x": value} for value in values]))
        receipt = Receipt(sink, 0, part.rows, 0, ({"part": part.as_json()},) if sink == "s" else ())
        decision = Decision(
            BatchId("f", "s", "", self.batches, 1), f"h{self.batches}", "p", (), (receipt,), counts={sink: Counts()}, decided_at=at
        )
        self.batches += 1
        self.keeper.committed(Decisions(self.query.decisions).decide(decision))

    def shows(self) -> tuple[Any, ...]:
        """Rows, rows in, since."""
        (found,) = read_summaries(self.prepared)["summaries"]
        return found["rows"], found["rows_in"], found["since_batch"]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def test_a_changed_question_says_since_which_batch_it_is_answered(home: Home) -> None:
    home.asks('sql: "SELECT count(*) AS n FROM rows"')
    for _ in range(3):
        home.decides(1, 2)
    home.asks('sql: "SELECT count(*) AS n, sum(x) AS s FROM rows"')
    assert home.shows() == ([{"n": 0, "s": None}], 0, 3)
    home.decides(5)
    assert home.shows() == ([{"n": 1, "s": 5}], 1, 3)
    snapshot_file(home.query, "s").unlink()
    assert home.shows() == ([{"n": 1, "s": 5}], 1, 3)


def test_a_snapshot_that_says_not_since_when_it_counts_is_read(home: Home) -> None:
    home.asks('sql: "SELECT count(*) AS n FROM rows"')
    home.decides(1)
    home.asks('sql: "SELECT count(*) AS n FROM rows"')
    file = snapshot_file(home.query, "s")
    body = unseal(file.read_bytes(), "summary", 1, file)
    del body["since_at"]
    file.write_bytes(seal("summary", 1, body))
    assert home.shows() == ([{"n": 1}], 1, 0)


def test_a_summary_that_is_added_says_since_when_it_counts(home: Home) -> None:
    home.asks('sql: "SELECT count(*) AS n FROM rows"')
    home.decides(1, sink="another")
    home.decides(1, sink="another")
    home.decides(1)
    assert home.shows() == ([{"n": 1}], 1, 2)


@pytest.mark.parametrize(
    ("one", "other"), [(Decimal("1.5"), 1.5), (1, "z"), (dt.date(2026, 1, 1), 4)], ids=["decimal to double", "number to text", "date"]
)
def test_a_column_of_another_type_begins_anew_and_stops_nothing(home: Home, one: Any, other: Any) -> None:
    home.asks('sql: "SELECT x AS k, max(x) AS m FROM rows GROUP BY x"')
    home.decides(one)
    home.decides(other)
    home.asks('sql: "SELECT x AS k, max(x) AS m FROM rows GROUP BY x"')
    home.decides(other)
    assert home.shows() == ([{"k": other, "m": other}], 2, 1)
    assert home.told == []


ASKS = [
    f'sql: "SELECT x, count(*) AS n FROM rows GROUP BY x ORDER BY {order}", keep: {keep}'
    for order in ("x", "x DESC", "n")
    for keep in (2, 3, 10)
]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(ASKS), st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=8), min_size=1, max_size=3)),
        min_size=1,
        max_size=4,
    )
)
def test_what_is_kept_is_whole_whatever_keep_and_order_were_before(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, list[list[int]]]]
) -> None:
    home = Home(tmp_path_factory.mktemp("home"))
    batches: list[list[int]] = []
    for how, parts in steps:
        home.asks(how)
        for part in parts:
            home.decides(*part)
            batches.append(part)
    rows, rows_in, since = home.shows()
    counted = [value for part in batches[since:] for value in part]
    assert rows_in == len(counted)
    assert {row["x"]: row["n"] for row in rows} == {row["x"]: counted.count(row["x"]) for row in rows}
    keep = int(steps[-1][0].rpartition(" ")[2])
    assert len(rows) == min(keep, len(set(counted)))


def test_all_parts_of_a_class_may_take_more_than_one_of_them(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summaries, "EVERY", 1)
    home.asks('python: "steps:Seen"')
    for first in (0, 10_000):
        home.decides(*(f"user-{number:08}" for number in range(first, first + 10_000)))
    assert (home.shows(), home.told) == (([{"n": 20_000}], 20_000, 0), [])
    assert snapshot_file(home.query, "s").stat().st_size > 256 * 1024


def test_what_is_forgotten_without_a_snapshot_is_not_claimed(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SummaryState, "write", lambda *_: None)
    monkeypatch.setattr(numbered_log, "CHUNK", 5)
    home.asks('sql: "SELECT count(*) AS n FROM rows"')
    for _ in range(10):
        home.decides(1)
    decisions = Decisions(home.query.decisions)
    decisions.fold()
    assert decisions.prune(dt.datetime(2026, 2, 1, tzinfo=dt.UTC)) == 5
    assert home.shows() == ([{"n": 5}], 5, 5)


def test_a_class_that_no_longer_reads_its_parts_is_told_and_holds_nothing_up(home: Home) -> None:
    home.asks('python: "steps:Seen"')
    home.decides("a")
    (home.path / "steps.py").write_text(
        CLASS.replace("    def __init__", "    __slots__ = ()\n\n    def __init__").replace("self.seen = set()", "pass")
    )
    home.asks('python: "steps:Seen"')
    assert "a stored partial result cannot be read" in home.told[0]


def test_one_class_that_fails_hides_no_other_table_and_odd_rows_are_shown_or_refused(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    home.asks('keep: 2, python: "steps:Seen"}\n  t: {from: n, type: summary, sql: "SELECT count(*) AS n FROM rows"')
    home.decides("a")
    text = CLASS.replace('{"n": len(self.seen)}', "GIVEN")
    for given_, rows in (
        ('[{"a": 1}, {"b": {"c", 2}}, {}]', [{"a": 1}, {"b": ["c", 2]}]),
        ('{"at": __import__("datetime").datetime(2026, 1, 1)}', [{"at": "2026-01-01T00:00:00"}]),
    ):
        (home.path / "steps.py").write_text(text.replace("GIVEN", given_))
        found = read_summaries(home.prepared, "s")
        assert found["summaries"][0]["rows"] == rows
        for format_ in ("table", "csv", "json"):
            show_summaries({"summaries": [found["summaries"][0] | {"format": format_}]})
        said = capsys.readouterr().out
        assert ("result() gave 3 rows; the first 2 are shown" in said) == (len(rows) == 2)
        assert "each that is kept is whole" not in said
    for given_ in ('{"o": object()}', "{1: 2}"):
        (home.path / "steps.py").write_text(text.replace("GIVEN", given_))
        unread: list[StepError] = []
        assert [each["sink"] for each in summaries_of(home.prepared, unread=unread)] == ["t"]
        assert "result() returned" in unread[0].message
