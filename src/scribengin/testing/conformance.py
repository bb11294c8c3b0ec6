"""Does a connector keep the contract? `check_source` and `check_sink` say so, or raise AssertionError with the sentence it breaks.

For the tests of a connector of your own:

    def test_my_sink_keeps_the_contract(tmp_path):
        check_sink(lambda: MySink(Place("out", tmp_path, {...})), lambda: read_my_rows(tmp_path), schema=SCHEMA, rows=ROWS)
"""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from scribengin.connectors.abilities import is_chained, offers, takes_json, wants_origins
from scribengin.connectors.contract import BatchId, Decided, Limits, Receipt, SourceStream
from scribengin.core.errors import FencedError, Refused, StateError
from scribengin.core.types import arrow_schema
from scribengin.formats.json_rows import json_rows
from scribengin.formats.origins import Origins

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from scribengin.connectors.contract import OriginStream, Refusal, SinkStream, Source, StagingSink
    from scribengin.core.types import Schema
    from scribengin.formats.contract import Bad

_OWNER, _LINEAGE = "conformance", "lineage-1"


def check_source(source: Source, *, limits: Limits | None = None) -> int:
    """Read all there is, twice; returns how many records there were. The place must hold some, and must not change meanwhile."""
    given = limits or Limits(max_files=1, max_bytes=1, max_rows=1)
    entries = _split_all(source, given)
    _check(bool(entries), "split found nothing: give check_source a place that holds records")
    streams = [stream for entry in entries for stream in entry]
    copies = [SourceStream.from_json(json.loads(json.dumps(stream.as_json()))) for stream in streams]
    _check(copies == streams, "the place of a stream is JSON: texts, numbers, lists and mappings")
    everything = [stream for entry in _split_all(source, Limits()) for stream in entry]
    first = [record for stream in streams for record in _records(source, stream)]
    _check(
        sorted(first) == sorted(record for stream in everything for record in _records(source, stream)),
        "limits change how much comes at once, never what",
    )
    again = [record for stream in copies for record in _records(pickle.loads(pickle.dumps(source)), stream)]
    _check(again == first, "what was handed out once is read again, byte for byte, by a pickled copy too")
    for done in range(len(entries) + 1):
        reader = source.reader()
        reader.restore(entries[:done])
        rest = _drain(reader, given)
        read = [record for entry in [*entries[:done], *rest] for stream in entry for record in _records(source, stream)]
        _check(
            sorted(read) == sorted(first), f"a reader restored from {done} of {len(entries)} entries hands out the others, and none twice"
        )
    _check_decoders(source, streams)
    return len(first)


def check_sink(
    make_sink: Callable[[], StagingSink],
    read_back: Callable[[], Sequence[Mapping[str, Any]]],
    *,
    schema: Schema,
    rows: Sequence[Mapping[str, Any]],
) -> None:
    """Take a sink through Batches, failed attempts, replays and rivals. `make_sink` gives a fresh one for the same empty place;
    `read_back` gives the rows that a foreign reader sees there now; `rows` are at least four that fit `schema`."""
    _check(len(rows) >= 4, "check_sink needs at least four rows")
    trial = _SinkTrial(make_sink, read_back, schema)
    sink = make_sink()
    sink.prepare(owner=_OWNER, lineage=_LINEAGE)
    sink.prepare(owner=_OWNER, lineage=_LINEAGE)
    failed = trial.stage(sink, 0, rows[:1], attempt="failed")
    trial.stage(sink, 0, rows[:2], attempt="aborted", abort=True)
    first = trial.decided(sink, 0, [rows[:2], [], rows[2:3]], attempt="good")
    trial.stage(sink, 0, rows[3:4], attempt="late")
    trial.stage(sink, 0, rows[2:4], attempt="late-aborted", abort=True)
    trial.sees([], "what is staged, or aborted, is not visible")
    _check(failed.rows == 1, "a receipt counts the rows of its unit")
    _check(not first.receipts[1].segments and first.receipts[1].rows == 0, "a stream that wrote no row returns a receipt without segments")
    try:
        trial.publish(sink, first)
    except StateError as error:
        raise AssertionError(f"the contract is broken: attempts leave alone what another one has staged; {error}") from error
    trial.sees(rows[:3], "publish makes the decided rows visible, and those only")
    trial.publish(sink, first)
    trial.publish(trial.prepared(), _through_json(first))
    trial.recover(first, before=1)
    trial.sees(rows[:3], "publishing again, from a record, from another process, changes nothing")
    if sink.exactly_once:
        trial.refuses(lambda: trial.publish(trial.prepared(), replace(first, input_hash="other")), "a Batch that was decided otherwise")
        trial.refuses(lambda: trial.prepared().prepare(owner=_OWNER, lineage="lineage-2"), "another lineage")
        trial.refuses(lambda: trial.prepared().prepare(owner="another", lineage=_LINEAGE), "another installation")
    second = trial.decided(sink, 1, [rows[3:4]], attempt="second", term=2)
    sleeping = trial.decided(sink, 2, [rows[:1]], attempt="sleeping", term=2)
    trial.recover(second, before=2)
    trial.sees(rows[:4], "recover publishes the newest decision")
    if sink.exactly_once:
        trial.refuses(lambda: trial.publish(trial.prepared(), first), "a Batch that is older than what stands there", harmless=True)
        old = trial.decided(sink, 2, [rows[:1]], attempt="old", term=1)
        trial.refuses(lambda: trial.publish(trial.prepared(), old), "an older Term")
    trial.publish(trial.prepared(), replace(sleeping, behind=trial.behind()))
    trial.sees([*rows[:4], rows[0]], "recover keeps what an undecided Batch has staged: a driver that sleeps may decide it yet")
    told = list(trial.prepared().audit(lineage=_LINEAGE, decided=[first, second, sleeping]))
    _check(not [text for each in told for text in each.violations], f"an audit of a whole place finds nothing wrong: {told}")
    _check([(each.number, each.rows) for each in told] == [(0, 3), (1, 1), (2, 1)], f"an audit tells each Batch and its rows: {told}")


class _SinkTrial:
    def __init__(self, make_sink: Callable[[], StagingSink], read_back: Callable[[], Sequence[Mapping[str, Any]]], schema: Schema) -> None:
        self._make_sink = make_sink
        self._read_back = read_back
        self._schema = schema

    def prepared(self) -> StagingSink:
        sink = self._make_sink()
        sink.prepare(owner=_OWNER, lineage=_LINEAGE)
        return sink

    def publish(self, sink: StagingSink, decided: Decided) -> None:
        """As the engine does, with what the place chooses."""
        if offers(sink):
            sink.offer(decided, self._refused)
        sink.publish(decided)

    def recover(self, decided: Decided, *, before: int) -> None:
        """In a fresh process."""
        sink = self.prepared()
        if offers(sink):
            sink.offer(decided, self._refused)
        sink.recover(decided, lineage=_LINEAGE, before=before)

    @staticmethod
    def _refused(refusal: Refusal) -> None:
        _check(holds=False, sentence=f"rows that fit the schema are taken: {refusal}")

    def stage(
        self,
        sink: StagingSink,
        number: int,
        rows: Sequence[Mapping[str, Any]],
        *,
        attempt: str,
        unit: int = 0,
        term: int = 1,
        abort: bool = False,
    ) -> Receipt:
        copy: StagingSink = pickle.loads(pickle.dumps(sink))
        stream = copy.stream(BatchId("flow", "query", _LINEAGE, number, term), unit, f"{attempt}-{unit}", self._schema)
        if rows:
            refused = self._write(stream, [dict(row) for row in rows], f"source/{number}-{unit}+", as_json=bool(unit or number))
            _check(not refused, f"rows that fit the schema are taken: {refused}")
        if abort:
            stream.abort()
            return Receipt("", unit, 0, 0)
        return stream.close()

    def _write(self, stream: SinkStream | OriginStream, rows: list[dict[str, Any]], label: str, *, as_json: bool) -> Sequence[Bad]:
        if wants_origins(stream):
            batch = pa.RecordBatch.from_pylist(rows, schema=arrow_schema(self._schema))
            return stream.write_from(batch, Origins.of(label, np.arange(len(rows))))
        ids = [f"{label}{index}" for index in range(len(rows))] if stream.wants_ids else None
        if as_json and takes_json(stream):
            plain = json_rows(self._schema, stream.json_needs or ())
            if plain is not None and (json := plain.of_rows(rows)) is not None:
                return stream.write_json(json[0], len(rows), json[1], ids)
        return stream.write(pa.RecordBatch.from_pylist(rows, schema=arrow_schema(self._schema)), ids)

    def decided(
        self, sink: StagingSink, number: int, units: Sequence[Sequence[Mapping[str, Any]]], *, attempt: str, term: int = 1
    ) -> Decided:
        receipts = [self.stage(sink, number, rows, attempt=attempt, unit=unit, term=term) for unit, rows in enumerate(units)]
        return Decided(BatchId("flow", "query", _LINEAGE, number, term), f"hash-{number}", tuple(receipts), self.behind())

    def behind(self) -> Mapping[str, Any]:
        """What the sink says of its place now."""
        sink = self.prepared()
        return sink.behind(0) if is_chained(sink) else {}

    def sees(self, rows: Sequence[Mapping[str, Any]], sentence: str) -> None:
        found = [dict(row) for row in self._read_back()]
        _check(sorted(map(repr, found)) == sorted(repr(dict(row)) for row in rows), f"{sentence}; expected {list(rows)}, found {found}")

    def refuses(self, act: Callable[[], object], what: str, *, harmless: bool = False) -> None:
        """`act` must raise; where it is `harmless` it may also do nothing."""
        before = self._read_back()
        try:
            act()
        except (FencedError, StateError, Refused):
            pass
        else:
            _check(harmless, f"a sink refuses {what}")
        _check(sorted(map(repr, self._read_back())) == sorted(map(repr, before)), f"a refusal of {what} changes nothing")


def _split_all(source: Source, limits: Limits) -> list[list[SourceStream]]:
    reader = source.reader()
    reader.restore([])
    return _drain(reader, limits)


def _drain(reader: Any, limits: Limits) -> list[list[SourceStream]]:
    entries = []
    while entry := reader.split(limits, final=True):
        entries.append(entry)
    _check(reader.split(limits, final=True) == [], "a reader that finds nothing new returns an empty list, again and again")
    reader.backlog()
    _check(isinstance(reader.notices(), list) and not reader.notices(), "notices are told once")
    return entries


def _records(source: Source, stream: SourceStream) -> list[bytes]:
    return [block.payload(ordinal) for block in source.read(stream) for ordinal in range(len(block))]


def _check_decoders(source: Source, streams: Sequence[SourceStream]) -> None:
    schema = source.resolve_schema()
    for stream in streams:
        for block in source.read(stream):
            rows, columns = source.decoder().rows(block), source.decoder().columns(block)
            _check(len(rows.rows) + len(rows.bad) + rows.skipped == len(block), "a decoder accounts for every record of a block")
            _check(columns.batch.num_rows == len(rows.rows), "a decoder gives as many rows as columns have")
            _check(list(rows.ordinals) == list(columns.ordinals), "rows and columns come from the same records")
            _check(columns.batch.schema.names == list(schema.names), "columns are those of the schema")
            for bad in rows.bad:
                _check(bool(bad.reason and bad.message), "a record that cannot be read has a reason and a message")
            for ordinal in (0, len(block) - 1) if len(block) else ():
                _check(bool(block.place(ordinal).file), "a record has a place")


def _through_json(decided: Decided) -> Decided:
    receipts = tuple(Receipt.from_json(json.loads(json.dumps(receipt.as_json()))) for receipt in decided.receipts)
    return replace(decided, receipts=receipts)


def _check(holds: bool, sentence: str) -> None:
    if not holds:
        raise AssertionError(f"the contract is broken: {sentence}")
