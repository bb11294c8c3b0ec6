"""Objects that one process writes and another makes visible: by multipart uploads, or, in a store that can, by renaming."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from scribengin.core.errors import StateError
from scribengin.core.remedies import start_over
from scribengin.core.store import StoreWriter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scribengin.core.store import Store


class LaterWriter(StoreWriter, Protocol):
    """Like a StoreWriter, but the object is not visible after `finish`: `Later.complete` needs the values returned here."""

    @property
    def upload(self) -> str:
        """The store's name for it until then."""

    @property
    def etags(self) -> list[str]:
        """The tags of its parts, after it is finished."""


class Later(Protocol):
    """For one store."""

    def writer(self, key: str) -> LaterWriter:
        """An unfinished object; no other process may write the key."""

    def complete(self, key: str, upload: str, etags: Sequence[str]) -> bool:
        """Make it visible, in any process; False if there is no object of that name (any more)."""


def later_of(store: Store) -> Later:
    """Raises SinkError if the store does not support it."""
    from scribengin.connectors.hdfs.store import HdfsStore
    from scribengin.connectors.objects.s3 import Uploads

    return store.later() if isinstance(store, HdfsStore) else Uploads(store)  # type: ignore[arg-type]


def complete(store: Store, later: Later, file: Mapping[str, Any], named_by: str) -> None:
    """Make an object visible that `named_by`, a Batch or a compaction run, records as written, unless that was done. Raises StateError if
    it does not exist any more."""
    if later.complete(file["name"], file["upload"], file["etags"]):
        return
    found = store.head(file["name"])
    if found is None or found.size != file["bytes"]:
        raise StateError(
            f"{named_by} names {store}/{file['name']}, which is missing, and so is its upload",
            remedy=f"check whether a user, or a rule of the store, deletes incomplete uploads; {start_over()}",
        )
