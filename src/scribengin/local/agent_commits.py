"""Tells gateways, and so agents, up to which number the last tiers have committed their records."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scribengin.connectors.agents.channel import channel_of, report_committed
from scribengin.connectors.agents.contract import CommitReport, RunPositions
from scribengin.connectors.agents.options import SOURCE
from scribengin.plan.agent_lanes import is_collected
from scribengin.state.channel_acks import QueryKey
from scribengin.state.source_log import SourceLog

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager
    from typing import Any

    from scribengin.local.prepare import PreparedFlow
    from scribengin.state.channel_acks import FlowAcks


@dataclass(slots=True)
class _QueryPositions:
    """What one query of this process has committed of one source: the entries of its log below `entry`."""

    key: QueryKey
    log: SourceLog
    lineage: str = ""
    entry: int = 0
    positions: RunPositions = field(default_factory=RunPositions)


@dataclass(slots=True)
class _ReportedSource:
    """A source of one tier of this process, with the queries that read it."""

    node: str
    reader: str
    channel: Mapping[str, Any]
    queries: list[_QueryPositions]
    told: dict[str, dict[str, int]] = field(default_factory=dict)


class AgentCommits:
    """The reports of the tiers of a run. Used by one thread."""

    def __init__(self, prepared: PreparedFlow, explained: Callable[[str], AbstractContextManager[None]]) -> None:
        """`explained` returns a block whose errors are reported instead of raised."""
        self._explained = explained
        self._sources = list(_sources(prepared))

    @property
    def wanted(self) -> bool:
        """True if agents feed a source of the run."""
        return bool(self._sources)

    def report(self, standing: FlowAcks) -> None:
        """Report what is newly committed."""
        for source in self._sources:
            for query in source.queries:
                at = standing.queries[query.key]
                if at.lineage != query.lineage:
                    query.lineage, query.entry, query.positions = at.lineage, 0, RunPositions()
                through = at.released.get(source.node, 0) if at.lineage else 0
                while query.entry < through:
                    for stream in query.log.read(query.entry):
                        query.positions.restore(stream.place)
                    query.entry += 1
            committed = _least(source.queries)
            if committed != source.told:
                with self._explained(f"source {source.node}"):
                    report_committed(source.channel, source.node, CommitReport(source.reader, committed))
                    source.told = committed


def _sources(prepared: PreparedFlow) -> list[_ReportedSource]:
    found = []
    for tier in prepared.tiers:
        for node in tier.plan.flow.sources.values():
            if not is_collected(node):
                continue
            options = SOURCE.filled(node.options, tier.plan.flow.defaults.profile)
            queries = [
                _QueryPositions(QueryKey(tier.plan.tier, query.name), SourceLog(tier.folder.query(query.name).sources, node.id))
                for query in tier.plan.queries
                if node.id in query.sources
            ]
            channel = channel_of(options, tier.plan.flow.folder.resolve(), node.id)
            found.append(_ReportedSource(node.id, f"{prepared.name}.{tier.plan.tier}", channel, queries))
    return found


def _least(queries: list[_QueryPositions]) -> dict[str, dict[str, int]]:
    """Agent → incarnation → what all of the queries have committed."""
    known = set.intersection(*(set(query.positions.next) for query in queries)) if queries else set()
    committed: dict[str, dict[str, int]] = {}
    for agent, incarnation in sorted(known):
        number = min(query.positions.next[agent, incarnation] for query in queries)
        committed.setdefault(agent, {})[incarnation] = number
    return committed
