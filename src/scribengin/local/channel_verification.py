"""Reads again what a reader has taken of a channel's Batch that differs from what was written, and reports which record batches and records
the channel contains now. Changes nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scribengin.connectors import catalog
from scribengin.core.errors import ScribenginError, text_of
from scribengin.core.remedies import start_over
from scribengin.local.prepare import source_place
from scribengin.state.channel_checks import NAMED, named
from scribengin.state.channel_digests import add_sums
from scribengin.state.decisions import Decisions
from scribengin.state.folder import StateFolder
from scribengin.state.source_log import SourceLog

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from scribengin.connectors.contract import SourceStream
    from scribengin.formats.origins import Origins
    from scribengin.formats.packs import PackBlock
    from scribengin.plan.tier_flows import FlowPlan
    from scribengin.state.channel_audit import ChannelAudit
    from scribengin.state.channel_checks import Mismatch


MISMATCH_REMEDY = (
    "find and stop any other process that writes to the channel or deletes from it; then run again, which "
    "continues with the rows taken: the rows named "
    f"stay lost or duplicated downstream, and `audit` reports them; or {start_over()}"
)
_MOST_ROWS = 2_000_000
"""the most rows of a Batch that are compared with each other: each takes about 24 bytes of memory"""


@dataclass(slots=True)
class _Unit:
    """The record batches of one task output: (its rows before the record batch, or None; the record batch's rows; its place)."""

    packs: list[tuple[int | None, int, str]] = field(default_factory=list)

    def missing(self, put: int) -> list[str]:
        """Which of the `put` rows are in no record batch, counted from 1; empty if record batches do not contain the numbers of
        their rows."""
        gaps, reached = [], 0
        for first, rows, _ in sorted((first, rows, "") for first, rows, _ in self.packs if first is not None):
            if first > reached:
                gaps.append(f"{reached + 1:,} to {first:,}")
            reached = max(reached, first + rows)
        if reached < put:
            gaps.append(f"{reached + 1:,} to {put:,}")
        return gaps if all(first is not None for first, _, _ in self.packs) else []


@dataclass(slots=True)
class _Found:
    """All record batches of the Batch that exist now."""

    units: dict[int, _Unit] = field(default_factory=dict)
    rows: int = 0
    digest: int = 0
    parts: list[tuple[Origins, str]] = field(default_factory=list)
    compared: int = 0
    first: str = ""
    last: str = ""
    bad: list[str] = field(default_factory=list)
    """places without a complete record batch"""

    def add(self, block: PackBlock) -> None:
        handed = block.handed
        assert handed is not None
        self.units.setdefault(handed.unit, _Unit()).packs.append((block.first_row, handed.rows, _place(block)))
        self.rows, self.digest = add_sums((self.rows, self.digest), (handed.rows, handed.digest))
        if not handed.rows:
            return
        self.first = self.first or block.origins(range(1)).ids()[0]
        self.last = block.origins(range(handed.rows - 1, handed.rows)).ids()[0]
        if self.compared + handed.rows <= _MOST_ROWS:
            self.parts.append((block.whole, _place(block)))
            self.compared += handed.rows

    def twice(self) -> tuple[list[str], int, list[str]]:
        """(ids of the first records that exist more than once, the number of such records, their places)"""
        if not self.parts:
            return [], 0, []
        import numpy as np

        marks = np.concatenate([part.marks() for part, _ in self.parts])
        values, counts = np.unique(marks, return_counts=True)
        again = values[counts > 1]
        ids: dict[str, None] = {}
        places: dict[str, None] = {}
        for part, place in self.parts:
            at = np.flatnonzero(np.isin(part.marks(), again))
            if len(at):
                places[place] = None
                ids |= dict.fromkeys(part.taken(at[:NAMED]).ids())
        return list(ids)[:NAMED], len(again), list(places)


def mismatch_text(plan: FlowPlan, root: Path, mismatch: Mismatch) -> str:
    """The edge, Batch, task outputs and ranges of a mismatch, and what is found when the channel is read again."""
    channel = next(each for each in plan.channels if each.id == mismatch.channel)
    edges = " and ".join(f'"{name}"' for name in channel.names)
    return f"edge {edges}: {mismatch}; {reread_text(plan, root, mismatch)}"


def mismatches_by_query(plan: FlowPlan, root: Path, channels: Iterable[ChannelAudit]) -> dict[str, list[str]]:
    """Query that reads → the texts of its mismatches, as a run that finds one reports them."""
    told: dict[str, list[str]] = {}
    for channel in channels:
        texts = [mismatch_text(plan, root, mismatch) for mismatch in channel.mismatches]
        if channel.more:
            texts.append(f"channel {channel.channel}: and {channel.more:,} more Batches of its upstream that differ in {channel.reading}")
        told.setdefault(channel.reading.query.query, []).extend(texts)
    return told


def reread_text(plan: FlowPlan, root: Path, mismatch: Mismatch) -> str:
    """A sentence on which rows of that Batch, of those that its reader has taken, the channel now contains. Raises nothing: the text says
    what cannot be read again."""
    if not mismatch.taken_by:
        return "no Batch of the reader has taken a record batch of it"
    found = _Found()
    try:
        for block in _read_again(plan, root, mismatch):
            handed = block.handed
            if handed is None:
                found.bad.append(_place(block))
            elif (handed.lineage, handed.batch) == (mismatch.lineage, mismatch.batch):
                found.add(block)
    except (ScribenginError, OSError) as error:
        why = text_of(error)
        return f"the channel cannot be read again now: {why}"
    return "; ".join(_sentences(found, mismatch))


def _read_again(plan: FlowPlan, root: Path, mismatch: Mismatch) -> Iterator[PackBlock]:
    """All record batches that those Batches of the reader have taken."""
    key = mismatch.reading.query
    tier = plan.tier(key.tier)
    node = tier.flow.sources[mismatch.reading.source]
    source = catalog.open_source(node.type, source_place(tier.flow, node.id))
    for stream in _streams(root, plan.flow.name, mismatch):
        yield from source.read(stream)  # type: ignore[misc]


def _streams(root: Path, flow: str, mismatch: Mismatch) -> Iterator[SourceStream]:
    key, source = mismatch.reading
    folder = StateFolder(root, flow, key.tier).query(key.query)
    log, decisions = SourceLog(folder.sources, source), Decisions(folder.decisions)
    for number in mismatch.taken_by:
        decision = decisions.read(number)
        for each in () if decision is None else decision.sources:
            if each.source == source:
                yield from log.range(each.start, each.end)


def _sentences(found: _Found, mismatch: Mismatch) -> Iterator[str]:
    if not found.rows:
        yield "on re-read, none of its rows exist"
    elif (found.rows, found.digest) == mismatch.put:
        yield f"on re-read, all {found.rows:,} rows are as they were written: the first read returned other data"
    else:
        yield f"on re-read, {found.rows:,} of its rows exist, from {found.first} to {found.last}"
    for sums in mismatch.units:
        there = found.units.get(sums.unit, _Unit())
        missing = there.missing(sums.put[0]) if sums.unit >= 0 and sums.put[0] else []
        if missing:
            yield f"task output {sums.unit} has no record batch with rows {named(missing)}"
        elif sums.unit >= 0 and not sums.put[0]:
            yield (
                f"task output {sums.unit} wrote nothing, but record batches of it exist at {named([place for _, _, place in there.packs])}"
            )
    ids, count, places = found.twice()
    if count:
        more = f" and {count - len(ids):,} more" if count > len(ids) else ""
        are = "records are" if count != 1 else "record is"
        yield f"{count:,} {are} duplicated: {', '.join(ids)}{more}; at {named(places)}"
    if found.rows > found.compared:
        yield f"only the first {found.compared:,} rows were checked for duplicates"
    if found.bad:
        yield f"incomplete record batches at {named(found.bad)}"


def _place(block: PackBlock) -> str:
    at = block.at
    if at.row is not None:
        return f"{at.file} offset {at.row}"
    return at.file if at.offset is None else f"{at.file} byte {at.offset}"
