"""The lineage of a query: an unbroken run of committed Batches, from the first Batch of its checkpoint to a reset or rewind."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from scribengin.core import storage
from scribengin.core.errors import Refused
from scribengin.core.records import seal, unseal
from scribengin.core.remedies import start_over, write_beside
from scribengin.core.time_text import now_text
from scribengin.state.decisions import Decisions

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from scribengin.state.folder import QueryFolder

_KIND, _FORMAT = "lineage", 1


@dataclass(frozen=True, slots=True)
class Lineage:
    """The record of a lineage. `id` is unique for ever; `parent` is the lineage that a rewind ended, or empty. `fingerprint` is that of the
    newest plan."""

    id: str
    owner: str
    query: str
    fingerprint: str
    state_fingerprint: str
    sources: tuple[str, ...]
    created_at: str
    parent: str = ""
    parts: Mapping[str, str] = field(default_factory=dict)
    """node → its fingerprint in the newest plan, by which `plan` finds the steps that changed"""
    starts: Mapping[str, int] = field(default_factory=dict)
    """source → the position from which a rewind, or a move from other tiers, makes it read; 0 for sources that are not in it"""
    origin: str = ""
    """`moved` if it continues queries of other tiers; `anew` if it begins in a folder that a query was moved away from; otherwise empty"""
    passed: Mapping[str, int] = field(default_factory=dict)
    """for a channel that it continues: the number of rows that other queries have read of it"""
    types: Mapping[str, str] = field(default_factory=dict)
    """sink → its type, including sinks that were removed from the flow; not of sinks whose plan did not name the type"""
    first: int = 0
    """the number of its first Batch. If it continues the state of another query, that is the number of the last Batch in that state, of
    which this lineage has no rows"""


def read_lineage(query: QueryFolder) -> Lineage | None:
    """The present lineage, or None if the query never ran. Raises Refused while a rewind is in progress."""
    if query.rewind.exists():
        raise Refused(
            f'query "{query.name}": a rewind to an earlier position is in progress or was interrupted',
            remedy="try again; if it was interrupted, the next run or the same `offsets set` completes it",
            code="rewind-unfinished",
        )
    data = storage.read_or_none(query.lineage)
    return None if data is None else _unsealed(data, query.lineage)


def past_lineages(query: QueryFolder) -> list[tuple[QueryFolder, Lineage]]:
    """The lineages that rewinds have ended, oldest first, each with its folder."""
    found = []
    lineage = read_lineage(query)
    while lineage is not None and lineage.parent:
        folder = query.past(lineage.parent)
        lineage = read_lineage(folder)
        if lineage is not None:
            found.append((folder, lineage))
    return found[::-1]


def detach_state(query: QueryFolder, lineage: str, to: QueryFolder) -> None:
    """Move the checkpoint of a lineage that is about to end to the folder of the query that will continue its state.

    `attach_state` makes it the checkpoint there. The caller holds the leases of both queries. Idempotent: it may be interrupted at any
    point and repeated.

    Args:
        query: The folder that has the checkpoint.
        lineage: The id of the lineage; nothing is moved if the query has another one.
        to: The folder of the query that will continue the state.
    """
    data = storage.read_or_none(query.lineage)
    if data is None or _unsealed(data, query.lineage).id != lineage or not query.checkpoint.exists() or to.carried.exists():
        return
    storage.make_folder(to.path)
    query.checkpoint.rename(to.carried)
    storage.sync_folder(query.path)
    storage.sync_folder(to.path)


def attach_state(query: QueryFolder) -> None:
    """Make the checkpoint that `detach_state` has moved here the query's own. The caller holds the lease and has begun the query's lineage.
    Idempotent: it may be interrupted at any point and repeated."""
    if query.carried.exists():
        query.carried.rename(query.checkpoint)
        storage.sync_folder(query.path)


def begin_moved(query: QueryFolder, begun: Lineage) -> None:
    """Make `begun` the query's lineage. The caller holds the lease, has ended an earlier lineage with `leave`, and has put the logs from
    which `begun` starts into `query.sources`. Idempotent: it may be interrupted at any point and repeated."""
    data = storage.read_or_none(query.lineage)
    if data is None or _unsealed(data, query.lineage).id != begun.id:
        storage.make_folder(query.path)
        storage.replace(query.lineage, _sealed(begun))


def leave(query: QueryFolder, begun: str) -> None:
    """End the present lineage, unless it is `begun`: move it with all its records to where `past_lineages` finds it. The caller holds the
    lease. Idempotent: it may be interrupted at any point and repeated."""
    data = storage.read_or_none(query.lineage)
    if data is None or (old := _unsealed(data, query.lineage)).id == begun:
        return
    past = query.past(old.id)
    storage.make_folder(past.path)
    for source, target in (
        (query.decisions, past.decisions),
        (query.dead, past.dead),
        (query.trails, past.trails),
        (query.sources, past.sources),
        (query.ledger, past.ledger),
        (query.path / "moved.json", past.path / "moved.json"),
    ):
        if source.exists() and not target.exists():
            source.rename(target)
    storage.make_folder(past.sources)
    storage.sync_folder(past.path)
    storage.sync_folder(query.path)
    storage.remove_tree(query.checkpoint)
    storage.put_if_absent(past.lineage, data)


def rewind(query: QueryFolder, starts: Mapping[str, int]) -> Lineage:
    """End the query's lineage, and begin one that reads from `starts` on, which is returned. The caller holds the lease, and has published
    everything that was decided.

    The decisions and dead letters of the old lineage are kept in its own folder; the logs of the sources belong to both. `finish_rewind`
    completes a rewind that was interrupted.
    """
    old = read_lineage(query)
    assert old is not None, "a query that never ran is at the start of its sources"
    begun = replace(old, id=new_id(), created_at=now_text(), parent=old.id, starts=dict(starts), origin="", passed={}, first=0)
    storage.put_if_absent(query.rewind, _sealed(begun))
    finish_rewind(query)
    return begun


def finish_rewind(query: QueryFolder) -> None:
    """Complete an interrupted rewind, if there is one. The caller holds the lease."""
    data = storage.read_or_none(query.rewind)
    if data is None:
        return
    begun = _unsealed(data, query.rewind)
    past = query.past(begun.parent)
    storage.make_folder(past.path)
    for source, target in ((query.decisions, past.decisions), (query.dead, past.dead), (query.trails, past.trails)):
        if source.exists() and not target.exists():
            source.rename(target)
    storage.sync_folder(past.path)
    storage.sync_folder(query.path)
    storage.remove_tree(query.checkpoint)
    record = query.lineage.read_bytes()
    if _unsealed(record, query.lineage).id == begun.parent:
        storage.put_if_absent(past.lineage, record)
    storage.replace(query.lineage, data)
    query.rewind.unlink()
    storage.sync_folder(query.path)


def open_lineage(
    query: QueryFolder,
    *,
    owner: str,
    fingerprint: str,
    state_fingerprint: str,
    sources: Iterable[str],
    parts: Mapping[str, str] | None = None,
    types: Mapping[str, str] | None = None,
) -> Lineage:
    """Read the query's lineage, or begin one, and update it to the plan. The caller holds the lease.

    Args:
        query: The folder of the query's state.
        owner: The id of the installation.
        fingerprint: That of the plan.
        state_fingerprint: That of the plan's stateful steps and their input.
        sources: The ids of the sources that the plan reads.
        parts: Node → its fingerprint in the plan.
        types: Sink → its type.

    Raises:
        Refused: The state in the checkpoint does not match the plan, the lineage belongs to another installation, or a sink for which
            Batches were decided has another type now.
    """
    begun = Lineage(
        new_id(),
        owner,
        query.name,
        fingerprint,
        state_fingerprint,
        tuple(sources),
        now_text(),
        parts=dict(parts or {}),
        types=dict(types or {}),
    )
    storage.put_if_absent(query.lineage, _sealed(begun))
    found = read_lineage(query)
    assert found is not None
    check_lineage(query, found, owner=owner, state_fingerprint=state_fingerprint, types=begun.types)
    newest = {**found.types, **begun.types}  # a sink that was removed and is added again is compared with the type that it had
    current = replace(
        found, fingerprint=fingerprint, state_fingerprint=state_fingerprint, sources=begun.sources, parts=begun.parts, types=newest
    )
    if current != found:
        storage.replace(query.lineage, _sealed(current))
    return current


def check_lineage(query: QueryFolder, found: Lineage, *, owner: str, state_fingerprint: str, types: Mapping[str, str]) -> None:
    """Raise Refused if a plan cannot continue the lineage that was found; see `open_lineage`. Changes nothing.

    Args:
        query: The folder of the query's state.
        found: The stored lineage.
        owner: The id of the installation.
        state_fingerprint: That of the plan's stateful steps and their input.
        types: Sink → its type in the plan.
    """
    if found.owner != owner:
        raise Refused(
            f'the state of query "{query.name}" in {query.path} belongs to another installation',
            remedy=(
                "run the flow from the state folder that it was created in; or give the sinks other "
                f"places, and {start_over(outputs=False)}"
            ),
            code="state-foreign",
        )
    if found.state_fingerprint != state_fingerprint and _has_begun(query, found):
        raise Refused(
            f'query "{query.name}": a stateful step or its input has changed; the state in {query.checkpoint} does not match it',
            remedy=f"undo the change; or {write_beside(next(iter(types), query.name))}; or {start_over()}",
            code="state-changed",
        )
    for sink, was, now in types_changed(found.types, types):
        if Decisions(query.decisions).newest() is not None:
            raise Refused(
                f'sink "{sink}" was of type {was} and is now of type {now}: the newest Batch was decided for '
                "the former and cannot be completed by the "
                "latter",
                remedy=f"undo the change; or {write_beside(sink)}; or {start_over()}",
                code="sink-type-changed",
                node=sink,
            )


def _has_begun(query: QueryFolder, found: Lineage) -> bool:
    """True if Spark has begun with the query. A query without state may have no checkpoint there; its decisions show it."""
    return query.checkpoint.exists() or (not found.state_fingerprint and Decisions(query.decisions).newest() is not None)


def types_changed(before: Mapping[str, str], now: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """The sinks whose type has changed: (sink, its former type, its present one)."""
    return [(sink, before[sink], type_) for sink, type_ in now.items() if before.get(sink, type_) != type_]


def new_id() -> str:
    """A new id for a lineage."""
    return uuid4().hex[:16]


def _unsealed(data: bytes, where: object) -> Lineage:
    body: dict[str, Any] = unseal(data, _KIND, _FORMAT, where)
    return Lineage(**body | {"sources": tuple(body["sources"])})


def _sealed(lineage: Lineage) -> bytes:
    return seal(_KIND, _FORMAT, asdict(lineage))
