"""The files source: options become a reader (driver) and blocks (executors)."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from scribengin.connectors.files.discovery import Discovery
from scribengin.connectors.files.first_file import (
    HEAD_BYTES,
    MAGIC_BYTES,
    Unlike,
    csv_remedy,
    folded,
    json_names,
    kind_of,
    unlike_encoding,
    unlike_mapping,
    unlike_names,
    unlike_quotes,
    why_unlike,
    why_unlike_inside,
    without_key,
    without_key_remedy,
)
from scribengin.connectors.files.following import located
from scribengin.connectors.files.growing import FilesPacking, GrowingReader, MovedPath, rest_of
from scribengin.connectors.files.identity import ANY_DEVICE, FileStatus
from scribengin.connectors.files.json_splitting import JsonCutter, misshapen, shape_of
from scribengin.connectors.files.multiline import MultilineCutter
from scribengin.connectors.files.multiline import whole_records_end as whole_events_end
from scribengin.connectors.files.options import SOURCE, list_keys
from scribengin.connectors.files.pieces import FilePiece, cut, pieces_of, root_of
from scribengin.connectors.files.reader import FilesReader, ReadOptions, difference, give_old_time
from scribengin.connectors.files.splitting import (
    CHUNK_BYTES,
    CsvCutter,
    Cutter,
    Damage,
    LineFinder,
    compression_of,
    in_utf_8,
    marking_holes,
    range_start,
    read_bytes,
    read_compressed,
    read_range,
    skip_lines,
    take_header,
)
from scribengin.core.errors import SourceError
from scribengin.core.remedies import flow_command
from scribengin.core.types import Schema, with_added, without_added
from scribengin.formats.added_columns import AddedColumns, folder_values, folders_in
from scribengin.formats.blocks import DamageBlock, FileFacts
from scribengin.formats.catalog import decoder_for
from scribengin.formats.constants import PAYLOAD_BYTES
from scribengin.formats.csv_records import CsvBlock, split_cells, whole_records_end
from scribengin.formats.dialect import AUTO, LF, LINE_ENDS, Dialect, codec_of, line_end_of, unit_bytes
from scribengin.formats.json_types import MisfitError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from scribengin.connectors.contract import ConnectorContext, SourceStream
    from scribengin.core.types import Field
    from scribengin.formats.contract import Block, Decoder
    from scribengin.formats.dialect import LineEnd


_ENOUGH = 10
"""number of JSON objects that are checked. Objects may omit nulls: with fewer objects, the next one may well have a column that none had"""


def _unknown(_offset: int) -> int | None:
    """The number of a line at a position that follows bytes whose lines were not counted: None, it is not known."""
    return None


class FilesSource:
    """A source of files of one format below one path; picklable."""

    _readers: type[FilesReader] = FilesReader

    def __init__(self, place: ConnectorContext) -> None:
        self.schema: Schema | None = place.schema
        self._options = SOURCE.filled(place.options)
        self._folder = place.folder
        self._path = place.folder / Path(self._options["path"]).expanduser()
        self._learned = place.learned
        self._node = place.node
        self._any_columns = place.any_columns
        self._flow = place.flow
        self._static = place.static
        self._keys = place.keys
        self._columns: Mapping[str, str] = self._options.get("columns") or {}
        self._format: str = self._options["format"]
        self._growing: bool = self._options["growing"]
        self._stop_on_change = self._options["on_change"] == "stop"
        self._encoding: str = self._options.get("encoding") or "utf-8"
        self._line_end: str = self._options.get("line_end") or "auto"
        self._looks_for_line_end = self._line_end == "auto" and self._format in ("csv", "text") and not self._growing
        self._dialect = Dialect.of(self._options) if self._format == "csv" else Dialect()
        shape = self._options["json"] or {}
        self._shape: str = shape.get("shape") or "lines"
        self._records: str = shape.get("records") or ""
        self._multiline: str = (self._options["multiline"] or {}).get("start") or ""
        self._tells_facts = bool({"file_time", "file_size"}.intersection(self._options["metadata"].values()))

    def resolve_schema(self) -> Schema:
        """The declared columns; `value STRING` for text; for Parquet those of the first file if none are declared."""
        if self.schema is None:
            if self._format == "text":
                from scribengin.formats.text import TEXT_SCHEMA

                self.schema = with_added(TEXT_SCHEMA, self._options)
            elif self._format == "parquet":
                self.schema = self._with_added(self._schema_of_first_file())
            else:
                raise SourceError(
                    f'source "{self._node}" reads {self._format} and declares no columns',
                    remedy="add `schema:`, such as: id BIGINT, name STRING",
                )
        return self.schema

    def _with_added(self, found: Schema) -> Schema:
        """The columns with the metadata columns. Raises SourceError if a file has a column of the same name."""
        own = {name.lower() for name in found.names}
        both = [name for name in self._options["metadata"] if name.lower() in own]
        if both:
            raise SourceError(
                f'source "{self._node}": metadata adds the column "{both[0]}", and its files have a column of that name',
                remedy=f"give it another name: metadata: {{{both[0]}_of_record: {self._options['metadata'][both[0]]}}}",
            )
        return with_added(
            Schema(tuple(field for field in found.fields if field.name not in self._options["partition_columns"])), self._options
        )

    def _own_schema(self) -> Schema:
        """The columns that files hold."""
        return without_added(self.resolve_schema(), self._options)

    def reader(self) -> FilesReader:
        """A fresh reader. Raises SourceError if the path does not exist or access is denied."""
        options = self._options
        discovery = Discovery(self._path, awaited=self._growing)
        taking = ReadOptions(
            split_bytes=options["split"],
            settle_s=options["settle"],
            growing=self._growing,
            stop_on_change=self._stop_on_change,
            max_files=options["max_files"],
            max_bytes=options["max_bytes"],
        )
        given: dict[str, Any] = {
            "folder": self._folder,
            "divide": self._divide,
            "grows": self._grows,
            "whole_lines": self._whole_lines,
            "check_first": self.check_file,
            "flow": self._flow,
        }
        return (
            GrowingReader(discovery, taking, packing=self._packing(), **given)
            if self._growing
            else self._readers(discovery, taking, **given)
        )

    def _packing(self) -> FilesPacking:
        return FilesPacking(self._options["compression"])

    def check_first(self) -> None:
        """Check the first file. Raises SourceError if it has so few of the columns that they would be null in every row, or lacks a key."""
        path = next(self._present(), None)
        if path is not None:
            self.check_file(path, path.stat().st_size)

    def check_keys(self) -> None:
        """Check the files of a lookup table. Raises SourceError if one lacks a column that the flow reads as a key."""
        for path in self._present() if self._keys else ():
            with suppress(OSError):  # the reader reports it, with the remedy
                self._refuse(self._without_key(path, path.stat().st_size))

    def _present(self) -> Iterator[Path]:
        """The existing files that are not empty."""
        discovery = Discovery(self._path, awaited=self._growing)
        paths = (discovery.root / path for path in discovery.changed() or ())
        return (path for path in paths if path.stat().st_size)

    def check_file(self, path: Path, size: int) -> None:
        """Check a file of `size` bytes by its first bytes. Raises SourceError."""
        try:
            found = None if self._any_columns else self.unlike(path, size)
        except OSError:
            return  # the reader reports it, with the remedy
        self._refuse(found)

    def _refuse(self, found: Unlike | None) -> None:
        if found is not None:
            remedy = f"{found.remedy or 'correct `schema:`'}; or, if the files are correct: --accept columns"
            error = SourceError(found.message, remedy=remedy, code="source-columns", node=self._node)
            error.option = found.option
            raise error

    def unlike(self, path: Path, size: int) -> Unlike | None:
        """How the file differs from the flow's columns; None if it does not. Raises SourceError if it cannot be read."""
        return self._unlike_schema(path, size) or self._without_key(path, size)

    def _unlike_schema(self, path: Path, size: int) -> Unlike | None:
        asked = self.resolve_schema()
        beside = {*self._learned, *(self._options.get("metadata") or ()), *(self._options.get("partition_columns") or ())}
        if self._format in ("parquet", "avro"):
            own_names = self._own_names(path)
            return None if own_names is None else self._in_folders(path, own_names) or unlike_names(str(path), own_names, asked, beside)
        head = self._head(path, size)
        found = unlike_encoding(str(path), head, self._format, self._encoding)
        if found is not None or self._format == "text" or not head.strip():
            return found
        if self._format == "json":
            names, objects = self._json_names(head)
            sure = objects >= _ENOUGH
            return self._in_folders(path, names) or unlike_names(str(path), names, asked, beside, sure=sure) if names else None
        if self._options.get("parse") == "spark":
            return None
        block = self._first_block(path, size)
        if block is None:
            return None
        names = list(block.header or ())
        wrong = unlike_mapping(str(path), self._columns, names, self._keys)
        if wrong is not None:
            # the names as in the file: the cause may be the splitting of the header, not a name
            raw = Schema(tuple(replace(field, name=self._columns.get(field.name, field.name)) for field in asked.fields))
            way = csv_remedy(head, [self._columns.get(name, name) for name in names], raw, self._options)
            return replace(wrong, remedy=way, option="") if "delimiter" in way or "skip_lines" in way else wrong
        found = self._in_folders(path, names) or unlike_names(str(path), names, asked, beside, header=True)
        if found is None:
            return None if self._options.get("quote") is not None else unlike_quotes(block)
        own = Schema(tuple(field for field in asked.fields if field.name not in beside))
        return replace(found, remedy=csv_remedy(head, names, own, self._options) or found.remedy)

    def _without_key(self, path: Path, size: int) -> Unlike | None:
        """The error for a file that lacks a column which the flow reads as a key; None if it has them all. For JSON, enough records must
        lack it."""
        own = [name for name in self._own_schema().names if name in self._keys and name not in self._learned] if self._keys else []
        names = self._names_in(path, size) if own else []
        missing = next((name for name in own if name not in names), None)
        if missing is None or not names:
            return None
        if missing in self._columns:
            return unlike_mapping(str(path), self._columns, names, self._keys)
        remedy = without_key_remedy(self.resolve_schema()[missing], header=self._format == "csv", static=self._static)
        return without_key(str(path), missing, self._keys[missing], names, remedy)

    def _names_in(self, path: Path, size: int) -> list[str]:
        """The columns of the file, if its start shows all of them; otherwise none."""
        if self._format in ("parquet", "avro"):
            return self._own_names(path) or []
        if self._format == "json":
            names, records = self._json_names(self._head(path, size))
            return names if self._static or records >= _ENOUGH else []
        if self._format != "csv" or self._options.get("parse") == "spark":
            return []
        block = self._first_block(path, size)
        return [] if block is None else list(block.header or ())

    def _head(self, path: Path, size: int) -> bytes:
        """The first bytes of the content of a text file."""
        compression = compression_of(str(path), self._options["compression"])
        with path.open("rb", buffering=0) as file:
            chunks = read_bytes(file, 0, min(size, HEAD_BYTES)) if compression == "none" else read_compressed(file, compression)
            return next((chunk for chunk in chunks if isinstance(chunk, bytes)), b"")[:HEAD_BYTES]

    def _json_names(self, head: bytes) -> tuple[list[str], int]:
        """The names in the first objects of a file of lines, and the number of objects that were read."""
        return ([], 0) if self._options.get("json") else json_names(head.removeprefix(b"\xef\xbb\xbf").split(b"\n"))

    def _first_block(self, path: Path, size: int) -> CsvBlock | None:
        with path.open("rb", buffering=0) as file:
            block = next(self._text(file, path, FilePiece(path.name, size, 0, 0, 0, size, size)), None)
        return block if isinstance(block, CsvBlock) else None

    def _in_folders(self, path: Path, names: Collection[str]) -> Unlike | None:
        """The error for declared columns that are not in the file, but in the names of its folders."""
        own = self._own_schema()
        absent = [name for name in own.names if name in folders_in(str(path)) and name not in names]
        if not absent:
            return None
        said = ", ".join(f"{name}: {own[name].type}" for name in absent)
        return Unlike(
            f'{path} has no column "{absent[0]}", but its folder is named "{absent[0]}=…"',
            f"read the columns of the folder names: partition_columns: {{{said}}}",
        )

    def _own_names(self, path: Path) -> list[str] | None:
        """The columns of a file of a typed format; None for a damaged one, which is reported when it is read."""
        if self._format == "parquet":
            from scribengin.connectors.files.parquet import schema_of_columns

            with suppress(SourceError):
                return list(schema_of_columns(path).names)
            return None
        from scribengin.formats.avro_container import ContainerError, read_header
        from scribengin.formats.avro_schema import AvroSchemaError
        from scribengin.formats.file_columns import avro_columns

        with suppress(ContainerError, AvroSchemaError), path.open("rb") as file:
            return [field.name for field in avro_columns(read_header(file).writer, [])]
        return None

    def decoder(self) -> Decoder:
        """A fresh decoder of the source's format."""
        schema, folders = self.resolve_schema(), self._folder_columns()
        own = decoder_for(self._format, self._own_schema(), self._options)
        return AddedColumns(own, schema, self._options["metadata"], folders) if self._options["metadata"] or folders else own

    def read(self, stream: SourceStream) -> Iterator[Block]:
        """The blocks of the stream's pieces in order. Raises SourceError for a file that differs from its record."""
        root = self._folder / root_of(stream)
        for piece in pieces_of(stream):
            path = root / piece.path
            if self._growing or piece.trace is not None:
                with self._located(root, piece) as (file, now, part):
                    yield from self._content(file, now, part)
                continue
            with self._opened(path, piece) as file:
                yield from self._content(file, path, piece)

    def _folder_columns(self) -> tuple[Field, ...]:
        schema = self.resolve_schema()
        return tuple(schema[name] for name in self._options["partition_columns"])

    def _content(self, file: IO[bytes], path: Path, piece: FilePiece) -> Iterator[Block]:
        """The blocks of a piece of an open file."""
        if self._options["partition_columns"]:
            try:
                folder_values(str(path), self._folder_columns())
            except MisfitError as misfit:
                if piece.start == 0:  # once, for a file that is split
                    yield DamageBlock(str(path), misfit.reason, misfit.found, 0)
                return
        match self._format:
            case "parquet":
                blocks = self._parquet(file, path, piece)
            case "avro":
                blocks = self._avro(file, path, piece)
            case _:
                blocks = self._text(file, path, piece)
        if not self._tells_facts:
            yield from blocks
            return
        facts = FileFacts(piece.mtime_ns // 1000, piece.size)
        for block in blocks:
            block.facts = facts  # type: ignore[attr-defined]
            yield block

    def gone(self, stream: SourceStream) -> str:
        """The path of a file that the stream needs and that does not exist any more; empty if all exist."""
        root = self._folder / root_of(stream)
        for piece in pieces_of(stream):
            if piece.trace is None:
                if not (root / piece.path).exists():
                    return piece.path
                continue
            with located(root, piece.path, _seen(piece), piece.end, piece.trace, self._packing()) as found:
                if found is None:
                    return piece.path
        return ""

    @contextmanager
    def _located(self, root: Path, piece: FilePiece) -> Iterator[tuple[IO[bytes], Path, FilePiece]]:
        """Open the file of a piece at its current place. Yields the open file, a path with its original name, and the piece of its content.
        The file is compared with the record before and after reading."""
        path, trace = root / piece.path, piece.trace
        packing = self._packing()
        try:
            with located(root, piece.path, _seen(piece), piece.end, trace, packing) as found:
                if found is None:
                    raise self._changed(path, piece)
                rest = trace is not None and trace.packed is not None and trace.mark is not None
                part = rest_of(piece) if rest else piece
                compression = found.compression if rest or packing.of(piece.path) == "none" else "none"
                now = MovedPath(path, found.path, compression)
                with now.unpacked(found.file.reader()) as file:
                    yield cast("IO[bytes]", file), cast("Path", now), part
                if trace is not None and compression == "none" and not found.holds(trace):
                    raise self._changed(path, piece)
        except PermissionError:
            raise SourceError(f"this user is not allowed to read {path}", remedy=f"make it readable: chmod a+r {path}") from None

    def _changed(self, path: Path, piece: FilePiece) -> SourceError:
        give_up = f"skip it: {flow_command('offsets skip', piece.path)}"
        if not path.exists():
            return SourceError(
                f"{path} is missing; it had {piece.size} bytes, and its Batch is not yet committed", remedy=f"restore it, or {give_up}"
            )
        now = path.stat()
        ways = [
            give_old_time(path, piece.size, piece.mtime_ns, now) if piece.trace is None else "",
            "restore it with its old modification time (cp -p)",
            give_up,
            "set `on_change: ignore`",
        ]
        return SourceError(
            f"{path} changed after it was assigned to a Batch that is not yet committed: {difference(piece.size, piece.mtime_ns, now)}",
            remedy="; or ".join(filter(None, ways)),
        )

    @contextmanager
    def _opened(self, path: Path, piece: FilePiece) -> Iterator[IO[bytes]]:
        """Open the file of a piece; it is compared with its record before and after reading."""
        try:
            with path.open("rb", buffering=0) as file:
                self._compare(path, piece)
                yield file
                self._compare(path, piece)
        except FileNotFoundError:
            raise self._changed(path, piece) from None
        except PermissionError:
            raise SourceError(f"this user is not allowed to read {path}", remedy=f"make it readable: chmod a+r {path}") from None

    def _compare(self, path: Path, piece: FilePiece) -> None:
        now = path.stat()
        if (now.st_size, now.st_mtime_ns) != (piece.size, piece.mtime_ns) and self._stop_on_change:
            raise self._changed(path, piece)

    def _text(self, file: IO[bytes], path: Path, piece: FilePiece) -> Iterator[Block]:
        compression = compression_of(piece.path, self._options["compression"])
        unlike = self._unlike(file, piece, compression)
        if unlike:
            yield DamageBlock(str(path), "wrong-format", unlike, 0, 1)
            return
        chunks: Iterator[bytes | Damage]
        finder: Callable[[int], int | None] | None = None  # otherwise lines are counted while the file is read, from its start
        if compression != "none":
            start = 0
            chunks = read_compressed(file, compression)
        elif self._is_cut_by_lines:
            start = piece.start if piece.begins else range_start(file, piece.start, piece.end)
            # the decoder of JSON returns the number of lines in each block
            finder = LineFinder(path) if start or self._format == "json" else None
            chunks = read_range(file, start, piece.end, piece.size) if start < piece.end else iter(())
        else:
            start = piece.start
            finder = _unknown if start else None
            chunks = read_bytes(file, start, piece.end)
        if not self._is_utf_8:
            chunks = in_utf_8(chunks, self._encoding_at(path, start))
        end = LINE_ENDS[self._line_end]
        if start == 0:
            end, chunks = self._found_end(chunks)
            finder = finder if end.mark == b"\n" else None
        first_line, offset = 1, start
        if start == 0 and self._options.get("skip_lines"):
            offset, chunks = skip_lines(chunks, self._options["skip_lines"], end)
            first_line += self._options["skip_lines"]
        max_record = self._options["max_record"]
        if start == 0:
            head, chunks = _peeked(chunks)
            wrong = why_unlike_inside(head, compression) if compression != "none" else ""
            reason = "wrong-format" if wrong else "malformed"
            if self._format == "json" and not wrong:
                json_cutter = self._json_cutter(str(path), head)
                if json_cutter is not None:
                    yield from json_cutter.cut(chunks)
                    return
                wrong = misshapen(head)
            if wrong:
                yield DamageBlock(
                    str(path), reason, wrong, 0, 1, head[: PAYLOAD_BYTES + 1]
                )  # of a longer one the letter says that it is cut
                return
        if self._multiline:
            line = first_line if finder is None else finder(start)
            yield from MultilineCutter(str(path), self._multiline, max_record, line).cut(marking_holes(chunks), offset)
        elif self._format == "csv":
            cutter = CsvCutter(str(path), max_record, finder, first_line, dialect=self._dialect.ending(end))
            yield from self._csv(chunks, path, offset, cutter, begins=start == 0)
        else:
            yield from Cutter(str(path), max_record, finder, first_line, end).cut(marking_holes(chunks), offset)

    def _unlike(self, file: IO[bytes], piece: FilePiece, compression: str) -> str:
        """Why the content cannot be read, see `why_unlike`. It is checked at the start of a file, and in each part of a growing one."""
        if piece.start and not self._growing:
            return ""
        file.seek(0)
        head = file.read(MAGIC_BYTES)
        file.seek(0)
        return why_unlike(head, compression)

    def _json_cutter(self, file: str, head: bytes) -> JsonCutter | None:
        """The splitter for JSON that is not lines; None for a file of lines."""
        keys: tuple[str, ...] | None = None
        if self._records:
            keys = list_keys(self._records)
        else:
            shape = shape_of(head) if self._shape == "auto" else self._shape
            if shape == "lines":
                return None
            keys = () if shape == "array" else None
        return JsonCutter(file, self._options["max_record"], keys)

    @property
    def _whole_files(self) -> bool:
        """True if a file can only be read as a whole."""
        return self._format == "csv" or bool(self._multiline) or bool(self._records) or self._shape != "lines"

    @property
    def _is_utf_8(self) -> bool:
        return codec_of(self._encoding) == "utf-8"

    @property
    def _is_cut_by_lines(self) -> bool:
        """True if a range of a plain file can be found by its line feeds."""
        return self._is_utf_8 and self._line_end in ("auto", "lf")

    def _encoding_at(self, path: Path, start: int) -> str:
        """The encoding of the bytes from `start` on, with their byte order: after the start of a file no mark shows it any more."""
        if not start or unit_bytes(self._encoding) == 1:
            return self._encoding
        with path.open("rb", buffering=0) as file:
            head = file.read(4)
        wide = codec_of(self._encoding) or ""
        order = "be" if head[:2] in (b"\xfe\xff", b"\0\0") else "le"
        return wide if wide[-3:] in ("-le", "-be") else f"{wide}-{order}"

    def _found_end(self, chunks: Iterator[bytes | Damage]) -> tuple[LineEnd, Iterator[bytes | Damage]]:
        """The line separator of a file that is read from its start, and all of its chunks."""
        end = LINE_ENDS[self._line_end]
        if not self._looks_for_line_end:
            return end, chunks
        head = next(chunks, b"")
        if isinstance(head, bytes):
            end = line_end_of("auto", head)
        return end, chain([head], chunks)

    def _csv(self, chunks: Iterator[bytes | Damage], path: Path, start: int, cutter: CsvCutter, *, begins: bool) -> Iterator[Block]:
        if self._options["header"]:
            if begins:
                header, length, lines, chunks = take_header(chunks, cutter.dialect)
                start += length
                cutter = replace(cutter, header=self._names(header, path), first_line=cutter.first_line + lines)
            else:
                with path.open("rb", buffering=0) as file:
                    whole: Iterator[bytes | Damage] = read_bytes(file, 0, start)
                    if not self._is_utf_8:
                        whole = in_utf_8(whole, self._encoding)
                    if self._options.get("skip_lines"):
                        _, whole = skip_lines(whole, self._options["skip_lines"], cutter.end)
                    header, _, _, _ = take_header(whole, cutter.dialect)
                cutter = replace(cutter, header=self._names(header, path))
        block = None
        for block in cutter.cut(marking_holes(chunks), start):
            yield block
        if block is None and begins and start:  # a file with bytes and no record: the decoder of its blocks reports it
            yield CsvBlock(str(path), b"", start, dialect=cutter.dialect, header=cutter.header)

    def _names(self, header: bytes, path: Path) -> tuple[str, ...]:
        """The flow's names of the columns in a header. Raises SourceError if they cannot be determined, or a declared one is duplicated."""
        names = self._mapped(self.header_cells(header, path))
        twice = [name for name in self._own_schema().names if names.count(name) > 1]
        if twice:
            raise SourceError(f'{path} has the column "{twice[0]}" twice', remedy="correct its first line, or move the file away")
        return names

    def header_cells(self, header: bytes, path: Path) -> tuple[str, ...]:
        """The names in the header, as in the file. Raises SourceError if its quotes are not valid."""
        text = header.decode("utf-8", "replace")
        cells = split_cells(text, replace(self._dialect, nulls=("",), quoted_null="never")) if text else []
        if cells is None:
            with_trim = split_cells(text, replace(self._dialect, trim=True)) is not None
            raise SourceError(
                f"{path}: the header line has a quote inside a name, or an unclosed quote: {text[:100]}",
                remedy="it can be read with trim: true"
                if with_trim
                else "correct it, or write quote: none if quotes have no meaning there",
            )
        return tuple(cell or "" for cell in cells)

    def _mapped(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """The flow's names for the names in a header: by `columns`, and by the rule of `header_names`."""
        rule: str = self._options.get("header_names") or "exact"
        if not self._columns and rule == "exact":
            return names
        by_name = {there: name for name, there in self._columns.items()}
        by_rule = {} if rule == "exact" else {folded(name, rule): name for name in self.resolve_schema().names if name not in self._columns}
        return tuple(by_name.get(name) or by_rule.get(folded(name, rule)) or name for name in names)

    def _parquet(self, file: IO[bytes], path: Path, piece: FilePiece) -> Iterator[Block]:
        from scribengin.connectors.files.parquet import read_groups

        yield from read_groups(file, path, piece, self._own_schema(), self._learned, truncate=self._options["time"] == "truncate")

    def _avro(self, file: IO[bytes], path: Path, piece: FilePiece) -> Iterator[Block]:
        from scribengin.connectors.files.avro import read_piece

        yield from read_piece(file, path, piece, self._own_schema(), self._learned)

    def _divide(self, path: Path, piece: FilePiece) -> list[FilePiece]:
        """Divide a finished file into pieces for tasks: byte ranges of plain lines, row groups of Parquet, blocks of Avro, else the whole
        file."""
        split = self._options["split"]
        if self._format == "parquet":
            from scribengin.connectors.files.parquet import divide_groups

            return divide_groups(path, piece, split)
        if self._format == "avro":
            from scribengin.connectors.files.avro import divide_blocks

            return divide_blocks(path, piece, split)
        if self._whole_files or compression_of(piece.path, self._options["compression"]) != "none" or not self._is_cut_by_lines:
            return [piece]
        pieces = cut(piece, split)
        return pieces if len(pieces) == 1 or piece.start or self._has_lines(path) else [piece]

    def _has_lines(self, path: Path) -> bool:
        """True if a file matches its options, as far as its first bytes show: only then can it be split."""
        with path.open("rb", buffering=0) as file:
            head = file.read(CHUNK_BYTES)
        if self._looks_for_line_end and line_end_of("auto", head[: 2**15]) not in (AUTO, LF):
            return False
        return not kind_of(head[:MAGIC_BYTES]) and not (self._format == "json" and misshapen(head))

    def _grows(self, path: str) -> bool:
        if self._format in ("parquet", "avro") or self._records or self._shape != "lines":
            return False
        if self._multiline and unit_bytes(self._encoding) > 1:
            return False
        return compression_of(path, self._options["compression"]) == "none"

    def _whole_lines(self, path: Path, start: int, end: int, settled: bool) -> int:
        """The end of the last whole line (CSV, `multiline`: record) between `start` and `end`; `start` if there is none. The last record of
        several lines ends at the start of the next one, or when the file is `settled`."""
        if self._multiline and not settled:
            whole = self._last_line(path, start, end)
            return whole_events_end(path, start, whole, self._multiline, self._options["max_record"])
        return self._last_line(path, start, end)

    def _last_line(self, path: Path, start: int, end: int) -> int:
        mark = LINE_ENDS[self._line_end].mark
        with path.open("rb") as file:
            if unit_bytes(self._encoding) > 1:
                file.seek(start)
                return start + self._wide_lines_end(file.read(end - start), self._encoding_at(path, max(start, 1)))
            if self._format == "csv":
                file.seek(start)
                return start + whole_records_end(file.read(end - start), self._dialect)
            while end > start:
                size = min(1 << 16, end - start)
                file.seek(end - size)
                data = file.read(size)
                found = data.rfind(mark)
                if found >= 0:
                    return end - size + found + len(mark)
                if size == end - start:
                    break
                end -= size - len(mark) + 1
        return start

    def _wide_lines_end(self, data: bytes, encoding: str) -> int:
        """The end of the last whole line in `data`, for encodings with units of two or four bytes."""
        mark = LINE_ENDS[self._line_end].mark.decode().encode(encoding)
        unit = unit_bytes(encoding)
        at = data.rfind(mark)
        while at > 0 and at % unit:
            at = data.rfind(mark, 0, at + len(mark) - 1)
        end = max(0, at + len(mark)) if at >= 0 else 0
        if self._format == "csv" and end:
            text = data[:end].decode(encoding, "replace")
            whole = whole_records_end(text.encode("utf-8", "replace"), self._dialect)
            end = len(text.encode("utf-8", "replace")[:whole].decode("utf-8", "replace").encode(encoding, "replace"))
        return end

    def _schema_of_first_file(self) -> Schema:
        from scribengin.connectors.files.parquet import schema_of_file

        discovery = Discovery(self._path)
        paths = discovery.changed() or []
        if not paths:
            raise SourceError(
                f"{self._path} holds no Parquet file yet from which the columns could be read", remedy="declare them with `schema:`"
            )
        return schema_of_file(discovery.root / paths[0])


def _seen(piece: FilePiece) -> FileStatus:
    return FileStatus(ANY_DEVICE if piece.trace is None else piece.trace.device, piece.inode, piece.size, piece.mtime_ns)


def _peeked(chunks: Iterator[bytes | Damage]) -> tuple[bytes, Iterator[bytes | Damage]]:
    """(the first bytes of the content, all of it)"""
    first = next(chunks, None)
    if first is None:
        return b"", iter(())
    return b"" if isinstance(first, Damage) else first, chain([first], chunks)
