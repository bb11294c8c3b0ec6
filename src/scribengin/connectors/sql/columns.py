"""Columns of a flow as columns of a table, for the types of any database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scribengin.connectors.sql.contract import Database, Target
    from scribengin.core.types import Schema


def made(database: Database[Any], target: Target, schema: Schema) -> str:
    """The column list of CREATE TABLE."""
    fields = [field for field in schema.fields if field.name != target.change]
    lines = [f"{database.quoted(field.name)} {database.type_of(field.type)}{'' if field.nullable else ' NOT NULL'}" for field in fields]
    return ", ".join([*lines, f"PRIMARY KEY ({', '.join(map(database.quoted, target.key))})"] if target.key else lines)


def unlike(database: Database[Any], schema: Schema, held: Mapping[str, tuple[str, bool]]) -> list[str]:
    """Why an existing table does not accept `schema`, one sentence per reason. `held`: column → (type, whether each row must have a
    value)."""
    found = []
    for field in schema.fields:
        if field.name not in held:
            found.append(f'the table has no column "{field.name}" ({database.type_of(field.type)})')
        elif not database.takes(field.type, there := held[field.name][0]):
            found.append(f'column "{field.name}" is {there} in the table, but {field.type} in the flow')
    for name, (type_, must) in held.items():
        if must and name not in schema:
            found.append(f'the table requires column "{name}" ({type_}), which the flow does not have')
    return found
