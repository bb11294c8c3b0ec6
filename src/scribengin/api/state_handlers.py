"""The handlers of state queries that are not functions of `local` already; `state_queries.QUERIES` names them. Each is executed in the
planner's process, and imports there what it needs."""

from __future__ import annotations

import dataclasses
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from scribengin.core.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scribengin.api.planner_process import PlanInput
    from scribengin.control.offsets import PositionChange
    from scribengin.core.problems import Problem
    from scribengin.local.dead_letters import Which
    from scribengin.local.prepare import PreparedFlow
    from scribengin.state.folder import QueryFolder

_PREVIEW_MEMORY = "1g"
"""of the Spark of a preview: its rows are few"""


def trace(prepared: PreparedFlow, record: str) -> dict[str, Any]:
    """Trace a record, or all records whose id has this prefix."""
    from scribengin.local.tracing import trace_record

    return trace_record(prepared, record)


def audit(prepared: PreparedFlow) -> dict[str, Any]:
    """Check whether outputs, dead letters and ledger balance."""
    from scribengin.local.audit import audit_as_json, audit_flow

    return audit_as_json(prepared, audit_flow(prepared))


def backlogs(prepared: PreparedFlow) -> dict[str, Any]:
    """Measure the backlog of each source of the flow."""
    from scribengin.local.backlogs import measure_backlogs

    return {source: measured.as_json() for source, measured in measure_backlogs(prepared).items()}


def graph(prepared: PreparedFlow) -> dict[str, Any]:
    """The graph of the flow, without its version."""
    from scribengin.plan.flow_graph import graph_as_json

    return graph_as_json(prepared.plan)


def preview_node(prepared: PreparedFlow, node: str, rows: int, sample: int) -> dict[str, Any]:
    """The columns and some rows of a node, in and out, as its flow makes them of the first records of its sources. Raises InputError if the
    flow has no such node."""
    from scribengin.local.preview import Previews
    from scribengin.local.preview_contract import PreviewSettings

    settings = PreviewSettings(rows, sample, node, state=prepared.root, memory=_PREVIEW_MEMORY, base=prepared.plan.flow.folder)
    with Previews(prepared.path, settings) as previews:
        preview = previews.preview_now()
    [found] = preview.nodes
    return {
        "flow": prepared.name,
        "node": found.as_json(),
        # a path of a package is of no use elsewhere
        "problems": [{key: value for key, value in each.as_json().items() if key != "file"} for each in preview.problems],
    }


def dead_letter_counts(prepared: PreparedFlow, **said: Any) -> dict[str, Any]:
    """The number of dead letters by query, step and reason."""
    from scribengin.local.dead_letters import count_letters

    which = _which(said)
    made = {query.name for tier in prepared.plan.tiers for query in tier.queries}
    rows = count_letters(_queries(prepared, which.query), prepared.plan.flow.folder, which, made)
    return {"flow": prepared.name, "dead": sum(row["count"] for row in rows), "groups": rows}


def dead_letters(prepared: PreparedFlow, **said: Any) -> dict[str, Any]:
    """A page of dead letters."""
    from scribengin.local.dead_letters import place_of, read_page
    from scribengin.state.dead_letters import letter_as_json

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


def replay_letters(prepared: PreparedFlow, **said: Any) -> dict[str, Any]:
    """Request the replay of dead letters. Of several simultaneous requests, only one takes each dead letter."""
    from scribengin.local.dead_letter_repair import parse_exported_letters
    from scribengin.local.dead_letter_replay import replay

    text = said["repaired"]
    given = None if text is None else parse_exported_letters(text.encode(errors="surrogateescape").split(b"\n"), "repaired")
    start, as_is, dry = said["from_start"], said["as_is"], said["dry_run"]
    return replay(prepared, _which(said), from_start=start, given=given, as_they_were=as_is, dry_run=dry).as_json()


def repair_letter(prepared: PreparedFlow, **said: Any) -> dict[str, Any]:
    """Repair a dead letter, or show what can be repaired."""
    from scribengin.local.dead_letter_repair import repair_letter

    return repair_letter(prepared, said)


def purge_letters(prepared: PreparedFlow, **said: Any) -> dict[str, Any]:
    """Delete dead letters, under the leases of the flow's tiers. Idempotent: it may be interrupted at any point and repeated."""
    from scribengin.local.dead_letter_repair import purge, select_for_purge
    from scribengin.state.lease import take_leases
    from scribengin.state.trash import PURGE, Trash

    which = _which(said)
    with take_leases(() if said["dry_run"] else (tier.folder for tier in prepared.tiers)):
        doomed = select_for_purge(_queries(prepared, which.query), which, replayed=said["replayed"])
        discarded = None if said["dry_run"] else purge(doomed, Trash(prepared.root, prepared.name, PURGE))
    return {
        "flow": prepared.name,
        **doomed.as_json(),
        "dry_run": said["dry_run"],
        "trash": None if discarded is None else discarded.as_json(),
    }


def undo_purge(prepared: PreparedFlow, **said: Any) -> dict[str, Any]:
    """Restore purged dead letters, under the leases of the flow's tiers."""
    from scribengin.local.dead_letter_repair import undo_purge
    from scribengin.state.lease import take_leases
    from scribengin.state.trash import PURGE, Trash

    with take_leases(tier.folder for tier in prepared.tiers):
        return {"flow": prepared.name, **undo_purge(Trash(prepared.root, prepared.name, PURGE), said["id"]).as_json()}


def offsets(given: PlanInput) -> Any:
    """The position of each query in each source."""
    from scribengin.control.offsets import read_offsets

    return msgspec.to_builtins(read_offsets(given.registry, given.packages, given.query.flow))


def set_position(given: PlanInput, source: str, position: str, query: str | None) -> dict[str, Any]:
    """Plan to set a source to a position.

    Args:
        given: the planner's input.
        source: the source.
        position: the position; see `plan_offsets`.
        query: only in this query; None: in all.
    """
    from scribengin.control.offsets import plan_offsets

    return _change(plan_offsets(given.registry, given.packages, given.query.flow, source, position, query))


def rewind(given: PlanInput, to_time: str | None, to_batch: int | None, query: str | None) -> dict[str, Any]:
    """Plan a rewind.

    Args:
        given: the planner's input.
        to_time: the time, ISO 8601; None: `to_batch` is given.
        to_batch: the number of a Batch; None: `to_time` is given.
        query: only this query; None: all.
    """
    from scribengin.control.offsets import plan_rewind

    at = None if to_time is None else datetime.fromisoformat(to_time)
    return _change(plan_rewind(given.registry, given.packages, given.query.flow, at=at, batch=to_batch, query=query))


def spread(given: PlanInput, tiers: Sequence[str], partitions: int) -> Any:
    """Plan to distribute state over a number of partitions.

    Args:
        given: the planner's input.
        tiers: only queries in these tiers; empty: all.
        partitions: the number of partitions.

    Returns:
        The operation; None if the state has that number of partitions already.
    """
    from scribengin.control.resources import plan_spread

    operation = plan_spread(given.registry, given.packages, given.query.flow, tiers, partitions=partitions)
    return None if operation is None else msgspec.to_builtins(operation)


def limit_target(given: PlanInput, target: str) -> tuple[str, str]:
    """(section in the record of limits, name in it) of a source or an edge."""
    from scribengin.control.rate_limits import find_limited

    return find_limited(given.registry, given.packages, given.query.flow, target)


def rollback(given: PlanInput, version: int, only: bool) -> Any:
    """The changes that a return to an earlier version would make. `only`: without the flows that were submitted as one with it."""
    from scribengin.control.topology import plan_rollback

    return msgspec.to_builtins(plan_rollback(given.registry, given.query.flow, version, packages=given.packages, only=only))


def topology(given: PlanInput) -> Any:
    """The changes that submissions would make, and the submitted flows. Raises InputError with every problem."""
    from scribengin.control.submission import submission_of
    from scribengin.control.topology import plan_topology
    from scribengin.core.errors import InputError
    from scribengin.local.prepare import prepare
    from scribengin.state.places import located

    packages, state = given.packages, given.query.state
    submissions, problems = [], list[Any]()
    for submit in given.query.submits:
        have = [flow.path for flow in packages.read(submit.package).manifest.flows]
        if submit.path not in have:
            raise Refused(f'the package has no flow file "{submit.path}"', remedy=f"it has {', '.join(sorted(have))}", code="flow-path")
        try:
            prepared = prepare(packages.get(submit.package) / submit.path, state=located(state), base=Path(submit.base))
        except InputError as error:
            problems += error.problems
            continue
        submissions.append(submission_of(prepared.plan, submit.package, submit.path, submit.base))
    if problems:
        raise InputError(problems)
    plan = plan_topology(given.registry, submissions, packages=packages, state=lambda _: state)
    return {
        "plan": msgspec.to_builtins(plan),
        "submissions": msgspec.to_builtins(submissions),
    }


_BESIDE = frozenset({"python-module-missing", "package-file", "package-link"})
"""codes of problems with files that a flow file names"""


def pack_file(given: PlanInput, text: str, base: str) -> dict[str, str]:
    """Make a package of the text of a flow file alone.

    Args:
        given: the planner's input.
        text: the text.
        base: the folder from which relative paths are resolved; empty: unknown, so that the text must have none.

    Returns:
        `package`: its id; `path`: of the flow file in it; `base`: the folder from which relative paths are resolved.
    """
    import os
    from tempfile import TemporaryDirectory

    from scribengin.core.errors import InputError
    from scribengin.packages.make import make_package
    from scribengin.plan.validate import validate_file

    flow = given.query.flow
    with TemporaryDirectory() as folder:
        path = Path(folder, f"{flow}.yaml")
        path.write_text(text, encoding="utf-8")
        try:
            made = make_package(path.parent, os.environ, asked=path.name)
        except InputError as error:
            problems = error.problems
            if any(problem.code == "package-empty" for problem in problems):  # the text has neither sources nor sinks that can be read
                problems = tuple(validate_file(path, os.environ, execute=True)[1]) or problems
            raise InputError([_alone(problem, flow, folder) for problem in problems]) from None
    (packed,) = made.package.manifest.flows
    if packed.name != flow:
        raise Refused(
            f'is the text of flow "{packed.name}"', remedy=f"write it to flows/{packed.name}/file, or name it {flow}", code="flow-name"
        )
    relative = made.relative[flow]
    if not base and relative is None:
        raise Refused(
            "has values that are resolved where the flow runs, so it is not known whether its paths are relative",
            remedy='give the folder where relative paths start: {"text": "…", "base": "/folder"}',
            code="flow-file-base",
        )
    if not base and relative:
        raise Refused(
            f"has relative paths, but no folder where they start: {', '.join(map(str, relative))}",
            remedy='write absolute paths, or {"text": "…", "base": "/folder"}',
            code="flow-file-base",
        )
    given.packages.put([made.package.data], made.package.id)
    return {"package": made.package.id, "path": packed.path, "base": base or "/"}


def _alone(problem: Problem, flow: str, folder: str) -> Problem:
    """The problem, without the temporary `folder` of the text in its message. For a file that the text names, it explains that a text in
    the registry comes without files."""
    message = problem.message.replace(f" in {folder} or on", " on").replace(folder, "the registry")
    if problem.code not in _BESIDE:
        return dataclasses.replace(problem, message=message)
    said = f"{message}; a text in the registry comes without the code and files beside it"
    remedy = f"submit it with its folder: scribengin apply {flow}.yaml"
    return dataclasses.replace(problem, message=said, remedy=remedy)


def _change(going: PositionChange) -> dict[str, Any]:
    return {**going.as_json(), "operation": msgspec.to_builtins(going.operation)}


def _which(said: Mapping[str, Any]) -> Which:
    from scribengin.local.dead_letters import Which

    names = ("query", "step", "reason", "prefix", "since", "until")
    return Which(**{name: said[name] for name in names if name in said})


def _queries(prepared: PreparedFlow, name: str) -> list[QueryFolder]:
    """The queries that have state, or the one of that name. Raises Refused if there is none."""
    there = [query for tier in prepared.tiers for query in tier.folder.queries()]
    queries = [query for query in there if name in ("", query.name)]
    if queries:
        return queries
    if not there:
        said = f'flow "{prepared.name}" has no state in {prepared.folder} yet'
        raise Refused(said, remedy=f"wait until it has run: scribengin status {prepared.name}", code="state-missing")
    from scribengin.local.batches import unknown_query

    raise unknown_query(prepared, name, [query.name for query in there])
