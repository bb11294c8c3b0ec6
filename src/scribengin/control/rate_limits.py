"""Rate limits of running flows: workers use them from their next Batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from scribengin.control.offsets import prepared_flow
from scribengin.control.record_validation import again
from scribengin.core.errors import Refused
from scribengin.core.problems import did_you_mean
from scribengin.plan.tier_flows import CHANNEL
from scribengin.registry.contract import Delete
from scribengin.registry.record_io import Stored, put, read_record
from scribengin.registry.records import Limit
from scribengin.registry.tree import LIMIT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scribengin.packages.store import PackageStore
    from scribengin.registry.contract import Registry


_MOST = 1e15


@dataclass(frozen=True, slots=True)
class RateLimits:
    """The rate limits of a flow, by target: `` for the flow itself, a source, an edge. A target that is missing has no limit."""

    flow: str
    of: Mapping[str, Mapping[str, float]]

    def as_json(self) -> dict[str, Any]:
        """The limits as one JSON object."""
        return {"flow": self.flow, "limits": {name: dict(pace) for name, pace in self.of.items()}}


def read_limits(registry: Registry, flow: str) -> RateLimits:
    """The present rate limits of a flow."""
    found = read_record(registry, LIMIT(flow))
    record = found.record if isinstance(found, Stored) else Limit()
    own = {key: value for key in ("rows_per_s", "bytes_per_s") if (value := getattr(record, key)) is not None}
    return RateLimits(flow, {**({"": own} if own else {}), **record.sources, **record.edges})


def set_limit(
    registry: Registry, flow: str, section: str, name: str = "", *, rows_per_s: float | None = None, bytes_per_s: float | None = None
) -> RateLimits:
    """Set or remove a rate limit. Without both rates the limit is removed.

    Args:
        registry: where limits are recorded.
        flow: the flow.
        section: empty for the flow itself, else the section that `find_limited` returned.
        name: the name that `find_limited` returned.
        rows_per_s: the most rows per second.
        bytes_per_s: the most bytes per second.

    Returns:
        All limits of the flow now.

    Raises:
        Refused: a number is not a valid rate.
    """
    for what, value in (("rows", rows_per_s), ("bytes", bytes_per_s)):
        if value is not None and not 0 < value < _MOST:
            raise Refused(
                f"{value:g} {what}/s is not a valid limit",
                remedy="give a number above 0, or --unset; to let no rows through, pause the flow",
                code="limit-value",
            )
    pace = {key: value for key, value in (("rows_per_s", rows_per_s), ("bytes_per_s", bytes_per_s)) if value is not None}

    def attempt() -> None:
        found = read_record(registry, LIMIT(flow))
        record = found.record if isinstance(found, Stored) else Limit()
        if section:
            others = {key: each for key, each in getattr(record, section).items() if key != name}
            record = replace(record, **{section: {**others, **({name: pace} if pace else {})}})
        else:
            record = replace(record, rows_per_s=rows_per_s, bytes_per_s=bytes_per_s)
        if isinstance(found, Stored) and record == Limit() and not set(found.entry.value) - {"format", *Limit.__struct_fields__}:
            registry.commit(Delete(found.entry.path, found.entry.version))
        elif record != Limit() or found is not None:
            registry.commit(put(registry, LIMIT(flow), record))

    again(attempt)
    return read_limits(registry, flow)


def find_limited(registry: Registry, packages: PackageStore, flow: str, target: str) -> tuple[str, str]:
    """Find the source or edge to which a limit applies.

    Args:
        registry: where the flow is.
        packages: the packages of this host.
        flow: the flow.
        target: a source, or an edge: the id of its channel, or an arrow that it carries (`a -> b`, `a->b`); empty for the flow itself.

    Returns:
        (section of the record, name in it); both empty for the flow itself.

    Raises:
        Refused: there is no such flow, source or edge.
    """
    prepared, _ = prepared_flow(registry, packages, flow)
    if not target:
        return "", ""
    sources = [id_ for id_, source in prepared.plan.flow.sources.items() if source.type != CHANNEL]
    if target in sources:
        return "sources", target
    wanted = target.replace(" ", "")
    for channel in prepared.plan.channels:
        if wanted in (channel.id, *(name.replace(" ", "") for name in channel.names)):
            return "edges", channel.id
    edges = [name for channel in prepared.plan.channels for name in channel.names]
    have = did_you_mean(target, [*sources, *edges]) or f"it has {', '.join([*sources, *edges])}"
    raise Refused(f'flow {flow} has no source and no edge with a channel named "{target}"', remedy=have, code="limit-unknown")
