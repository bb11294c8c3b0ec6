"""Requests of operators for operations: start, list, cancel, as writes to the registry. `operations` decides how they continue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from scribengin.client.change_models import OperationRow
from scribengin.client.models import WorkflowOperation as Told
from scribengin.control.flow_records import known_flow, read_flows, read_status
from scribengin.control.operation_records import new_operation, refuse_while_under_way
from scribengin.control.operations import has_reached, predecessors_of
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


# Requests of operators for operations over workflows: start, list, cancel. `operations` decides how they continue.


KEPT = 20
"""number of ended operations that are kept"""
PREFIX = "w"
"""prefix of the record's number in the id that users see: operations of single flows have numbers, too"""


def begin_workflow_operation(registry: Registry, workflow: Workflow, goal: Goal, *, by: str) -> str:
    """Write an operation over a workflow for the masters. The last request counts: an operation under way that has a flow in common is
    cancelled.

    Args:
        registry: where the flows are.
        workflow: its flows and connections.
        goal: the desired state for all of its flows.
        by: the user, for the records.

    Returns:
        The id of the operation.

    Raises:
        Refused: a flow was deleted.
    """
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
    """Cancel an operation over a workflow: no further flow is changed; those that were changed keep their new desired state. Raises Refused
    if there is no such operation, or it has ended."""

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
    """True if it is the id of an operation over a workflow."""
    return id_.startswith(PREFIX) and WORKFLOW_OPERATION.fits(id_.removeprefix(PREFIX))


def members_of(registry: Registry, id_: str) -> tuple[str, ...]:
    """The flows of an operation over a workflow; none if there is no such operation."""
    found = _read(registry).get(int(id_.removeprefix(PREFIX))) if is_id(id_) else None
    return () if found is None else tuple(found.record.feeders)


def read_operations(registry: Registry, flow: str | None = None) -> tuple[Told, ...]:
    """The operations over workflows, newest first; with `flow` only those that include it."""
    found = sorted(_read(registry).items(), reverse=True)
    return tuple(_described(registry, number, each.record) for number, each in found if flow is None or flow in each.record.feeders)


def rows_of(registry: Registry, flow: str | None = None, seen: Callable[[Collection[str]], set[str]] = set) -> tuple[OperationRow, ...]:
    """The operations over workflows as rows, for a list with the operations of single flows.

    Args:
        registry: where the operations are.
        flow: only those that include it, shown under its name; None: all, each under the name of its first flow.
        seen: of some flows those that the caller may see; without it all. An operation with a flow that is not visible is shown without
            details.
    """
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
    """The flows of the operation in the order in which they are changed."""
    left, order = dict(predecessors_of(operation)), list[str]()
    while left:
        ready = sorted(name for name, before in left.items() if not left.keys() & set(before)) or sorted(left)
        order += ready
        for name in ready:
            del left[name]
    return order


def _waits(registry: Registry, operation: WorkflowOperationRecord) -> dict[str, tuple[str, bool]]:
    """Flow → (why it has not reached the goal, whether it needs intervention), for the flows that were changed and have not reached it."""
    found = {}
    for name in _ordered(operation):
        wanted = registry.read(DESIRED(name).path)
        if not isinstance(wanted, RegistryEntry) or wanted.changed == operation.begun.get(name):
            continue
        status = read_status(registry, name)
        if not has_reached(operation.goal, status, wanted.changed):
            state = "not reconciled yet" if status is None else status.state
            why = f": {status.reason}" if status is not None and status.reason else ""
            then = f"; {status.next}" if status is not None and status.next else ""
            knows = status is not None and status.generation == wanted.changed
            found[name] = (f"flow {name} is {state}{why}{then}", knows and state in ("failed", "degraded"))
    return found


def _read(registry: Registry) -> dict[int, Stored[WorkflowOperationRecord]]:
    """Number → operation, oldest first; invalid records are left out."""
    numbers = _numbers(registry)
    found = read_records(registry, [WORKFLOW_OPERATION(str(number)) for number in numbers])
    return {number: stored for number, stored in zip(numbers, found, strict=True) if isinstance(stored, Stored)}


def _numbers(registry: Registry) -> list[int]:
    """The numbers of all operations, those with invalid records included."""
    return sorted(int(name) for name in names(registry, "workflows") if WORKFLOW_OPERATION.fits(name))


def begin(registry: Registry, flow: str, operation: Operation, *, by: str) -> str:
    """Write an operation of a flow for the masters. The flow's desired state stays, and applies again when the operation has ended.

    Args:
        registry: where the flow is.
        flow: the flow.
        operation: what is to be done.
        by: the user, for the records.

    Returns:
        The id of the operation.

    Raises:
        Refused: there is no such flow, or another operation is under way.
    """

    def attempt() -> str:
        stored = known_flow(registry, flow)
        refuse_while_under_way(registry, flow, stored)
        now = now_text()
        id_, writes = new_operation(registry, flow, replace(operation, by=by, at=now, since=now))
        # this write raises the generation of the desired state, so that the workers that do the parts also retry what needs intervention
        registry.commit(*writes, stored.replace(replace(stored.record, operation=id_)))
        return id_

    return again(attempt)


def list_operations(registry: Registry, flow: str | None = None) -> tuple[OperationRow, ...]:
    """The operations of one flow or of all flows, by flow, newest first. Raises Refused if there is no such flow."""
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
    """Cancel an operation that has not changed anything yet. If a version was to start with it, the previous version becomes the desired
    one again.

    Args:
        registry: where the flow is.
        flow: the flow.
        id_: the operation.
        by: the user, for the records.

    Raises:
        Refused: there is no such operation, it has ended, or workers have started it.
    """

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
