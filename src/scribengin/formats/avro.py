"""Decodes values that are one Avro record each with their writer's schema, then converts them to the declared columns.

Bare values all have the same schema. In the wire format of schema registries a value begins with a byte 0 and the schema's id in four
bytes, and a `Lookup` returns the schemas. fastavro decodes one value at a time. Columns are made from all values of a schema at once, and
record by record only if one of them does not fit.
"""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from scribengin.core.types import arrow_schema
from scribengin.formats.avro_schema import FIRST_DAY, FIRST_SECOND, LAST_DAY, LAST_SECOND, PER_SECOND, WriterSchema, fastavro, fit_field
from scribengin.formats.contract import Bad, DecodedColumns, DecodedRows
from scribengin.formats.json import misfit_message
from scribengin.formats.json_types import MisfitError
from scribengin.formats.rows import batch_to_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scribengin.core.types import Field, Schema
    from scribengin.formats.avro_schema import Fit

_PREFIX_BYTES = 5
_KNOWN = 10_000
"""the maximum number of value prefixes that a decoder caches: invalid values can each have a new one"""


class UnknownSchemaError(LookupError):
    """No schema has that id, or the schema cannot decode a record; the text gives the reason."""


class Lookup(Protocol):
    """Returns writers' schemas by id."""

    def schema(self, schema_id: int) -> WriterSchema:
        """The schema with that id. Raises UnknownSchemaError, which makes the record a dead letter; any other error stops the task."""


class AvroDecoder:
    """Decodes values, each by itself. `writer` is the schema of all values, or the Lookup of each value's schema (wire format).

    Raises ValueError if a column takes no value of the writer's schema of bare values, except null or an empty array or map: that is a
    mistake in the flow, although records without a value there would fit.
    """

    def __init__(self, schema: Schema, writer: WriterSchema | Lookup, *, truncate: bool = False) -> None:
        self.schema = schema
        self._truncate = truncate
        self._forms: dict[bytes, AvroForm | Bad] = {}
        self._lookup: Lookup | None = None
        if isinstance(writer, WriterSchema):
            self._forms[b""] = form = AvroForm(writer, schema, truncate=truncate)
            if form.never is not None:
                raise ValueError(f"this Avro schema does not fit the columns: {form.never}")
        else:
            self._lookup = writer
        self._prefix_bytes = 0 if self._lookup is None else _PREFIX_BYTES
        self._read = fastavro().schemaless_reader

    def rows(self, values: Sequence[bytes | None]) -> DecodedRows:
        """One dict for each record. Values that are None are skipped; ordinals are the indexes of values."""
        found = self.columns(values)
        rows = batch_to_rows(found.batch) if self.schema.fields else [{} for _ in found.ordinals]
        return DecodedRows(rows, found.ordinals, found.bad, found.skipped)

    def columns(self, values: Sequence[bytes | None]) -> DecodedColumns:
        """The records of `rows`, as one Arrow batch."""
        bad: list[Bad] = []
        taken = self._decoded_by_schema(values, bad)
        batches, ordinals = [], []
        for form, records, own in taken:
            batch, stayed = form.batch(records, own, bad)
            batches.append(batch)
            ordinals += stayed
        bad.sort(key=lambda each: each.ordinal)
        skipped = sum(value is None for value in values)
        if len(batches) == 1:
            return DecodedColumns(batches[0], ordinals, bad, skipped)
        batch = pa.concat_batches(batches) if batches else pa.RecordBatch.from_pylist([], arrow_schema(self.schema))
        order = sorted(range(len(ordinals)), key=ordinals.__getitem__)
        return DecodedColumns(batch.take(pa.array(order, pa.int64())), [ordinals[index] for index in order], bad, skipped)

    def _decoded_by_schema(self, values: Sequence[bytes | None], bad: list[Bad]) -> list[tuple[AvroForm, list[Any], list[int]]]:
        """(form, records, their ordinals), one for each writer's schema among the values. Values that cannot be decoded are added to
        `bad`."""
        groups: dict[int, tuple[AvroForm, list[Any], list[int]]] = {}
        read, forms, length = self._read, self._forms, self._prefix_bytes
        for ordinal, value in enumerate(values):
            if value is None:
                continue
            form = forms.get(value[:length]) or self._form_of(value[:length])
            if isinstance(form, Bad):
                bad.append(Bad(ordinal, form.reason, form.message))
                continue
            body = BytesIO(value)
            body.seek(length)
            try:
                record = read(body, form.parsed, None, **form.options)
            except Exception as error:  # fastavro reports errors as EOFError, IndexError, UnicodeDecodeError and others
                bad.append(self._unreadable(ordinal, value, form, error))
                continue
            if body.tell() != len(value):
                rest = len(value) - body.tell()
                bad.append(Bad(ordinal, "malformed", f"not one Avro record: {rest} bytes follow it; was it written by another schema?"))
                continue
            group = groups.get(id(form))
            if group is None:
                group = groups[id(form)] = (form, [], [])
            group[1].append(record)
            group[2].append(ordinal)
        return list(groups.values())

    def _form_of(self, prefix: bytes) -> AvroForm | Bad:
        """The form of values with this prefix, or the error of each of them."""
        assert self._lookup is not None
        if len(self._forms) >= _KNOWN:
            self._forms.clear()
        form: AvroForm | Bad
        if len(prefix) < _PREFIX_BYTES or prefix[0]:
            begins = f"begins with the bytes {prefix.hex(' ')}" if prefix else "is empty"
            form = Bad(0, "malformed", f"not Avro's wire format: the value {begins}; expected a byte 0, a schema's id in four bytes, Avro")
        else:
            try:
                form = AvroForm(self._lookup.schema(int.from_bytes(prefix[1:], "big")), self.schema, truncate=self._truncate)
            except UnknownSchemaError as error:
                form = Bad(0, "unknown-schema", str(error))
        self._forms[prefix] = form
        return form

    def _unreadable(self, ordinal: int, value: bytes, form: AvroForm, error: Exception) -> Bad:
        if isinstance(error, UnicodeDecodeError):
            body = BytesIO(value)
            body.seek(self._prefix_bytes)
            try:
                _, told = read_record(body, form.writer)
            except Exception:  # another error in the same record, or the key of a map
                told = f"a text: its byte {error.start} is not UTF-8: {error.reason}"
            return Bad(ordinal, "invalid-utf8", told)
        if isinstance(error, EOFError) or str(error) == "string index out of range":
            return Bad(ordinal, "truncated", "not one Avro record: the value ends too early; was it written by another schema?")
        told = "the number of a union's type or of an enum's symbol is too large" if isinstance(error, IndexError) else str(error)
        return Bad(ordinal, "malformed", f"not one Avro record: {told}; was it written by another schema?")


def read_record(body: BytesIO, writer: WriterSchema) -> tuple[Any, str]:
    """(the next record, the error if one of its texts is not UTF-8, else empty). Raises the errors of fastavro."""
    read, options, at = fastavro().schemaless_reader, _options(writer), body.tell()
    try:
        return read(body, writer.parsed, None, **options), ""
    except UnicodeDecodeError as error:
        body.seek(at)
        record = read(body, writer.parsed, None, handle_unicode_errors="surrogateescape", **options)
        return record, f'field "{_unclean(record).lstrip(".")}": byte {error.start} of the text is not UTF-8: {error.reason}'


def _options(writer: WriterSchema) -> dict[str, bool]:
    """Options of fastavro: if a union has several named types, return (name, value)."""
    return {"return_named_type": True, "return_named_type_override": True} if writer.mixed else {}


def _unclean(value: Any) -> str:
    """The path of a text that is not UTF-8: `.a.b[0]`; empty if there is none."""
    match value:
        case str() if not value.isascii() and any("\udc80" <= letter <= "\udcff" for letter in value):
            return "."
        case dict():
            found = ((f".{name}", _unclean(part)) for name, part in value.items())
        case list():
            found = ((f"[{index}]", _unclean(part)) for index, part in enumerate(value))
        case tuple():
            return _unclean(value[1])
        case _:
            return ""
    return next((name + inner.removesuffix(".") for name, inner in found if inner), "")


class AvroForm:
    """The conversion of one writer schema's records to columns."""

    def __init__(self, writer: WriterSchema, schema: Schema, *, truncate: bool = False) -> None:
        self.writer = writer
        self.parsed = writer.parsed
        self.options = _options(writer)
        self._schema = schema
        self._arrow = arrow_schema(schema)
        fits = [(field, fit_field(writer, writer.root, field, truncate=truncate)) for field in schema.fields]
        self._ones = [(field.name, each.one) for field, each in fits]
        self._takes = [_taker(field, each, form.type, truncate=truncate) for (field, each), form in zip(fits, self._arrow, strict=True)]
        never = next((each.never for _, each in fits if each.never is not None), None)
        self.never = None if never is None else misfit_message(schema, "".join(never.path), never.found)
        """set if a column can take no value of this writer's schema, except null or an empty array or map: the message that says why"""

    def batch(self, records: list[Any], ordinals: list[int], bad: list[Bad]) -> tuple[pa.RecordBatch, list[int]]:
        """(the records that fit, their ordinals); the errors of the others are added to `bad`."""
        try:
            arrays = [take(records) for take in self._takes]
        except (MisfitError, pa.ArrowException, OverflowError):
            records, ordinals = self._one_by_one(records, ordinals, bad)
            arrays = [pa.array([row[field.name] for row in records], field.type) for field in self._arrow]
        return pa.RecordBatch.from_arrays(arrays, schema=self._arrow), ordinals

    def _one_by_one(self, records: list[Any], ordinals: list[int], bad: list[Bad]) -> tuple[list[dict[str, Any]], list[int]]:
        rows, stayed = [], []
        for record, ordinal in zip(records, ordinals, strict=True):
            try:
                rows.append({name: one(record) for name, one in self._ones})
            except MisfitError as misfit:
                bad.append(Bad(ordinal, misfit.reason, misfit_message(self._schema, "".join(misfit.path), misfit.found)))
            else:
                stayed.append(ordinal)
        return rows, stayed


def _taker(field: Field, found: Fit, form: pa.DataType, *, truncate: bool) -> Callable[[list[Any]], pa.Array]:
    """A function that makes the column of records, all at once. It raises if one of them does not fit; `found.one` then finds which."""
    name, one = field.name, found.one
    quick: Callable[[list[Any]], pa.Array]
    if found.kind == "date":
        quick = _days
    elif found.kind:
        quick = _instants(found.kind, form, truncate=truncate)
    elif found.plain:
        quick = lambda values: pa.array(values, form)  # noqa: E731
    else:
        return lambda records: _checked(pa.array([one(record) for record in records], form), field)
    return lambda records: _checked(quick([record.get(name) for record in records]), field)


def _checked(column: pa.Array, field: Field) -> pa.Array:
    if column.null_count and not field.nullable:
        raise MisfitError("missing", "null")
    return column


def _days(values: list[Any]) -> pa.Array:
    return _between(pa.array(values, pa.int32()), FIRST_DAY, LAST_DAY).cast(pa.date32())


def _instants(kind: str, form: pa.DataType, *, truncate: bool) -> Callable[[list[Any]], pa.Array]:
    unit = kind.rpartition("-")[2]
    per_second = PER_SECOND[unit]
    found = pa.timestamp({"millis": "ms", "micros": "us", "nanos": "ns"}[unit], "UTC")
    low, high = FIRST_SECOND * per_second, (LAST_SECOND + 1) * per_second - 1
    whole = pc.floor_temporal if truncate and unit == "nanos" else lambda column, unit: column  # noqa: ARG005 (nothing to cut off)
    return lambda values: whole(_between(pa.array(values, pa.int64()), low, high).cast(found), unit="microsecond").cast(form)


def _between(column: pa.Array, low: int, high: int) -> pa.Array:
    found = pc.min_max(column)
    least, most = found["min"].as_py(), found["max"].as_py()
    if least is not None and not low <= least <= most <= high:
        raise MisfitError("out-of-range", "")
    return column
