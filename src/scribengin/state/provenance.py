"""The provenance of sampled records: JSON lines in `trails/<batch>/<attempt>.jsonl`, one for each of their rows that reached a sink.

It is kept as long as the details of the decision that names it, and no longer than dead letters.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from scribengin.core.errors import StateError
from scribengin.core.storage import names_in, remove_tree
from scribengin.formats.row_ids import without_ways
from scribengin.state.decisions import Decisions, moment
from scribengin.state.segments import LineWriter, read_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from scribengin.formats.row_ids import Hop
    from scribengin.state.contract import Decision
    from scribengin.state.folder import QueryFolder


@dataclass(frozen=True, slots=True)
class TracedArrival:
    """A row that reached a sink outside the flow. `hops` are the earlier hops, first to last (see `hop_as_json`), then that of
    this Batch."""

    id: str
    """the record's first coordinates, as a sink writes ids; it ends in `.1` and so on for a further row of one record"""
    sink: str
    hops: tuple[Mapping[str, Any], ...]


class TrailWriter(LineWriter):
    """Writes the arrivals of one attempt, on an executor."""

    def write(self, batch: int, arrival: TracedArrival) -> None:
        """Append an arrival, which is durable after `close`. Raises OSError."""
        self.append(batch, asdict(arrival))


def hop_as_json(hop: Hop) -> dict[str, Any]:
    """A hop as JSON: `tier`, `query`, `batch`, `host`, `time_ms` since 1970, and `member` if the row came by a member of a group."""
    data = {"tier": hop.tier, "query": hop.query, "batch": hop.batch, "host": hop.host, "time_ms": hop.time_ms}
    return data | {"member": hop.member} if hop.member else data


def find_arrivals(query: QueryFolder, prefix: str) -> Iterator[TracedArrival]:
    """The arrivals in decided Batches whose record id begins with `prefix`, oldest first. Raises StateError for a torn segment."""
    names = sorted(name for name in names_in(query.trails) if name.isdigit())
    needle = msgspec.json.encode(prefix)[1:-1]
    decisions = Decisions(query.decisions)
    for name in names:
        decision = detailed(decisions, int(name))
        for segment in () if decision is None else decision.trails:
            for line in read_lines(query.trails, segment, "trails"):
                if needle in line:
                    data = msgspec.json.decode(line)
                    if without_ways(data["id"]).startswith(prefix):
                        yield TracedArrival(data["id"], data["sink"], tuple(data["hops"]))


def forget_trails(query: QueryFolder, before: datetime | None) -> None:
    """Delete provenance that no decision names any more, and, if `before` is given, that of Batches decided before that time. That of an
    undecided Batch stays. The caller holds the lease."""
    decisions = Decisions(query.decisions)
    newest = decisions.newest()
    if newest is None:
        return
    for name in sorted(name for name in names_in(query.trails) if name.isdigit() and int(name) <= newest.batch.number):
        decision = detailed(decisions, int(name))
        if decision is None or not decision.trails or (before is not None and moment(decision.decided_at) < before):
            remove_tree(query.trails / name)
            continue
        kept = {segment.name for segment in decision.trails}
        for file in names_in(query.trails / name):
            if f"{name}/{file}" not in kept:
                (query.trails / name / file).unlink(missing_ok=True)


def detailed(decisions: Decisions, number: int) -> Decision | None:
    """The decision of Batch `number`; None if it is not decided, or if its details are pruned."""
    if number <= decisions.pruned_mark():
        return None
    try:
        return decisions.read(number)
    except StateError:
        if number <= decisions.pruned_mark():
            return None
        raise
