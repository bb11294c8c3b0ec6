"""Requests of people for operations: start, list, cancel, as writes to the registry; `operations` continues them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from scribengin.client.verb_models import OperationRow
from scribengin.control.known import again
from scribengin.control.operation_records import new_operation, refuse_while_under_way
from scribengin.control.reading import known_flow, read_flows
from scribengin.core.errors import Refused
from scribengin.core.moments import now_text
from scribengin.registry.kinds import UNDER_WAY
from scribengin.registry.records import Stored, names, read_record
from scribengin.registry.tree import OPERATION

if TYPE_CHECKING:
    from scribengin.registry.contract import Registry, Write
    from scribengin.registry.kinds import Operation


def begin(registry: Registry, flow: str, operation: Operation, *, by: str) -> str:
    """Write the operation for the masters; returns its id. The flow's desired state stays, and waits for its end. Raises Refused if there
    is no such flow, or another operation is under way."""

    def attempt() -> str:
        stored = known_flow(registry, flow)
        refuse_while_under_way(registry, flow, stored)
        now = now_text()
        id_, writes = new_operation(registry, flow, replace(operation, by=by, at=now, since=now))
        # written again, it is a new wish: what waits for a person is tried again by the workers that do the parts
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
