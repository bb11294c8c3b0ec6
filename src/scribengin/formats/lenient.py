"""`evolve: lenient`: if a value does not fit its column, it becomes null and is counted, and the record keeps its other values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from scribengin.core.types import Schema
from scribengin.formats.contract import Bad, DecodedColumns, DecodedRows
from scribengin.formats.csv import CellColumn
from scribengin.formats.csv_records import CsvBlock, split_cells
from scribengin.formats.dialect import Dialect
from scribengin.formats.json import JsonDecoder
from scribengin.formats.json_types import MisfitError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from scribengin.formats.column_notices import Noticer
    from scribengin.formats.contract import Block, Decoder

_MENDABLE = frozenset({"wrong-type", "out-of-range", "invalid-value", "missing"})
"""reasons that concern one column; unreadable records have other reasons and still become dead letters, like records in which a NOT NULL
column would be null"""
_RAW = msgspec.json.Decoder(dict[str, msgspec.Raw])
_Mended = tuple[dict[str, Any], list[str]]


class LenientDecoder:
    """Decodes with `strict`, and decodes again only the records that it rejected for their types: valid records cost no more than with
    `strict`."""

    def __init__(self, strict: Decoder, noticer: Noticer, options: Mapping[str, Any], only: Collection[str] = ()) -> None:
        """`only`: the columns that may become null; empty: all."""
        self._only = only
        self.schema = strict.schema
        self._strict = strict
        self._noticer = noticer
        self._dialect = Dialect.of(options) if options.get("format") == "csv" else Dialect()
        truncate = options.get("time") == "truncate"
        texts = (options.get("json") or {}).get("text") or ()
        one = self.schema.fields if options.get("format") == "json" else ()
        self._one = {field.name: JsonDecoder(Schema((field,)), texts, truncate=truncate) for field in one}
        self._cells = {field.name: CellColumn(field, truncate=truncate) for field in self.schema.fields}
        structs = getattr(strict, "structs", None)
        self.structs = None if structs is None else lambda block: self._decoded(block, structs)

    @property
    def strict(self) -> Decoder:
        """The decoder that is used first; it accepts the same blocks."""
        return self._strict

    def rows(self, block: Block) -> DecodedRows:
        """One dict for each record."""
        found: DecodedRows = self._decoded(block, self._strict.rows)
        return found

    def columns(self, block: Block) -> DecodedColumns:
        """The records of `rows`, as one Arrow batch."""
        found = self._decoded(block, self._strict.columns)
        if isinstance(found, DecodedColumns):
            return found
        import pyarrow as pa

        from scribengin.core.types import arrow_schema

        form = arrow_schema(self.schema)
        arrays = [pa.array([row[field.name] for row in found.rows], field.type) for field in form]
        return DecodedColumns(pa.RecordBatch.from_arrays(arrays, schema=form), found.ordinals, found.bad, found.skipped)

    def _decoded(self, block: Block, strict: Callable[[Block], Any]) -> Any:
        """The result of `strict` for the block, or DecodedRows if a record of it was mended."""
        found = strict(block)
        if all(bad.reason not in _MENDABLE for bad in found.bad):
            return found
        rows = found if isinstance(found, DecodedRows) else self._strict.rows(block)
        mended: dict[int, dict[str, Any]] = dict(zip(rows.ordinals, rows.rows, strict=True))
        left: list[Bad] = []
        for bad in rows.bad:
            again = self._mended(block, bad) if bad.reason in _MENDABLE else None
            if again is None:
                left.append(bad)
                continue
            mended[bad.ordinal], nulled = again
            for column in nulled:
                self._noticer.nulled(column, block, bad.ordinal)
        ordinals = sorted(mended)
        return DecodedRows([mended[ordinal] for ordinal in ordinals], ordinals, left, rows.skipped)

    def _mended(self, block: Block, bad: Bad) -> _Mended | None:
        """(the record's values, the columns that became null). None if a NOT NULL column would become null, or there is no valid record."""
        values: dict[str, Any] = {}
        nulled = []
        try:
            given = self._given(block, bad.ordinal)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None  # not an object, or more than one: the decoder found the type error before the syntax error
        for field in self.schema.fields:
            try:
                values[field.name] = given(field.name)
            except MisfitError as misfit:
                if misfit.reason not in _MENDABLE or not field.nullable or (self._only and field.name not in self._only):
                    return None
                values[field.name] = None
                nulled.append(field.name)
        return values, nulled

    def _given(self, block: Block, ordinal: int) -> Callable[[str], Any]:
        """A function that converts a column's value; it raises MisfitError."""
        if isinstance(block, CsvBlock):
            names = self.schema.names if block.header is None else block.header
            cells = split_cells(block.payload(ordinal).decode(), self._dialect) or []
            by_name = dict(zip(names, cells, strict=False))
            nulls = self._dialect.nulls if self._dialect.quoted_null == "typed" else ()

            def cell(name: str) -> Any:
                column = self._cells[name]
                return column.value(column.without(nulls, [by_name.get(name)])[0])

            return cell
        fields = _RAW.decode(block.payload(ordinal))

        def value(name: str) -> Any:
            raw = b"{%s:%s}" % (msgspec.json.encode(name), bytes(fields[name])) if name in fields else b"{}"
            found = self._one[name].decode_values([raw])
            if found.bad:
                raise MisfitError(found.bad[0].reason, found.bad[0].message)
            return found.rows[0][name]

        return value


class LearnedAvro:
    """Decodes Avro files with `strict`; values that do not fit a column that the flow does not declare become null and are counted."""

    structs = None

    def __init__(self, schema: Schema, noticer: Noticer, learned: Collection[str], *, truncate: bool = False) -> None:
        from scribengin.formats.avro_container import AvroFileDecoder

        self.schema = schema
        self._noticer = noticer
        self.strict = AvroFileDecoder(schema, truncate=truncate)
        unlearned = Schema(tuple(field for field in schema.fields if field.name not in learned))
        self._declared = AvroFileDecoder(unlearned, truncate=truncate)
        alone = [field for field in schema.fields if field.name in learned]
        self._learned = {field.name: AvroFileDecoder(Schema((field,)), truncate=truncate) for field in alone}

    def rows(self, block: Block) -> DecodedRows:
        """One dict for each record."""
        from scribengin.formats.rows import batch_to_rows

        found = self.columns(block)
        return DecodedRows(batch_to_rows(found.batch), found.ordinals, found.bad)

    def columns(self, block: Block) -> DecodedColumns:
        """The records of `rows`, as one Arrow batch."""
        found = self.strict.columns(block)
        if all(bad.reason not in _MENDABLE for bad in found.bad):
            return found
        import pyarrow as pa
        import pyarrow.compute as pc

        from scribengin.core.types import arrow_schema

        found = self._declared.columns(block)
        columns = dict(zip(found.batch.schema.names, found.batch.columns, strict=True))
        form = arrow_schema(self.schema)
        ordinals = pa.array(found.ordinals, pa.int64())
        for name, decoder in self._learned.items():
            one = decoder.columns(block)
            columns[name] = one.batch.column(0).take(pc.index_in(ordinals, pa.array(one.ordinals, pa.int64())))
            for ordinal in sorted({bad.ordinal for bad in one.bad}.intersection(found.ordinals)):
                self._noticer.nulled(name, block, ordinal)
        return DecodedColumns(pa.RecordBatch.from_arrays([columns[name] for name in form.names], schema=form), found.ordinals, found.bad)
