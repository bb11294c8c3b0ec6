"""Columns of a flow as columns of a Delta table."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from scribengin.core.types import arrow_type

if TYPE_CHECKING:
    from collections.abc import Sequence

    import deltalake
    import pyarrow as pa

    from scribengin.core.types import Schema

_UNNAMED = re.compile(r"[ ,;{}()\n\t=]")
"""characters that Delta readers do not accept in a name"""
_RULES = ("delta.generationExpression", "delta.invariants", "delta.identity.start")


def table_schema(schema: Schema, key: Sequence[str]) -> pa.Schema:
    """The columns of a table that we create: key columns are never null, all others may be."""
    import pyarrow as pa

    return pa.schema([pa.field(field.name, arrow_type(field.type), nullable=field.name not in key) for field in schema.fields])


def unnamed(schema: Schema) -> list[str]:
    """Names that no table can have, one sentence each."""
    found = [
        f'"{name}" is not a valid column name in a Delta table: it contains one of: blank , ; {{ }} ( ) ='
        for name in schema.names
        if _UNNAMED.search(name)
    ]
    seen: dict[str, str] = {}
    return found + [
        f'columns "{other}" and "{name}" are the same column for readers of Delta tables, which ignore case'
        for name in schema.names
        if (other := seen.setdefault(name.lower(), name)) != name
    ]


def unlike(
    schema: Schema, table: deltalake.DeltaTable, *, key: Sequence[str], partition_by: Sequence[str], evolve: str, mode: str
) -> list[str]:
    """Why an existing table does not accept rows of the flow, one sentence per reason.

    Args:
        schema: The columns of the rows.
        table: The table.
        key: The key columns of `mode: upsert`.
        partition_by: The sink's partition columns.
        evolve: The sink's `evolve`: `strict` or `add`.
        mode: The sink's `mode`.
    """
    held = {field.name: field for field in table.schema().fields}
    coming = {field.name: field for field in delta_fields(schema)}
    found = []
    for name, field in coming.items():
        there = held.get(name)
        if there is None:
            if evolve == "strict":
                found.append(f'the table has no column "{name}" ({schema[name].type}); `evolve: add` would add it')
        elif plain_type(there.type) != plain_type(field.type):
            found.append(f'column "{name}" is {type_text(there.type)} in the table, but {schema[name].type} in the flow')
        elif not there.nullable and schema[name].nullable and name not in key:
            found.append(f'column "{name}" is NOT NULL in the table, and may be null in the flow')
    for name, there in held.items():
        if name not in coming and not there.nullable:
            found.append(f'the table requires column "{name}" ({type_text(there.type)}), which the flow does not have')
        elif name not in coming and evolve == "strict":
            found.append(f'the table has column "{name}", which the flow does not have; `evolve: add` leaves it null')
    parted = list(table.metadata().partition_columns)
    if parted != list(partition_by):
        found.append(f"the table is partitioned by {_list(parted)}, the sink by {_list(partition_by)}")
    return [*found, *_rules(table, mode)]


def missing(schema: Schema, table: deltalake.DeltaTable) -> list[Any]:
    """The columns of `schema` that the table does not have yet, in the client's form."""
    held = {field.name for field in table.schema().fields}
    return [field for field in delta_fields(schema) if field.name not in held]


def delta_fields(schema: Schema) -> list[Any]:
    """The columns in the client's form, nullable."""
    from deltalake import Schema as DeltaSchema

    fields: list[Any] = DeltaSchema.from_arrow(table_schema(schema, ())).fields
    return fields


def plain_type(type_: Any) -> str:
    """A text that is equal for equal types; whether their parts may be null is ignored."""
    return re.sub(r'"(?:nullable|containsNull|valueContainsNull)":(?:true|false)', "", type_.to_json())


def type_text(type_: Any) -> str:
    """The type as text for people."""
    return str(type_.to_json()).strip('"')


def _rules(table: deltalake.DeltaTable, mode: str) -> list[str]:
    """The table's requirements that writers must meet, and that are not met if files are merely added, one sentence each."""
    settings = table.metadata().configuration
    found = [f"the table has the constraint {name}, which is not checked for added files" for name in settings if "constraints." in name]
    if settings.get("delta.columnMapping.mode", "none") != "none":
        found.append("the table has columns with other names in its files (delta.columnMapping.mode)")
    if settings.get("delta.appendOnly") == "true" and mode != "append":
        found.append(f"the table is delta.appendOnly, and mode: {mode} removes rows")
    ruled = [field.name for field in table.schema().fields if any(rule in (field.metadata or {}) for rule in _RULES)]
    return [*found, *(f'column "{name}" must be computed or checked by the writer, which this sink does not support' for name in ruled)]


def _list(names: Sequence[str]) -> str:
    return f"[{', '.join(names)}]" if names else "nothing"
