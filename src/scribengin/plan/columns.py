"""The columns of a node, as far as known without Spark: always names, types only if they are certain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scribengin.core.types import Field, Schema

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scribengin.core.types import Type


@dataclass(frozen=True, slots=True)
class Column:
    """A column. `type` is None if only Spark knows it."""

    name: str
    type: Type | None = None
    nullable: bool = True

    def __str__(self) -> str:
        return str(Field(self.name, self.type, self.nullable)) if self.type else self.name


Columns = tuple[Column, ...]


def columns_of(schema: Schema) -> Columns:
    """The columns of a schema, in order."""
    return tuple(Column(field.name, field.type, field.nullable) for field in schema.fields)


def schema_of(columns: Columns | None) -> Schema | None:
    """The Schema; None if a type is unknown, or a name occurs twice."""
    if columns is None or len({column.name for column in columns}) < len(columns):
        return None
    fields = [Field(column.name, column.type, column.nullable) for column in columns if column.type is not None]
    return Schema(tuple(fields)) if fields and len(fields) == len(columns) else None


def find(columns: Iterable[Column], name: str) -> Column | None:
    """The column of that name. Names are case-sensitive, in SQL too: sessions set `spark.sql.caseSensitive`."""
    return next((column for column in columns if column.name == name), None)


def is_near(columns: Iterable[Column], name: str) -> bool:
    """True if a column has that name except for upper and lower case, which many sinks do not distinguish."""
    folded = name.lower()
    return any(column.name.lower() == folded for column in columns)
