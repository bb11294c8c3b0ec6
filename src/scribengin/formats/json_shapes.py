"""The two shapes in which JSON records are decoded, dicts and Structs: some lines at once, or one line alone."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from scribengin.formats.json_pieces import decode_whole
from scribengin.formats.json_types import MisfitError, field_mender, mend_object, row_type, to_utc
from scribengin.formats.structs import StructForm, attribute

if TYPE_CHECKING:
    from collections.abc import Callable

    from scribengin.core.types import Schema


class Shape(Protocol):
    """How records are decoded."""

    schema: Schema

    def whole(self, data: bytes) -> list[Any] | int | None:
        """The records of `data`, one a line; if anything at all is wrong or odd, the index of that line, or None where it is not
        known."""

    def line(self, line: bytes) -> Any:
        """The record of one line. Raises MisfitError and what msgspec raises."""


class Dicts:
    """Dicts with every column of the schema and no other."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._decoder = msgspec.json.Decoder(row_type(schema))
        self._times = [field.name for field in schema.fields if field.type.name == "TIMESTAMP"]
        others = [field for field in schema.fields if field.type.name != "TIMESTAMP"]
        self._mends = [(field.name, mend) for field in others if (mend := field_mender(field)) is not None]
        self._mend_row = mend_object(schema.fields)

    def whole(self, data: bytes) -> list[dict[str, Any]] | int | None:
        """The rows of `data`, or where not."""
        rows = decode_whole(self._decoder, data)
        if not isinstance(rows, list):
            return rows
        width = len(self.schema.fields)
        if sum(map(len, rows)) != width * len(rows):
            for row in rows:
                if len(row) != width:
                    for name in self.schema.names:
                        row.setdefault(name, None)
        try:
            for name in self._times:
                for row in [row for row in rows if (value := row[name]) is not None and value.tzinfo is not dt.UTC]:
                    row[name] = to_utc(row[name])
            for name, mend in self._mends:
                for row in rows:
                    row[name] = mend(row[name])
        except MisfitError:
            return None
        return rows

    def line(self, line: bytes) -> dict[str, Any]:
        """The row of one line."""
        return self._mend_row(self._decoder.decode(line))


class FlatStructs:
    """Structs of a schema whose values msgspec gives as they are to be, timestamps aside."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.form = StructForm(schema)
        self._decoder = msgspec.json.Decoder(self.form.type)
        columns = [field.name for field in schema.fields if field.type.name == "TIMESTAMP"]
        self._times = [(attribute(schema, column), column) for column in columns]
        zones = ", ".join(f"{{struct.{field}.tzinfo for struct in structs}}" for field, _ in self._times)
        some = ", ".join(f"{{struct.{field}.tzinfo for struct in structs if struct.{field} is not None}}" for field, _ in self._times)
        self._zones: Callable[[list[Any]], set[Any]] = eval(f"lambda structs: set().union({zones})")
        self._zones_of_some: Callable[[list[Any]], set[Any]] = eval(f"lambda structs: set().union({some})")

    def whole(self, data: bytes) -> list[Any] | int | None:
        """The Structs of `data`, or where not."""
        structs = decode_whole(self._decoder, data)
        if not isinstance(structs, list) or self._all_utc(structs):
            return structs
        try:
            for struct in structs:
                self._mend(struct)
        except MisfitError:
            return None
        return structs

    def line(self, line: bytes) -> Any:
        """The Struct of one line."""
        struct = self._decoder.decode(line)
        self._mend(struct)
        return struct

    def _all_utc(self, structs: list[Any]) -> bool:
        try:
            return self._zones(structs) <= _UTC
        except AttributeError:  # a null
            return self._zones_of_some(structs) <= _UTC

    def _mend(self, struct: Any) -> None:
        for field, column in self._times:
            value = getattr(struct, field)
            if value is not None and value.tzinfo is not dt.UTC:
                try:
                    setattr(struct, field, to_utc(value))
                except MisfitError as misfit:
                    misfit.path = (f".{column}", *misfit.path)
                    raise


_UTC = frozenset({dt.UTC})
