"""The reports of agents as records of the registry. Each record is written at most once in `WRITE_S` seconds, whichever gateway the agent
reports to; due ones are written together, in a few commits.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec
import structlog

from scribengin.core.errors import Refused, Unreachable, text_of
from scribengin.core.time_text import moment_text, now_text
from scribengin.gateway.directory import KeptReport
from scribengin.registry.contract import Conflict, Damaged, Delete, RegistryEntry, Replace
from scribengin.registry.record_io import Stored, names, read_record, read_records, stored_as
from scribengin.registry.records import AgentLaneRecord, AgentRecord, Mapped
from scribengin.registry.tree import AGENT, HOSTS, MAPPED
from scribengin.wire.protocol import AgentConfig, AgentReport, LaneReport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from scribengin.registry.contract import Registry, Write

_log = structlog.get_logger(__name__)
WRITE_S = 10.0
"""the least seconds between two writes of an agent's record"""
REPORT_S = AgentConfig().report_s
_TOGETHER = 50
"""records in one commit"""
_MESSAGE = 500
"""the most characters of a message"""


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A report that is not written yet, and when it was received: by the wall clock."""

    report: AgentReport
    received_s: float


@dataclass(frozen=True, slots=True)
class _Written:
    """A record as it is in the registry, as far as this gateway knows, and when it was written there, by the monotonic clock. `entry` is
    None if there is none."""

    entry: RegistryEntry | Damaged | None
    at_s: float
    tiers: Mapping[str, str | None]
    """the tiers that its folder `lns` names → the group because of which the agent runs it; None: bound"""


class AgentRecords:
    """The records of the agents that report to one gateway. `take` is for any thread, `write` for one."""

    def __init__(self, registry: Registry, gateway: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Create it without reports.

        Args:
            registry: The registry.
            gateway: The name of the gateway.
            clock: The time in seconds, from any moment on.
        """
        self._registry = registry
        self._gateway = gateway
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: dict[str, _Waiting] = {}
        self._written: dict[str, _Written] = {}
        self.writes = 0
        """records that were written"""

    def take(self, report: AgentReport) -> None:
        """Keep a report; it replaces an earlier one that is not written yet."""
        with self._lock:
            self._waiting[report.agent] = _Waiting(report, time.time())

    def write(self, assigned: Callable[[str, str], Mapping[str, str | None]], *, force: bool = False) -> None:
        """Write the reports that are due.

        Args:
            assigned: (agent, group) → the tiers that the agent runs → the group because of which it does; None: it is bound to it.
            force: Write all of them, due or not.

        Raises:
            Unreachable: The registry does not answer. What is not written stays.
        """
        now_s = self._clock()
        with self._lock:
            waiting = dict(self._waiting)
        self._read_new([name for name in waiting if name not in self._written])
        due = [name for name in waiting if force or now_s - self._written[name].at_s >= WRITE_S]
        for at in range(0, len(due), _TOGETHER):
            some = due[at : at + _TOGETHER]
            try:
                self._commit({name: waiting[name] for name in some}, assigned)
            except (Conflict, Refused):
                self._write_each({name: waiting[name] for name in some}, assigned)

    def read(self) -> dict[str, AgentRecord]:
        """The records of all agents, those of other gateways too, with the reports that are not written yet. Raises Unreachable."""
        agents = [name for name in names(self._registry, HOSTS) if AGENT.fits(name)]
        found = read_records(self._registry, [AGENT(name) for name in agents])
        records = {name: each.record for name, each in zip(agents, found, strict=True) if isinstance(each, Stored)}
        with self._lock:
            waiting = dict(self._waiting)
        for name, each in waiting.items():
            if name not in records or records[name].reported_at < each.received_s:
                records[name] = self._record(each)
        return records

    def all(self) -> list[KeptReport]:
        """The newest report of each agent. Raises Unreachable."""
        return [KeptReport(_report_of(name, record), record.reported_at) for name, record in self.read().items()]

    def _write_each(self, waiting: Mapping[str, _Waiting], assigned: Callable[[str, str], Mapping[str, str | None]]) -> None:
        """Write the records one by one, each over what is there now: another gateway has written some of them."""
        for name, each in waiting.items():
            self._read_new([name])
            try:
                self._commit({name: each}, assigned)
            except Conflict:
                self._written.pop(name, None)  # the next cycle writes it
            except Refused as error:
                _log.error("the report of an agent is not kept", agent=name, message=text_of(error))
                with self._lock:
                    self._waiting.pop(name, None)

    def _read_new(self, agents: Sequence[str]) -> None:
        """Read the records of agents that are new here."""
        if not agents:
            return
        found = self._registry.read_many([AGENT(name).path for name in agents])
        children = self._registry.children_many([f"{HOSTS}/{name}/lns" for name in agents])
        mapped = [(name, node) for name, nodes in zip(agents, children, strict=True) for node in nodes if MAPPED.fits(name, node)]
        tiers: dict[str, dict[str, str | None]] = {name: {} for name in agents}
        for (name, node), there in zip(mapped, read_records(self._registry, [MAPPED(*each) for each in mapped]), strict=True):
            if isinstance(there, Stored):
                tiers[name][node] = there.record.group
        now_s, wall_s = self._clock(), time.time()
        for name, entry in zip(agents, found, strict=True):
            record = stored_as(entry, AGENT(name)) if entry is not None else None
            age_s = wall_s - record.record.reported_at if isinstance(record, Stored) else WRITE_S
            self._written[name] = _Written(entry, now_s - min(max(age_s, 0.0), WRITE_S), tiers[name])

    def _commit(self, waiting: Mapping[str, _Waiting], assigned: Callable[[str, str], Mapping[str, str | None]]) -> None:
        """Write these records in one commit. Raises Conflict, Unreachable."""
        writes: list[Write] = []
        after: dict[str, _Written] = {}
        now_s = self._clock()
        for name, each in waiting.items():
            written = self._written[name]
            write = AGENT(name).put(written.entry, self._record(each))
            tiers = dict(assigned(name, each.report.group))
            writes += [write, *self._assignments(name, written.tiers, tiers)]
            after[name] = _Written(_entry_after(write), now_s, tiers)
        try:
            self._registry.commit(*writes)
        except (Conflict, Unreachable):  # after an Unreachable the records may be written
            for name in waiting:
                self._written.pop(name, None)
            raise
        self.writes += len(waiting)
        self._written |= after
        with self._lock:
            for name, each in waiting.items():
                if self._waiting.get(name) is each:
                    del self._waiting[name]

    def _assignments(self, agent: str, before: Mapping[str, str | None], now: Mapping[str, str | None]) -> Iterable[Write]:
        """The writes after which the folder `lns` of the agent names what it runs. Bindings are left to the people who made them."""
        for node in now.keys() - before.keys():
            if (group := now[node]) is not None:
                yield MAPPED(agent, node).create(Mapped(by=self._gateway, at=now_text(), group=group))
        for node in before.keys() - now.keys():
            if before[node] is not None and read_record(self._registry, MAPPED(agent, node)) is not None:
                yield Delete(MAPPED(agent, node).path)

    def _record(self, waiting: _Waiting) -> AgentRecord:
        report = waiting.report
        return AgentRecord(
            host=report.host,
            reported_at=round(waiting.received_s, 3),
            group=report.group,
            release=report.release,
            since=moment_text(report.since_ms / 1000) if report.since_ms else "",
            gateway=self._gateway,
            revision=report.revision,
            report_s=REPORT_S,
            lanes={name: _lane_record(lane) for name, lane in report.lanes.items()},
            message=report.message[:_MESSAGE],
        )


def _entry_after(write: Write) -> RegistryEntry | Damaged | None:
    """The record as the write leaves it, so that the next write needs no read. A wrong guess gives a Conflict, and then a read."""
    if isinstance(write, Replace) and isinstance(write.was, RegistryEntry):
        return replace(write.was, value=write.value, version=write.was.version + 1)
    if isinstance(write, Replace):
        return replace(write.was, version=write.was.version + 1)
    return RegistryEntry(write.path, getattr(write, "value", {}), 0, 0, 0, 0, 0)


def _lane_record(lane: LaneReport) -> AgentLaneRecord:
    record = msgspec.convert(lane, AgentLaneRecord, from_attributes=True)
    return msgspec.structs.replace(record, message=lane.message[:_MESSAGE])


def _report_of(agent: str, record: AgentRecord) -> AgentReport:
    return AgentReport(
        agent=agent,
        host=record.host,
        group=record.group,
        release=record.release,
        revision=record.revision,
        lanes={name: msgspec.convert(lane, LaneReport, from_attributes=True) for name, lane in record.lanes.items()},
        message=record.message,
    )
