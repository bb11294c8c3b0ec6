"""Packs as the reader's columns: what the writer's schema says, matched by name against the one that is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from scribengin.core.types import INTEGER_BITS, arrow_schema
from scribengin.formats.contract import Bad, DecodedColumns, DecodedRows
from scribengin.formats.packs import PackBlock
from scribengin.formats.rows import batch_to_rows

if TYPE_CHECKING:
    from scribengin.core.types import Schema, Type
    from scribengin.formats.contract import Block


class PackDecoder:
    """Decodes `PackBlock`s.

    Where the pack's schema is the asked one its columns are handed on as they lie. Else they are taken by name: a column that the pack
    does not have is null, or makes every row `missing` where it is NOT NULL; one that nobody asks for is left out; one of another type
    makes every row `type`, unless the asked type holds each of its values as it is:

    - an integer in a wider one (TINYINT, SMALLINT, INT, BIGINT),
    - FLOAT in DOUBLE,
    - DECIMAL in one with at least as many digits on both sides of the point,
    - ARRAY, MAP and STRUCT of such, a STRUCT's fields having the same names in the same order.
    """

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._form = arrow_schema(schema)
        self._needed = [index for index, field in enumerate(schema.fields) if not field.nullable]
        self._misfits: dict[Schema, tuple[str, str] | None] = {}

    def rows(self, block: Block) -> DecodedRows:
        """Dicts with every column of the schema and no other."""
        found = self.columns(block)
        try:
            return DecodedRows(batch_to_rows(found.batch), found.ordinals, found.bad)
        except (ValueError, OverflowError):
            return _one_by_one(found)

    def columns(self, block: Block) -> DecodedColumns:
        """The same records as one Arrow batch."""
        assert isinstance(block, PackBlock)
        if block.bad is not None or block.schema is None:
            return DecodedColumns(pa.RecordBatch.from_pylist([], self._form), [], [] if block.bad is None else [block.bad])
        batch = block.batch
        if block.schema != self.schema:
            if block.schema not in self._misfits:
                self._misfits[block.schema] = _misfit(block.schema, self.schema)
            misfit = self._misfits[block.schema]
            if misfit is not None:
                bad = [Bad(ordinal, *misfit) for ordinal in range(len(block))]
                return DecodedColumns(pa.RecordBatch.from_pylist([], self._form), [], bad)
            names = set(block.schema.names)
            arrays = [
                batch.column(field.name).cast(field.type) if field.name in names else pa.nulls(batch.num_rows, field.type)
                for field in self._form
            ]
            batch = pa.RecordBatch.from_arrays(arrays, schema=self._form)
        return self._without_nulls(batch)

    def _without_nulls(self, batch: pa.RecordBatch) -> DecodedColumns:
        bad: dict[int, Bad] = {}
        for index in self._needed:
            column = batch.column(index)
            if column.null_count:
                for ordinal in pc.indices_nonzero(column.is_null()).to_pylist():
                    bad.setdefault(ordinal, Bad(ordinal, "missing", f'field "{self.schema.fields[index].name}" is null and NOT NULL'))
        if not bad:
            return DecodedColumns(batch, range(batch.num_rows))
        kept = [ordinal for ordinal in range(batch.num_rows) if ordinal not in bad]
        return DecodedColumns(batch.take(pa.array(kept, pa.int64())), kept, [bad[ordinal] for ordinal in sorted(bad)])


def _one_by_one(found: DecodedColumns) -> DecodedRows:
    """For batches with a value that Python has none for: a time outside of the years 1 to 9999."""
    rows: list[dict[str, Any]] = []
    ordinals: list[int] = []
    bad = list(found.bad)
    for index, ordinal in enumerate(found.ordinals):
        try:
            rows += batch_to_rows(found.batch.slice(index, 1))
        except (ValueError, OverflowError) as error:
            bad.append(Bad(ordinal, "out-of-range", f"a value that Python has no form for: {error}"))
        else:
            ordinals.append(ordinal)
    return DecodedRows(rows, ordinals, sorted(bad, key=lambda each: each.ordinal))


def _misfit(found: Schema, asked: Schema) -> tuple[str, str] | None:
    """(reason, message) of what makes every row bad."""
    for field in asked.fields:
        if field.name not in found.names:
            if not field.nullable:
                return "missing", f'field "{field.name}" is not in the pack, which has {", ".join(found.names)[:300]}; expected NOT NULL'
        elif not _holds(field.type, has := found[field.name].type):
            return "type", f'field "{field.name}" is {has} in the pack; expected {field.type}'
    return None


def _holds(asked: Type, found: Type) -> bool:
    """True where each value of `found` is one of `asked`; NOT NULL inside of structs must not become stricter."""
    if asked == found:
        return True
    if asked.name in INTEGER_BITS and found.name in INTEGER_BITS:
        return INTEGER_BITS[asked.name] > INTEGER_BITS[found.name]
    if (asked.name, found.name) == ("DOUBLE", "FLOAT"):
        return True
    if asked.name != found.name:
        return False
    match asked.name:
        case "DECIMAL":
            return asked.scale >= found.scale and asked.precision - asked.scale >= found.precision - found.scale
        case "ARRAY" | "MAP":
            return all(map(_holds, asked.parts, found.parts))
        case "STRUCT":
            return [field.name for field in asked.fields] == [field.name for field in found.fields] and all(
                _holds(ours.type, theirs.type) and (ours.nullable or not theirs.nullable)
                for ours, theirs in zip(asked.fields, found.fields, strict=True)
            )
    return False
