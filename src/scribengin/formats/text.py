"""Text: one column, `value STRING`, one record for each line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from scribengin.core.types import Field, Schema, Type, arrow_schema
from scribengin.formats.blocks import DamageBlock, LineBlock
from scribengin.formats.contract import Bad, DecodedColumns, DecodedRows
from scribengin.formats.dialect import AUTO, in_utf_8, undecodable
from scribengin.formats.spans import SpanBlock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scribengin.formats.contract import Block

TEXT_SCHEMA = Schema((Field("value", Type("STRING"), nullable=False),))


class TextDecoder:
    """Decodes lines: every line is a record, also an empty one; a line that is not UTF-8 becomes a dead letter. A carriage return before
    the line end is ignored. `comment`: the prefix of lines that are not records. `encoding`: of single values; bytes of files are already
    UTF-8 here.

    The schema must have exactly one column, a STRING; it may have any name. Raises ValueError.
    """

    def __init__(self, schema: Schema, *, comment: str | None = None, encoding: str = "utf-8") -> None:
        if len(schema.fields) != 1 or schema.fields[0].type.name != "STRING":
            raise ValueError(f"text needs exactly one column, such as value STRING; found: {schema}")
        self.schema = schema
        self._name = schema.fields[0].name
        self._comment = None if comment is None else comment.encode()
        self._encoding = encoding
        self._form = arrow_schema(schema)

    def rows(self, block: Block) -> DecodedRows:
        """One dict for each line."""
        texts, ordinals, bad = self._decode(block)
        name = self._name
        return DecodedRows([{name: text} for text in texts], ordinals, bad, self._skipped(block, ordinals, bad))

    def columns(self, block: Block) -> DecodedColumns:
        """The lines as one column."""
        texts, ordinals, bad = self._decode(block)
        batch = pa.RecordBatch.from_arrays([pa.array(texts, pa.string())], schema=self._form)
        return DecodedColumns(batch, ordinals, bad, self._skipped(block, ordinals, bad))

    def decode_values(self, values: Sequence[bytes | str | None]) -> DecodedRows:
        """One record per value, for a `parse` step; null is `missing` if the column is NOT NULL."""
        found = DecodedRows([], [])
        ordinals: list[int] = []
        for ordinal, value in enumerate(values):
            text = _text(ordinal, in_utf_8(value, self._encoding), self._encoding) if isinstance(value, bytes) else value
            if text is None and not self.schema.fields[0].nullable:
                text = Bad(ordinal, "missing", f'field "{self._name}" is null; expected NOT NULL')
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
        comment = self._comment
        if isinstance(block, SpanBlock):
            return self._line_by_line(block)
        if comment is not None and (block.data.startswith(comment) or block.end.mark + comment in block.data):
            return self._line_by_line(block)
        try:
            lines = block.data.decode().split(block.end.mark.decode())
        except UnicodeDecodeError:
            return self._line_by_line(block)
        if not lines[-1]:
            lines.pop()
        if block.end == AUTO and b"\r\n" in block.data:
            lines = [line.rstrip("\r") for line in lines]
        return lines, range(len(lines)), []

    def _skipped(self, block: Block, ordinals: Sequence[int], bad: list[Bad]) -> int:
        return 0 if self._comment is None else len(block) - len(ordinals) - len(bad)

    def _line_by_line(self, block: LineBlock) -> tuple[list[str], list[int], list[Bad]]:
        texts: list[str] = []
        ordinals: list[int] = []
        bad: list[Bad] = []
        for ordinal, line in enumerate(block.lines()):
            if self._comment is not None and line.startswith(self._comment):
                continue
            record = block.end.stripped(line)
            if isinstance(block, SpanBlock):
                record = record.replace(b"\r\n", b"\n")
            text = _text(ordinal, record, self._encoding)
            if isinstance(text, Bad):
                bad.append(text)
            else:
                texts.append(text)
                ordinals.append(ordinal)
        return texts, ordinals, bad


def _text(ordinal: int, line: bytes, encoding: str) -> str | Bad:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        return Bad(ordinal, "invalid-utf8", undecodable(error, "line", encoding))
