"""A decision for which nothing ran: a state was spread anew, or goes on in another lineage. Sinks that follow a chain pass it over."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from scribengin.connectors.contract import BatchId, Decided, Published, Receipt
from scribengin.state.audit import audit_query
from scribengin.state.channel_acks import DecisionCursor
from scribengin.state.contract import Counts, Decision, SourceRange
from scribengin.state.decisions import Decisions
from scribengin.state.folder import QueryFolder
from scribengin.state.publishing import publish, recover_query

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from scribengin.state.lease import Lease

AT = "2026-01-01T00:00:00+00:00"


@dataclass
class Plain:
    """A sink that notes what it is given."""

    node: str = "kept"
    published: list[int] = field(default_factory=list)
    recovered: list[int | None] = field(default_factory=list)
    audited: list[int] = field(default_factory=list)

    def publish(self, decided: Decided) -> None:
        self.published.append(decided.batch.number)

    def recover(self, decided: Decided | None, *, lineage: str, before: int) -> None:
        self.recovered.append(None if decided is None else decided.batch.number)

    def audit(self, *, lineage: str, decided: Iterable[Decided], since: int | None = None) -> Iterator[Published]:
        self.audited += [each.batch.number for each in decided]
        return iter(())


class Chained(Plain):
    """One that must be told which commits a Batch follows."""

    def behind(self, units: int) -> dict[str, Any]:
        return {"units": units}


class Held:
    """A lease that nobody takes."""

    term = 1

    def check(self) -> None:
        return


def decision(number: int, *, rows: int = 0) -> Decision:
    """Without rows it is a record for which nothing ran."""
    batch = BatchId("f", "q", "life", number, 1)
    ranges = (SourceRange("n", 0, number),)
    if not rows:
        return Decision(batch, "x", "plan", ranges, (), decided_at=AT)
    return Decision(batch, "x", "plan", ranges, (Receipt("kept", 0, rows, 9),), (), {"kept": Counts(rows_in=rows, out=rows)}, AT)


def test_only_what_ran_is_published_where_a_sink_follows_a_chain(tmp_path: Path) -> None:
    folder = QueryFolder(tmp_path / "q")
    plain, chained = Plain(), Chained()
    lease: Lease = Held()  # type: ignore[assignment]
    for each in (decision(4), decision(5, rows=3)):
        Decisions(folder.decisions).decide(each)
        publish(each, {"plain": plain, "kept": chained}, Decisions(folder.decisions), folder)  # type: ignore[dict-item]
        recover_query(folder, {"plain": plain, "kept": chained}, lineage="life", lease=lease)  # type: ignore[dict-item]
    assert (plain.published, chained.published) == ([4, 5], [5])
    assert (plain.recovered, chained.recovered) == ([4, 5], [None, 5])
    audit_query(folder, {"plain": plain, "kept": chained}, lineage="life")  # type: ignore[dict-item]
    assert (plain.audited, chained.audited) == ([4, 5], [5])


def test_acknowledgements_of_a_lineage_begin_with_its_first_batch(tmp_path: Path) -> None:
    folder = QueryFolder(tmp_path / "q")
    for each in (decision(4), decision(5, rows=3), decision(6, rows=2)):
        Decisions(folder.decisions).decide(each)
    cursor = DecisionCursor(folder, "life", {"n": 4}, [], waits=True, first=4)
    assert (cursor.newest, cursor.published()) == (3, 3), "nothing of it is decided yet, as far as was looked"
    cursor.read_new(jump=False)
    assert (cursor.newest, sorted(cursor.batches), cursor.read) == (6, [4, 5, 6], {"n": 6})
    assert cursor.published() == 5
