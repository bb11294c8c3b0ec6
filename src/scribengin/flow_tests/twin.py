"""A flow's twin for a test: the same steps between files in a scratch folder.

A files source keeps its format and reads the input of the test; so does a Kafka source if only the value makes the row. Other sources are
read as JSON lines with the same columns. A files sink keeps its format; other sinks are replaced by Parquet files with the rows that reach
them. The twin is not split into tiers, because tiers do not change the results.
"""

from __future__ import annotations

import gzip
import io
import json
import shutil
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import groupby
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import unquote

from scribengin.connectors import catalog
from scribengin.connectors.contract import BatchLimits, ConnectorContext
from scribengin.connectors.files.options import READ_AS
from scribengin.connectors.files.time_path import NULL
from scribengin.core.errors import InputError, ScribenginError, SinkError
from scribengin.core.problems import Place, Problem
from scribengin.core.types import INTEGER_BITS, Field, Schema, Type, added_fields
from scribengin.formats.catalog import encoder_for
from scribengin.formats.csv_records import join_cells, split_cells, split_records
from scribengin.formats.dialect import AUTO, LINE_ENDS, Dialect, codec_of
from scribengin.formats.json_types import MisfitError
from scribengin.formats.rows import batch_to_rows
from scribengin.formats.text import TEXT_SCHEMA
from scribengin.formats.written_values import typed_row, typed_value
from scribengin.local.prepare import source_place
from scribengin.plan.columns import schema_of
from scribengin.plan.resolve import source_columns
from scribengin.plan.test_files import files_named
from scribengin.spec.model import EdgeProperties, MaxDead, RecordBound, SchemaSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from scribengin.spec.flow_tests import GivenRows
    from scribengin.spec.model import Flow, Sink, Source


# Writes the input of a test in the form that the source reads.


_NULL = "\N{OBJECT REPLACEMENT CHARACTER}null"
_PLAIN = Dialect(nulls=(_NULL,))
_SUFFIX = {"json": ".jsonl", "csv": ".csv", "text": ".txt", "parquet": ".parquet"}


def write_given(source: Source, folder: Path, number: int, rows: GivenRows, base: Path, place: Callable[[int], Place]) -> None:
    """Write one Batch for the twin of a source, as files in its folder.

    Args:
        source: The source of the twin.
        folder: The folder that it reads.
        number: The number of the Batch.
        rows: The input.
        base: The folder that paths of files are relative to.
        place: The place of a row in the test, by its index.

    Raises:
        InputError: A row or file is not valid.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for index, name in enumerate(rows.files):
        _copy(source, base, name, folder / f"{number:06d}-{index:04d}-", place(index))
    if rows.rows:
        format_ = source.options["format"]
        target = folder / f"{number:06d}-rows{_SUFFIX[format_]}"
        hidden = folder / f".{target.name}"
        hidden.write_bytes(_bytes(source, rows.rows, place))
        hidden.rename(target)


def _copy(source: Source, base: Path, name: str, prefix: Path, place: Place) -> None:
    check_file(source.id, base, name, place)
    for index, path in enumerate(files_named(base, name)):  # two folders may have files of the same name
        shutil.copyfile(path, prefix.with_name(f"{prefix.name}{index:04d}-{path.name}"))


def check_file(source: str, base: Path, name: str, place: Place) -> None:
    """Raise InputError if a path or a pattern of a source matches no file."""
    if not files_named(base, name):
        message = f'"{name}", the input of source "{source}", is not a file in {base}'
        raise InputError([Problem("test-file", place, message, "check the path: it is relative to the flow file's folder")])


def _bytes(source: Source, rows: Sequence[Mapping[str, Any] | str], place: Callable[[int], Place]) -> bytes:
    """The content of the file. Rows that are texts are written unchanged."""
    format_, options = source.options["format"], source.options
    schema = source.schema.fields if source.schema else TEXT_SCHEMA
    parts: list[bytes] = [b"\n"] * (options.get("skip_lines") or 0)
    if format_ == "csv" and options.get("header", True):
        parts.append(_encoded(format_, [], schema, {**options, "header": True}))
    numbered = list(enumerate(rows))
    for raw, group in groupby(numbered, key=lambda pair: isinstance(pair[1], str)):
        members = list(group)
        if raw and format_ == "parquet":
            message = f'source "{source.id}" reads parquet, which does not have raw records'
            raise InputError([Problem("test-value", place(members[0][0]), message, "write a mapping of columns, or a file")])
        if raw:
            parts += [_raw(str(row), format_, place(index), source.id) for index, row in members]
        else:
            typed = [_typed(row, schema, place(index), source.id) for index, row in members]
            parts.append(_encoded(format_, typed, schema, {**options, "header": False}))
    return _as_the_source_reads(b"".join(parts), format_, options)


def _as_the_source_reads(data: bytes, format_: str, options: Mapping[str, Any]) -> bytes:
    """The data with the line ends and in the encoding that the source's options name."""
    if format_ not in ("csv", "text"):
        return data
    mark = LINE_ENDS[options.get("line_end") or "auto"].mark
    encoding = codec_of(options.get("encoding") or "utf-8") or "utf-8"
    if mark != b"\n":
        data = data.replace(b"\n", mark)
    return data if encoding == "utf-8" else data.decode("utf-8", "surrogateescape").encode(encoding, "surrogateescape")


def _raw(text: str, format_: str, place: Place, source: str) -> bytes:
    """The line of a raw record. One line end, as in a YAML block, counts as the end of the record."""
    record = text.removesuffix("\n")
    if "\n" in record and format_ != "csv":  # in CSV it may be in a cell
        message = f'a raw record for source "{source}" contains a line end, so it would be several records'
        raise InputError([Problem("test-value", place, message, "write it on one line, or write each line as a separate record")])
    return f"{record}\n".encode("utf-8", "surrogateescape")


def _typed(row: Any, schema: Schema, place: Place, source: str) -> dict[str, Any]:
    try:
        return typed_row(row, schema)
    except MisfitError as misfit:
        name = "".join(misfit.path).lstrip(".")
        message = f'the row for source "{source}" has, for "{name}", {misfit.found}'
        raise InputError([Problem("test-value", place, message, f"its columns are {schema}")]) from misfit


def _encoded(format_: str, rows: list[dict[str, Any]], schema: Schema, options: Mapping[str, Any]) -> bytes:
    from scribengin.formats.rows import rows_to_batch

    # a null in a NOT NULL column is to be rejected by the decoder
    loose = Schema(tuple(Field(field.name, field.type) for field in schema.fields))
    file = io.BytesIO()
    cells = {"header": options.get("header", True), "null": _NULL} if format_ == "csv" else {}
    encoder = encoder_for(format_, options=cells)(file, loose)
    encoder.write(rows_to_batch(rows, loose, range(len(rows)))[0])
    encoder.close()
    if format_ != "csv":
        return file.getvalue()
    return _in_dialect(file.getvalue(), Dialect.of(options), (options.get("columns") or {}) if options.get("header", True) else {})


def _in_dialect(data: bytes, dialect: Dialect, columns: Mapping[str, str]) -> bytes:
    """Convert records of RFC 4180 to the form that the source reads. `columns`: name → its name in the header. A cell that the dialect
    cannot represent is written unchanged."""
    found: list[str] = []
    dialect = dialect.ending(AUTO)
    for record in split_records(data, _PLAIN):
        cells = split_cells(record.removesuffix(b"\n").decode(), _PLAIN) or []
        cells = [columns.get(cell or "", cell) for cell in cells] if columns and not found else cells
        joined = join_cells(cells, dialect)
        found.append(dialect.delimiter.join(cell or "" for cell in cells) if joined is None else joined)
    return "".join(f"{record}\n" for record in found).encode()


# Reads the output of a twin's sinks as rows.


_BY_SUFFIX = {".jsonl": "json", ".json": "json", ".ndjson": "json", ".csv": "csv", ".txt": "text", ".parquet": "parquet"}


def read_output(sink: Sink, folder: Path, schema: Schema) -> list[dict[str, Any]]:
    """The rows of a twin's sink, in the order of Batch, task and row. `schema`: the columns of its input."""
    # a time of `partition_by` is a folder, not a column: the rows keep their time
    partitioned = [part for part in sink.options.get("partition_by", ()) if isinstance(part, str)]
    inside = Schema(tuple(field for field in schema.fields if field.name not in partitioned))
    rows: list[dict[str, Any]] = []
    for part in sorted(folder.glob("**/part-*"), key=lambda path: (path.name, path)):
        by_folder = _of_folders(part.parent.relative_to(folder).parts[: len(partitioned)], schema)
        for row in read_rows(part, sink.options["format"], inside, sink.options, others=True):
            whole = row | by_folder
            rows.append({name: whole[name] for name in schema.names})
    return rows


def read_rows(
    path: Path, format_: str, schema: Schema, options: Mapping[str, Any], *, others: bool = False, named: bool = False
) -> list[dict[str, Any]]:
    """Read the rows of one file.

    Args:
        path: The file.
        format_: Its format.
        schema: The columns of the rows.
        options: The options of the sink that wrote it.
        others: For JSON: True if it may have columns that the schema does not have, because an earlier version of the flow wrote them.
        named: For JSON: True to leave out the columns that a record does not have.

    Raises:
        SinkError: A record cannot be read back.
        ValueError: A record of some other formats cannot be read back.
    """
    if format_ == "json":
        return list(_json_rows(path, schema, others=others, named=named))
    cells = {name: options[name] for name in ("header", "delimiter", "null") if name in options and format_ == "csv"}
    read = _as_texts(schema) if format_ == "csv" else schema
    place = ConnectorContext(path.name, path.parent, {"path": str(path), "format": format_, "settle": 0.0, **cells}, read)
    source = catalog.open_source("files", place)
    reader, decoder = source.reader(), source.decoder()
    rows: list[dict[str, Any]] = []
    while streams := reader.split(BatchLimits(), final=True):
        for stream in streams:
            for block in source.read(stream):
                found = decoder.columns(block)
                if found.bad:
                    raise SinkError(f"{path} cannot be read back: {found.bad[0].message}")
                rows += batch_to_rows(found.batch)
    return rows if read == schema else [{name: _of_text(value, schema[name].type) for name, value in row.items()} for row in rows]


_TEXTS = ("FLOAT", "DOUBLE", "BINARY", "ARRAY", "MAP", "STRUCT")
"""types that CSV sinks write in forms that CSV sources reject: NaN, and JSON in a cell"""


def _as_texts(schema: Schema) -> Schema:
    return Schema(tuple(Field(field.name, Type("STRING")) if field.type.name in _TEXTS else field for field in schema.fields))


def _of_text(value: Any, type_: Type) -> Any:
    if not isinstance(value, str) or type_.name not in _TEXTS:
        return value
    return typed_value(value if type_.name == "BINARY" or value in _NOT_FINITE else json.loads(value, parse_float=Decimal), type_)


_NOT_FINITE = ("NaN", "Infinity", "-Infinity")


def _json_rows(path: Path, schema: Schema, *, others: bool, named: bool) -> Iterator[dict[str, Any]]:
    """The rows as sinks write them: with NaN and the infinities as texts, which a JSON source would reject."""
    with _opened(path) as lines:
        for number, line in enumerate(lines, 1):
            try:
                if line.strip():
                    record = json.loads(line, parse_float=Decimal)
                    known = {name: value for name, value in record.items() if name in schema} if others else record
                    row = typed_row(known, schema)
                    yield {name: row[name] for name in known} if named else row
            except (ValueError, AttributeError) as error:
                raise SinkError(f"{path}, line {number}, cannot be read back: {error}") from error


def _opened(path: Path) -> IO[str]:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8")
    if path.suffix == ".zst":
        from scribengin.core.zstd import ZstdFile

        return io.TextIOWrapper(ZstdFile(path, "rb"), encoding="utf-8")
    return path.open(encoding="utf-8")


def format_of(path: Path) -> str | None:
    """The format, by the suffix of the name; None for an unknown suffix."""
    return _BY_SUFFIX.get(path.suffix.lower())


def _of_folders(parts: tuple[str, ...], schema: Schema) -> dict[str, Any]:
    """The values of folders such as `country=de/day=2026-01-01/`. Only those of columns, which come before those of a time."""
    found = {}
    for part in parts:
        name, _, text = part.partition("=")
        column = unquote(name)
        found[column] = None if text == NULL else _value(unquote(text), schema[column].type)
    return found


def _value(text: str, type_: Type) -> Any:
    if type_.name in INTEGER_BITS:
        return int(text)
    return text == "true" if type_.name == "BOOLEAN" else typed_value(text, type_)


_OF_FILES = ("metadata", "json", "multiline")
"""options for given files that do not apply to given rows, because rows have all columns themselves"""
_DECODED = ("format", "parse", "on_change", "max_record", *READ_AS)
"""options of a files source that define the meaning of its bytes"""
_WRITTEN = ("format", "compression", "partition_by", "header", "delimiter", "null", "evolve")
_NEVER_FULL = 2**50


@dataclass(frozen=True, slots=True)
class Scratch:
    """The scratch folder of a test. Nothing outside it is written."""

    root: Path

    @property
    def state(self) -> Path:
        """The twin's state folder."""
        return self.root / "state"

    def given(self, source: str) -> Path:
        """The folder that the source reads."""
        return self.root / "given" / source

    def out(self, sink: str) -> Path:
        """The folder that the sink writes."""
        return self.root / "out" / sink


def make_twin(flow: Flow, given: Mapping[str, Any], scratch: Scratch) -> Flow:
    """Build the twin. A sequence without input in the test counts by itself. Raises InputError for a source whose columns are not known."""
    # given rows are not compressed; given files show their compression by their names
    sources = {source.id: _source(flow, source, scratch, given.get(source.id)) for source in flow.sources.values()}
    sinks = {sink.id: _sink(sink, scratch) for sink in flow.sinks.values()}
    defaults = replace(flow.defaults, edge=EdgeProperties(), standby="none", delivery="exactly_once", trigger_s=0.0, retain_s=None)
    return replace(
        flow,
        sources=sources,
        sinks=sinks,
        defaults=defaults,
        tiers={},
        edges={},
        groups={},
        max_delay_s=None,
        max_dead=MaxDead(run=RecordBound(percent=100.0)),  # the records of a test are meant to show which ones become dead letters
        alerts={},
        tests=(),
        test_files=(),
        code=flow.code_folder.resolve(),
        folder=scratch.root,
    )


def _source(flow: Flow, source: Source, scratch: Scratch, given: Sequence[GivenRows] | None) -> Source:
    plain = replace(source, high_water=None, low_water=None, capacity=None)
    if source.type == "sequence" and given is None and source.options.get("rows") is not None:
        return plain
    options = {"path": str(scratch.given(source.id)), "settle": 0.0, "max_bytes": _NEVER_FULL}
    if source.type == "files" and source.options.get("format") != "avro":
        kept = {name: value for name, value in source.options.items() if name in _DECODED}
        if any(rows.files for rows in given or ()):
            kept |= {name: value for name, value in source.options.items() if name in _OF_FILES}
        elif kept["format"] == "text" and added_fields(source.options):
            kept["format"] = "json"  # a row gives the columns that the source would add
        schema = source.schema or (SchemaSpec(_columns(flow, source)) if kept["format"] == "parquet" else None)
        return replace(plain, options=options | kept | {"on_change": "ignore"}, schema=schema)
    format_ = source.options.get("format")
    if source.type == "kafka" and format_ in ("json", "csv", "text") and not source.options.get("metadata"):
        cells = {name: source.options[name] for name in READ_AS if name in source.options}
        more = cells | {"header": False} if format_ == "csv" else {}
        return replace(plain, type="files", options=options | {"format": format_} | more)
    return replace(plain, type="files", options=options | {"format": "json"}, schema=SchemaSpec(_columns(flow, source)))


def _columns(flow: Flow, source: Source) -> Schema:
    """The columns that a source declares, that its type always has, or that it finds at its location."""
    known = schema_of(source_columns(source))
    if known is not None:
        return known
    try:
        return catalog.open_source(source.type, source_place(flow, source.id)).resolve_schema()
    except ScribenginError as error:
        message = f'the columns of source "{source.id}" are not known: {error.message}'
        place = Place(str(flow.folder))
        raise InputError([Problem("schema-missing", place, message, "declare them with `schema:`")]) from error


def _sink(sink: Sink, scratch: Scratch) -> Sink:
    options: dict[str, Any] = {"path": str(scratch.out(sink.id))}
    if sink.type == "files":
        options |= {name: value for name, value in sink.options.items() if name in _WRITTEN}
    else:
        options |= {"format": "parquet", "evolve": "any"}  # no folder can show which columns the place of such a sink accepts
    return replace(sink, type="files", options=options, trigger_s=None, delivery=None, to=None)
