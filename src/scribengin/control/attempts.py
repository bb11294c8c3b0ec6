"""The worker processes of a flow's tiers: one record for each run, with the cause of its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from scribengin.control.flow_records import read_flow
from scribengin.control.world import RunId
from scribengin.registry.record_io import Stored, read_record
from scribengin.registry.records import AttemptRecord, Attempts
from scribengin.registry.tree import ATTEMPTS, RUN

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from scribengin.registry.contract import Registry
    from scribengin.registry.records import Run

_OF_A_TIER, _OF_A_FLOW = 10, 100
_MOST_BYTES = 50_000
"""limit of all attempts of a flow that are kept, in bytes: far below the limit of a record"""
_REASON = 300
"""characters of a cause or a remedy that are kept"""


def with_attempt(before: Attempts, tier: str, run: Run, holder: Mapping[str, Any]) -> Attempts:
    """The attempts after a run of a tier was added or updated. The oldest ones are removed.

    Args:
        before: the attempts as they are recorded.
        tier: the tier.
        run: the present data of the tier's run.
        holder: the holder in the tier's lease; it gives process id and host if it is of this run.
    """
    others = [each for each in before.last if (each.tier, each.number) != (tier, run.number)]
    known = next((each for each in before.last if (each.tier, each.number) == (tier, run.number)), None)
    attempt = known or AttemptRecord(tier=tier, number=run.number, asked_at=run.asked_at)
    if holder.get("run") == run.number:
        pid, host = holder.get("pid"), holder.get("host")
        attempt = replace(attempt, pid=pid if isinstance(pid, int) else 0, host=str(host or ""))
    cause, remedy = ("", "") if run.ended_at is None else (_short(run.cause), _short(run.remedy))
    attempt = replace(attempt, node=run.node, ended_at=run.ended_at, cause=cause, remedy=remedy, failures=run.failures)
    mine = [*(each for each in others if each.tier == tier), attempt]
    mine.sort(key=lambda each: each.number)
    kept = [each for each in others if each.tier != tier] + mine[-_OF_A_TIER:]
    newest = sorted(kept, key=lambda each: each.asked_at)[-_OF_A_FLOW:]
    while len(msgspec.json.encode(newest)) > _MOST_BYTES:
        newest = newest[len(newest) // 4 + 1 :]
    return Attempts(last=tuple(newest))


def read_attempts(registry: Registry, flow: str) -> list[dict[str, Any]]:
    """The attempts of the flow, as `attempts_with_reports` gives them. Raises as `read_flow`."""
    read_flow(registry, flow)
    return attempts_with_reports(registry, flow)


def attempts_with_reports(registry: Registry, flow: str, told: Iterable[Mapping[str, Any]] = ()) -> list[dict[str, Any]]:
    """The attempts as JSON, newest first; `state` is `running`, `ended`, or `replaced` if its end was not observed. It works without a
    running master. `told` are the reports of workers to this master: Batches, rows, and failures inside; null if unknown."""
    stored = read_record(registry, ATTEMPTS(flow))
    last = stored.record.last if isinstance(stored, Stored) else ()
    newest = {tier: run.number for tier in {each.tier for each in last} if (run := _run(registry, flow, tier)) is not None}
    known = {str(RunId(flow, each.tier, each.number)): _as_json(flow, each, newest.get(each.tier, 0)) for each in last}
    said = {each["worker"]: each for each in told}
    found = [{**_UNTOLD, **each, **_kept_fields(said.get(worker))} for worker, each in known.items()]
    for worker, each in said.items():  # a report may be of an attempt whose record was removed: the oldest ones are
        if worker not in known:
            state = "running" if each["ended"] is None else "ended"
            ends = {name: each[name] for name in ("tier", "worker", "since", "ended", "cause", "remedy")}
            found.append({"state": state, "node": "", "host": "", "pid": None, "in_a_row": 0, **ends, **_kept_fields(each)})
    return sorted(found, key=lambda each: (each["since"], each["worker"]), reverse=True)


_UNTOLD: Mapping[str, Any] = {"batches": None, "rows_in": None, "restarts": None, "failures": []}


def _kept_fields(told: Mapping[str, Any] | None) -> dict[str, Any]:
    return {} if told is None else {name: told[name] for name in _UNTOLD}


def _run(registry: Registry, flow: str, tier: str) -> Run | None:
    found = read_record(registry, RUN(flow, tier)) if RUN.fits(flow, tier) else None
    return found.record if isinstance(found, Stored) else None


def _as_json(flow: str, attempt: AttemptRecord, newest: int) -> dict[str, Any]:
    open_ = "running" if attempt.number >= newest else "replaced"
    return {
        "tier": attempt.tier,
        "worker": str(RunId(flow, attempt.tier, attempt.number)),
        "state": open_ if attempt.ended_at is None else "ended",
        "node": attempt.node,
        "host": attempt.host,
        "pid": attempt.pid or None,
        "since": attempt.asked_at,
        "ended": attempt.ended_at,
        "in_a_row": attempt.failures,
        "cause": attempt.cause,
        "remedy": attempt.remedy,
    }


def _short(text: str) -> str:
    return text if len(text) <= _REASON else f"{text[: _REASON - 1]}…"
