"""What a test gives to a source, written as the source reads it."""

from __future__ import annotations

import io
import shutil
from itertools import groupby
from typing import TYPE_CHECKING, Any

from scribengin.core.errors import InputError
from scribengin.core.problems import Problem
from scribengin.core.types import Field, Schema
from scribengin.formats.catalog import encoder_for
from scribengin.formats.csv_records import join_cells, split_cells, split_records
from scribengin.formats.dialect import AUTO, LINE_ENDS, Dialect, codec_of
from scribengin.formats.json_types import MisfitError
from scribengin.formats.text import TEXT_SCHEMA
from scribengin.formats.written_values import typed_row
from scribengin.plan.test_files import files_named

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from scribengin.core.problems import Place
    from scribengin.spec.flow_tests import GivenRows
    from scribengin.spec.model import Source

_NULL = "\N{OBJECT REPLACEMENT CHARACTER}null"
_PLAIN = Dialect(nulls=(_NULL,))
_SUFFIX = {"json": ".jsonl", "csv": ".csv", "text": ".txt", "parquet": ".parquet"}


def write_given(source: Source, folder: Path, number: int, rows: GivenRows, base: Path, place: Callable[[int], Place]) -> None:
    """One Batch for the twin of a source, as files in its folder. `base`: where the paths of files start; `place`: where a row stands.

    Raises InputError for a row or a file that is not what it should be.
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
    for index, path in enumerate(files_named(base, name)):  # two folders may have files of one name
        shutil.copyfile(path, prefix.with_name(f"{prefix.name}{index:04d}-{path.name}"))


def check_file(source: str, base: Path, name: str, place: Place) -> None:
    """Raises InputError where a path or a pattern that is given to a source names no file."""
    if not files_named(base, name):
        message = f'"{name}", which is given to source "{source}", is no file of {base}'
        raise InputError([Problem("test-file", place, message, "mind the path: it starts at the flow file's folder")])


def _bytes(source: Source, rows: Sequence[Mapping[str, Any] | str], place: Callable[[int], Place]) -> bytes:
    """The file. Rows that are texts stand in it as they are."""
    format_, options = source.options["format"], source.options
    schema = source.schema.fields if source.schema else TEXT_SCHEMA
    parts: list[bytes] = [b"\n"] * (options.get("skip_lines") or 0)
    if format_ == "csv" and options.get("header", True):
        parts.append(_encoded(format_, [], schema, {**options, "header": True}))
    numbered = list(enumerate(rows))
    for raw, group in groupby(numbered, key=lambda pair: isinstance(pair[1], str)):
        members = list(group)
        if raw and format_ == "parquet":
            message = f'source "{source.id}" reads parquet, which has no raw records'
            raise InputError([Problem("test-value", place(members[0][0]), message, "give a mapping of columns, or a file")])
        if raw:
            parts += [_raw(str(row), format_, place(index), source.id) for index, row in members]
        else:
            typed = [_typed(row, schema, place(index), source.id) for index, row in members]
            parts.append(_encoded(format_, typed, schema, {**options, "header": False}))
    return _as_the_source_reads(b"".join(parts), format_, options)


def _as_the_source_reads(data: bytes, format_: str, options: Mapping[str, Any]) -> bytes:
    """Lines that end in LF, in UTF-8, as its options say."""
    if format_ not in ("csv", "text"):
        return data
    mark = LINE_ENDS[options.get("line_end") or "auto"].mark
    encoding = codec_of(options.get("encoding") or "utf-8") or "utf-8"
    if mark != b"\n":
        data = data.replace(b"\n", mark)
    return data if encoding == "utf-8" else data.decode("utf-8", "surrogateescape").encode(encoding, "surrogateescape")


def _raw(text: str, format_: str, place: Place, source: str) -> bytes:
    """A line. One line end, as a block of YAML has it, is taken for the end of the record."""
    record = text.removesuffix("\n")
    if "\n" in record and format_ != "csv":  # there it may stand in a cell
        message = f'a raw record for source "{source}" has a line end in it, and would be several records'
        raise InputError([Problem("test-value", place, message, "write it on one line, or each line as a record of its own")])
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

    loose = Schema(tuple(Field(field.name, field.type) for field in schema.fields))  # that a NOT NULL is null is for the decoder to say
    file = io.BytesIO()
    cells = {"header": options.get("header", True), "null": _NULL} if format_ == "csv" else {}
    encoder = encoder_for(format_, options=cells)(file, loose)
    encoder.write(rows_to_batch(rows, loose, range(len(rows)))[0])
    encoder.close()
    if format_ != "csv":
        return file.getvalue()
    return _in_dialect(file.getvalue(), Dialect.of(options), (options.get("columns") or {}) if options.get("header", True) else {})


def _in_dialect(data: bytes, dialect: Dialect, columns: Mapping[str, str]) -> bytes:
    """Records of RFC 4180 as the source reads them; `columns`: name → what the header calls it. A cell that the dialect has no form for
    stands in it as it is."""
    found: list[str] = []
    dialect = dialect.ending(AUTO)
    for record in split_records(data, _PLAIN):
        cells = split_cells(record.removesuffix(b"\n").decode(), _PLAIN) or []
        cells = [columns.get(cell or "", cell) for cell in cells] if columns and not found else cells
        joined = join_cells(cells, dialect)
        found.append(dialect.delimiter.join(cell or "" for cell in cells) if joined is None else joined)
    return "".join(f"{record}\n" for record in found).encode()
