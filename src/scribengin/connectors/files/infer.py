"""Infers a schema for files from their contents, and checks it against the sampled records.

The schema is checked with the decoder that would read the files: records that would become dead letters are reported with their place.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import unquote

import msgspec

from scribengin.connectors.contract import ConnectorContext
from scribengin.connectors.files.discovery import Discovery
from scribengin.connectors.files.globs import WILDCARD
from scribengin.connectors.files.json_splitting import options_for
from scribengin.connectors.files.options import CSV_READ
from scribengin.connectors.files.parquet import schema_of_columns
from scribengin.connectors.files.pieces import FilePiece, streams_of
from scribengin.connectors.files.source import FilesSource
from scribengin.connectors.files.splitting import compression_of
from scribengin.core.errors import SourceError
from scribengin.core.types import Field, Schema, Type
from scribengin.formats.added_columns import NULL_FOLDER, folders_in
from scribengin.formats.avro_container import AvroBlock
from scribengin.formats.blocks import ArrowBlock, DamageBlock, LineBlock
from scribengin.formats.catalog import decoder_for
from scribengin.formats.csv_inference import guess_column, guess_header, guess_null, guess_shape
from scribengin.formats.csv_records import CsvBlock, split_cells
from scribengin.formats.dialect import guess_encoding, in_utf_8, line_end_of, marked_encoding
from scribengin.formats.file_columns import arrow_columns, avro_columns, joined_columns
from scribengin.formats.spans import SpanBlock
from scribengin.formats.text import TEXT_SCHEMA
from scribengin.formats.type_inference import ObservedValues, can_name, schema_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from scribengin.formats.contract import Bad, Block
    from scribengin.formats.dialect import Dialect


# The sample for `infer`: some records of some files, as blocks.


MOST_FILES = 100
"""maximum number of files that are opened"""
_SUFFIXES = {"json": "json", "jsonl": "json", "ndjson": "json", "csv": "csv", "tsv": "csv", "parquet": "parquet", "avro": "avro"}
_MAGIC = {b"\x1f\x8b": ".gz", b"\x28\xb5\x2f\xfd": ".zst", b"PAR1": ".parquet", b"Obj\x01": ".avro"}
_HEAD_BYTES = 2**18
_HEAD_LINES = 1_000
_STDIN_BYTES = 2**26


@dataclass(frozen=True, slots=True)
class FileSample:
    """A sample of the records of files. `blocks` contain at most the requested number of records; `whole` is True if there are no
    others."""

    blocks: list[Block]
    files: int
    whole: bool

    @property
    def records(self) -> int:
        """The number of records, empty lines included."""
        return sum(map(len, self.blocks))


def files_of(paths: Sequence[str]) -> list[Path]:
    """The files of paths, folders and globs, as a files source reads them. Raises SourceError if a path does not exist, or there is no
    file."""
    found: dict[Path, None] = {}
    for path in paths:
        given = Path(path).expanduser()
        if given.is_file():
            found[given] = None
            continue
        if not WILDCARD.search(path) and not given.exists():
            raise SourceError(f"{path} does not exist", remedy="name files, folders or globs that hold data, or - for stdin")
        discovery = Discovery(given)
        found |= dict.fromkeys(discovery.root / each for each in discovery.changed() or [])
    if not found:
        raise SourceError(f"{', '.join(paths)}: no file found", remedy="name files, folders or globs that hold data")
    return list(found)


def keep_stdin(stream: IO[bytes], folder: Path, records: int) -> tuple[Path, bool]:
    """Store the data of a stream in a file whose suffix its first bytes determine. Only as many lines are stored as are sampled, because
    the stream may be endless.

    Args:
        stream: The stream.
        folder: The folder of the new file.
        records: The number of records to sample; at least a thousand lines, and at most 64 MiB, are stored.

    Returns:
        The file, and True if it contains all data of the stream.
    """
    path = folder / "stdin"
    head = stream.read(max(map(len, _MAGIC)))
    suffix = next((suffix for magic, suffix in _MAGIC.items() if head.startswith(magic)), "")
    with path.open("wb") as file:
        file.write(head)
        whole = True
        if suffix:
            shutil.copyfileobj(stream, file)
        else:
            whole = _keep_lines(stream, file, max(records, _HEAD_LINES))
    return (path.rename(path.with_name(f"stdin{suffix}")) if suffix else path), whole


def _keep_lines(stream: IO[bytes], file: IO[bytes], most: int) -> bool:
    """Store lines. True if the stream ended before more than `most` lines, or 64 MiB, were read; otherwise the file is cut at the end of a
    line, if it has one."""
    lines = size = 0
    read = getattr(stream, "read1", stream.read)  # read1 returns the available bytes, without waiting for more
    while lines <= most and size < _STDIN_BYTES:
        chunk = read(2**16)
        if not chunk:
            return True
        file.write(chunk)
        lines += chunk.count(b"\n")
        size += len(chunk)
    file.truncate(file.tell() - (len(chunk) - chunk.rfind(b"\n") - 1) if b"\n" in chunk else file.tell())
    return False


def head_of(path: Path, *, compression: str = "auto") -> bytes:
    """The first bytes of a file, decompressed; whole lines if the file has more."""
    chunk = b""
    if compression_of(path.name, compression) == "none":
        with path.open("rb") as file:
            chunk = file.read(_HEAD_BYTES)
    else:
        sample = read_sample([path], "text", {}, None, records=2_000)
        chunk = b"".join(block.data for block in sample.blocks if isinstance(block, LineBlock))
    end = chunk.rfind(b"\n") + 1
    return chunk[:end] if end and len(chunk) >= _HEAD_BYTES else chunk


def format_of(path: Path) -> str:
    """The format of a file, by its name, else by its first bytes."""
    suffixes = [suffix.lower().lstrip(".") for suffix in path.suffixes]
    for suffix in reversed(suffixes):
        if suffix in _SUFFIXES:
            return _SUFFIXES[suffix]
    head = head_of(path)
    for magic, suffix in _MAGIC.items():
        if head.startswith(magic) and suffix.lstrip(".") in _SUFFIXES:
            return suffix.lstrip(".")
    head = in_utf_8(head, guess_encoding(head)).removeprefix(b"\xef\xbb\xbf")
    lines = head.split(line_end_of("auto", head).mark)
    if lines[0].lstrip()[:1] == b"{":
        return "json"
    cut = [line for line in lines[:20] if line.strip()]
    return "csv" if any(cut and all(mark in line for line in cut) for mark in (b",", b";", b"\t", b"|")) else "text"


def read_sample(paths: Sequence[Path], format: str, options: Mapping[str, Any], schema: Schema | None, *, records: int) -> FileSample:
    """The first records of each file, divided as evenly as possible.

    Args:
        paths: The files; of many only some are read.
        format: The format of the files.
        options: Other options of a files source.
        schema: The columns; None if they are not known.
        records: The maximum number of records.

    Raises:
        SourceError: A file cannot be read.
    """
    looked = paths if len(paths) <= MOST_FILES else [paths[len(paths) * index // MOST_FILES] for index in range(MOST_FILES)]
    blocks: list[Block] = []
    left, whole = records, len(looked) == len(paths)
    for index, path in enumerate(looked):
        share = max(1, left // (len(looked) - index))
        for block in blocks_of(path, format, options, schema):
            part = _first(block, share)
            if part is not None:
                blocks.append(part)
                share, left = share - len(part), left - len(part)
            if part is not block:
                whole = False
                break
    return FileSample(blocks, len(looked), whole)


def blocks_of(path: Path, format: str, options: Mapping[str, Any], schema: Schema | None) -> Iterator[Block]:
    """All records of a file, as a task would read them.

    Args:
        path: The file.
        format: Its format.
        options: Other options of a files source.
        schema: The columns; None if they are not known.
    """
    at = path.stat()
    piece = FilePiece(path.name, at.st_size, at.st_mtime_ns, at.st_ino, 0, -1 if format == "parquet" else at.st_size, at.st_size)
    stream = streams_of([piece], root=".", stream_bytes=1)[0]
    given = {"path": path.name, "format": format, **options}
    return FilesSource(ConnectorContext("infer", path.parent, given, schema)).read(stream)


def _first(block: Block, count: int) -> Block | None:
    """At most `count` records of a block, None if that is zero. A block that cannot be split is returned whole."""
    if len(block) <= count:
        return block
    if count <= 0:
        return None
    if isinstance(block, SpanBlock):
        data = b"".join(line + b"\n" for line in block.lines()[:count])
        return replace(block, data=data, starts=block.starts[:count], ends=block.ends[:count], _lines=None)
    if isinstance(block, LineBlock):
        return replace(block, data=b"".join(line + block.end.mark for line in block.lines()[:count]), _lines=None, _length=-1)
    if isinstance(block, ArrowBlock):
        return replace(block, batch=block.batch.slice(0, count))
    if isinstance(block, AvroBlock):
        return replace(block, records=block.records[:count], unclean={at: bad for at, bad in block.unclean.items() if at < count})
    return block


_BOM = b"\xef\xbb\xbf"
_CUT = "Input data was truncated"
"""the message of msgspec for truncated JSON"""
_SHOWN_DEAD = 5
_CSV_DEFAULTS = {option.name: option.default for option in CSV_READ}
_LOWEST = Schema((Field("\N{OBJECT REPLACEMENT CHARACTER}", Type("STRING")),))
"""columns for reads that do not depend on the columns"""


@dataclass(frozen=True, slots=True)
class Dead:
    """A record that does not fit the inferred schema."""

    file: str
    line: int | None
    row: int | None
    reason: str
    message: str

    def __str__(self) -> str:
        at = f":{self.line}" if self.line is not None else f" row {self.row}" if self.row is not None else ""
        return f"{self.file}{at}: {self.message} [{self.reason}]"


@dataclass(slots=True)
class Proposal:
    """The result of `infer`: a schema and options. `options` are those of a files source, besides `path`, that differ from their
    defaults."""

    format: str
    schema: Schema
    options: dict[str, Any]
    columns: dict[str, ObservedValues]
    files: int
    records: int
    """number of sampled records, including bad ones, without empty lines"""
    whole: bool
    """True if these are all records of all files"""
    dead: int = 0
    deaths: list[Dead] = field(default_factory=list)
    """the first of the bad records"""
    notes: list[str] = field(default_factory=list)


def infer(paths: Sequence[Path], *, records: int, format: str | None = None, options: Mapping[str, Any] | None = None) -> Proposal:
    """Sample the files, and infer a schema.

    Args:
        paths: The files.
        records: The maximum number of sampled records.
        format: The format; None: it is detected.
        options: Options of CSV or text; those that are not given are detected.

    Raises:
        SourceError: A file cannot be read, or no schema can be inferred.
    """
    format = format or _one_format(paths)
    match format:
        case "json":
            proposal = _of_json(paths, records)
        case "csv":
            proposal = _of_csv(paths, dict(options or {}), records)
        case "text":
            proposal = _of_text(paths, options or {}, records)
        case _:
            proposal = _of_typed(paths, format, records)
    folders = _folders(paths)
    if folders:
        proposal.options["partition_columns"] = folders
        named = Schema(tuple(field for field in proposal.schema.fields if field.name not in folders))
        proposal.schema = named if named.fields else proposal.schema
        for name in folders:
            proposal.columns.pop(name, None)
    return proposal


def _folders(paths: Sequence[Path]) -> dict[str, str]:
    """Column → type for the folders `column=value` that are common to all files."""
    said = [folders_in(str(path)) for path in paths]
    names = [name for name in said[0] if can_name(name) and all(name in each for each in said)]
    values = {name: [unquote(each[name]) for each in said] for name in names}
    return {name: str(guess_column(name, [None if text == NULL_FOLDER else text for text in values[name]]).type) for name in names}


def _one_format(paths: Sequence[Path]) -> str:
    """The format of all non-empty files. Raises SourceError if they differ: a source reads its files in one way."""
    found: dict[str, Path] = {}
    for path in paths[:MOST_FILES]:
        if path.stat().st_size:
            found.setdefault(format_of(path), path)
    if len(found) > 1:
        each = ", ".join(f"{path} is {format}" for format, path in found.items())
        raise SourceError(f"the files are of several formats: {each}", remedy="name files of one format, or pass --format")
    return next(iter(found), None) or format_of(paths[0])


def _of_json(paths: Sequence[Path], records: int) -> Proposal:
    first = next((path for path in paths if path.stat().st_size), paths[0])
    keys, note = options_for(head_of(first))
    options: dict[str, Any] = {"json": keys} if keys else {}
    sample = read_sample(paths, "json", options, _LOWEST, records=records)
    columns: dict[str, ObservedValues] = {}
    decoder = msgspec.json.Decoder()
    for block in sample.blocks:
        for line in block.lines() if isinstance(block, LineBlock) else ():
            try:
                record = decoder.decode(line)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                continue  # the reference decoder returns the reason
            for name, value in record.items() if isinstance(record, dict) else ():
                if name not in columns:
                    columns[name] = ObservedValues()
                columns[name].add(value)
    notes: list[str] = [note] if note else []
    schema = schema_of(columns, notes)
    if schema is None:
        raise _no_json(sample)
    return _checked("json", schema, options, sample, notes, columns)


def _no_json(sample: FileSample) -> SourceError:
    """The error for files without any record."""
    if not sample.records:
        return SourceError("the files are empty", remedy="name files that hold records")
    block = sample.blocks[0]
    head = block.data if isinstance(block, LineBlock) else block.head if isinstance(block, DamageBlock) else b""
    head = head.removeprefix(_BOM).lstrip()
    wrong = _first_line(head)
    none = f"none of {sample.records:,} lines is a JSON object with a field"
    if head[:1] == b"{" and wrong:
        remedy = "write strict JSON: names and texts in double quotes, null for NaN, no comma after the last field"
        return SourceError(f"{none}; the first of {block.place(0).file}: {wrong}", remedy=remedy)
    return SourceError(none, remedy="pass the format of the files: --format csv, or --format text")


def _first_line(head: bytes) -> str:
    """Why the first line of a file is not JSON, by the first bytes of the file; `_CUT` if it is truncated."""
    try:
        msgspec.json.decode(head.partition(b"\n")[0])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return str(error)
    return ""


def _of_csv(paths: Sequence[Path], options: dict[str, Any], records: int) -> Proposal:
    first = next((path for path in paths if path.stat().st_size), paths[0])
    head = head_of(first)
    encoding = options.get("encoding") or guess_encoding(head)
    head = in_utf_8(head, encoding).removeprefix(_BOM)
    shape = guess_shape(head, options.get("delimiter"))
    dialect = shape.dialect
    records_from = dialect.line_end.mark.join(head.split(dialect.line_end.mark)[shape.skip_lines :])
    header = guess_header(records_from, dialect) if options.get("header") is None else options["header"]
    given: dict[str, Any] = {"delimiter": dialect.delimiter, "header": header, "encoding": encoding, "skip_lines": shape.skip_lines}
    given |= {
        "quote": None if dialect.quote == '"' else dialect.quote or "none",
        "escape": dialect.escape,
        "trim": dialect.trim,
        "comment": dialect.comment,
    }
    given = {name: value for name, value in given.items() if value != _CSV_DEFAULTS[name]}
    given |= {"delimiter": dialect.delimiter, "header": header}
    sample = read_sample(paths, "csv", given, _LOWEST, records=records)
    raw = replace(dialect, quoted_null="always" if options.get("null") is None else "never")
    null = options.get("null")
    if null is None:
        tables = _tables(sample, replace(raw, nulls=("",)))
        names, rows = max(tables.items(), key=lambda table: len(table[1])) if tables else ((), [])
        null = guess_null([[cell or "" for cell in row[: len(names)]] for row in rows])
    given["null"] = null
    nulls = (null,) if isinstance(null, str) else null
    notes = []
    if options.get("header") is None:
        what = "the columns' names; if it is a record: --no-header" if header else "a record; if it names the columns: --header"
        which = "the first line" if not shape.skip_lines and not dialect.comment else "the first line after the skipped ones"
        notes.append(f"{which} is read as {what}")
    if encoding != "utf-8" and marked_encoding(head_of(first)) is None and not options.get("encoding"):
        notes.append(f"the bytes are not UTF-8; {encoding} is a guess: check the characters other than a to z, or pass --encoding")
    cells: dict[str, list[str | None]] = {}
    kept: dict[str, list[str | None]] = {}
    literal = _tables(sample, replace(raw, nulls=nulls, quoted_null="never"))
    for names, rows in _tables(sample, replace(raw, nulls=nulls)).items():
        if any(len(row) > len(names) for row in rows):  # all cells after the named columns are empty
            given["extra_cells"] = "empty"
        for index, name in enumerate(names):
            if not can_name(name) or names.count(name) > 1:
                notes.append(f"column {index + 1}, {name!r}, is left out: its name is not valid in a schema, or duplicated")
            elif name in cells or name.lower() not in map(str.lower, cells):
                cells.setdefault(name, []).extend(row[index] for row in rows)
                kept.setdefault(name, []).extend(row[index] for row in literal[names])
            else:
                notes.append(f"{name} is left out: another name differs from it only in case, which SQL ignores")
    if not sample.records:
        only, more = ("hold a header line and no record", "; if it is a record: --no-header") if head.strip() else ("are empty", "")
        raise SourceError(f"the files {only}", remedy=f"name files that hold records{more}")
    if not cells:
        raise SourceError(
            "the files hold no CSV record with a column that a schema can name",
            remedy="pass --format json, or --no-header",
        )
    fields = []
    for name, column in cells.items():
        guessed = guess_column(name, column)
        if column != kept[name]:  # null in quotes: the column keeps the type that it has without it
            if guessed.type.name == "STRING":
                guessed = guess_column(name, kept[name])
            else:
                given["quoted_null"] = "typed"
        fields.append(Field(name, guessed.type))
        notes += [guessed.note] * bool(guessed.note)
    return _checked("csv", Schema(tuple(fields)), given, sample, notes)


def _tables(sample: FileSample, dialect: Dialect) -> dict[tuple[str, ...], list[list[str | None]]]:
    """Names of columns → the number of records with that many cells, and of those with empty cells at the end. Files without a header have
    the names c1, c2, … of the most common width."""
    tables: dict[tuple[str, ...], list[list[str | None]]] = {}
    headed = any(isinstance(block, CsvBlock) and block.header for block in sample.blocks)
    comment = None if dialect.comment is None else dialect.comment.encode()
    for block in sample.blocks:
        if not isinstance(block, CsvBlock):
            continue
        if block.header:
            tables.setdefault(block.header, [])
        for line in block.lines():
            if not line.strip(b" \t\r") or (comment is not None and line.startswith(comment)):
                continue
            cells = split_cells(block.end.stripped(line).decode("utf-8", "replace"), dialect)
            if cells is not None:
                names = block.header or tuple(f"c{index + 1}" for index in range(len(cells)))
                if len(cells) == len(names) or (block.header and len(cells) > len(names) and not any(cells[len(names) :])):
                    tables.setdefault(names, []).append(cells)
    if tables and not headed:
        commonest = max(tables, key=lambda names: len(tables[names]))
        return {commonest: tables[commonest]}
    return tables


def _of_text(paths: Sequence[Path], options: Mapping[str, Any], records: int) -> Proposal:
    first = next((path for path in paths if path.stat().st_size), paths[0])
    encoding = options.get("encoding") or guess_encoding(head_of(first))
    given = {} if encoding == "utf-8" else {"encoding": encoding}
    return _checked("text", TEXT_SCHEMA, given, read_sample(paths, "text", given, TEXT_SCHEMA, records=records), [])


def _of_typed(paths: Sequence[Path], format: str, records: int) -> Proposal:
    notes: list[str] = []
    known = _of_parquet(paths, notes) if format == "parquet" else [(path.name, avro_columns(_writer(path), notes)) for path in paths]
    schema = joined_columns(known, notes)
    if schema is None:
        raise SourceError(f"{paths[0]} has no column that a schema can hold", remedy="convert it with another program first")
    odd = [field.name for field in schema.fields if _has_odd_keys(field.type)]
    notes += [f"{name} is left out: a map with objects or lists as keys is not a valid value of a record" for name in odd]
    kept = tuple(field for field in schema.fields if field.name not in odd)
    if not kept:
        raise SourceError(f"{paths[0]} has no column that a record can hold", remedy="convert it with another program first")
    schema = Schema(kept)
    sample = read_sample(paths, format, {}, schema, records=records)
    return _checked(format, schema, {}, sample, list(dict.fromkeys(notes)))


def _of_parquet(paths: Sequence[Path], notes: list[str]) -> list[tuple[str, tuple[Field, ...]]]:
    """The columns of each file; a column of the null type, without any value, is included if no file has it with another type."""
    import pyarrow as pa

    schemas = [(path.name, schema_of_columns(path)) for path in paths]
    nulls = [{field.name for field in schema if pa.types.is_null(field.type)} for _, schema in schemas]
    typed = {name for (_, schema), empty in zip(schemas, nulls, strict=True) for name in schema.names if name not in empty}
    notes += [f"{name} was always null: STRING is a guess" for name in sorted(set().union(*nulls) - typed)]
    return [
        (name, tuple(field for field in arrow_columns(schema, notes) if field.name not in empty & typed))
        for (name, schema), empty in zip(schemas, nulls, strict=True)
    ]


def _has_odd_keys(type_: Type) -> bool:
    own = type_.name == "MAP" and bool(type_.parts[0].parts or type_.parts[0].fields)
    return own or any(map(_has_odd_keys, (*type_.parts, *(field.type for field in type_.fields))))


def _writer(path: Path) -> Any:
    from scribengin.formats.avro_container import ContainerError, read_header
    from scribengin.formats.avro_schema import AvroSchemaError

    try:
        with path.open("rb") as file:
            return read_header(file).writer
    except (ContainerError, AvroSchemaError) as error:
        raise SourceError(f"{path} {error}", remedy="write it again, or leave it out") from None


def _checked(
    format: str,
    schema: Schema,
    options: dict[str, Any],
    sample: FileSample,
    notes: list[str],
    columns: dict[str, ObservedValues] | None = None,
) -> Proposal:
    """The inferred schema, with the decoder's result for the sample."""
    shown = {name: value for name, value in options.items() if _CSV_DEFAULTS.get(name) != value}
    seen = columns if columns is not None else {each.name: ObservedValues() for each in schema.fields}
    proposal = Proposal(format, schema, shown, seen, sample.files, sample.records, sample.whole, notes=list(dict.fromkeys(notes)))
    decoder = decoder_for(format, schema, options)
    for block in sample.blocks:
        found = decoder.rows(block)
        proposal.records -= found.skipped
        for bad in found.bad:
            proposal.dead += 1
            if len(proposal.deaths) <= _SHOWN_DEAD:
                proposal.deaths.append(_dead(block, bad))
        if columns is None and not isinstance(block, DamageBlock):
            for row in found.rows:
                for name, value in row.items():
                    seen[name].add(value)
    if proposal.dead > _SHOWN_DEAD + 1:  # the last one needs no more space than "and 1 more"
        del proposal.deaths[_SHOWN_DEAD:]
    return proposal


def _dead(block: Block, bad: Bad) -> Dead:
    place = block.place(bad.ordinal)
    return Dead(place.file, place.line, place.row, bad.reason, bad.message)
