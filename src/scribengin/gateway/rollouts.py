"""The staged roll-out of a changed configuration to the agents of a tier: to one agent, then to some, then to all. Pure functions over the
record `flows/<flow>/rollout/<tier>`, which every gateway may advance by compare-and-set.

A stage passes when all its agents have reported for `STEADY_S` that they run the new version, and none of them failed. If one fails or is
silent, all agents return to the version before, and the record says why: a new version starts from the first stage.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

from msgspec.structs import replace

from scribengin.control.agents import MISSED_REPORTS
from scribengin.core.units import show_duration
from scribengin.registry.records import RollOutRecord

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from scribengin.registry.records import AgentRecord

STEADY_S = 30.0
"""seconds for which all agents of a stage must run the new version"""
LATE_S = 120.0
"""seconds within which an agent of a stage must report that it runs the new version"""
_SHARE = 10
"""the stage `some` has every tenth agent"""
_UNDER_WAY = ("one", "some", "all")


@dataclass(frozen=True, slots=True)
class AgentStanding:
    """What an agent last reported of the lanes of a tier. `version` is the oldest that one of them runs, 0 if it runs none; `failed` why
    one of them failed, empty if none did."""

    version: int
    reported_s: float
    failed: str = ""
    report_s: float = 10.0

    def is_away(self, now_s: float) -> bool:
        """True if the agent has missed its last reports."""
        return now_s - self.reported_s > MISSED_REPORTS * self.report_s


def standing_of_agent(record: AgentRecord, lanes: Collection[str]) -> AgentStanding:
    """What an agent reported of these lanes."""
    there = [lane for name, lane in record.lanes.items() if name in lanes]
    failed = next((lane.message or "a lane failed" for lane in there if lane.state == "failed"), "")
    version = min((lane.version for lane in there), default=0)
    return AgentStanding(version, record.reported_at, failed, record.report_s)


def begin_rollout(
    record: RollOutRecord | None, version: int, reports: Mapping[str, AgentStanding], now_s: float, *, same: bool
) -> RollOutRecord:
    """The record once `version` is the desired one; the same record if it was before.

    Args:
        record: The record; None if there is none yet.
        version: The desired version.
        reports: The agents of the tier.
        now_s: The present time, in seconds since 1970.
        same: True if agents do the same in this version as in the one that they have.
    """
    if record is None:
        return RollOutRecord(version=version, since=now_s)
    if record.version == version:
        return record
    before = present_version(record)
    if same or before in (0, version) or len(reports) < 2:
        return RollOutRecord(version=version, before=before, since=now_s)
    exempt = tuple(sorted(name for name, each in reports.items() if each.failed or each.is_away(now_s)))
    started = RollOutRecord(version=version, before=before, stage="one", since=now_s, exempt=exempt)
    chosen = _chosen(started, reports, 1)
    if not chosen:  # no agent can show whether the version works
        return RollOutRecord(version=version, before=before, since=now_s)
    return replace(started, chosen=chosen)


def decide_rollout(record: RollOutRecord, reports: Mapping[str, AgentStanding], now_s: float) -> RollOutRecord:
    """The record after these reports; the same one if nothing follows from them.

    Args:
        record: The record.
        reports: The agents of the tier that are not decommissioned.
        now_s: The present time, in seconds since 1970.
    """
    if record.stage not in _UNDER_WAY:
        return record
    names = record.chosen if record.stage != "all" else [name for name in reports if name not in record.exempt]
    members = {name: reports[name] for name in sorted(names) if name in reports}
    for name, agent in members.items():
        if why := _failure(record, name, agent, now_s):
            return replace(record, stage="back", chosen=(), since=now_s, good_since=0.0, reason=why)
    if not members:
        return _next(record, reports, now_s)
    if any(agent.version != record.version or agent.failed for agent in members.values()):
        return replace(record, good_since=0.0) if record.good_since else record
    if not record.good_since:
        return replace(record, good_since=now_s)
    return _next(record, reports, now_s) if now_s - record.good_since >= STEADY_S else record


def present_version(record: RollOutRecord) -> int:
    """The version that is known to work: what agents return to."""
    return record.version if record.stage == "done" else record.before


def _failure(record: RollOutRecord, name: str, agent: AgentStanding, now_s: float) -> str:
    """Why the roll-out fails at this agent; empty if it does not."""
    if agent.failed and agent.version == record.version:
        return f"agent {name} failed with version {record.version}: {agent.failed}"
    for_s = now_s - record.since
    if agent.is_away(now_s) and for_s > MISSED_REPORTS * agent.report_s:
        return f"agent {name} got version {record.version}, and its last report is {show_duration(now_s - agent.reported_s)} old"
    if agent.version != record.version and for_s > LATE_S:
        return f"agent {name} does not run version {record.version} after {show_duration(for_s)}"
    return ""


def _next(record: RollOutRecord, reports: Mapping[str, AgentStanding], now_s: float) -> RollOutRecord:
    passed = replace(record, since=now_s, good_since=0.0)
    if record.stage == "all":
        return replace(passed, stage="done", chosen=(), exempt=())
    if record.stage == "one":
        chosen = _chosen(record, reports, max(2, -(-len(reports) // _SHARE)))
        if len(chosen) < len(reports.keys() - set(record.exempt)):
            return replace(passed, stage="some", chosen=chosen)
    return replace(passed, stage="all", chosen=())


def _chosen(record: RollOutRecord, agents: Iterable[str], count: int) -> tuple[str, ...]:
    """The first agents in an order that differs between versions, so that it is not always the same host that meets a fault first."""
    able = [name for name in agents if name not in record.exempt]
    return tuple(sorted(able, key=lambda name: blake2b(f"{record.version}\0{name}".encode(), digest_size=8).digest())[:count])
