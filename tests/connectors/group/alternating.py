"""Groups without Spark: as a driver has one (`Driver`), and as the conformance suite drives one sink (`Alternating`)."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa

from scribengin.connectors import catalog
from scribengin.connectors.abilities import chains_batches, refuses_rows
from scribengin.connectors.contract import BatchId, ConnectorContext, Decided
from scribengin.connectors.group import make_sink
from scribengin.core.types import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from scribengin.connectors.contract import Published, RefusedRow
    from scribengin.core.types import Schema
    from tests.connectors.group.disks import Clock

_FIRST = 2
"""up to this Batch all go to the first member: an older Term is fenced by the Batch before"""
LINEAGE = "l1"


def opened(
    type_: str, members: Mapping[str, Mapping[str, Any]], folder: Path, open_: Callable[[str, ConnectorContext], Any] = catalog.open_sink
) -> Any:
    """The sink of a group; the first member costs 1, the next one 2. `members`: name → its options, with defaults."""
    placed = tuple((name, float(nth), options) for nth, (name, options) in enumerate(members.items(), start=1))
    return make_sink(type_, ConnectorContext("kept", folder, flow="flow", work=folder / "work", members=placed), open_)


class Driver:
    """A driver of one group after the other over the same state: each Batch has one unit. `decided` are all of them."""

    def __init__(
        self,
        type_: str,
        members: Mapping[str, Mapping[str, Any]],
        folder: Path,
        clock: Clock,
        schema: Schema,
        open_: Callable[[str, ConnectorContext], Any] = catalog.open_sink,
    ) -> None:
        self._opened = lambda: opened(type_, members, folder, open_)
        self._clock = clock
        self._schema = schema
        self.decided: list[Decided] = []
        self.sink: Any = None
        self.start()

    def start(self) -> None:
        """A new process, which knows nothing but what lies in folders and at members."""
        self.sink = self._opened()
        self.sink._now = self._clock
        self.sink.prepare(owner="me", lineage=LINEAGE)

    def recover(self) -> None:
        newest = self.decided[-1] if self.decided else None
        if newest is not None and refuses_rows(self.sink):
            self.sink.offer(newest, _none_refused)
        self.sink.recover(newest, lineage=LINEAGE, before=len(self.decided))

    def decide(self, rows: Sequence[Mapping[str, Any]]) -> Decided:
        """Choose a member, stage there, decide; nothing is published."""
        behind = self.sink.behind(0)
        batch = BatchId("flow", "query", LINEAGE, len(self.decided), 1)
        stream = pickle.loads(pickle.dumps(self.sink.chosen(behind))).stream(batch, 0, uuid4().hex, self._schema)
        ids = [f"source/{batch.number}+{nth}" for nth in range(len(rows))] if stream.wants_ids else None
        assert not stream.write(pa.RecordBatch.from_pylist([dict(row) for row in rows], schema=arrow_schema(self._schema)), ids)
        self.decided.append(Decided(batch, f"h{batch.number}", (stream.close(),), behind))
        return self.decided[-1]

    def publish(self, decided: Decided) -> str:
        """The member that it went to."""
        if refuses_rows(self.sink):
            self.sink.offer(decided, _none_refused)
        self.sink.publish(decided)
        return str(decided.behind["member"])

    def put(self, rows: Sequence[Mapping[str, Any]]) -> str:
        """A whole Batch; the member that it went to."""
        return self.publish(self.decide(rows))

    def audit(self) -> list[Published]:
        return list(self.sink.audit(lineage=LINEAGE, decided=iter(self.decided)))


def _none_refused(refusal: RefusedRow) -> None:
    raise AssertionError(refusal)


class Alternating:
    """A group of two as one sink: Batches 0 to 2 go to the first member, later ones to the two in turn, so that the numbers at each have
    gaps. The suite says when a Batch runs and under which Term; in a flow it is the group that chooses. `options`: those of each member,
    with defaults; `open_` opens a member's sink."""

    def __init__(
        self,
        type_: str,
        options: tuple[Mapping[str, Any], ...],
        folder: Path,
        open_: Callable[[str, ConnectorContext], Any] = catalog.open_sink,
    ) -> None:
        self.group = opened(type_, {f"m{nth}": each for nth, each in enumerate(options)}, folder, open_)
        self.exactly_once = self.group.exactly_once

    def prepare(self, *, owner: str, lineage: str, adopt: bool = False) -> None:
        self.group.prepare(owner=owner, lineage=lineage, adopt=adopt)

    def check_place(self) -> None:
        self.group.check_place()

    def unlike(self, schema: Schema) -> list[str]:
        return list(self.group.unlike(schema))

    def behind(self, units: int) -> Mapping[str, Any]:
        return {name: sink.behind(units) if chains_batches(sink) else {} for name, sink in self.group._sinks.items()}

    def stream(self, batch: BatchId, unit: int, attempt: str, schema: Schema) -> Any:
        return self.group.chosen({"member": _member(batch)}).stream(batch, unit, attempt, schema)

    def publish(self, decided: Decided) -> None:
        self.group.publish(_chosen(decided))

    def recover(self, decided: Decided | None, *, lineage: str, before: int) -> None:
        self.group.recover(None if decided is None else _chosen(decided), lineage=lineage, before=before)

    def audit(self, *, lineage: str, decided: Iterable[Decided]) -> Iterator[Published]:
        return iter(self.group.audit(lineage=lineage, decided=map(_chosen, decided)))

    def clear(self, *, owner: str, flow: str, dry_run: bool = False) -> int:
        return int(self.group.clear(owner=owner, flow=flow, dry_run=dry_run))


class OfferingAlternating(Alternating):
    """Of members that take or refuse rows behind the decision."""

    on_error = "dead_letter"

    def offer(self, decided: Decided, refuse: Callable[[RefusedRow], None]) -> None:
        assert refuses_rows(self.group)
        self.group.offer(_chosen(decided), refuse)


def _member(batch: BatchId) -> str:
    return "m0" if batch.number <= _FIRST else f"m{batch.number % 2}"


def _chosen(decided: Decided) -> Decided:
    name = _member(decided.batch)
    return replace(decided, behind={"member": name, "cost": 1.0, "why": "its turn", "behind": decided.behind[name]})
