"""Columns that are not in the records: the place of a record (`metadata`), and values in the names of its folders (`partition_columns`).

A decoder reads the record's own columns first; these columns are then added, one batch at a time.
"""

from __future__ import annotations

import datetime as dt
import re
from copy import copy
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import numpy as np

from scribengin.core.types import INTEGER_BITS, arrow_schema
from scribengin.formats.blocks import FileFacts, LineBlock
from scribengin.formats.contract import DecodedColumns, DecodedRows, RecordPlace
from scribengin.formats.csv import CellColumn
from scribengin.formats.json_types import MisfitError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scribengin.core.types import Field, Schema
    from scribengin.formats.contract import Block, Decoder

NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
"""the folder name that stands for null"""
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_DIGITS = re.compile(r"(-?)0*(\d+)\Z")


def folders_in(path: str) -> dict[str, str]:
    """Name → value, as written, of the folders `column=value` in a file's path; for equal names the innermost.

    >>> folders_in("out/country=de/day=2026-01-02/part-0.jsonl")
    {'country': 'de', 'day': '2026-01-02'}
    """
    parts = (part.partition("=") for part in path.split("/")[:-1])
    return {unquote(name): value for name, sign, value in parts if sign}


def folder_values(path: str, fields: Sequence[Field]) -> dict[str, Any]:
    """The typed values of the folders `column=value` in a file's path; for equal names the innermost. Raises MisfitError if a column has no
    folder, or its value does not fit."""
    found = folders_in(path)
    return {field.name: _value(field, found.get(field.name), path) for field in fields}


def _value(field: Field, said: str | None, path: str) -> Any:
    if said is None:
        raise MisfitError("missing", f'no folder in {path} has a name "{field.name}=…"; `partition_columns` expects {field}')
    text: str | None = unquote(said, errors="strict") if _is_utf8(said) else said
    if text == NULL_FOLDER or (not text and field.type.name != "STRING"):
        text = None
    if text is None:
        if field.nullable:
            return None
        raise MisfitError("missing", f'the folder "{field.name}={said}" of {path} means null; expected {field}')
    if field.type.name == "STRING":
        return text
    if field.type.name in INTEGER_BITS and (digits := _DIGITS.match(text)):  # hour=07
        text = digits[1] + digits[2]
    try:
        return CellColumn(field).value(text)
    except MisfitError as misfit:
        raise MisfitError(misfit.reason, f'the folder "{field.name}={said}" of {path} is not a valid {field.type}') from None


def _is_utf8(text: str) -> bool:
    try:
        unquote(text, errors="strict")
    except UnicodeDecodeError:
        return False
    return True


class AddedColumns:
    """A decoder of `schema`, whose own columns `own` decodes. `taken`: column → a word of METADATA; `folders`: columns from folder
    names."""

    structs = None

    def __init__(self, own: Decoder, schema: Schema, taken: Mapping[str, str], folders: Sequence[Field]) -> None:
        self.schema = schema
        self.own = own
        self._taken = dict(taken)
        self._folders = lru_cache(maxsize=16)(lambda path: folder_values(path, folders))
        self._fixed: tuple[RecordPlace, FileFacts | None] | None = None
        self._at_end = schema.names[: len(own.schema.names)] == own.schema.names

    def over(self, own: Decoder) -> AddedColumns:
        """A copy with another decoder of the own columns."""
        other = copy(self)
        other.own = own
        return other

    def placed(self, place: RecordPlace, facts: FileFacts | None, own: Decoder) -> AddedColumns:
        """A decoder for a single record without its file: the record of a dead letter."""
        other = self.over(own)
        other._fixed = (place, facts)
        return other

    def rows(self, block: Block) -> DecodedRows:
        """The records as dicts with exactly the columns of the schema."""
        found = self.own.rows(block)
        alike, each = self._values(block, found.ordinals)
        rows = found.rows
        for row in rows:
            row.update(alike)
        for name, values in each.items():
            for row, value in zip(rows, values.tolist(), strict=True):
                row[name] = value
        if not self._at_end or len(alike) + len(each) + len(self.own.schema.names) != len(self.schema.names):
            rows = [{name: row[name] for name in self.schema.names} for row in rows]
        return DecodedRows(rows, found.ordinals, found.bad, found.skipped)

    def columns(self, block: Block) -> DecodedColumns:
        """The records of `rows`, as one Arrow batch."""
        import pyarrow as pa

        found = self.own.columns(block)
        alike, each = self._values(block, found.ordinals)
        form, count = arrow_schema(self.schema), found.batch.num_rows
        arrays = [
            pa.repeat(pa.scalar(alike[field.name], field.type), count)
            if field.name in alike
            else pa.array(each[field.name]).cast(field.type)
            if field.name in each
            else found.batch.column(field.name)
            for field in form
        ]
        return DecodedColumns(pa.RecordBatch.from_arrays(arrays, schema=form), found.ordinals, found.bad, found.skipped)

    def _values(self, block: Any, ordinals: Sequence[int]) -> tuple[dict[str, Any], dict[str, np.ndarray[Any, Any]]]:
        """(column → the value of all records, column → one value for each record)"""
        place, facts = self._fixed or (None, getattr(block, "facts", None))
        file = block.file if place is None else place.file
        alike: dict[str, Any] = {}
        each: dict[str, np.ndarray[Any, Any]] = {}
        if len(ordinals):
            alike |= self._folders(file)
        else:
            alike |= {name: None for name in self.schema.names if name not in self.own.schema and name not in self._taken}
        at = np.asarray(ordinals, np.int64)
        for name, word in self._taken.items():
            match word:
                case "file":
                    alike[name] = file
                case "file_name":
                    alike[name] = file.rpartition("/")[2]
                case "file_size":
                    alike[name] = None if facts is None else facts.size
                case "file_time":
                    alike[name] = None if facts is None else _EPOCH + dt.timedelta(microseconds=facts.time_us)
                case _ if place is not None:
                    alike[name] = getattr(place, word)
                case _:
                    numbers = _numbers(block, word, at)
                    if numbers is None:
                        alike[name] = None
                    else:
                        each[name] = numbers
        return alike, each


def own_decoder(decoder: Decoder) -> Decoder:
    """The decoder of the record's own columns."""
    return decoder.own if isinstance(decoder, AddedColumns) else decoder


def _numbers(block: Any, word: str, ordinals: np.ndarray[Any, Any]) -> np.ndarray[Any, Any] | None:
    """The `line`, `offset` or `row` of the records; None if unknown."""
    if isinstance(block, LineBlock):
        if word == "row":
            return None
        return block.offsets(ordinals) if word == "offset" else block.line_numbers(ordinals)
    if word != "row" or not len(ordinals):
        return None
    first = block.place(0).row
    return None if first is None else ordinals + first
