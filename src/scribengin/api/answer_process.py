"""The process that reads the state of a flow for one request: dead letters, provenance of records, the audit, the graph. It may read much
data and executes a person's modules, so it does not run in a master's thread.

stdin: a `StateQuestion` as JSON. stdout: a `ChildAnswer` as JSON. It has copies of the records that it needs, and no access to
the registry.
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  msgspec looks at it
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scribengin.api.child import ChildAnswer, look_with, serve_one, unknown
from scribengin.core.errors import Refused

if TYPE_CHECKING:
    from scribengin.local.letters import Which
    from scribengin.local.prepare import PreparedFlow
    from scribengin.registry.contract import Registry
    from scribengin.state.folder import QueryFolder


@dataclass(frozen=True, slots=True)
class StateQuestion:
    """What to read. `records`: path → value, of the flow in question."""

    what: str
    packages: str
    records: Mapping[str, Mapping[str, Any]]
    flow: str
    limit_s: int
    arguments: Mapping[str, Any] = field(default_factory=dict)


def answer(question: StateQuestion) -> ChildAnswer:
    """Answer a question."""
    from scribengin.control.offsets import prepared_flow
    from scribengin.packages.store import PackageStore

    def find(registry: Registry) -> Any:
        prepared, version = prepared_flow(registry, PackageStore(Path(question.packages)), question.flow)
        return _found(question.what, prepared, version, dict(question.arguments))

    return look_with(question.records, find)


def _found(what: str, prepared: PreparedFlow, version: int, said: dict[str, Any]) -> Any:
    match what:
        case "dead-counts":
            from scribengin.local.letters import count_letters

            which = _which(said)
            made = {query.name for tier in prepared.plan.tiers for query in tier.queries}
            rows = count_letters(_queries(prepared, which.query), prepared.plan.flow.folder, which, made)
            return {"flow": prepared.name, "dead": sum(row["count"] for row in rows), "groups": rows}
        case "dead":
            return _letters(prepared, said)
        case "replay":
            return _replayed(prepared, said)
        case "repair":
            from scribengin.local.repairing import repair_letter

            return repair_letter(prepared, said)
        case "purge":
            return _purged(prepared, said)
        case "undo-purge":
            return _undone(prepared, said)
        case "trace":
            from scribengin.local.tracing import trace_record

            return trace_record(prepared, said["record"])
        case "summary":
            from scribengin.local.summaries import read_summaries

            return read_summaries(prepared, said["sink"])
        case "backlogs":
            from scribengin.local.backlogs import measure_backlogs

            return {source: measured.as_json() for source, measured in measure_backlogs(prepared).items()}
        case "graph-counts":
            from scribengin.local.edge_counts import edge_counts

            return edge_counts(prepared)
        case "graph":
            from scribengin.plan.flow_graph import graph_as_json

            return {**graph_as_json(prepared.plan), "version": version}
        case "audit":
            from scribengin.local.audited import audit_as_json
            from scribengin.local.inspect import audit_flow

            return audit_as_json(prepared, audit_flow(prepared))
        case _:
            raise unknown(what)


def _letters(prepared: PreparedFlow, said: dict[str, Any]) -> dict[str, Any]:
    from scribengin.local.letters import place_of, read_page
    from scribengin.state.dead import letter_as_json

    which = _which(said)
    page = read_page(_queries(prepared, which.query), which, after=said["after"], limit=said["limit"])
    folder = prepared.plan.flow.folder
    letters = [
        {**told, **letter_as_json(letter), "place": place_of(letter, folder)} for letter, told in zip(page.letters, page.told, strict=True)
    ]
    if not said["bytes"]:
        for letter in letters:
            for name in ("payload", "payload_base64", "came", "extra"):
                letter.pop(name, None)
    return {"flow": prepared.name, "letters": letters, "after": page.after, "withheld": not said["bytes"]}


def _which(said: Mapping[str, Any]) -> Which:
    from scribengin.local.letters import Which

    names = ("query", "step", "reason", "prefix", "since", "until")
    return Which(**{name: said[name] for name in names if name in said})


def _replayed(prepared: PreparedFlow, said: Mapping[str, Any]) -> dict[str, Any]:
    """Request the replay of dead letters: of several simultaneous requests, only one takes each dead letter."""
    from scribengin.local.repairing import given_letters
    from scribengin.local.replay import replay

    text = said["repaired"]
    given = None if text is None else given_letters(text.encode(errors="surrogateescape").split(b"\n"), "repaired")
    start, as_is, dry = said["from_start"], said["as_is"], said["dry_run"]
    return replay(prepared, _which(said), from_start=start, given=given, as_they_were=as_is, dry_run=dry).as_json()


def _purged(prepared: PreparedFlow, said: Mapping[str, Any]) -> dict[str, Any]:
    """Delete dead letters under the leases. It may be killed at any point, and repeated."""
    from scribengin.local.purging import find_doomed, purge
    from scribengin.state.lease import take_leases
    from scribengin.state.trash import PURGE, Trash

    which = _which(said)
    with take_leases(() if said["dry_run"] else (tier.folder for tier in prepared.tiers)):
        doomed = find_doomed(_queries(prepared, which.query), which, replayed=said["replayed"])
        discarded = None if said["dry_run"] else purge(doomed, Trash(prepared.root, prepared.name, PURGE))
    return {
        "flow": prepared.name,
        **doomed.as_json(),
        "dry_run": said["dry_run"],
        "trash": None if discarded is None else discarded.as_json(),
    }


def _undone(prepared: PreparedFlow, said: Mapping[str, Any]) -> dict[str, Any]:
    """Restore purged dead letters under the leases."""
    from scribengin.local.purging import undo_purge
    from scribengin.state.lease import take_leases
    from scribengin.state.trash import PURGE, Trash

    with take_leases(tier.folder for tier in prepared.tiers):
        return {"flow": prepared.name, **undo_purge(Trash(prepared.root, prepared.name, PURGE), said["id"]).as_json()}


def _queries(prepared: PreparedFlow, name: str) -> list[QueryFolder]:
    """The Queries that have state, or the one of that name. Raises Refused if there is none."""
    there = [query for tier in prepared.tiers for query in tier.folder.queries()]
    queries = [query for query in there if name in ("", query.name)]
    if queries:
        return queries
    if not there:
        said = f'flow "{prepared.name}" has no state in {prepared.folder} yet'
        raise Refused(said, remedy=f"wait until it has run: scribengin status {prepared.name}", code="state-missing")
    have = ", ".join(query.name for query in there)
    raise Refused(f'flow "{prepared.name}" has no Query "{name}"', remedy=f"it has the Queries {have}", code="query-unknown")


if __name__ == "__main__":
    serve_one(StateQuestion, answer)
