"""Checks of files, objects and messages: options that depend on the format."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from scribengin.connectors.files.options import list_keys

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scribengin.connectors.check_contract import CheckedNode
    from scribengin.core.problems import Problem

_PATHS = "write keys and [*], such as $.Records[*]"


def snappy_is_of_parquet(sink: CheckedNode) -> Iterator[Problem]:
    """Check that only Parquet files are compressed by snappy."""
    if sink.options.get("compression") == "snappy" and sink.options.get("format") != "parquet":
        message = f"{sink.called}: snappy is a compression of parquet, not of {sink.options.get('format')}"
        yield sink.problem("option-not-of-format", sink.path("compression"), message, "use gzip, zstd or none")


def metadata_fit_the_format(source: CheckedNode) -> Iterator[Problem]:
    """Check that metadata columns exist in the format: text formats have lines, Parquet and Avro record numbers; Spark's own reader has
    neither."""
    format_ = source.options.get("format")
    taken, folders = source.options.get("metadata") or {}, source.options.get("partition_columns") or {}
    for name, word in taken.items():
        if word in ("line", "offset") and format_ in ("parquet", "avro"):
            message = f'{source.called} has "{word}" in metadata, which format {format_} does not have'
            yield source.problem("option-not-of-format", source.path("metadata"), message, f"write {name}: row")
        elif word == "row" and format_ not in ("parquet", "avro"):
            message = f'{source.called} has "row" in metadata, which format {format_} does not have'
            yield source.problem("option-not-of-format", source.path("metadata"), message, f"write {name}: line")
    key = "metadata" if taken else "partition_columns"
    if (taken or folders) and source.options.get("parse") == "spark":
        message = f"{source.called} has `{key}`, which `parse: spark` does not support"
        yield source.problem_at_key("option-not-of-format", source.path(key), message, "take `parse: spark` out")


def shapes_can_be_read(source: CheckedNode) -> Iterator[Problem]:
    """Check the values inside of `json` and `multiline`, and the options that cannot be combined with them."""
    shape, multiline = source.options.get("json") or {}, source.options.get("multiline") or {}
    if shape.get("records"):
        try:
            list_keys(shape["records"])
        except ValueError as error:
            yield source.problem("bad-value", source.path("json", "records"), f"{source.called}: {error}", _PATHS)
        if shape.get("shape", "lines") in ("array", "concatenated"):
            message = f"{source.called} has both `records` and `shape: {shape['shape']}`; the path in `records` already locates the records"
            yield source.problem("bad-value", source.path("json", "shape"), message, "take `shape` out")
    if multiline.get("start"):
        try:
            re.compile(multiline["start"])
        except re.error as error:
            message = f"{source.called}: `start` of multiline is not a valid regular expression: {error}"
            yield source.problem("bad-value", source.path("multiline", "start"), message, "correct it, such as: ^\\d{4}-")
    whole = bool(shape.get("records")) or shape.get("shape", "lines") != "lines"
    key = "growing" if source.options.get("growing") else "parse" if source.options.get("parse") == "spark" else ""
    if whole and key:
        message = f"{source.called} has `{key}`, which does not apply to files that are read as one JSON document"
        yield source.problem("bad-value", source.path(key), message, f"take `{key}` out")
    columns = {} if source.schema is None else {field.name: field.type.name for field in source.schema.fields}
    for name in shape.get("text") or ():
        if columns and columns.get(name) != "STRING":
            found = f"is {columns[name]}" if name in columns else "is not in its schema"
            message = f'{source.called} has "{name}" as JSON text, but the column {found}'
            yield source.problem("bad-value", source.path("json", "text"), message, f"declare it: {name} STRING")
