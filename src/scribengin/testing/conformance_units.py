"""The conformance suite of `UnitSink`, in addition to `check_sink`, which applies to these sinks too.

def test_units_of_my_sink_keep_the_contract(tmp_path):
    check_unit_sink(lambda: make_sink(place(tmp_path)), lambda: read_my_rows(tmp_path), schema=SCHEMA, rows=ROWS)
"""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, cast

from scribengin.connectors.contract import AlreadyCommitted, Decided, Receipt
from scribengin.core.errors import FencedError, StateError
from scribengin.testing.conformance import LINEAGE, OWNER, batch_id, must, write_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from scribengin.connectors.contract import UnitSink, UnitStream
    from scribengin.core.types import Schema

    Row = Mapping[str, Any]
    Rows = Sequence[Row]

_UNITS = 2


def check_unit_sink(make_sink: Callable[[], UnitSink], read_back: Callable[[], Rows], *, schema: Schema, rows: Rows) -> None:
    """Check a sink whose task outputs commit one by one, at one empty place.

    Args:
        make_sink: Creates a new sink for the same place.
        read_back: Returns the rows that an independent reader finds.
        schema: The schema of the rows.
        rows: At least four rows, all different.

    Raises:
        AssertionError: with the sentence of the contract that is broken.
    """
    trial = _Trial(make_sink, read_back, schema)
    _check_units_are_seen_as_they_commit(trial, rows)
    _check_second_attempts(trial, rows)
    _check_attempts_at_once(trial, rows)
    _check_what_comes_late(trial, rows)
    _check_audit(trial)
    _check_an_older_lineage(trial, rows)


class _Trial:
    def __init__(self, make_sink: Callable[[], UnitSink], read_back: Callable[[], Rows], schema: Schema) -> None:
        self.make_sink = make_sink
        self.schema = schema
        self.decisions: list[Decided] = []
        self.stands: list[str] = []
        self._read_back = read_back
        self._attempts = 0

    def prepared(self, lineage: str = LINEAGE, *, adopt: bool = False) -> UnitSink:
        """Create and prepare a new sink, as a new process does."""
        sink = self.make_sink()
        sink.prepare(owner=OWNER, lineage=lineage, adopt=adopt)
        return sink

    @property
    def number(self) -> int:
        """The number of the next Batch."""
        return len(self.decisions)

    def begun(
        self, sink: UnitSink, rows: Rows, *, unit: int = 0, number: int | None = None, behind: Any = None, input_hash: str = ""
    ) -> UnitStream:
        """Do the work of a task with a copy of the sink, up to its commit; returns the closed stream. Raises the errors of the sink.

        Args:
            sink: The sink to copy.
            rows: The rows to write.
            unit: The number of the task output.
            number: The number of the Batch; None for the next one.
            behind: The `behind` state of the sink; None for the current one.
            input_hash: The hash of the Batch's input; empty for the usual one.
        """
        number = self.number if number is None else number
        copy: UnitSink = pickle.loads(pickle.dumps(sink))
        self._attempts += 1
        stream = copy.unit_stream(
            batch_id(number, 1),
            unit,
            f"attempt-{self._attempts}",
            self.schema,
            input_hash=input_hash or f"input-{number}",
            behind=behind or sink.behind(_UNITS),
        )
        try:
            if rows:
                refused = write_rows(stream, rows, f"source/{number}-{unit}+", self.schema, as_json=bool(unit))
                must(not refused, f"rows that fit the schema are taken: {refused}")
            return cast("UnitStream", _Closed(stream, stream.close()))
        except BaseException:
            stream.abort()
            raise

    def decide(self, sink: UnitSink, behind: Mapping[str, Any], receipts: Sequence[Receipt]) -> Decided:
        """Decide and publish the next Batch.

        Args:
            sink: The sink.
            behind: Its `behind` state before the Batch.
            receipts: The write receipts of the task outputs.
        """
        decided = Decided(batch_id(self.number, 1), f"hash-{self.number}", tuple(receipts), behind)
        sink.publish(decided)
        self.decisions.append(decided)
        return decided

    def grows(self, rows: Rows, sentence: str) -> None:
        """Check that exactly these rows were added since the last check."""
        found = sorted(repr(dict(row)) for row in self._read_back())
        expected = sorted([*self.stands, *(repr(dict(row)) for row in rows)])
        must(found == expected, f"{sentence}; expected {expected}, found {found}")
        self.stands = found


class _Closed:
    """A closed stream with its write receipt."""

    def __init__(self, stream: UnitStream, receipt: Receipt) -> None:
        self._stream = stream
        self.receipt = receipt

    def commit(self, report: Mapping[str, Any]) -> None:
        self._stream.commit(report)

    def abort(self) -> None:
        self._stream.abort()


def _committed(trial: _Trial, sink: UnitSink, rows: Rows, unit: int, behind: Mapping[str, Any]) -> Receipt:
    stream: Any = trial.begun(sink, rows, unit=unit, behind=behind)
    try:
        stream.commit(_report(stream.receipt))
    finally:
        stream.abort()
    return cast("Receipt", stream.receipt)


def _report(receipt: Receipt) -> dict[str, Any]:
    return {"receipts": [receipt.as_json()], "counts": {"step": 'a "quoted"\n\0 name'}}


def _check_units_are_seen_as_they_commit(trial: _Trial, rows: Rows) -> None:
    sink = trial.prepared()
    behind = sink.behind(_UNITS)
    stream: Any = trial.begun(sink, rows[:2], behind=behind)
    trial.grows([], "nothing of a unit is seen before it commits")
    stream.abort()
    trial.grows([], "nothing of a unit is seen that was given up")
    first = _committed(trial, sink, rows[:2], 0, behind)
    trial.grows(rows[:2], "a unit is seen when it has committed")
    second = _committed(trial, sink, [], 1, behind)
    decided = trial.decide(sink, behind, [first, second])
    sink.publish(decided)
    trial.prepared().recover(decided, lineage=LINEAGE, before=decided.batch.number + 1)
    trial.grows([], "publishing a Batch whose units have committed adds nothing, however often it is done")


def _check_second_attempts(trial: _Trial, rows: Rows) -> None:
    sink = trial.prepared()
    behind = sink.behind(_UNITS)
    receipts = [_committed(trial, sink, rows[2:3], 0, behind), _committed(trial, sink, [], 1, behind)]
    trial.grows(rows[2:3], "a unit of the next Batch is seen")
    for unit, receipt in enumerate(receipts):
        for again in (sink, trial.prepared()):
            report = _refused(trial, again, rows[3:], unit, behind)
            must(report == _report(receipt), f"another attempt gets the report of the one that committed: {report}")
    trial.grows([], "another attempt of a unit that is committed adds nothing, whatever its rows are")
    trial.decide(sink, behind, receipts)


def _refused(trial: _Trial, sink: UnitSink, rows: Rows, unit: int, behind: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        _committed(trial, sink, rows, unit, behind)
    except AlreadyCommitted as found:
        return found.report
    raise AssertionError("the contract is broken: another attempt of a unit that is committed raises AlreadyCommitted")


def _check_attempts_at_once(trial: _Trial, rows: Rows) -> None:
    sink = trial.prepared()
    behind = sink.behind(_UNITS)
    streams: list[Any] = [trial.begun(sink, rows[at : at + 1], behind=behind) for at in range(3)]

    def commit(stream: Any) -> Receipt | None:
        try:
            stream.commit(_report(stream.receipt))
        except AlreadyCommitted as found:
            return Receipt.from_json(found.report["receipts"][0])
        finally:
            stream.abort()
        return None

    with ThreadPoolExecutor(len(streams)) as pool:
        ends = list(pool.map(commit, streams))
    must(ends.count(None) == 1, f"of attempts at once one commits, the others raise AlreadyCommitted: {ends}")
    winner = streams[ends.index(None)].receipt
    must(all(end in (None, winner) for end in ends), f"the others get the report of that one: {ends}")
    at = ends.index(None)
    trial.grows(rows[at : at + 1], "of attempts at once the rows of one are seen")
    trial.decide(sink, behind, [winner, _committed(trial, sink, [], 1, behind)])


def _check_what_comes_late(trial: _Trial, rows: Rows) -> None:
    sink = trial.prepared()
    last, before = trial.decisions[-1], trial.decisions[-2]
    late: list[tuple[str, dict[str, Any], tuple[type[Exception], ...]]] = [
        (
            "of a Batch that is long done is refused, or told its report",
            {"number": before.batch.number, "behind": before.behind},
            (FencedError, StateError, AlreadyCommitted),
        ),
        (
            "over other input than the stored one is refused",
            {"number": last.batch.number, "behind": last.behind, "input_hash": "other"},
            (FencedError, StateError),
        ),
        ("behind another Batch than the newest is refused", {"behind": last.behind}, (FencedError, StateError)),
    ]
    for what, given, refusals in late:
        try:
            stream: Any = trial.begun(sink, rows, **given)
            stream.commit(_report(stream.receipt))
        except refusals:
            continue
        except AlreadyCommitted:
            pass
        raise AssertionError(f"the contract is broken: a unit {what}")
    trial.grows([], "what comes late adds nothing")


def _check_audit(trial: _Trial) -> None:
    told = list(trial.prepared().audit(lineage=LINEAGE, decided=trial.decisions))
    wrong = [sentence for each in told for sentence in each.violations]
    must(not wrong, f"an audit finds what was decided: {wrong}")
    must([each.rows for each in told] == [each.rows for each in trial.decisions], f"and counts it: {told}")


def _check_an_older_lineage(trial: _Trial, rows: Rows) -> None:
    older = trial.prepared()
    stream: Any = trial.begun(older, rows[:1])
    trial.prepared("lineage-2", adopt=True)
    try:
        stream.commit(_report(stream.receipt))
    except FencedError:
        pass
    else:
        raise AssertionError("the contract is broken: a unit of an older lineage is refused once a newer one has taken over")
    finally:
        stream.abort()
    trial.grows([], "a unit of an older lineage adds nothing")
