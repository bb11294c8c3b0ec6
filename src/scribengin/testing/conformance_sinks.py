"""A sink under test, and what a driver and its tasks do with it. `conformance.check_sink` is the suite; the topics beside are each in a
module of their own: `conformance_deaths`, `conformance_rows`, `conformance_secrets`."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from scribengin.connectors.abilities import is_chained, offers, takes_json, wants_origins
from scribengin.connectors.contract import BatchId, Decided, Receipt
from scribengin.core.errors import FencedError, Refused, StateError
from scribengin.core.types import arrow_schema
from scribengin.formats.json_rows import json_rows
from scribengin.formats.origins import Origins
from scribengin.testing.sentences import must

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from scribengin.connectors.contract import OriginStream, RefusedRow, SinkStream, StagingSink
    from scribengin.core.types import Schema
    from scribengin.formats.contract import Bad

    Row = Mapping[str, Any]
    Rows = Sequence[Row]

OWNER, LINEAGE = "conformance", "lineage-1"


class SinkTrial:
    """One place, the Batches that came there, and what must stand there therefore."""

    def __init__(self, make_sink: Callable[[], StagingSink], read_back: Callable[[], Rows], schema: Schema) -> None:
        self.make_sink = make_sink
        self.schema = schema
        sink = make_sink()
        self.exactly_once = sink.exactly_once
        self._chained = is_chained(sink)
        self.raised: list[BaseException] = []
        """what the sink has said no with"""
        self.decisions: list[Decided] = []
        self.stands: Counter[str] = Counter()
        self._read_back = read_back

    def prepared(self) -> StagingSink:
        """A fresh one, as in a new process."""
        sink = self.make_sink()
        sink.prepare(owner=OWNER, lineage=LINEAGE)
        return sink

    def publish(self, sink: StagingSink, decided: Decided) -> None:
        """As the engine does, with what the place chooses."""
        publish(sink, decided)

    def recover(self, decided: Decided, *, before: int | None = None) -> StagingSink:
        """In a fresh process, which can go on with the sink that is returned."""
        sink = self.prepared()
        if offers(offering := sink):
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
        """What a task does, with a copy of the sink."""
        copy: StagingSink = pickle.loads(pickle.dumps(sink))
        stream = copy.stream(batch_id(number, term), unit, f"{attempt}-{unit}", self.schema)
        if rows:
            refused = write_rows(stream, rows, f"source/{number}-{unit}+", self.schema, as_json=bool(unit or number))
            must(not refused, f"rows that fit the schema are taken: {refused}")
        if abort:
            stream.abort()
            return Receipt("", unit, 0, 0)
        return stream.close()

    def decided(self, sink: StagingSink, number: int, units: Sequence[Rows], *, attempt: str, term: int = 1) -> Decided:
        """A Batch of these units, each staged by one attempt."""
        receipts = [self.stage(sink, number, rows, attempt=attempt, unit=unit, term=term) for unit, rows in enumerate(units)]
        return self.decide(number, receipts, term=term)

    def decide(self, number: int, receipts: Sequence[Receipt], *, term: int = 1) -> Decided:
        """What a decision record would say."""
        return Decided(batch_id(number, term), f"hash-{number}", tuple(receipts), self.behind())

    def next(self, sink: StagingSink, units: Sequence[Rows], *, attempt: str) -> Decided:
        """The Batch behind all others."""
        decided = self.decided(sink, len(self.decisions), units, attempt=attempt, term=2)
        self.decisions.append(decided)
        return decided

    def behind(self) -> Mapping[str, Any]:
        """What the sink says of its place now."""
        if not self._chained:
            return {}
        sink = self.prepared()
        return sink.behind(0) if is_chained(sink) else {}

    def found(self) -> list[dict[str, Any]]:
        """What a foreign reader sees."""
        return [dict(row) for row in self._read_back()]

    def sees(self, rows: Rows, sentence: str) -> None:
        """These rows stand there, and no others."""
        found = self.found()
        self.stands = Counter(map(repr, found))
        must(self.stands == Counter(repr(dict(row)) for row in rows), f"{sentence}; expected {list(rows)}, found {found}")

    def grows(self, rows: Rows, sentence: str, *, died: bool = False) -> None:
        """These came to what stood there. `died`: where a sink promises no more than that, some may have come twice."""
        found, came = Counter(map(repr, self.found())), Counter(repr(dict(row)) for row in rows)
        lost, more = self.stands + came - found, found - self.stands - came
        if died and not self.exactly_once:
            more -= Counter({row: count for row, count in more.items() if row in came})
        must(not lost, f"{sentence}; lost: {_shown(lost)}")
        must(not more, f"{sentence}; doubled, or never decided: {_shown(more)}")
        self.stands = found

    def midst(self, rows: Rows, sentence: str) -> None:
        """Some of them may be visible already, whole; what was there is there."""
        try:
            found = Counter(map(repr, self.found()))
        except Exception as error:
            raise AssertionError(f"the contract is broken: {sentence}; a reader met this: {error!r}") from error
        torn, gone = found - self.stands - Counter(repr(dict(row)) for row in rows), self.stands - found
        must(not gone, f"{sentence}; gone: {_shown(gone)}")
        must(not torn, f"{sentence}; torn, doubled, or never decided: {_shown(torn)}")

    def refuses(self, act: Callable[[], object], what: str, *, harmless: bool = False) -> None:
        """`act` must raise; where it is `harmless` it may also do nothing."""
        before = self.found()
        try:
            act()
        except (FencedError, StateError, Refused) as error:
            self.raised.append(error)
        else:
            must(harmless, f"a sink refuses {what}")
        must(sorted(map(repr, self.found())) == sorted(map(repr, before)), f"a refusal of {what} changes nothing")


def batch_id(number: int, term: int) -> BatchId:
    """Of the one Query."""
    return BatchId("flow", "query", LINEAGE, number, term)


def publish(sink: StagingSink, decided: Decided) -> None:
    """Of rows that the place takes, all of them."""
    if offers(sink):
        sink.offer(decided, none_refused)
    sink.publish(decided)


def none_refused(refusal: RefusedRow) -> None:
    """For rows that fit."""
    must(holds=False, sentence=f"rows that fit the schema are taken: {refusal}")


def write_rows(stream: SinkStream | OriginStream, rows: Rows, label: str, schema: Schema, *, as_json: bool) -> Sequence[Bad]:
    """As a task does. Row i was made of `label` + i. `as_json`: so, where the stream takes it."""
    batch = pa.RecordBatch.from_pylist([dict(row) for row in rows], schema=arrow_schema(schema))
    if wants_origins(stream):
        return stream.write_from(batch, Origins.of(label, np.arange(len(rows))))
    ids = [f"{label}{index}" for index in range(len(rows))] if stream.wants_ids else None
    if as_json and takes_json(stream):
        plain = json_rows(schema, stream.json_needs or ())
        if plain is not None and (lines := plain.of_rows([dict(row) for row in rows])) is not None:
            return stream.write_json(lines[0], len(rows), lines[1], ids)
    return stream.write(batch, ids)


def through_json(decided: Decided) -> Decided:
    """As it comes out of its record."""
    receipts = tuple(Receipt.from_json(json.loads(json.dumps(receipt.as_json()))) for receipt in decided.receipts)
    return replace(decided, receipts=receipts)


def _shown(rows: Counter[str]) -> str:
    return ", ".join(f"{count} x {row}" for row, count in rows.most_common(4))
