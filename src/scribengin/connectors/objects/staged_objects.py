"""Objects that one process writes and another makes visible: by multipart uploads, or, in a store that supports it, by renaming."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from scribengin.core.errors import StateError
from scribengin.core.remedies import start_over
from scribengin.core.store import StoreWriter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scribengin.core.store import Store


class LaterWriter(StoreWriter, Protocol):
    """Like a StoreWriter, but the object is not visible after `finish`: `Later.complete` needs the values of these properties."""

    @property
    def upload(self) -> str:
        """The store's name for the unfinished object."""

    @property
    def etags(self) -> list[str]:
        """The tags of its parts, after `finish`."""


class Later(Protocol):
    """Writes unfinished objects of one store, and makes them visible."""

    def writer(self, key: str) -> LaterWriter:
        """A writer for an unfinished object; no other process may write the key."""

    def complete(self, key: str, upload: str, etags: Sequence[str]) -> bool:
        """Make an object visible. Any process may call it.

        Args:
            key: The key of the object.
            upload: `LaterWriter.upload`.
            etags: `LaterWriter.etags`.

        Returns:
            False if there is no unfinished object of that name (any more).
        """


def later_of(store: Store) -> Later:
    """The Later of a store. Raises SinkError if the store does not support it."""
    from scribengin.connectors.hdfs.store import HdfsStore
    from scribengin.connectors.objects.s3 import Uploads

    return store.later() if isinstance(store, HdfsStore) else Uploads(store)  # type: ignore[arg-type]


def complete(store: Store, later: Later, file: Mapping[str, Any], named_by: str) -> None:
    """Make an object visible, unless it is already.

    Args:
        store: The store.
        later: The Later of the store.
        file: The entry of the object in the record.
        named_by: The Batch or compaction run whose record names the object, for messages.

    Raises:
        StateError: Neither the object nor its upload exists any more.
    """
    if later.complete(file["name"], file["upload"], file["etags"]):
        return
    found = store.head(file["name"])
    if found is None or found.size != file["bytes"]:
        raise StateError(
            f"{named_by} names {store}/{file['name']}, which is missing, and so is its upload",
            remedy=f"check whether a user, or a rule of the store, deletes incomplete uploads; {start_over()}",
        )
