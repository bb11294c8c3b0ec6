"""Requests of people for operations: start, list, cancel, as writes to the registry; `operations` continues them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from scribengin.client.change_models import OperationRow
from scribengin.client.models import WorkflowOperation as Told
from scribengin.control.flow_records import known_flow, read_flows, read_status
from scribengin.control.operation_records import new_operation, refuse_while_under_way
from scribengin.control.operations import before_of, has_come_to
from scribengin.control.record_validation import again
from scribengin.control.workflows import feeders_in
from scribengin.core.errors import Refused
from scribengin.core.time_text import now_text
from scribengin.registry.contract import Delete, RegistryEntry, Require
from scribengin.registry.record_io import Stored, names, read_record, read_records
from scribengin.registry.records import UNDER_WAY, WorkflowOperationRecord
from scribengin.registry.tree import DESIRED, OPERATION, WORKFLOW_OPERATION

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from scribengin.control.workflows import Workflow
    from scribengin.registry.contract import Registry, Write
    from scribengin.registry.records import Goal, Operation


# Requests of people for operations over workflows: start, list, cancel; `workflow_operations` continues them.


KEPT = 20
"""the number of ended operations kept"""
PREFIX = "w"
"""the prefix of the record's number in the id that people see: operations of single flows have numbers, too"""


def begin_workflow_operation(registry: Registry, workflow: Workflow, goal: Goal, *, by: str) -> str:
    """Write the operation for the masters; returns its id. One that is under way and has a flow in common ends then: the last request
    counts. Raises Refused if a flow is gone."""
    feeders = feeders_in(workflow.flows, workflow.meetings)

    def attempt() -> str:
        wanted = {flow: known_flow(registry, flow).entry for flow in feeders}
        there = _read(registry)
        number = max(_numbers(registry), default=0) + 1
        now = now_text()
        begun = {flow: entry.changed for flow, entry in wanted.items()}
        operation = WorkflowOperationRecord(goal=goal, step="ask", feeders=feeders, begun=begun, by=by, at=now, since=now)
        writes: list[Write] = [WORKFLOW_OPERATION(str(number)).create(operation)]
        for stored in there.values():
            if stored.record.step == "ask" and not feeders.keys().isdisjoint(stored.record.feeders):
                error = f"{PREFIX}{number} replaced it"
                writes.append(stored.replace(replace(stored.record, step="cancelled", since=now, error=error)))
        over = [stored for stored in there.values() if stored.record.step != "ask"]
        writes += [Delete(stored.entry.path) for stored in over[:-KEPT]]
        registry.commit(*writes, *(Require(entry.path, entry.version) for entry in wanted.values()))
        return f"{PREFIX}{number}"

    return again(attempt)


def cancel_workflow_operation(registry: Registry, id_: str) -> None:
    """Cancel: no further flow is changed; those that were changed keep their new desired state. Raises Refused if there is no such
    operation, or it has ended."""

    def attempt() -> None:
        found = _read(registry)
        stored = found.get(int(id_.removeprefix(PREFIX))) if is_id(id_) else None
        if stored is None:
            raise Refused(f"there is no operation {id_}", remedy="see: scribengin operation list", code="operation-unknown")
        if stored.record.step != "ask":
            raise Refused(f"operation {id_} is over: {stored.record.step}", remedy="no action is needed", code="operation-over")
        registry.commit(stored.replace(replace(stored.record, step="cancelled", since=now_text())))

    again(attempt)


def is_id(id_: str) -> bool:
    """Whether it is the id of an operation over a workflow."""
    return id_.startswith(PREFIX) and WORKFLOW_OPERATION.fits(id_.removeprefix(PREFIX))


def members_of(registry: Registry, id_: str) -> tuple[str, ...]:
    """Its flows; none if there is no such operation."""
    found = _read(registry).get(int(id_.removeprefix(PREFIX))) if is_id(id_) else None
    return () if found is None else tuple(found.record.feeders)


def read_operations(registry: Registry, flow: str | None = None) -> tuple[Told, ...]:
    """All, or those with a flow, newest first."""
    found = sorted(_read(registry).items(), reverse=True)
    return tuple(_described(registry, number, each.record) for number, each in found if flow is None or flow in each.record.feeders)


def rows_of(registry: Registry, flow: str | None = None, seen: Callable[[Collection[str]], set[str]] = set) -> tuple[OperationRow, ...]:
    """The same, as rows beside the operations of single flows: under the name of the workflow's first flow, or the requested one. `seen`:
    the visible flows, if not all; an operation with another flow is shown without details."""
    rows = []
    for each in read_operations(registry, flow):
        there = seen(each.flows)
        flows = tuple(name for name in each.flows if name in there)
        told = each if flows == each.flows else Told(each.id, each.goal, each.step, flows, each.since, each.by, each.at)
        said = {"flows": list(told.flows), "waits_for": list(told.waits_for), "stuck": list(told.stuck)}
        kind, under_way = f"workflow {told.goal}", told.step == "ask"
        parts = (kind, told.step, told.since, told.by, told.at, told.error)
        rows.append(OperationRow(flow or told.flows[0], told.id, *parts, (), under_way, said))
    return tuple(rows)


def _described(registry: Registry, number: int, operation: WorkflowOperationRecord) -> Told:
    waits = _waits(registry, operation) if operation.step == "ask" else {}
    stuck = tuple(name for name, (_, needs) in waits.items() if needs)
    said = (operation.since, operation.by, operation.at, operation.error)
    texts = tuple(text for text, _ in waits.values())
    return Told(f"{PREFIX}{number}", operation.goal, operation.step, tuple(_ordered(operation)), *said, texts, stuck)


def _ordered(operation: WorkflowOperationRecord) -> list[str]:
    """Its flows in the order in which they are changed."""
    left, order = dict(before_of(operation)), list[str]()
    while left:
        ready = sorted(name for name, before in left.items() if not left.keys() & set(before)) or sorted(left)
        order += ready
        for name in ready:
            del left[name]
    return order


def _waits(registry: Registry, operation: WorkflowOperationRecord) -> dict[str, tuple[str, bool]]:
    """The flows that were changed and have not reached the goal: why, and whether they need intervention."""
    found = {}
    for name in _ordered(operation):
        wanted = registry.read(DESIRED(name).path)
        if not isinstance(wanted, RegistryEntry) or wanted.changed == operation.begun.get(name):
            continue
        status = read_status(registry, name)
        if not has_come_to(operation.goal, status, wanted.changed):
            state = "not reconciled yet" if status is None else status.state
            why = f": {status.reason}" if status is not None and status.reason else ""
            then = f"; {status.next}" if status is not None and status.next else ""
            knows = status is not None and status.generation == wanted.changed
            found[name] = (f"flow {name} is {state}{why}{then}", knows and state in ("failed", "degraded"))
    return found


def _read(registry: Registry) -> dict[int, Stored[WorkflowOperationRecord]]:
    """By number, oldest first; invalid ones are left out."""
    numbers = _numbers(registry)
    found = read_records(registry, [WORKFLOW_OPERATION(str(number)) for number in numbers])
    return {number: stored for number, stored in zip(numbers, found, strict=True) if isinstance(stored, Stored)}


def _numbers(registry: Registry) -> list[int]:
    """The numbers of all, invalid ones included."""
    return sorted(int(name) for name in names(registry, "workflows") if WORKFLOW_OPERATION.fits(name))


def begin(registry: Registry, flow: str, operation: Operation, *, by: str) -> str:
    """Write the operation for the masters; returns its id. The flow's desired state stays, and waits for its end. Raises Refused if there
    is no such flow, or another operation is under way."""

    def attempt() -> str:
        stored = known_flow(registry, flow)
        refuse_while_under_way(registry, flow, stored)
        now = now_text()
        id_, writes = new_operation(registry, flow, replace(operation, by=by, at=now, since=now))
        # written again, it is a new wish: what needs intervention is tried again by the workers that do the parts
        registry.commit(*writes, stored.replace(replace(stored.record, operation=id_)))
        return id_

    return again(attempt)


def list_operations(registry: Registry, flow: str | None = None) -> tuple[OperationRow, ...]:
    """The operations of one flow or of all, by flow, newest first. Raises Refused if there is no such flow."""
    found = []
    for name in [row.flow for row in read_flows(registry)] if flow is None else [flow]:
        desired = known_flow(registry, name).record
        ids = sorted(names(registry, f"flows/{name}/ops"), key=lambda id_: (id_.isdigit(), int(id_) if id_.isdigit() else 0, id_))
        for id_ in reversed(ids):
            stored = read_record(registry, OPERATION(name, id_))
            if isinstance(stored, Stored):
                found.append(_row(name, id_, stored.record, under_way=desired.operation == id_ and stored.record.step in UNDER_WAY))
    return tuple(found)


def cancel(registry: Registry, flow: str, id_: str, *, by: str) -> None:
    """Cancel an operation that has not changed anything yet. If a version was to start with it, the version before becomes the desired one
    again. Raises Refused if there is no such operation, it has ended, or workers have started it."""

    def attempt() -> None:
        desired = known_flow(registry, flow)
        stored = read_record(registry, OPERATION(flow, id_)) if id_ in names(registry, f"flows/{flow}/ops") else None
        if not isinstance(stored, Stored):
            raise Refused(f"flow {flow} has no operation {id_}", remedy=f"see: scribengin operation list {flow}", code="operation-unknown")
        operation = stored.record
        if operation.step not in UNDER_WAY or desired.record.operation != id_:
            raise Refused(f"operation {id_} of flow {flow} is over: {operation.step}", remedy="no action is needed", code="operation-over")
        if operation.step not in ("stop", "drain"):
            raise Refused(
                f"operation {id_} of flow {flow} is at step {operation.step}: its workers may already have changed something",
                remedy=f"wait for its end: scribengin operation list {flow}",
                code="operation-at-work",
            )
        now = now_text()
        writes: list[Write] = [stored.replace(replace(operation, step="cancelled", since=now))]
        wish = replace(desired.record, by=by, at=now)
        if operation.kind in ("renew", "recut") and operation.version != wish.version:
            wish = replace(wish, version=operation.version)
        registry.commit(*writes, desired.replace(wish))

    again(attempt)


def _row(flow: str, id_: str, operation: Operation, *, under_way: bool) -> OperationRow:
    return OperationRow(
        flow,
        id_,
        operation.kind,
        operation.step,
        operation.since or operation.at,
        operation.by,
        operation.at,
        operation.error,
        operation.tiers,
        under_way,
        dict(operation.arguments),
    )
