"""The lineage of a Query: the life of its checkpoint, from the first Batch to a reset."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from scribengin.core import storage
from scribengin.core.errors import Refused
from scribengin.core.records import seal, unseal

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


def read_lineage(query: QueryFolder) -> Lineage | None:
    """The lineage that is there, or None where the Query never ran."""
    data = storage.read_or_none(query.lineage)
    if data is None:
        return None
    body: dict[str, Any] = unseal(data, _KIND, _FORMAT, query.lineage)
    return Lineage(**body | {"sources": tuple(body["sources"])})


def open_lineage(
    query: QueryFolder,
    *,
    owner: str,
    fingerprint: str,
    state_fingerprint: str,
    sources: Iterable[str],
    parts: Mapping[str, str] | None = None,
    parent: str = "",
) -> Lineage:
    """Under the lease: the Query's lineage, begun here or found. A changed plan of the same state is taken over.

    Raises Refused where the state in the checkpoint means something else than the plan's, or belongs to another installation.
    """
    created = datetime.now(UTC).isoformat(timespec="seconds")
    begun = Lineage(uuid4().hex[:16], owner, query.name, fingerprint, state_fingerprint, tuple(sources), created, parent, dict(parts or {}))
    storage.put_if_absent(query.lineage, _sealed(begun))
    found = read_lineage(query)
    assert found is not None
    if found.owner != owner:
        raise Refused(
            f'the state of query "{query.name}" in {query.path} belongs to another installation',
            remedy="run it from the state folder it was made in, or begin anew: scribengin reset FLOW --yes",
            code="state-foreign",
        )
    if found.state_fingerprint != state_fingerprint and query.checkpoint.exists():
        raise Refused(
            f'query "{query.name}": a stateful step, or what feeds it, has changed; the state in {query.checkpoint} means something else',
            remedy="undo the change, or begin anew: scribengin reset FLOW --yes",
            code="state-changed",
        )
    current = replace(found, fingerprint=fingerprint, state_fingerprint=state_fingerprint, sources=begun.sources, parts=begun.parts)
    if current != found:
        storage.replace(query.lineage, _sealed(current))
    return current


def _sealed(lineage: Lineage) -> bytes:
    return seal(_KIND, _FORMAT, asdict(lineage))
