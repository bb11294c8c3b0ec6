"""The event history of a flow: its changes of state, versions, operations and columns, in their order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.client.change_models import Happened
from scribengin.control.flow_records import known_flow, read_accepted, read_noticed, versions_of
from scribengin.control.operation_requests import list_operations
from scribengin.local.schema_drift import noticed_text
from scribengin.local.sink_columns import accepted_text
from scribengin.registry.record_io import Stored, read_record
from scribengin.registry.tree import CHANGES, SPEC

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scribengin.registry.contract import Registry


def read_happened(registry: Registry, flow: str, most: int = 100) -> tuple[Happened, ...]:
    """The newest events, newest first, at most `most`. Works without a running master. Raises Refused if there is no such flow."""
    known_flow(registry, flow)
    found = sorted(_all(registry, flow), key=lambda each: each.at, reverse=True)
    return tuple(found[:most])


def _all(registry: Registry, flow: str) -> Iterator[Happened]:
    changes = read_record(registry, CHANGES(flow))
    for change in reversed(changes.record.last if isinstance(changes, Stored) else ()):
        yield Happened(change.at, "state", change.state, change.reason)
    for row in list_operations(registry, flow):
        yield Happened(row.since, "operation", f"{row.id} ({row.kind}) is {row.step}", row.error, row.by)
    for noticed in reversed(read_noticed(registry, flow)):
        yield Happened(noticed["at"], "columns", noticed_text(noticed))
    for accepted in reversed(read_accepted(registry, flow)):
        yield Happened(accepted["at"], "columns", accepted_text(accepted), by=accepted["by"])
    for version in reversed(versions_of(registry, flow)):
        spec = read_record(registry, SPEC(flow, str(version)))
        if isinstance(spec, Stored):
            yield Happened(spec.record.at, "version", f"{version}, package {spec.record.package[:12]}", spec.record.why, spec.record.by)
