"""Positions of a flow's sources, shown and set, and rewinding. An impossible request is refused before anything is stopped."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scribengin.client.change_models import Position
from scribengin.control import flow_records
from scribengin.core.errors import Refused
from scribengin.core.problems import did_you_mean
from scribengin.local.positions import decided_ends, preview_move_back
from scribengin.local.prepare import prepare
from scribengin.local.rewind import find_rewinds
from scribengin.plan.tier_flows import CHANNEL
from scribengin.registry.records import Operation
from scribengin.state.decisions import Decisions
from scribengin.state.lineage import read_lineage
from scribengin.state.places import located
from scribengin.state.source_log import SourceLog

if TYPE_CHECKING:
    from datetime import datetime

    from scribengin.local.prepare import PreparedFlow
    from scribengin.local.rewind import QueryRewind
    from scribengin.packages.store import PackageStore
    from scribengin.registry.contract import Registry


@dataclass(frozen=True, slots=True)
class PositionChange:
    """The effect of setting a position or rewinding: the operation that does it, and its description for people."""

    flow: str
    operation: Operation
    says: tuple[str, ...]
    back: tuple[QueryRewind, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The change as one JSON object."""
        return {"flow": self.flow, "says": list(self.says), "queries": [each.as_json() for each in self.back]}


def read_offsets(registry: Registry, packages: PackageStore, flow: str) -> tuple[Position, ...]:
    """The position of each query that has run, in each of its sources. Works whether or not the flow runs."""
    prepared = prepared_flow(registry, packages, flow)[0]
    found = []
    for tier in prepared.tiers:
        for folder in tier.folder.queries():
            lineage = read_lineage(folder)
            assert lineage is not None, "queries() lists folders that have one"
            newest, ends = Decisions(folder.decisions).newest(), decided_ends(folder)
            for source in lineage.sources:
                log = SourceLog(folder.sources, source)
                position = ends.get(source, 0)
                streams = log.read(position - 1) if position else []
                batch, last = newest.batch.number if newest else None, streams[-1].label if streams else ""
                channel = source in tier.plan.flow.sources and tier.plan.flow.sources[source].type == CHANNEL
                found.append(Position(tier.plan.tier, folder.name, source, position, log.length(), batch, last, channel))
    return tuple(found)


def plan_offsets(registry: Registry, packages: PackageStore, flow: str, source: str, position: str, query: str | None) -> PositionChange:
    """Plan to set a source to a position. Changes nothing.

    Args:
        registry: where the flow is.
        packages: the packages of this host.
        flow: the flow.
        source: the source.
        position: a number of entries from the start, or `end`: after all entries that exist when the operation is done.
        query: only in this query; None: in each query that has read the source.

    Raises:
        Refused: the flow is not stopped, there is no such source or query, or the position is impossible.
    """
    flow_records.check_stopped(registry, flow)
    prepared, version = prepared_flow(registry, packages, flow)
    declared = prepared.plan.flow
    if source not in declared.sources:
        near = did_you_mean(source, declared.sources) or f"its sources are {', '.join(declared.sources)}"
        raise Refused(f'flow "{flow}" has no source "{source}"', remedy=near, code="source-unknown")
    if position != "end" and not position.isdigit():
        raise Refused(f'"{position}" is not a valid position', remedy="give a number of entries, or end", code="position-unknown")
    to = None if position == "end" else int(position)
    moves, says = [], []
    for tier in prepared.tiers:
        for folder in tier.folder.queries():
            lineage = read_lineage(folder)
            if lineage is None or source not in lineage.sources or query not in (None, folder.name):
                continue
            before = decided_ends(folder).get(source, 0)
            moves.append([tier.plan.tier, folder.name, {source: to}])
            if to is not None and to < before:
                moved = preview_move_back(folder, source, to)
                doubled = [f"up to {rows:,} rows of sink {sink}" for sink, rows in (moved.doubled or {}).items()]
                says.append(
                    f"{folder.name} reads {source} again from {to} to {before}; {' and '.join(doubled) or 'nothing'} may be duplicated"
                )
            else:
                says.append(f"{folder.name} skips the entries of {source} between {before} and {position}; they are never read")
    if not moves:
        raise Refused(
            f'no query of flow "{flow}" has read source "{source}" yet', remedy=f"scribengin offsets show {flow}", code="query-unknown"
        )
    return PositionChange(flow, _operation("offsets", version, moves), tuple(says))


def plan_rewind(
    registry: Registry, packages: PackageStore, flow: str, *, at: datetime | None = None, batch: int | None = None, query: str | None = None
) -> PositionChange:
    """Plan to rewind a flow. Changes nothing. Exactly one of `at` and `batch` is set.

    Args:
        registry: where the flow is.
        packages: the packages of this host.
        flow: the flow.
        at: rewind to after the last Batch decided until then.
        batch: rewind to after the Batch of this number; -1: before the first.
        query: only this query; None: all.

    Raises:
        Refused: it is impossible, with a remedy, or it would repeat nothing.
    """
    prepared, version = prepared_flow(registry, packages, flow)
    ways = find_rewinds(prepared, query, at=at, batch=batch)
    if not ways:
        where = f"after Batch {batch}" if at is None else f"at {at.isoformat(timespec='seconds')}"
        raise Refused(
            f'flow "{flow}" has read nothing since: its position {where} is the present one',
            remedy=f"give an earlier one; see: scribengin offsets show {flow}",
            code="rewind-nothing",
        )
    moves = [[way.tier, way.query, {each.source: each.after for each in way.moved}] for way in ways]
    says = [sentence for way in ways for sentence in way.says(prepared.plan.flow)]
    return PositionChange(flow, _operation("rewind", version, moves), tuple(says), tuple(ways))


def prepared_flow(registry: Registry, packages: PackageStore, flow: str) -> tuple[PreparedFlow, int]:
    """The flow in its desired version, planned over its state, and the number of the version. Raises Refused if there is no such flow or
    package."""
    desired = flow_records.read_flow(registry, flow).desired
    _, spec = flow_records.wanted(registry, flow)
    if spec is None:
        raise Refused(f"version {desired.version} of flow {flow} is not in the registry", remedy="apply it again", code="version-unknown")
    return prepare(packages.get(spec.package) / spec.path, state=located(spec.state), base=Path(spec.base)), desired.version


def _operation(kind: str, version: int, moves: list[list[Any]]) -> Operation:
    tiers = tuple(dict.fromkeys(tier for tier, _, _ in moves))
    return Operation(kind=kind, step="stop", version=version, tiers=tiers, arguments={"moves": moves})  # type: ignore[arg-type]
