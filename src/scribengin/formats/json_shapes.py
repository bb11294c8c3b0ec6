"""The two shapes in which JSON records are decoded, dicts and Structs: some lines at once, or one line alone."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from scribengin.formats.json_pieces import decode_whole, long_times
from scribengin.formats.json_types import Mending, MisfitError, holds, row_type, struct_type, to_utc
from scribengin.formats.structs import StructForm, attribute

if TYPE_CHECKING:
    from collections.abc import Callable

    from scribengin.core.types import Schema


class RecordShape(Protocol):
    """How records are decoded."""

    schema: Schema
    has_two_ways: bool
    """whether the careful way reads more than the quick one"""

    def whole(self, data: bytes) -> list[Any] | int | None:
        """The records of `data`, one a line, the quick way; if anything at all is wrong or odd, the index of that line, or None where it is
        not known."""

    def carefully(self, data: bytes) -> list[Any] | int | None:
        """The same, the careful way."""

    def line(self, line: bytes) -> Any:
        """The record of one line. Raises MisfitError and what msgspec raises."""


class Dicts:
    """Dicts with every column of the schema and no other."""

    def __init__(self, schema: Schema, *, truncate: bool = False) -> None:
        self.schema = schema
        self._decoder = msgspec.json.Decoder(row_type(schema))
        self._times = [field.name for field in schema.fields if field.type.name == "TIMESTAMP"]
        self._mends = _mends(schema, Mending())
        careful = Mending(careful=True, truncate=truncate)
        self._careful = msgspec.json.Decoder(row_type(schema, careful=True))
        self._careful_mends = _mends(schema, careful, times=True)
        self._mend_row = careful.object(schema.fields)
        self._has_times = _hold(schema, "TIMESTAMP")
        self.has_two_ways = _hold(schema, "TIMESTAMP", "FLOAT", "DOUBLE")

    def whole(self, data: bytes) -> list[dict[str, Any]] | int | None:
        """The rows of `data`, or where not."""
        rows = decode_whole(self._decoder, data)
        if isinstance(rows, list) and not (self._has_times and long_times(data)):
            return self._mended(rows, self._times, self._mends)
        return self.carefully(data) if isinstance(rows, list) else rows

    def carefully(self, data: bytes) -> list[dict[str, Any]] | int | None:
        """The same, the careful way."""
        rows = decode_whole(self._careful, data)
        return self._mended(rows, [], self._careful_mends) if isinstance(rows, list) else rows

    def line(self, line: bytes) -> dict[str, Any]:
        """The row of one line."""
        return self._mend_row(self._careful.decode(line))

    def _mended(self, rows: list[dict[str, Any]], times: list[str], mends: list[tuple[str, Any]]) -> list[dict[str, Any]] | int:
        width = len(self.schema.fields)
        if sum(map(len, rows)) != width * len(rows):
            for row in rows:
                if len(row) != width:
                    for name in self.schema.names:
                        row.setdefault(name, None)
        index = 0
        try:
            for name in times:
                for row in [row for row in rows if (value := row[name]) is not None and value.tzinfo is not dt.UTC]:
                    row[name] = to_utc(row[name])
            for name, mend in mends:
                for index, row in enumerate(rows):  # noqa: B007 (where it stops)
                    row[name] = mend(row[name])
        except MisfitError:
            return index
        return rows


class FlatStructs:
    """Structs of a schema whose values msgspec gives as they are to be, timestamps aside."""

    def __init__(self, schema: Schema, *, truncate: bool = False) -> None:
        self.schema = schema
        self.form = StructForm(schema)
        self._decoder = msgspec.json.Decoder(self.form.type)
        self._careful = msgspec.json.Decoder(struct_type(schema, texts=frozenset(), careful=True))
        mends = _mends(schema, Mending(careful=True, truncate=truncate), times=True)
        self._mends = [(attribute(schema, name), name, mend) for name, mend in mends]
        self._has_times = _hold(schema, "TIMESTAMP")
        self.has_two_ways = _hold(schema, "TIMESTAMP", "FLOAT", "DOUBLE")
        times = [attribute(schema, field.name) for field in schema.fields if field.type.name == "TIMESTAMP"]
        zones = ", ".join(f"{{struct.{field}.tzinfo for struct in structs}}" for field in times)
        some = ", ".join(f"{{struct.{field}.tzinfo for struct in structs if struct.{field} is not None}}" for field in times)
        self._times = times
        self._zones: Callable[[list[Any]], set[Any]] = eval(f"lambda structs: set().union({zones})")
        self._zones_of_some: Callable[[list[Any]], set[Any]] = eval(f"lambda structs: set().union({some})")

    def whole(self, data: bytes) -> list[Any] | int | None:
        """The Structs of `data`, or where not."""
        structs = decode_whole(self._decoder, data)
        if isinstance(structs, list) and not (self._has_times and long_times(data)):
            return structs if self._all_utc(structs) else self._in_utc(structs)
        return self.carefully(data) if isinstance(structs, list) else structs

    def carefully(self, data: bytes) -> list[Any] | int | None:
        """The same, the careful way."""
        structs = decode_whole(self._careful, data)
        if not isinstance(structs, list):
            return structs
        index = 0
        try:
            for index, struct in enumerate(structs):  # noqa: B007 (where it stops)
                self._mend(struct)
        except MisfitError:
            return index
        return structs

    def line(self, line: bytes) -> Any:
        """The Struct of one line."""
        struct = self._careful.decode(line)
        self._mend(struct)
        return struct

    def _all_utc(self, structs: list[Any]) -> bool:
        try:
            return self._zones(structs) <= _UTC
        except AttributeError:  # a null
            return self._zones_of_some(structs) <= _UTC

    def _in_utc(self, structs: list[Any]) -> list[Any] | int:
        index = 0
        try:
            for index, struct in enumerate(structs):  # noqa: B007 (where it stops)
                for field in self._times:
                    value = getattr(struct, field)
                    if value is not None and value.tzinfo is not dt.UTC:
                        setattr(struct, field, to_utc(value))
        except MisfitError:
            return index
        return structs

    def _mend(self, struct: Any) -> None:
        for field, column, mend in self._mends:
            try:
                setattr(struct, field, mend(getattr(struct, field)))
            except MisfitError as misfit:
                misfit.path = (f".{column}", *misfit.path)
                raise


def _hold(schema: Schema, *names: str) -> bool:
    return any(holds(field.type, *names) for field in schema.fields)


def _mends(schema: Schema, mending: Mending, *, times: bool = False) -> list[tuple[str, Callable[[Any], Any]]]:
    """(column, what mends its values), TIMESTAMP only with `times`."""
    fields = [field for field in schema.fields if times or field.type.name != "TIMESTAMP"]
    return [(field.name, mend) for field in fields if (mend := mending.field(field)) is not None]


_UTC = frozenset({dt.UTC})
