"""The conformance suite of connectors. `check_source` and `check_sink` raise AssertionError with the sentence of the contract that is
broken.

For the tests of your own connector:

    def test_my_sink_keeps_the_contract(tmp_path):
        check_sink(lambda: MySink(ConnectorContext("out", tmp_path, {...})), lambda: read_my_rows(tmp_path), schema=SCHEMA, rows=ROWS)
"""

from __future__ import annotations

import json
import logging
import os
import pickle
import signal
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from scribengin.connectors.abilities import chains_batches, checks_place, compares_columns, refuses_rows, takes_json, takes_origins
from scribengin.connectors.contract import BatchId, BatchLimits, Decided, Receipt, SourceStream
from scribengin.core.abilities import ability_faults
from scribengin.core.errors import FencedError, Refused, StateError
from scribengin.core.types import arrow_schema
from scribengin.formats.json_out import json_rows
from scribengin.formats.origins import Origins
from scribengin.testing.children import await_end, fork
from scribengin.testing.deaths import Site, died_at, own_code, sites_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from scribengin.connectors.contract import OriginStream, RefusedRow, SinkStream, SourceConnector, StagingSink
    from scribengin.core.abilities import BuiltKind
    from scribengin.core.options import NodeType
    from scribengin.core.types import Schema
    from scribengin.formats.contract import Bad

    Row = Mapping[str, Any]
    Rows = Sequence[Row]


def must(holds: bool, sentence: str) -> None:
    """Raise AssertionError with a sentence of the contract, unless it holds."""
    if not holds:
        raise AssertionError(f"the contract is broken: {sentence}")


def check_abilities(declared: NodeType | None, options: Mapping[str, Any], kind: BuiltKind, built: object) -> None:
    """Check that an object has the members of the abilities that its type declares, and of no others. Raises AssertionError.

    Args:
        declared: The type of the node; None: nothing is checked.
        options: The options of the node, on which its abilities may depend.
        kind: What was built: a source, a reader, a sink or a stream.
        built: The object to check.
    """
    if declared is not None:
        fault = next(ability_faults(declared.able(options), kind, built, varying=declared.varying), None)
        must(fault is None, f"a type declares what its objects have: {declared.role} type {declared.type} {fault}")


OWNER, LINEAGE = "conformance", "lineage-1"


class SinkTrial:
    """One place, the Batches sent to it, and the rows that it must contain."""

    def __init__(
        self,
        make_sink: Callable[[], StagingSink],
        read_back: Callable[[], Rows],
        schema: Schema,
        *,
        declared: NodeType | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.make_sink = make_sink
        self.schema = schema
        self._declared, self._options = declared, options or {}
        sink = make_sink()
        check_abilities(declared, self._options, "sink", sink)
        self.exactly_once = sink.exactly_once
        self._chained = chains_batches(sink)
        self.raised: list[BaseException] = []
        """the errors with which the sink refused a call"""
        self.decisions: list[Decided] = []
        self.stands: Counter[str] = Counter()
        self._read_back = read_back

    def prepared(self) -> StagingSink:
        """Create and prepare a new sink, as a new process does."""
        sink = self.make_sink()
        sink.prepare(owner=OWNER, lineage=LINEAGE)
        return sink

    def publish(self, sink: StagingSink, decided: Decided) -> None:
        """Publish a Batch as the engine does. The sink decides which of its methods are used."""
        publish(sink, decided)

    def recover(self, decided: Decided, *, before: int | None = None) -> StagingSink:
        """Recover with a new sink, as a new process does, and return that sink, with which the trial can continue.

        Args:
            decided: The newest decision.
            before: Batches below this number are finished; None: all up to the decided one.
        """
        sink = self.prepared()
        if refuses_rows(offering := sink):
            offering.offer(decided, none_refused)
        sink.recover(decided, lineage=LINEAGE, before=decided.batch.number + 1 if before is None else before)
        return sink

    def stage(
        self,
        sink: StagingSink,
        number: int,
        rows: Rows,
        *,
        attempt: str,
        unit: int = 0,
        term: int = 1,
        abort: bool = False,
    ) -> Receipt:
        """Stage rows as a task does, with a copy of the sink, and return the write receipt.

        Args:
            sink: The sink to copy.
            number: The number of the Batch.
            rows: The rows to write.
            attempt: The name of the attempt.
            unit: The number of the task output.
            term: The Term of the driver.
            abort: Abort the stream instead of closing it; the write receipt is then empty.
        """
        copy: StagingSink = pickle.loads(pickle.dumps(sink))
        stream = copy.stream(batch_id(number, term), unit, f"{attempt}-{unit}", self.schema)
        check_abilities(self._declared, self._options, "stream", stream)
        if rows:
            refused = write_rows(stream, rows, f"source/{number}-{unit}+", self.schema, as_json=bool(unit or number))
            must(not refused, f"rows that fit the schema are taken: {refused}")
        if abort:
            stream.abort()
            return Receipt("", unit, 0, 0)
        return stream.close()

    def decided(self, sink: StagingSink, number: int, units: Sequence[Rows], *, attempt: str, term: int = 1) -> Decided:
        """Stage a Batch, one attempt for each task output, and return its decision.

        Args:
            sink: The sink to copy.
            number: The number of the Batch.
            units: The rows of each task output.
            attempt: The name of the attempt.
            term: The Term of the driver.
        """
        receipts = [self.stage(sink, number, rows, attempt=attempt, unit=unit, term=term) for unit, rows in enumerate(units)]
        return self.decide(number, receipts, term=term)

    def decide(self, number: int, receipts: Sequence[Receipt], *, term: int = 1) -> Decided:
        """The decision on these write receipts, as a decision record contains it.

        Args:
            number: The number of the Batch.
            receipts: The write receipts of its task outputs.
            term: The Term of the driver.
        """
        return Decided(batch_id(number, term), f"hash-{number}", tuple(receipts), self.behind())

    def next(self, sink: StagingSink, units: Sequence[Rows], *, attempt: str) -> Decided:
        """Stage and decide the next Batch, with Term 2.

        Args:
            sink: The sink to copy.
            units: The rows of each task output.
            attempt: The name of the attempt.
        """
        decided = self.decided(sink, len(self.decisions), units, attempt=attempt, term=2)
        self.decisions.append(decided)
        return decided

    def behind(self) -> Mapping[str, Any]:
        """The sink's current `behind` state; empty if its Batches are not chained."""
        if not self._chained:
            return {}
        sink = self.prepared()
        return sink.behind(0) if chains_batches(sink) else {}

    def visible_rows(self) -> list[dict[str, Any]]:
        """The rows that an independent reader sees."""
        return [dict(row) for row in self._read_back()]

    def sees(self, rows: Rows, sentence: str) -> None:
        """Check that the place contains exactly these rows. `sentence` describes the rule that is checked."""
        found = self.visible_rows()
        self.stands = Counter(map(repr, found))
        must(self.stands == Counter(repr(dict(row)) for row in rows), f"{sentence}; expected {list(rows)}, found {found}")

    def grows(self, rows: Rows, sentence: str, *, died: bool = False) -> None:
        """Check that exactly these rows were added since the last check.

        Args:
            rows: The expected new rows.
            sentence: The rule that is checked.
            died: A driver died in between: a sink that is not exactly-once may have written some of the rows twice.
        """
        found, came = Counter(map(repr, self.visible_rows())), Counter(repr(dict(row)) for row in rows)
        lost, more = self.stands + came - found, found - self.stands - came
        if died and not self.exactly_once:
            more -= Counter({row: count for row, count in more.items() if row in came})
        must(not lost, f"{sentence}; lost: {_shown(lost)}")
        must(not more, f"{sentence}; doubled, or never decided: {_shown(more)}")
        self.stands = found

    def midst(self, rows: Rows, sentence: str) -> None:
        """Check, during a publication, that no earlier row is missing and that all new rows are among `rows` and complete."""
        try:
            found = Counter(map(repr, self.visible_rows()))
        except Exception as error:
            raise AssertionError(f"the contract is broken: {sentence}; a reader met this: {error!r}") from error
        torn, gone = found - self.stands - Counter(repr(dict(row)) for row in rows), self.stands - found
        must(not gone, f"{sentence}; gone: {_shown(gone)}")
        must(not torn, f"{sentence}; torn, doubled, or never decided: {_shown(torn)}")

    def refuses(self, act: Callable[[], object], what: str, *, harmless: bool = False) -> None:
        """Check that `act` raises an error and changes no rows.

        Args:
            act: The call.
            what: What the sink refuses, for the message.
            harmless: The call may also succeed, if it changes nothing.
        """
        before = self.visible_rows()
        try:
            act()
        except (FencedError, StateError, Refused) as error:
            self.raised.append(error)
        else:
            must(harmless, f"a sink refuses {what}")
        must(sorted(map(repr, self.visible_rows())) == sorted(map(repr, before)), f"a refusal of {what} changes nothing")


def batch_id(number: int, term: int) -> BatchId:
    """The id of a Batch of the suite's only query."""
    return BatchId("flow", "query", LINEAGE, number, term)


def publish(sink: StagingSink, decided: Decided) -> None:
    """Publish a Batch whose rows the place accepts."""
    if refuses_rows(sink):
        sink.offer(decided, none_refused)
    sink.publish(decided)


def none_refused(refusal: RefusedRow) -> None:
    """Fail the test: the sink refused a row that fits the schema."""
    must(holds=False, sentence=f"rows that fit the schema are taken: {refusal}")


def write_rows(stream: SinkStream | OriginStream, rows: Rows, label: str, schema: Schema, *, as_json: bool) -> Sequence[Bad]:
    """Write rows as a task does, and return the refused ones.

    Args:
        stream: The stream of the task output.
        rows: The rows to write.
        label: The beginning of the row ids: row i has the id `label` + i.
        schema: The schema of the rows.
        as_json: Write the rows as JSON, if the stream accepts it.
    """
    batch = pa.RecordBatch.from_pylist([dict(row) for row in rows], schema=arrow_schema(schema))
    if takes_origins(stream):
        return stream.write_from(batch, Origins.of(label, np.arange(len(rows))))
    ids = [f"{label}{index}" for index in range(len(rows))] if stream.wants_ids else None
    if as_json and takes_json(stream):
        plain = json_rows(schema, stream.json_needs or ())
        if plain is not None and (lines := plain.of_rows([dict(row) for row in rows])) is not None:
            return stream.write_json(lines[0], len(rows), lines[1], ids)
    return stream.write(batch, ids)


def through_json(decided: Decided) -> Decided:
    """The decision after its write receipts were converted to JSON and back."""
    receipts = tuple(Receipt.from_json(json.loads(json.dumps(receipt.as_json()))) for receipt in decided.receipts)
    return replace(decided, receipts=receipts)


def _shown(rows: Counter[str]) -> str:
    return ", ".join(f"{count} x {row}" for row, count in rows.most_common(4))


def check_poison(trial: SinkTrial, rows: Rows, poison: Rows) -> None:
    """Check rows that the place never accepts, each between two of `rows`: once written as columns, once as JSON.

    Args:
        trial: The trial.
        rows: Rows that the place accepts, at least as many as `poison`.
        poison: Rows that the place never accepts.
    """
    for as_json in (False, True):
        mixed = [row for one, other in zip(rows, poison, strict=False) for row in (one, other)] + [rows[0]]
        wrong = set(range(1, len(mixed), 2))
        try:
            told = _returned_rows(trial, mixed, as_json=as_json)
        except Exception as error:
            raise AssertionError(f"the contract is broken: a row that the place never takes is no reason to fail; {error!r}") from error
        must(
            sorted(index for index, _, _ in told) == sorted(wrong),
            f"each row that the place never takes comes back, from `write` or from `offer`, and no other; rows {sorted(wrong)} are wrong, "
            f"what came back: {told}",
        )
        must(all(reason and message for _, reason, message in told), f"a row that comes back has a reason and a message: {told}")
        trial.grows([row for index, row in enumerate(mixed) if index not in wrong], "rows beside one that the place never takes are taken")


def check_wider(trial: SinkTrial, schema: Schema, rows: Rows) -> None:
    """Check rows with more columns than the place has: the sink writes them, or its `unlike` reports the new columns.

    Args:
        trial: The trial.
        schema: The schema with the new columns.
        rows: Rows with a value in each new column.
    """
    new = [name for name in schema.names if name not in trial.schema]
    must(bool(new) and all(row[name] is not None for row in rows for name in new), "check_sink needs rows that fill a new column")
    sink = trial.prepared()
    told = sink.unlike(schema) if compares_columns(sink) else []
    trial.grows([], "`unlike` changes nothing")
    if told:
        must(all(name in " ".join(told) for name in new), f"`unlike` names the columns that the place does not take: {new}, it says {told}")
        return
    number = len(trial.decisions)
    try:
        stream = sink.stream(batch_id(number, 2), 0, "wider", schema)
        refused = write_rows(stream, rows, f"source/{number}-0+", schema, as_json=False)
        decided = trial.decide(number, [stream.close()], term=2)
        trial.decisions.append(decided)
        trial.publish(sink, decided)
    except Exception as error:
        raise AssertionError(
            f"the contract is broken: a sink whose place does not take a new column says so by `unlike`, before a start; it said: {error!r}"
        ) from error
    must(not refused, f"a sink whose place does not take a new column says so by `unlike`, before a start; it refused {refused}")
    wanted, found = Counter(_plain(row, ()) for row in rows), Counter(_plain(row, new) for row in trial.visible_rows())
    must(not wanted - found, f"a new column is written, or `unlike` tells that it is not; lost: {list(wanted - found)[:2]}")


def _returned_rows(trial: SinkTrial, rows: Rows, *, as_json: bool) -> list[tuple[int, str, str]]:
    """Write and publish rows, and return the refused ones as (index, reason, message)."""
    sink, number = trial.prepared(), len(trial.decisions)
    label = f"source/{number}-0+"
    stream = sink.stream(batch_id(number, 2), 0, f"poisoned-{as_json}", trial.schema)
    told = [(bad.ordinal, bad.reason, bad.message) for bad in write_rows(stream, rows, label, trial.schema, as_json=as_json)]
    decided = trial.decide(number, [stream.close()], term=2)
    refused: list[RefusedRow] = []
    if refuses_rows(sink):
        sink.offer(decided, refused.append)
    decided = replace(decided, refused=len(refused))
    trial.decisions.append(decided)
    sink.publish(decided)
    for refusal in refused:
        must(isinstance(json.loads(refusal.came), dict), f"a Refusal has the row as a JSON object: {refusal}")
        ordinal = refusal.id.removeprefix(label)
        must(ordinal.isdecimal(), f"a Refusal names the row by what it was made of: {refusal}")
        told.append((int(ordinal), refusal.reason, refusal.message))
    return told


def _plain(row: Row, new: Collection[str]) -> str:
    """The row as text, for comparison, without null values and without the columns in `new`: rows from before have nulls there, or none."""
    return repr(sorted((name, value) for name, value in row.items() if value is not None or name not in new))


def check_secret(
    trial: SinkTrial, secret: str, *, folders: Sequence[Path], away: Callable[[], StagingSink] | None, logged: Sequence[str]
) -> None:
    """Check that a secret is in no text that the sink produces or file that it writes.

    Args:
        trial: The trial whose sink has the secret among its options.
        secret: The secret value.
        folders: The folders that the sink has written to.
        away: Creates a sink with the same secret whose place does not answer; None if there is none.
        logged: The log messages of the trial.
    """
    sink = trial.prepared()
    stream = sink.stream(batch_id(len(trial.decisions), 2), 0, "looked-at", trial.schema)
    for what, shown in (("the sink", sink), ("a pickled copy of it", pickle.loads(pickle.dumps(sink))), ("a stream", stream)):
        must(secret not in f"{shown} {shown!r}", f"a secret is not shown; it is in the text of {what}")
    stream.abort()
    audited = list(sink.audit(lineage=LINEAGE, decided=trial.decisions))
    must(secret not in repr(trial.decisions), "a secret is not shown; it is in a receipt")
    must(secret not in repr(audited), "a secret is not shown; it is in what an audit tells")
    must(secret not in repr(trial.visible_rows()), "a secret is not shown; readers see it")
    raised = [*trial.raised, *_raised_by(away)]
    told = next((error for error in raised if any(secret in text for text in _texts(error))), None)
    must(told is None, f"a secret is not shown; it is in a {type(told).__name__}, or in what that came of")
    for path in (path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()):
        must(secret.encode() not in path.read_bytes(), f"a secret is not shown; it is in the file {path.name}")
    must(not any(secret in line for line in logged), "a secret is not shown; it is in a log")


@contextmanager
def logs() -> Iterator[list[str]]:
    """Collect what is logged in the block, with tracebacks."""
    lines: list[str] = []
    handler = _Keeping(lines)
    logging.getLogger().addHandler(handler)
    try:
        yield lines
    finally:
        logging.getLogger().removeHandler(handler)


class _Keeping(logging.Handler):
    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(self.format(record))


def _raised_by(away: Callable[[], StagingSink] | None) -> list[BaseException]:
    if away is None:
        return []
    try:
        away().prepare(owner=OWNER, lineage=LINEAGE)
    except Exception as error:
        return [error]
    raise AssertionError("the contract is broken: a sink whose place does not answer raises")


def _texts(error: BaseException | None) -> Iterator[str]:
    """The texts of an error and of its causes: a traceback shows them all."""
    while error is not None:
        yield f"{error} {error!r} {getattr(error, 'remedy', '')}"
        error = error.__cause__ or error.__context__


_AT_ONCE_S = 30.0


_KILLED = -signal.SIGKILL


def check_deaths(trial: SinkTrial, rows: Rows, *, every_line: bool) -> list[Site]:
    """Let the driver die at each site that a publication passes, each time with a new Batch, and check the recovery. Returns the sites.

    Args:
        trial: The trial.
        rows: Four rows.
        every_line: Die at each line of the sink's code too, even if the sink passes crash points.
    """
    units = _units(trial, rows)
    sites = _sites(trial, units, every_line=every_line)
    sink = trial.prepared()
    for nth, site in enumerate(sites):
        decided = trial.next(sink, units, attempt=f"died-{nth}")
        died_at(site, lambda sink=sink, decided=decided: publish(sink, decided), own_code(sink))  # type: ignore[misc]
        sink = _comes_again(trial, decided, rows, f"a driver dies at {site}")
    if refuses_rows(offering := sink):
        decided = trial.next(sink, units, attempt="offered")
        offering.offer(decided, none_refused)
        _comes_again(trial, decided, rows, "a driver dies between `offer` and `publish`")
    return sites


def check_kills(trial: SinkTrial, rows: Rows, sites: Sequence[Site]) -> None:
    """Kill two processes and check the recovery: a task that has written but not closed its stream, and a driver at the middle one of
    `sites`.

    Args:
        trial: The trial.
        rows: Four rows.
        sites: The sites at which a publication can die; empty: no driver is killed.
    """
    sink, number = trial.prepared(), len(trial.decisions)
    child = fork(_stage_and_die, pickle.dumps(sink), number, list(rows[:2]), trial.schema)
    must((status := await_end(child)) == _KILLED, f"a copy of the sink stages rows in a process of its own; it ended with {status}")
    trial.grows([], "what a task had staged that was killed is not visible")
    try:
        decided = trial.next(sink, [rows[2:]], attempt="after-a-kill")
        trial.publish(sink, decided)
    except Exception as error:
        raise AssertionError(f"the contract is broken: a killed task blocks no other; {error!r}") from error
    trial.grows(rows[2:], "what a task had staged that was killed is never visible")
    if sites:
        decided = trial.next(sink, _units(trial, rows), attempt="killed")
        child = fork(_publish_and_die, pickle.dumps(sink), decided, sites[len(sites) // 2])
        must(
            (status := await_end(child)) in (_KILLED, 0),
            f"a copy of the sink publishes in a process of its own, unless `copies_publish=False`; it ended with {status}",
        )
        _comes_again(trial, decided, rows, f"a driver is killed at {sites[len(sites) // 2]}")


def check_at_once(trial: SinkTrial, rows: Rows) -> None:
    """Let two attempts of a task output write concurrently; the second one closes its stream in the first round, and aborts in the second.
    `rows` are four rows."""
    sink = trial.prepared()
    for aborts in (False, True):
        number = len(trial.decisions)
        turn = threading.Barrier(2, timeout=_AT_ONCE_S)
        with ThreadPoolExecutor(2) as pool:
            good = pool.submit(_attempt, trial, sink, number, rows[:2], turn, name=f"good-{aborts}")
            other = pool.submit(_attempt, trial, sink, number, rows[2:], turn, name=f"other-{aborts}", aborts=aborts)
        failed = [error for error in (good.exception(), other.exception()) if error is not None]
        # an attempt that fails leaves the other one waiting at the barrier: report the cause first
        failed.sort(key=lambda error: isinstance(error, threading.BrokenBarrierError))
        try:
            if failed:
                raise failed[0]
            receipt = good.result()
            assert receipt is not None
            decided = trial.decide(number, [receipt], term=2)
            trial.decisions.append(decided)
            trial.publish(sink, decided)
        except Exception as error:
            raise AssertionError(f"the contract is broken: two attempts at one unit may write at once; {error!r}") from error
        trial.grows(rows[:2], "of two attempts that write at once, those rows become visible that were decided, and those only")


def _units(trial: SinkTrial, rows: Rows) -> list[Rows]:
    """The rows of each task output: if the place accepts rows one by one, enough outputs that some are not sent yet when the first ones
    are."""
    return [[row] for row in rows] if refuses_rows(trial.make_sink()) else [rows[:2], rows[2:]]


def _sites(trial: SinkTrial, units: Sequence[Rows], *, every_line: bool) -> list[Site]:
    """The sites that a publication passes: crash points first; lines only if `every_line` is set or the sink passes no crash point."""
    sink = trial.prepared()
    decided = trial.next(sink, units, attempt="whole")
    passed = sites_of(lambda: publish(sink, decided), own_code(sink))
    trial.grows([row for rows in units for row in rows], "publish makes the decided rows visible, and those only")
    points = [site for site in passed if not site.is_line]
    # the last lines first: they are closest to the commit
    return points if points and not every_line else [*points, *reversed([site for site in passed if site.is_line])]


def _comes_again(trial: SinkTrial, decided: Decided, rows: Rows, what: str) -> StagingSink:
    trial.midst(rows, f"{what}: readers see decided rows whole, or not yet")
    try:
        sink = trial.recover(decided)
    except StateError as error:
        raise AssertionError(f"the contract is broken: {what} and comes again: it finds all that it needs; {error}") from error
    trial.grows(rows, f"{what} and comes again: the place has each decided row once", died=True)
    return sink


def _attempt(
    trial: SinkTrial, sink: StagingSink, number: int, rows: Rows, turn: threading.Barrier, *, name: str, aborts: bool = False
) -> Receipt | None:
    """Write as a task that keeps pace with another one: open, write one row, write another, close or abort."""
    try:
        copy: StagingSink = pickle.loads(pickle.dumps(sink))
        turn.wait()
        stream: Any = copy.stream(batch_id(number, 2), 0, name, trial.schema)
        for index, row in enumerate(rows):
            turn.wait()
            refused = write_rows(stream, [row], f"source/{number}-{index}+", trial.schema, as_json=False)
            must(not refused, f"rows that fit the schema are taken: {refused}")
        turn.wait()
        if aborts:
            stream.abort()
            return None
        receipt: Receipt = stream.close()
    except BaseException:
        turn.abort()
        raise
    return receipt


def _stage_and_die(sink: bytes, number: int, rows: Rows, schema: Any) -> None:
    stream: SinkStream | Any = pickle.loads(sink).stream(batch_id(number, 2), 0, "killed-0", schema)
    write_rows(stream, rows, f"source/{number}-0+", schema, as_json=False)
    os.kill(os.getpid(), signal.SIGKILL)


def _publish_and_die(sink: bytes, decided: Decided, site: Site) -> None:
    copy: StagingSink = pickle.loads(sink)
    died_at(site, lambda: publish(copy, decided), own_code(copy), kill=True)


def check_source(
    source: SourceConnector,
    *,
    limits: BatchLimits | None = None,
    declared: NodeType | None = None,
    options: Mapping[str, Any] | None = None,
) -> int:
    """Read all records of a source twice, and return their number. The place must contain records and must not change meanwhile.

    Args:
        source: The source to check.
        limits: The limits of each Batch.
        declared: The type of the source: its objects must have the methods of the declared abilities, and of no others. None: not checked.
        options: The options of the node, on which the declared abilities may depend.

    Raises:
        AssertionError: with the sentence of the contract that is broken.
    """
    check_abilities(declared, options or {}, "source", source)
    check_abilities(declared, options or {}, "reader", source.reader())
    given = limits or BatchLimits(max_files=1, max_bytes=1, max_rows=1)
    entries = _split_all(source, given)
    must(bool(entries), "split found nothing: give check_source a place that holds records")
    streams = [stream for entry in entries for stream in entry]
    copies = [SourceStream.from_json(json.loads(json.dumps(stream.as_json()))) for stream in streams]
    must(copies == streams, "the place of a stream is JSON: texts, numbers, lists and mappings")
    everything = [stream for entry in _split_all(source, BatchLimits()) for stream in entry]
    first = [record for stream in streams for record in _records(source, stream)]
    must(
        sorted(first) == sorted(record for stream in everything for record in _records(source, stream)),
        "limits change how much comes at once, never what",
    )
    again = [record for stream in copies for record in _records(pickle.loads(pickle.dumps(source)), stream)]
    must(again == first, "what was handed out once is read again, byte for byte, by a pickled copy too")
    for done in range(len(entries) + 1):
        reader = source.reader()
        reader.restore(entries[:done])
        rest = _drain(reader, given)
        read = [record for entry in [*entries[:done], *rest] for stream in entry for record in _records(source, stream)]
        must(sorted(read) == sorted(first), f"a reader restored from {done} of {len(entries)} entries hands out the others, and none twice")
    _check_decoders(source, streams)
    return len(first)


def check_sink(
    make_sink: Callable[[], StagingSink],
    read_back: Callable[[], Rows],
    *,
    schema: Schema,
    rows: Rows,
    poison: Rows = (),
    wider: tuple[Schema, Rows] | None = None,
    secret: str = "",
    folders: Sequence[Path] = (),
    away: Callable[[], StagingSink] | None = None,
    every_line: bool = False,
    copies_publish: bool = True,
    declared: NodeType | None = None,
    options: Mapping[str, Any] | None = None,
) -> None:
    """Check a sink with Batches, failed attempts, replays, concurrent drivers, deaths at crash points and killed processes.

    Args:
        make_sink: Creates a new sink for the same place, which is empty at first.
        read_back: Returns the rows that an independent reader sees at the place now.
        schema: The schema of the rows.
        rows: At least four rows.
        poison: Rows that fit the schema, and that the place never accepts.
        wider: A schema with more columns, and rows of it.
        secret: A secret value among the sink's options; no text or file may contain it.
        folders: The folders that the sink writes to: its work folder, and the place if that is a folder.
        away: Creates a sink with the secret whose place does not answer.
        every_line: Let drivers die at each line of the sink's own code, not only at its crash points. This always applies to a sink that
            passes no crash point.
        copies_publish: False if the sink can publish only in the process that created it, because it needs a Spark session there. Then no
            driver process is killed.
        declared: The type of the sink: its objects must have the methods of the declared abilities, and of no others. None: not checked.
        options: The options of the node, on which the declared abilities may depend.

    Raises:
        AssertionError: with the sentence of the contract that is broken.
        ValueError: if there are fewer than four `rows`, or fewer than of `poison`.
    """
    if len(rows) < max(4, len(poison)):
        raise ValueError(f"check_sink needs at least {max(4, len(poison))} rows: four, and as many as there are of poison")
    trial = SinkTrial(make_sink, read_back, schema, declared=declared, options=options)
    with logs() as logged:
        _check_batches(trial, rows)
        sites = check_deaths(trial, rows[:4], every_line=every_line)
        check_kills(trial, rows[:4], sites if copies_publish else ())
        check_at_once(trial, rows[:4])
        if poison:
            check_poison(trial, rows, poison)
        if trial.exactly_once:
            told = list(trial.prepared().audit(lineage=LINEAGE, decided=trial.decisions))
            must(not [text for each in told for text in each.violations], f"an audit of a whole place finds nothing wrong: {told}")
        if wider is not None:
            check_wider(trial, *wider)
        if secret:
            check_secret(trial, secret, folders=folders, away=away, logged=logged)


def _check_batches(trial: SinkTrial, rows: Rows) -> None:
    sink = trial.make_sink()
    if checks_place(sink):
        sink.check_place()
        trial.sees([], "a look at the place changes nothing there")
    sink.prepare(owner=OWNER, lineage=LINEAGE)
    sink.prepare(owner=OWNER, lineage=LINEAGE)
    failed = trial.stage(sink, 0, rows[:1], attempt="failed")
    trial.stage(sink, 0, rows[:2], attempt="aborted", abort=True)
    first = trial.decided(sink, 0, [rows[:2], [], rows[2:3]], attempt="good")
    trial.stage(sink, 0, rows[3:4], attempt="late")
    trial.stage(sink, 0, rows[2:4], attempt="late-aborted", abort=True)
    trial.sees([], "what is staged, or aborted, is not visible")
    must(failed.rows == 1, "a receipt counts the rows of its unit")
    must(not first.receipts[1].segments and first.receipts[1].rows == 0, "a stream that wrote no row returns a receipt without segments")
    try:
        trial.publish(sink, first)
    except StateError as error:
        raise AssertionError(f"the contract is broken: attempts leave alone what another one has staged; {error}") from error
    trial.sees(rows[:3], "publish makes the decided rows visible, and those only")
    trial.publish(sink, first)
    trial.publish(trial.prepared(), through_json(first))
    trial.recover(first, before=1)
    trial.sees(rows[:3], "publishing again, from a record, from another process, changes nothing")
    if sink.exactly_once:
        trial.refuses(lambda: trial.publish(trial.prepared(), replace(first, input_hash="other")), "a Batch that was decided otherwise")
        trial.refuses(lambda: trial.prepared().prepare(owner=OWNER, lineage="lineage-2"), "another lineage")
        trial.refuses(lambda: trial.prepared().prepare(owner="another", lineage=LINEAGE), "another installation")
    second = trial.decided(sink, 1, [rows[3:4]], attempt="second", term=2)
    sleeping = trial.decided(sink, 2, [rows[:1]], attempt="sleeping", term=2)
    trial.recover(second, before=2)
    trial.sees(rows[:4], "recover publishes the newest decision")
    if sink.exactly_once:
        trial.refuses(lambda: trial.publish(trial.prepared(), first), "a Batch older than the newest one there", harmless=True)
        old = trial.decided(sink, 2, [rows[:1]], attempt="old", term=1)
        trial.refuses(lambda: trial.publish(trial.prepared(), old), "an older Term")
    try:
        trial.publish(trial.prepared(), replace(sleeping, behind=trial.behind()))
    except StateError as error:
        raise AssertionError(f"the contract is broken: recover keeps what an undecided Batch has staged; {error}") from error
    trial.sees([*rows[:4], rows[0]], "recover keeps what an undecided Batch has staged: a driver that sleeps may decide it yet")
    told = list(trial.prepared().audit(lineage=LINEAGE, decided=[first, second, sleeping]))
    must(not [text for each in told for text in each.violations], f"an audit of a whole place finds nothing wrong: {told}")
    must([(each.number, each.rows) for each in told] == [(0, 3), (1, 1), (2, 1)], f"an audit tells each Batch and its rows: {told}")
    trial.decisions += [first, second, sleeping]


def _split_all(source: SourceConnector, limits: BatchLimits) -> list[list[SourceStream]]:
    reader = source.reader()
    reader.restore([])
    return _drain(reader, limits)


def _drain(reader: Any, limits: BatchLimits) -> list[list[SourceStream]]:
    entries = []
    while entry := reader.split(limits, final=True):
        entries.append(entry)
    must(reader.split(limits, final=True) == [], "a reader that finds nothing new returns an empty list, again and again")
    reader.backlog()
    must(isinstance(reader.notices(), list) and not reader.notices(), "notices are reported once")
    return entries


def _records(source: SourceConnector, stream: SourceStream) -> list[bytes]:
    return [block.payload(ordinal) for block in source.read(stream) for ordinal in range(len(block))]


def _check_decoders(source: SourceConnector, streams: Sequence[SourceStream]) -> None:
    schema = source.resolve_schema()
    for stream in streams:
        for block in source.read(stream):
            rows, columns = source.decoder().rows(block), source.decoder().columns(block)
            must(len(rows.rows) + len(rows.bad) + rows.skipped == len(block), "a decoder accounts for every record of a block")
            must(columns.batch.num_rows == len(rows.rows), "a decoder gives as many rows as columns have")
            must(list(rows.ordinals) == list(columns.ordinals), "rows and columns come from the same records")
            must(columns.batch.schema.names == list(schema.names), "columns are those of the schema")
            for bad in rows.bad:
                must(bool(bad.reason and bad.message), "a record that cannot be read has a reason and a message")
            for ordinal in (0, len(block) - 1) if len(block) else ():
                must(bool(block.place(ordinal).file), "a record has a place")
