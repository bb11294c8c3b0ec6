"""The lineage of a Query: an unbroken run of committed Batches, from the first Batch of its checkpoint to a reset or rewind."""

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
    """`id` is unique for ever; `parent` is the lineage that a rewind left, or empty. `fingerprint` is that of the newest plan."""

    id: str
    owner: str
    query: str
    fingerprint: str
    state_fingerprint: str
    sources: tuple[str, ...]
    created_at: str
    parent: str = ""
    parts: Mapping[str, str] = field(default_factory=dict)
    """node → fingerprint in the newest plan, by which `plan` names the steps that changed"""
    starts: Mapping[str, int] = field(default_factory=dict)
    """source → the position from which a rewind, or a move from other tiers, lets it read; 0 for others"""
    origin: str = ""
    """`moved` where it goes on in place of Queries of other tiers; `anew` where it begins in a folder that a Query was moved away from"""
    passed: Mapping[str, int] = field(default_factory=dict)
    """of a channel that it goes on with: rows that others have read of it"""
    types: Mapping[str, str] = field(default_factory=dict)
    """sink → its type, also of those that have left; without those whose plan did not say it"""
    first: int = 0
    """the number of its first Batch: where it goes on with the state of another Query, that of the last one in there, of which it has
    no rows"""


def read_lineage(query: QueryFolder) -> Lineage | None:
    """The present lineage, or None if the Query never ran. Raises Refused while a rewind is under way."""
    if query.rewind.exists():
        raise Refused(
            f'query "{query.name}": a rewind to an earlier position is in progress or was interrupted',
            remedy="try again; if it was interrupted, the next run or the same `offsets set` completes it",
            code="rewind-unfinished",
        )
    data = storage.read_or_none(query.lineage)
    return None if data is None else _unsealed(data, query.lineage)


def past_lineages(query: QueryFolder) -> list[tuple[QueryFolder, Lineage]]:
    """The lineages that rewinds have left, oldest first, each with its folder."""
    found = []
    lineage = read_lineage(query)
    while lineage is not None and lineage.parent:
        folder = query.past(lineage.parent)
        lineage = read_lineage(folder)
        if lineage is not None:
            found.append((folder, lineage))
    return found[::-1]


def lift_state(query: QueryFolder, lineage: str, to: QueryFolder) -> None:
    """Under the leases: take the checkpoint of a lineage that is going to be left out of its Query's folder, for `set_down`. May be killed
    at any point and done again."""
    data = storage.read_or_none(query.lineage)
    if data is None or _unsealed(data, query.lineage).id != lineage or not query.checkpoint.exists() or to.carried.exists():
        return
    storage.make_folder(to.path)
    query.checkpoint.rename(to.carried)
    storage.sync_folder(query.path)
    storage.sync_folder(to.path)


def set_down(query: QueryFolder) -> None:
    """Under the lease, its lineage begun: let the Query go on with what was lifted for it. May be killed and done again."""
    if query.carried.exists():
        query.carried.rename(query.checkpoint)
        storage.sync_folder(query.path)


def begin_moved(query: QueryFolder, begun: Lineage) -> None:
    """Under the lease: let `begun` be the Query's lineage; one that was there is left by now (`leave`). May be killed at any point and done
    again; the logs that `begun` starts from must be there by then, in `query.sources`."""
    data = storage.read_or_none(query.lineage)
    if data is None or _unsealed(data, query.lineage).id != begun.id:
        storage.make_folder(query.path)
        storage.replace(query.lineage, _sealed(begun))


def leave(query: QueryFolder, begun: str) -> None:
    """Under the lease: put the lineage that is there, unless it is `begun`, where `past_lineages` finds it, all that it knows with it. May
    be killed at any point and done again."""
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
    """Under the lease, all that was decided published: leave the Query's lineage, and begin one that reads from `starts` on.

    What the old one has decided, and its dead letters, are kept beside it; the logs of the sources belong to both. May be killed at
    any point; `finish_rewind` completes it.
    """
    old = read_lineage(query)
    assert old is not None, "a query that never ran is at the start of its sources"
    begun = replace(old, id=new_id(), created_at=now_text(), parent=old.id, starts=dict(starts), origin="", passed={}, first=0)
    storage.put_if_absent(query.rewind, _sealed(begun))
    finish_rewind(query)
    return begun


def finish_rewind(query: QueryFolder) -> None:
    """Under the lease: complete an interrupted rewind."""
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
    """Under the lease: the Query's lineage, begun here or found. A changed plan of the same state is taken over.

    Raises Refused if the state in the checkpoint means something else than the plan's, or belongs to another installation, or where a
    sink for which Batches were decided is of another type now.
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
    newest = {**found.types, **begun.types}  # a sink that is away for a while comes back as what it was
    current = replace(
        found, fingerprint=fingerprint, state_fingerprint=state_fingerprint, sources=begun.sources, parts=begun.parts, types=newest
    )
    if current != found:
        storage.replace(query.lineage, _sealed(current))
    return current


def check_lineage(query: QueryFolder, found: Lineage, *, owner: str, state_fingerprint: str, types: Mapping[str, str]) -> None:
    """Raises Refused if a plan cannot go on with the lineage that was found; see `open_lineage`. Changes nothing."""
    if found.owner != owner:
        raise Refused(
            f'the state of query "{query.name}" in {query.path} belongs to another installation',
            remedy=(
                "run the flow from the state folder that it was created in; or give the sinks other "
                f"places, and {start_over(outputs=False)}"
            ),
            code="state-foreign",
        )
    if found.state_fingerprint != state_fingerprint and query.checkpoint.exists():
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


def types_changed(before: Mapping[str, str], now: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """(sink, the type that it had, the one it has) of each that is still there."""
    return [(sink, before[sink], type_) for sink, type_ in now.items() if before.get(sink, type_) != type_]


def new_id() -> str:
    """A new id for a lineage."""
    return uuid4().hex[:16]


def _unsealed(data: bytes, where: object) -> Lineage:
    body: dict[str, Any] = unseal(data, _KIND, _FORMAT, where)
    return Lineage(**body | {"sources": tuple(body["sources"])})


def _sealed(lineage: Lineage) -> bytes:
    return seal(_KIND, _FORMAT, asdict(lineage))
