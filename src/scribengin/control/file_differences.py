"""Where a flow runs otherwise than its flow file says: another version, resources, numbers of workers and rate limits set by commands."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from scribengin.client.flow_text_models import FileDifference
from scribengin.control.flow_records import version_of, versions_of
from scribengin.control.rate_limits import read_limits
from scribengin.core.units import show_bytes, show_bytes_exactly
from scribengin.registry.record_io import Stored, read_record
from scribengin.registry.tree import WORKERS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from scribengin.registry.contract import Registry

_RESOURCES = {"cores": "cores", "memory_bytes": "memory", "executors": "executors"}
"""field of a TierSpec that `scale` sets → its name"""
_RATES = {"rows_per_s": "rows/s", "bytes_per_s": "bytes/s"}


def file_differences(registry: Registry, flow: str, version: int, declared: Mapping[str, Mapping[str, Any]]) -> tuple[FileDifference, ...]:
    """The differences between what runs and the flow file of the newest version.

    Args:
        registry: where the flow is.
        flow: the flow.
        version: its desired version.
        declared: tier → the resources and the number of workers that the flow file of that version gives it.

    Raises:
        Refused: there is no such version.
    """
    return (
        *_of_version(registry, flow, version),
        *_of_resources(registry, flow, version, declared),
        *_of_workers(registry, flow, declared),
        *_of_limits(registry, flow),
    )


def _of_version(registry: Registry, flow: str, version: int) -> Iterator[FileDifference]:
    newest = max(versions_of(registry, flow), default=version)
    if newest != version:
        yield FileDifference("desired version", str(newest), str(version), f"scribengin rollback {flow} {newest}")


def _of_resources(registry: Registry, flow: str, version: int, declared: Mapping[str, Mapping[str, Any]]) -> Iterator[FileDifference]:
    runs = version_of(registry, flow, version).tiers
    for tier, says in declared.items():
        for field, name in _RESOURCES.items():
            if tier in runs and (now := getattr(runs[tier], field)) != says[field]:
                undo = _scaling(f"{flow}.{tier}", field, says[field])
                yield FileDifference(f"{name} of tier {tier}", _shown(field, says[field]), _shown(field, now), undo)


def _of_workers(registry: Registry, flow: str, declared: Mapping[str, Mapping[str, Any]]) -> Iterator[FileDifference]:
    found = read_record(registry, WORKERS(flow))
    counts = found.record.tiers if isinstance(found, Stored) else {}
    for tier, now in counts.items():
        if tier in declared and now != (says := declared[tier]["workers"]):
            yield FileDifference(f"workers of tier {tier}", str(says), str(now), f"scribengin scale {flow}.{tier} --workers {says}")


def _of_limits(registry: Registry, flow: str) -> Iterator[FileDifference]:
    for name, rates in read_limits(registry, flow).of.items():
        now = ", ".join(f"{rate:,.15g} {_RATES[kind]}" for kind, rate in rates.items())
        target = shlex.quote(f"{flow}:{name}" if name else flow)
        yield FileDifference(f"limit of {name or 'the flow'}", "none", now, f"scribengin limit {target} --unset")


def _scaling(tier: str, field: str, value: int) -> str:
    """The command that sets a resource of a tier; empty for Spark's default, which no command sets."""
    match field:
        case "cores":
            return f"scribengin scale {tier} --cores {value}"
        case "executors":
            return f"scribengin scale {tier} --executors {value}"
    return f"scribengin scale {tier} --memory {show_bytes_exactly(value)}" if value else ""


def _shown(field: str, value: int) -> str:
    return str(value) if field != "memory_bytes" else show_bytes(value) if value else "Spark's default"
