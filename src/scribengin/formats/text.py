"""Text: one column, `value STRING`, a line each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from scribengin.core.types import Field, Schema, Type, arrow_schema
from scribengin.formats.blocks import DamageBlock, LineBlock
from scribengin.formats.contract import Bad, Columns, Rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scribengin.formats.contract import Block

TEXT_SCHEMA = Schema((Field("value", Type("STRING"), nullable=False),))


class TextDecoder:
    """Every line is a record, an empty one too; a line that is not UTF-8 is dead. A carriage return before the line end is no part of it.

    The schema must have exactly one column, a STRING; it may have any name. Raises ValueError.
    """

    def __init__(self, schema: Schema) -> None:
        if len(schema.fields) != 1 or schema.fields[0].type.name != "STRING":
            raise ValueError(f"text has exactly one column, such as: value STRING; declared are: {schema}")
        self.schema = schema
        self._name = schema.fields[0].name
        self._form = arrow_schema(schema)

    def rows(self, block: Block) -> Rows:
        """One dict a line."""
        texts, ordinals, bad = self._decode(block)
        name = self._name
        return Rows([{name: text} for text in texts], ordinals, bad)

    def columns(self, block: Block) -> Columns:
        """The lines as one column."""
        texts, ordinals, bad = self._decode(block)
        return Columns(pa.RecordBatch.from_arrays([pa.array(texts, pa.string())], schema=self._form), ordinals, bad)

    def decode_values(self, values: Sequence[bytes | str | None]) -> Rows:
        """One record a value, for a `parse` step; null is missing where the column is NOT NULL."""
        found = Rows([], [])
        ordinals: list[int] = []
        for ordinal, value in enumerate(values):
            text = _text(ordinal, value) if isinstance(value, bytes) else value
            if text is None and not self.schema.fields[0].nullable:
                text = Bad(ordinal, "missing", f'field "{self._name}" is null and NOT NULL')
            if isinstance(text, Bad):
                found.bad.append(text)
            else:
                found.rows.append({self._name: text})
                ordinals.append(ordinal)
        found.ordinals = ordinals
        return found

    def _decode(self, block: Block) -> tuple[list[str], Sequence[int], list[Bad]]:
        if isinstance(block, DamageBlock):
            return [], [], block.bad()
        assert isinstance(block, LineBlock)
        try:
            lines = block.data.decode().split("\n")
        except UnicodeDecodeError:
            return _line_by_line(block.lines())
        if not lines[-1]:
            lines.pop()
        if b"\r\n" in block.data:
            lines = [line.removesuffix("\r") for line in lines]
        return lines, range(len(lines)), []


def _line_by_line(lines: list[bytes]) -> tuple[list[str], list[int], list[Bad]]:
    texts: list[str] = []
    ordinals: list[int] = []
    bad: list[Bad] = []
    for ordinal, line in enumerate(lines):
        text = _text(ordinal, line.removesuffix(b"\r"))
        if isinstance(text, Bad):
            bad.append(text)
        else:
            texts.append(text)
            ordinals.append(ordinal)
    return texts, ordinals, bad


def _text(ordinal: int, line: bytes) -> str | Bad:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        return Bad(ordinal, "invalid-utf8", f"byte {error.start} of the line is not UTF-8: {error.reason}")
