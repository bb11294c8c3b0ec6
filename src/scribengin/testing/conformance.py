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

from scribengin.connectors.abilities import can_be_looked_at
from scribengin.connectors.contract import BatchLimits, SourceStream
from scribengin.core.errors import StateError
from scribengin.testing.conformance_deaths import check_at_once, check_deaths, check_kills
from scribengin.testing.conformance_rows import check_poison, check_wider
from scribengin.testing.conformance_secrets import check_secret, logs
from scribengin.testing.conformance_sinks import LINEAGE, OWNER, SinkTrial, through_json
from scribengin.testing.sentences import must

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from scribengin.connectors.contract import SourceConnector, StagingSink
    from scribengin.core.types import Schema
    from scribengin.testing.conformance_sinks import Rows


def check_source(source: SourceConnector, *, limits: BatchLimits | None = None) -> int:
    """Read all there is, twice; returns how many records there were. The place must hold some, and must not change meanwhile."""
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
) -> None:
    """Take a sink through Batches, failed attempts, replays and rivals, deaths and kills. `make_sink` gives a fresh one for the same empty
    place; `read_back` gives the rows that a foreign reader sees there now; `rows` are at least four that fit `schema`.

    Where there is such a thing: `poison` are rows that fit `schema` too, and that the place never takes; `wider` is a schema with more
    columns, and rows of it; `secret` is what the sink's options have that nobody may see, `folders` what it writes to beside the place
    (its work folder; the place too, where it is one), `away` gives a sink with the secret whose place does not answer.

    `every_line`: drivers die at each line of the sink's own code, not only at the crash points that it passes; so it is anyway with a sink
    that passes none. `copies_publish=False`: the sink publishes only in the process where it was made (it needs a Spark session there), so
    that no driver is really killed. Raises AssertionError."""
    must(len(rows) >= 4, "check_sink needs at least four rows")
    trial = SinkTrial(make_sink, read_back, schema)
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
    if can_be_looked_at(sink):
        sink.look_at_place()
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
        trial.refuses(lambda: trial.publish(trial.prepared(), first), "a Batch that is older than what stands there", harmless=True)
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
    must(isinstance(reader.notices(), list) and not reader.notices(), "notices are told once")
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
