"""What the sinks of a twin have written, as rows."""

from __future__ import annotations

import gzip
import io
import json
from decimal import Decimal
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import unquote

from scribengin.connectors import catalog
from scribengin.connectors.contract import BatchLimits, ConnectorContext
from scribengin.connectors.files.time_path import NULL
from scribengin.core.errors import SinkError
from scribengin.core.types import INTEGER_BITS, Field, Schema, Type
from scribengin.formats.rows import batch_to_rows
from scribengin.formats.written_values import typed_row, typed_value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from scribengin.spec.model import Sink

_BY_SUFFIX = {".jsonl": "json", ".json": "json", ".ndjson": "json", ".csv": "csv", ".txt": "text", ".parquet": "parquet"}


def read_output(sink: Sink, folder: Path, schema: Schema) -> list[dict[str, Any]]:
    """The rows of a twin's sink, in the order of Batch, task and row. `schema`: what the sink was given."""
    # a time of `partition_by` is a section, not a column: the rows keep their time
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
    """The rows of one file. Of JSON: `others` lets it have columns that the schema has not (a changed flow wrote them no more), `named`
    leaves out those that a record has not. Raises SinkError for a record that does not read back, ValueError for some of other formats."""
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
                    raise SinkError(f"{path} does not read back: {found.bad[0].message}")
                rows += batch_to_rows(found.batch)
    return rows if read == schema else [{name: _of_text(value, schema[name].type) for name, value in row.items()} for row in rows]


_TEXTS = ("FLOAT", "DOUBLE", "BINARY", "ARRAY", "MAP", "STRUCT")
"""types of which sinks of CSV write what sources of CSV refuse: NaN, and JSON in a cell"""


def _as_texts(schema: Schema) -> Schema:
    return Schema(tuple(Field(field.name, Type("STRING")) if field.type.name in _TEXTS else field for field in schema.fields))


def _of_text(value: Any, type_: Type) -> Any:
    if not isinstance(value, str) or type_.name not in _TEXTS:
        return value
    return typed_value(value if type_.name == "BINARY" or value in _NOT_FINITE else json.loads(value, parse_float=Decimal), type_)


_NOT_FINITE = ("NaN", "Infinity", "-Infinity")


def _json_rows(path: Path, schema: Schema, *, others: bool, named: bool) -> Iterator[dict[str, Any]]:
    """As sinks write them: with NaN and the infinities as texts, which a source of JSON would refuse."""
    with _opened(path) as lines:
        for number, line in enumerate(lines, 1):
            try:
                if line.strip():
                    record = json.loads(line, parse_float=Decimal)
                    known = {name: value for name, value in record.items() if name in schema} if others else record
                    row = typed_row(known, schema)
                    yield {name: row[name] for name in known} if named else row
            except (ValueError, AttributeError) as error:
                raise SinkError(f"{path}, line {number}, does not read back: {error}") from error


def _opened(path: Path) -> IO[str]:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8")
    if path.suffix == ".zst":
        from scribengin.core.zstd import ZstdFile

        return io.TextIOWrapper(ZstdFile(path, "rb"), encoding="utf-8")
    return path.open(encoding="utf-8")


def format_of(path: Path) -> str | None:
    """By the end of its name; None where that says nothing."""
    return _BY_SUFFIX.get(path.suffix.lower())


def _of_folders(parts: tuple[str, ...], schema: Schema) -> dict[str, Any]:
    """`country=de/day=2026-01-01/` as values; of columns only, whose folders stand before those of a time."""
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
