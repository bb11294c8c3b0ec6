import gzip
import json
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scribengin.connectors.contract import BatchId, Receipt, SourceStream
from scribengin.core import numbered_log
from scribengin.core.errors import FencedError, StateError
from scribengin.core.records import seal
from scribengin.state.contract import Counts, Decision, LineSegment, SourceRange
from scribengin.state.decisions import Decisions, decision_as_json, decision_from_json, input_hash
from scribengin.state.source_log import SourceLog
from scribengin.state.totals import Totals

GOLDEN = Path(__file__).parent / "golden"


def stream(n: int) -> SourceStream:
    return SourceStream(f"file-{n}", {"path": f"/data/file-{n}.jsonl", "start": 0, "end": 1000 + n}, files=1, bytes=1000 + n)


def decision(number: int, *, term: int = 1, lineage: str = "l1", plan: str = "p1", attempt: str = "a") -> Decision:
    batch = BatchId("f", "q", lineage, number, term)
    ranges = (SourceRange("s", number, number + 1),)
    segment = {"staged": f"00000-{attempt}-00000", "name": f"part-{number:010d}-00000-000abcdef01.jsonl", "rows": 8, "bytes": 80, "crc": 7}
    return Decision(
        batch,
        input_hash(batch, ranges, {"s": [stream(number)]}, plan),
        plan,
        ranges,
        (Receipt("out", 0, 8, 80, (segment,)),),
        (LineSegment(f"{number:010d}/{attempt}.jsonl", 1, 100, 9),),
        {"s": Counts(rows_in=10, out=9, dead=1), "hot": Counts(rows_in=9, out=8, filtered=1), "out": Counts(rows_in=8, out=8)},
        "2026-01-01T00:00:00.000+00:00",
    )


def test_a_decision_survives_its_json() -> None:
    assert decision_from_json(json.loads(json.dumps(decision_as_json(decision(3))))) == decision(3)


def test_the_first_decision_over_the_same_input_stands_whatever_its_term(tmp_path: Path) -> None:
    assert Decisions(tmp_path).decide(decision(0, term=1, attempt="first")) == decision(0, term=1, attempt="first")
    assert Decisions(tmp_path).decide(decision(0, term=2, attempt="second")) == decision(0, term=1, attempt="first")
    assert Decisions(tmp_path).newest() == decision(0, term=1, attempt="first")


def test_other_input_is_refused_and_a_newer_term_fences(tmp_path: Path) -> None:
    decisions = Decisions(tmp_path)
    decisions.decide(decision(0, term=2))
    with pytest.raises(StateError, match="with different input") as same_driver:
        decisions.decide(decision(0, term=2, plan="p2"))
    assert not isinstance(same_driver.value, FencedError)
    with pytest.raises(FencedError, match="with different input"):
        decisions.decide(decision(0, term=1, lineage="l2"))
    with pytest.raises(FencedError, match="under term 2; this is term 1"):
        decisions.decide(decision(1, term=1))
    assert decisions.read(1) is None


def test_a_decision_that_an_older_driver_made_before_an_edit_stands_when_its_input_is_the_same(tmp_path: Path) -> None:
    decisions = Decisions(tmp_path)
    before, after = decision(0, term=1, plan="p1"), decision(0, term=2, plan="p2")

    def over(n: int) -> Callable[[str], str]:
        return lambda plan: input_hash(after.batch, after.sources, {"s": [stream(n)]}, plan)

    decisions.decide(before)
    assert decisions.decide(after, hash_under=over(0)) == before
    with pytest.raises(StateError, match="with different input"):
        decisions.decide(after, hash_under=over(1))
    with pytest.raises(StateError, match="with different input"):
        decisions.decide(replace(after, batch=replace(after.batch, term=1)), hash_under=over(0))
    with pytest.raises(StateError, match="with different input"):
        decisions.decide(replace(after, batch=replace(after.batch, lineage="l2")), hash_under=over(0))


def test_a_gap_is_refused(tmp_path: Path) -> None:
    decisions = Decisions(tmp_path)
    decisions.decide(decision(0))
    with pytest.raises(StateError, match="the last decided batch is 0"):
        decisions.decide(decision(2))


def test_a_torn_or_edited_decision_is_never_used(tmp_path: Path) -> None:
    decisions = Decisions(tmp_path)
    decisions.decide(decision(0))
    file = tmp_path / "0000000000.json"
    whole = file.read_bytes()
    for broken in (whole[:-20], whole.replace(b'"rows":8', b'"rows":9'), b""):
        file.write_bytes(broken)
        with pytest.raises(StateError, match=r"0000000000\.json"):
            decisions.newest()


@pytest.mark.parametrize(
    "changed",
    [
        {"batch": BatchId("f", "q", "other", 0, 1)},
        {"batch": BatchId("f", "q", "l1", 1, 1)},
        {"ranges": (SourceRange("s", 0, 2),)},
        {"streams": {"s": [replace(stream(0), place={"path": "/data/file-0.jsonl", "start": 0, "end": 999})]}},
        {"fingerprint": "p2"},
    ],
)
def test_the_input_hash_covers_lineage_number_ranges_streams_and_plan(changed: dict[str, Any]) -> None:
    given = {
        "batch": BatchId("f", "q", "l1", 0, 1),
        "ranges": (SourceRange("s", 0, 1),),
        "streams": {"s": [stream(0)]},
        "fingerprint": "p1",
    }
    assert input_hash(**given) != input_hash(**(given | changed))  # type: ignore[arg-type]


def test_the_input_hash_does_not_cover_the_term() -> None:
    assert decision(0, term=1).input_hash == decision(0, term=2).input_hash


def test_folding_keeps_every_decision_and_every_total(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbered_log, "CHUNK", 10)
    decisions, plain = Decisions(tmp_path), Totals()
    for number in range(47):
        plain.add(decisions.decide(decision(number)))
    assert len(list(tmp_path.glob("*.json"))) == 17
    assert decisions.totals() == plain
    assert [each.batch.number for each in Decisions(tmp_path).since()] == list(range(47))
    assert decisions.read(4) == decision(4)
    with pytest.raises(FencedError, match="completed long ago"):
        decisions.decide(decision(4, attempt="late"))


def long_log(folder: Path, kind: str, bodies: Any, count: int, summary: Any) -> None:
    """As `NumberedLog` leaves it after `count` records, without the hours that it would take."""
    (folder / "folded").mkdir(parents=True)
    chunks = count // numbered_log.CHUNK - 1
    for chunk in range(chunks):
        first = chunk * numbered_log.CHUNK
        records = [(n, bodies(n)) for n in range(first, first + numbered_log.CHUNK)]
        packed = gzip.compress(seal(f"{kind}-folded", 1, records), 1, mtime=0)
        (folder / "folded" / f"{first:010d}.json.gz").write_bytes(packed)
    high = chunks * numbered_log.CHUNK - 1
    (folder / "folded" / f"{high:010d}.summary").write_bytes(seal(f"{kind}-summary", 1, summary))
    for number in range(high + 1, count):
        (folder / f"{number:010d}.json").write_bytes(seal(kind, 1, bodies(number)))


@pytest.mark.parametrize("count", [30_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_a_long_lineage_opens_by_few_calls_an_entry(tmp_path: Path, count: int) -> None:
    """Counted, not timed: 30,000 entries take 0.3 s on a quiet machine, and several times as long on one that others use."""
    totals = Totals()
    totals.add(decision(0))
    some, last, entry = decision_as_json(decision(0)), decision_as_json(decision(count - 1)), [stream(0).as_json()]
    long_log(tmp_path / "decisions", "decision", lambda n: last if n == count - 1 else some, count, totals.as_json())
    long_log(tmp_path / "sources" / "s", "source-entry", lambda n: entry, count, {"entries": count - 1000})
    calls: Counter[str] = Counter()
    sys.setprofile(lambda _frame, event, _subject: calls.update((event,)))
    try:
        decisions, log = Decisions(tmp_path / "decisions"), SourceLog(tmp_path / "sources", "s")
        newest = decisions.newest()
        batches = decisions.totals().batches
        opened = calls.total()
        length, entries = log.length(), sum(len(entry) for entry in log.entries())
    finally:
        sys.setprofile(None)
    assert newest is not None
    assert (newest.batch.number, batches, length, entries) == (count - 1, 1001, count, count)
    print(f"{opened:,} calls to open, {(calls.total() - opened) / count:.1f} for each entry")
    assert opened < 800_000, "of decisions only those that are not folded are read, a thousand and some"
    assert calls.total() - opened < 80 * count


def test_a_decision_of_format_1_is_still_read() -> None:
    """The golden copy is what version 0.1 wrote; it never changes."""
    found = Decisions(GOLDEN / "decisions-1").newest()
    assert found == decision(0)


def test_an_entry_of_the_source_log_stands_for_all_who_append(tmp_path: Path) -> None:
    log = SourceLog(tmp_path, "s")
    assert log.append(0, [stream(0)]) == [stream(0)]
    assert SourceLog(tmp_path, "s").append(0, [stream(9)]) == [stream(0)]
    assert log.append(1, []) == []
    assert log.append(2, [stream(1), stream(2)]) == [stream(1), stream(2)]
    assert log.range(0, 3) == [stream(0), stream(1), stream(2)]
    assert log.length() == 3
    assert SourceLog(tmp_path, "s").length() == 3
    assert list(log.entries(1)) == [[], [stream(1), stream(2)]]
    with pytest.raises(StateError, match="would leave a gap"):
        log.append(4, [])
    with pytest.raises(StateError, match="entry 3 is missing"):
        log.read(3)


def test_a_source_log_hears_of_entries_that_another_process_appends(tmp_path: Path) -> None:
    planner, driver = SourceLog(tmp_path, "s"), SourceLog(tmp_path, "s")
    assert driver.length() == 0
    planner.append(0, [stream(0)])
    assert driver.length() == 1
    assert driver.read(0) == [stream(0)]
