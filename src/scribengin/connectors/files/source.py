"""The files source: what a flow says becomes a reader (driver) and blocks (executors)."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING

from scribengin.connectors.files.bytestreams import compression_of, range_start, read_compressed, read_range
from scribengin.connectors.files.cutting import CsvCutter, Cutter, Damage, LineFinder, take_header
from scribengin.connectors.files.discovery import Discovery
from scribengin.connectors.files.options import SOURCE
from scribengin.connectors.files.pieces import Piece, cut, pieces_of, root_of
from scribengin.connectors.files.reader import FilesReader, Taking
from scribengin.core.errors import SourceError
from scribengin.formats.catalog import decoder_for
from scribengin.formats.csv_records import split_cells, whole_records_end

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scribengin.connectors.contract import Place, SourceStream
    from scribengin.core.types import Schema
    from scribengin.formats.contract import Block, Decoder


class FilesSource:
    """Files of one format below one path; picklable."""

    _readers: type[FilesReader] = FilesReader

    def __init__(self, place: Place) -> None:
        self.schema: Schema | None = place.schema
        self._options = SOURCE.filled(place.options)
        self._folder = place.folder
        self._path = place.folder / Path(self._options["path"]).expanduser()
        self._learned = place.learned
        self._node = place.node
        self._flow = place.flow
        self._format: str = self._options["format"]
        self._growing: bool = self._options["growing"]
        self._stop_on_change = self._options["on_change"] == "stop"

    def resolve_schema(self) -> Schema:
        """The declared columns; `value STRING` for text; a Parquet source may leave them to its first file."""
        if self.schema is None:
            if self._format == "text":
                from scribengin.formats.text import TEXT_SCHEMA

                self.schema = TEXT_SCHEMA
            elif self._format == "parquet":
                self.schema = self._schema_of_first_file()
            else:
                raise SourceError(
                    f'source "{self._node}" reads {self._format} and declares no columns',
                    remedy="add `schema:`, such as: id BIGINT, name STRING",
                )
        return self.schema

    def reader(self) -> FilesReader:
        """A fresh reader. Raises SourceError where the path is missing or forbidden."""
        options = self._options
        discovery = Discovery(self._path)
        taking = Taking(
            split_bytes=options["split"],
            settle_s=options["settle"],
            growing=self._growing,
            stop_on_change=self._stop_on_change,
            max_files=options["max_files"],
            max_bytes=options["max_bytes"],
        )
        return self._readers(
            discovery, taking, folder=self._folder, divide=self._divide, grows=self._grows, whole_lines=self._whole_lines, flow=self._flow
        )

    def decoder(self) -> Decoder:
        """A fresh decoder of the source's format."""
        return decoder_for(self._format, self.resolve_schema(), self._options)

    def read(self, stream: SourceStream) -> Iterator[Block]:
        """The blocks of the stream's pieces in order. Raises SourceError for a file that is not as it was recorded."""
        root = self._folder / root_of(stream)
        for piece in pieces_of(stream):
            path = root / piece.path
            with self._opened(path, piece) as file:
                match self._format:
                    case "parquet":
                        yield from self._parquet(file, path, piece)
                    case "avro":
                        yield from self._avro(file, path, piece)
                    case _:
                        yield from self._text(file, path, piece)

    @contextmanager
    def _opened(self, path: Path, piece: Piece) -> Iterator[IO[bytes]]:
        """The file, compared with what was recorded, before it is read and after."""
        try:
            with path.open("rb", buffering=0) as file:
                self._compare(path, piece)
                yield file
                self._compare(path, piece)
        except FileNotFoundError:
            raise SourceError(
                f"{path} is gone; it was taken with {piece.size} bytes and is not yet committed",
                remedy=f"restore it, or give it up: scribengin source skip FLOW {piece.path}",
            ) from None
        except PermissionError:
            raise SourceError(f"{path} may not be read by this user", remedy=f"give the right to read it: chmod a+r {path}") from None

    def _compare(self, path: Path, piece: Piece) -> None:
        now = path.stat()
        if self._growing and self._grows(piece.path):
            same = now.st_size >= piece.end and now.st_ino == piece.inode
        else:
            same = (now.st_size, now.st_mtime_ns) == (piece.size, piece.mtime_ns)
        if not same and self._stop_on_change:
            raise SourceError(
                f"{path} changed after it was taken with {piece.size} bytes; it has {now.st_size} now and is not yet committed",
                remedy=f"restore it with its old time, or give it up: scribengin source skip FLOW {piece.path}, or set `on_change: ignore`",
            )

    def _text(self, file: IO[bytes], path: Path, piece: Piece) -> Iterator[Block]:
        compression = compression_of(piece.path, self._options["compression"])
        chunks: Iterator[bytes | Damage]
        if compression != "none":
            start, finder = 0, None
            chunks = read_compressed(file, compression)
        else:
            start = range_start(file, piece.start, piece.end)
            finder = LineFinder(path) if start else None  # from the start of a file lines are counted on the way
            chunks = read_range(file, start, piece.end, piece.size) if start < piece.end else iter(())
        max_record = self._options["max_record"]
        if self._format == "csv":
            yield from self._csv(chunks, path, start, CsvCutter(str(path), max_record, finder, delimiter=self._options["delimiter"]))
        else:
            yield from Cutter(str(path), max_record, finder).cut(chunks, start)

    def _csv(self, chunks: Iterator[bytes | Damage], path: Path, start: int, cutter: CsvCutter) -> Iterator[Block]:
        if self._options["header"]:
            if start == 0:
                header, start, chunks = take_header(chunks, cutter.delimiter)
            else:
                with path.open("rb", buffering=0) as file:
                    header, _, _ = take_header(read_range(file, 0, start, start), cutter.delimiter)
            cutter = replace(cutter, header=self._names(header, path, cutter.delimiter), first_line=2 + header.count(b"\n"))
        yield from cutter.cut(chunks, start)

    def _names(self, header: bytes, path: Path, delimiter: str) -> tuple[str, ...]:
        """The columns' names. Raises SourceError where a declared one stands twice."""
        names = split_cells(header.decode("utf-8", "replace"), delimiter, null="") or []
        twice = [name for name in self.resolve_schema().names if names.count(name) > 1]
        if twice:
            raise SourceError(f'{path} has the column "{twice[0]}" twice', remedy="correct its first line, or move the file away")
        return tuple(name or "" for name in names)

    def _parquet(self, file: IO[bytes], path: Path, piece: Piece) -> Iterator[Block]:
        from scribengin.connectors.files.parquet import read_groups

        yield from read_groups(file, path, piece, self.resolve_schema(), self._learned)

    def _avro(self, file: IO[bytes], path: Path, piece: Piece) -> Iterator[Block]:
        from scribengin.connectors.files.avro import read_piece

        yield from read_piece(file, path, piece, self.resolve_schema(), self._learned)

    def _divide(self, path: Path, piece: Piece) -> list[Piece]:
        """A finished file as pieces for tasks: byte ranges of plain lines, row groups of Parquet, blocks of Avro, else the whole."""
        split = self._options["split"]
        if self._format == "parquet":
            from scribengin.connectors.files.parquet import divide_groups

            return divide_groups(path, piece, split)
        if self._format == "avro":
            from scribengin.connectors.files.avro import divide_blocks

            return divide_blocks(path, piece, split)
        if self._format == "csv" or compression_of(piece.path, self._options["compression"]) != "none":
            return [piece]
        return cut(piece, split)

    def _grows(self, path: str) -> bool:
        return self._format not in ("parquet", "avro") and compression_of(path, self._options["compression"]) == "none"

    def _whole_lines(self, path: Path, start: int, end: int) -> int:
        """Where the last whole line (CSV: record) between `start` and `end` ends; `start` where there is none."""
        with path.open("rb") as file:
            if self._format == "csv":
                file.seek(start)
                return start + whole_records_end(file.read(end - start), self._options["delimiter"])
            while end > start:
                size = min(1 << 16, end - start)
                file.seek(end - size)
                found = file.read(size).rfind(b"\n")
                if found >= 0:
                    return end - size + found + 1
                end -= size
        return start

    def _schema_of_first_file(self) -> Schema:
        from scribengin.connectors.files.parquet import schema_of_file

        discovery = Discovery(self._path)
        paths = discovery.changed() or []
        if not paths:
            raise SourceError(f"{self._path} holds no Parquet file yet that could say its columns", remedy="declare them with `schema:`")
        return schema_of_file(discovery.root / paths[0])
