"""Objects that are written by one process and get there when another says so: by uploads in parts, or, where a store can, by renaming."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from scribengin.core.errors import StateError
from scribengin.core.remedies import start_over
from scribengin.core.store import StoreWriter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scribengin.core.store import Store


class LaterWriter(StoreWriter, Protocol):
    """As a StoreWriter, but that after `finish` nobody sees it: `Later.complete` wants what is said here then."""

    @property
    def upload(self) -> str:
        """What the store calls it meanwhile."""

    @property
    def etags(self) -> list[str]:
        """Of its parts, once it is finished."""


class Later(Protocol):
    """Of one store."""

    def writer(self, key: str) -> LaterWriter:
        """An object in the making; the key must be one that nobody else writes."""

    def complete(self, key: str, upload: str, etags: Sequence[str]) -> bool:
        """Make it the object, in whatever process; False where there is none of that name (any more)."""


def later_of(store: Store) -> Later:
    """Raises SinkError where the store cannot."""
    from scribengin.connectors.hdfs.store import HdfsStore
    from scribengin.connectors.objects.uploads import Uploads

    return store.later() if isinstance(store, HdfsStore) else Uploads(store)  # type: ignore[arg-type]


def complete(store: Store, later: Later, file: Mapping[str, Any], named_by: str) -> None:
    """Make an object visible that `named_by`, a Batch or a turn, says is written, unless that was done. Raises StateError where it is
    gone."""
    if later.complete(file["name"], file["upload"], file["etags"]):
        return
    found = store.head(file["name"])
    if found is None or found.size != file["bytes"]:
        raise StateError(
            f"{named_by} names {store}/{file['name']}, which is missing, and its upload is gone",
            remedy=f"look whether somebody, or a rule of the store, deletes what is not complete; {start_over()}",
        )
