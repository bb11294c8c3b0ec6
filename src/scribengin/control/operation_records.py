"""The records of operations of flows. They are written together with the flow's desired state, so that one operation is under way at a
time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.control.record_validation import read_known
from scribengin.core.errors import Refused
from scribengin.registry.contract import Delete
from scribengin.registry.record_io import names
from scribengin.registry.records import UNDER_WAY
from scribengin.registry.tree import OPERATION

if TYPE_CHECKING:
    from scribengin.registry.contract import Registry, Write
    from scribengin.registry.record_io import Stored
    from scribengin.registry.records import Desired, Operation

KEPT_OPERATIONS = 20
"""the number of ended operations kept for each flow"""


def new_operation(registry: Registry, flow: str, operation: Operation) -> tuple[str, list[Write]]:
    """The writes that record a new operation of a flow.

    They must be committed with a replacement of the flow's DESIRED that was read before and names the new id: so only one operation is
    under way at a time.

    Args:
        registry: where the flow is.
        flow: the flow.
        operation: the new operation.

    Returns:
        (its id, the writes that create it and remove the oldest operations).
    """
    there = operation_ids(registry, flow)
    id_ = str(max(there, default=0) + 1)
    old = [Delete(OPERATION(flow, str(number)).path) for number in there[:-KEPT_OPERATIONS]]
    return id_, [OPERATION(flow, id_).create(operation), *old]


def operation_ids(registry: Registry, flow: str) -> list[int]:
    """The numbers of the flow's recorded operations, oldest first."""
    return sorted(int(name) for name in names(registry, f"flows/{flow}/ops") if name.isdigit())


def refuse_while_under_way(registry: Registry, flow: str, desired: Stored[Desired] | None) -> None:
    """Raise Refused while an operation of the flow is under way. `desired`: the flow's desired state; None if it has none."""
    id_ = "" if desired is None else desired.record.operation
    operation = read_known(registry, OPERATION(flow, id_)) if id_ else None
    if operation is not None and operation.step in UNDER_WAY:
        raise Refused(
            f"operation {id_} of flow {flow} ({operation.kind}) is under way, at step {operation.step} since {operation.since}",
            remedy=f"wait for its end (scribengin operation list {flow}), or: scribengin operation cancel {flow} {id_}",
            code="operation-under-way",
        )
