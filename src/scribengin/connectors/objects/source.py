"""The source: objects below a url, each read once, in the order of their keys; their contents are read like those of files."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Any, cast

from scribengin.connectors.files.pieces import FilePiece, pieces_of
from scribengin.connectors.files.source import FilesSource
from scribengin.connectors.objects.address import ObjectsAddress
from scribengin.connectors.objects.ranges import RangedFile
from scribengin.connectors.objects.reader import ObjectsReader, how_changed, number_of
from scribengin.core.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from scribengin.connectors.contract import ConnectorContext, SourceStream
    from scribengin.core.store import Store
    from scribengin.core.types import Schema
    from scribengin.formats.contract import Block, Decoder

_OF_FILES = {"path": "", "growing": False, "settle": 0.0, "when_done": "keep", "archive": None}


class ObjectsSource:
    """See the contract; picklable."""

    def __init__(self, place: ConnectorContext) -> None:
        self._node = place.node
        self._options = place.options
        self._address = ObjectsAddress.of(place.node, place.options, place.folder)
        self._content = _Content(place, self._address)

    @property
    def schema(self) -> Schema | None:
        """See the contract."""
        return self._content.schema

    @schema.setter
    def schema(self, schema: Schema | None) -> None:
        self._content.schema = schema

    def resolve_schema(self) -> Schema:
        """The declared columns; `value STRING` for text; for Parquet those of the first object if none are declared."""
        return self._content.resolve_schema()

    def reader(self) -> ObjectsReader:
        """A fresh reader. Raises SourceError if a sink writes there, whose manifests define which objects are committed; the store's
        errors."""
        options = self._options
        return ObjectsReader(
            self._address,
            divide=self._content.divided,
            match=options["match"],
            ordered=options["names"] == "sorted",
            look_s=options["look"],
            split_bytes=options["split"],
            max_files=options["max_files"],
            max_bytes=options["max_bytes"],
            stop_on_change=options["on_change"] == "stop",
            check_first=self._content.check_object,
        )

    def check_place(self) -> None:
        """See PlaceChecking."""
        self._address.check_place()

    def check_first(self) -> None:
        """See `FilesSource.check_first`."""
        self._content.check_first()

    def check_keys(self) -> None:
        """See `FilesSource.check_keys`."""
        self._content.check_keys()

    def decoder(self) -> Decoder:
        """A fresh decoder of the source's format."""
        return self._content.decoder()

    def read(self, stream: SourceStream) -> Iterator[Block]:
        """The blocks of the stream's pieces in order. Raises SourceError for an object that differs from its record."""
        return self._content.read(stream)


class _Object:
    """An object with the operations of a file path that `FilesSource` uses."""

    def __init__(self, store: Store, key: str, size: int) -> None:
        self._store, self._key, self._size = store, key, size
        self.name = key.rpartition("/")[2]

    def __str__(self) -> str:
        return f"{self._store}/{self._key}"

    def open(self, _mode: str = "rb", buffering: int = 0) -> RangedFile:
        """Open the object for reads and seeks."""
        assert buffering <= 0
        return RangedFile(self._store, self._key, self._size)


class _Content(FilesSource):
    """Objects presented as files."""

    def __init__(self, place: ConnectorContext, address: ObjectsAddress) -> None:
        super().__init__(_with(place, {**place.options, **_OF_FILES}))
        self.address = address
        self._match: str | None = place.options["match"]
        self._opened_store: Store | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_opened_store": None}

    def read(self, stream: SourceStream) -> Iterator[Block]:
        """See the contract."""
        for piece in pieces_of(stream):
            path = cast("Path", _Object(self._store, piece.path, piece.size))
            with self._opened(path, piece) as file:
                yield from self._content(file, path, piece)

    def check_first(self) -> None:
        """Check the first object, as `FilesSource.check_first` does."""
        first = ObjectsReader(self.address, divide=lambda piece: [piece], match=self._match).first()
        if first is not None and first.size:
            self.check_object(first.key, first.size)

    def check_keys(self) -> None:
        """Check the columns of the first object only: reading those of all objects costs a request each."""
        first = ObjectsReader(self.address, divide=lambda piece: [piece], match=self._match).first()
        if first is not None and first.size:
            self._refuse(self._without_key(cast("Path", _Object(self._store, first.key, first.size)), first.size))

    def check_object(self, key: str, size: int) -> None:
        """Check an object of `size` bytes by its first bytes."""
        self.check_file(cast("Path", _Object(self._store, key, size)), size)

    def _own_names(self, path: Path) -> list[str] | None:
        return super()._own_names(cast("Path", path.open("rb", buffering=0)) if self._format == "parquet" else path)

    def divided(self, piece: FilePiece) -> list[FilePiece]:
        """The object, which is a whole one, as pieces for tasks."""
        if self._format == "parquet":
            from scribengin.connectors.files.parquet import divide_groups

            return divide_groups(cast("Path", RangedFile(self._store, piece.path, piece.size)), piece, self._options["split"])
        return self._divide(cast("Path", _Object(self._store, piece.path, piece.size)), piece)

    @contextmanager
    def _opened(self, path: Path, piece: FilePiece) -> Iterator[IO[bytes]]:
        """Open the object; it is compared with its record before and after reading."""
        try:
            self._compare(path, piece)
            yield cast("IO[bytes]", path.open("rb", buffering=0))
            self._compare(path, piece)
        except FileNotFoundError:
            raise SourceError(
                f"{path} is missing; it had {piece.size} bytes, and its Batch is not yet committed",
                remedy="restore it unchanged; a user, or a rule of the bucket, may have deleted it",
            ) from None

    def _compare(self, path: Path, piece: FilePiece) -> None:
        now = self._store.head(piece.path)
        if now is None:
            raise FileNotFoundError(str(path))
        if self._stop_on_change and (now.size, number_of(now.etag)) != (piece.size, piece.inode):
            raise SourceError(
                f"{path} changed after it was assigned to a Batch that is not yet committed: {how_changed(piece.size, now.size)}",
                remedy="restore the old content, or set `on_change: ignore`; put new records into new objects",
            )

    def _schema_of_first_file(self) -> Schema:
        from scribengin.connectors.files.parquet import schema_of_file

        reader = ObjectsReader(self.address, divide=lambda piece: [piece], match=self._match)
        first = reader.first()
        if first is None:
            raise SourceError(
                f"{self.address} holds no Parquet object yet from which the columns could be read", remedy="declare them with `schema:`"
            )
        return schema_of_file(cast("Path", RangedFile(self._store, first.key, first.size)))

    @property
    def _store(self) -> Store:
        opened = self._opened_store
        if opened is None:
            opened = self._opened_store = self.address.open()
        return opened


def _with(place: ConnectorContext, options: dict[str, Any]) -> ConnectorContext:
    return replace(place, options=options)
