"""The ledger: the outcome of every record that entered a query, and whether the counts balance. Computed from the decisions alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.core.records import seal, unseal
from scribengin.core.storage import names_in, read_or_none, replace
from scribengin.state.decisions import Decisions
from scribengin.state.totals import SinkTotals, Totals

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from scribengin.state.contract import Counts, Decision
    from scribengin.state.folder import QueryFolder

__all__ = [
    "Ledger",
    "SinkTotals",
    "Totals",
    "balance",
    "is_published",
    "note_published",
    "read_batches",
    "read_held",
    "read_totals",
    "write_held",
]


def read_totals(query: QueryFolder) -> Totals:
    """The totals of the lineage so far."""
    return Decisions(query.decisions).totals()


def read_batches(query: QueryFolder, *, since: int = 0) -> Iterator[Decision]:
    """The decided Batches from number `since` on, in order: the ledger's rows."""
    return Decisions(query.decisions).since(since)


def note_published(query: QueryFolder, lineage: str, number: int) -> None:
    """Record that a Batch is published, for a query of which Spark's log is not in the state. The record is an empty file: HDFS has no
    block of it to close. It needs no fence, since it is true whoever writes it."""
    path = query.published(lineage, number)
    path.touch()
    for name in names_in(query.ledger):
        if name < path.name and name.startswith(path.name[: -len(f"{number:010d}")]):
            (query.ledger / name).unlink(missing_ok=True)


def is_published(query: QueryFolder, lineage: str, number: int) -> bool:
    """True if a record shows that the Batch is published: Spark has committed it, or `note_published` was called. A Batch without such a
    record is published if the next one is decided."""
    return (query.checkpoint / "commits" / str(number)).exists() or query.published(lineage, number).exists()


def write_held(query: QueryFolder, batch: int, held: Mapping[str, int]) -> None:
    """Record how much the states hold after Batch `batch` (node → rows or windows). Only Spark knows this, and only after the commit."""
    replace(query.ledger / "held.json", seal("held", 1, {"batch": batch, "held": dict(held)}))


def read_held(query: QueryFolder) -> dict[str, int]:
    """Node → what its state holds; empty if a Batch has been decided since that was recorded."""
    path = query.ledger / "held.json"
    data = read_or_none(path)
    newest = Decisions(query.decisions).newest()
    if data is None or newest is None:
        return {}
    noted = unseal(data, "held", 1, path)
    return dict(noted["held"]) if noted["batch"] == newest.batch.number else {}


class Ledger:
    """The totals of a query, brought up to date by reading only what is new: for displays and metrics."""

    def __init__(self, query: QueryFolder) -> None:
        self._decisions = Decisions(query.decisions)
        self._totals = self._decisions.totals()

    def read(self) -> Totals:
        """The totals now, without a Batch of which a target may still reject rows."""
        for decision in self._decisions.since(self._totals.last + 1):
            if not decision.open:
                self._totals.add(decision)
        return self._totals


def balance(
    counts: Mapping[str, Counts], *, stateful: Collection[str] = (), feeders: Mapping[str, Sequence[str]] | None = None
) -> list[str]:
    """Check whether the counts of the ledger balance.

    A stateless node must write, filter or make dead letters of all rows that came in or were made. If `feeders` is given, all that the
    upstream nodes of a node have written must have come in, or, at a stateful node, have been late or dead. This is not checked for nodes
    behind a branch, because a step counts its branches together. Rows that a replay has sent in are left out: no upstream node has written
    them.

    Args:
        counts: Node → its counts.
        stateful: The nodes that keep state.
        feeders: Node → ids of its upstream nodes, `step.branch` too. An id is listed twice if it leads to the node on two paths.

    Returns:
        The violations, one sentence each; [] if all counts balance.
    """
    violations = []
    for node, count in counts.items():
        if node not in stateful:
            took, gave = count.rows_in + count.made, count.out + count.filtered + count.dead
            if took != gave:
                made = f" + {count.made} made" if count.made else ""
                parts = f"{count.out} out + {count.filtered} filtered + {count.dead} dead"
                violations.append(f'"{node}": {count.rows_in} in{made}, but {parts}: {_difference(took, gave)}')
        if count.parts:
            violations += balance({f"{node}.{name}": part for name, part in count.parts.items()})
            buried = sum(part.dead for part in count.parts.values())
            kept = buried + sum(part.out - part.rows_in for part in count.parts.values())
            # `dead` includes the rows that a `require` behind the utilities rejects
            more = count.out + count.dead - count.rows_in - count.apart
            if more != kept or buried > count.dead:
                violations.append(f'"{node}": {more} rows more, including dead letters of its utilities, {kept}')
        fed_by = (feeders or {}).get(node, ())
        if fed_by and all(feeder in counts for feeder in fed_by):
            fed = sum(counts[feeder].out for feeder in fed_by)
            arrived = count.rows_in - count.replayed + (count.late + count.dead if node in stateful else 0)
            if fed != arrived:
                also = f" + {count.late} late + {count.dead} dead" if node in stateful else ""
                also += f" - {count.replayed} replayed" if count.replayed else ""
                names = " and ".join(f'"{feeder}"' for feeder in dict.fromkeys(fed_by))
                violations.append(f'"{node}": {names} wrote {fed} rows, but {count.rows_in} in{also} arrived: {_difference(fed, arrived)}')
    return violations


def _difference(expected: int, found: int) -> str:
    rows = abs(expected - found)
    return f"{rows} {'row is' if rows == 1 else 'rows are'} {'missing' if found < expected else 'too many'}"
