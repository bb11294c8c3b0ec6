"""Partial results of a summary in SQL, and how they are merged.

If there are more groups than are kept, those with the first keys are kept: in the order of the ORDER BY if it contains only keys, else in
the order of a hash. This order does not depend on when rows were seen. So a group that is kept at the end was kept in every partial result
that contained it, and its aggregates are complete; a group that was once left out is never kept later.
"""

from __future__ import annotations

import base64
import datetime as dt
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Context, Decimal
from fractions import Fraction
from hashlib import blake2b
from math import isfinite
from typing import TYPE_CHECKING, Any

import msgspec

from scribengin.formats.contract import Bad

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import pyarrow as pa

    from scribengin.connectors.summary.question import Figure, OutputOrder, SummaryQuestion


# Values of columns as JSON and back, without loss: a value without a JSON form is `{"$": kind, "v": text}`.


_WIDE = 2**63


def as_cell(value: Any) -> Any:
    """Convert a value to JSON."""
    match value:
        case None | bool() | str():
            return value
        case int():
            return value if -_WIDE <= value < _WIDE else {"$": "int", "v": str(value)}
        case float():
            return value if isfinite(value) else {"$": "float", "v": repr(value)}
        case Decimal():
            return {"$": "decimal", "v": str(value)}
        case dt.datetime():
            return {"$": "time", "v": value.isoformat()}
        case dt.date():
            return {"$": "date", "v": value.isoformat()}
        case bytes():
            return {"$": "bytes", "v": base64.b64encode(value).decode()}
    raise TypeError(f"a column cannot hold {type(value).__name__}")


def of_cell(cell: Any) -> Any:
    """Convert a value from the form that `as_cell` returned."""
    if not isinstance(cell, dict):
        return cell
    text: str = cell["v"]
    match cell["$"]:
        case "int":
            return int(text)
        case "float":
            return float(text)
        case "decimal":
            return Decimal(text)
        case "time":
            return dt.datetime.fromisoformat(text)
        case "date":
            return dt.date.fromisoformat(text)
    return base64.b64decode(text)


def shown(value: Any) -> Any:
    """A value for people and for JSON output. Raises TypeError for a value that cannot be shown."""
    match value:
        case dt.datetime():  # a time without a zone is shown unchanged, because its zone is unknown
            return (value if value.tzinfo is None else value.astimezone(dt.UTC)).isoformat().replace("+00:00", "Z")
        case dt.date() | dt.time() | dt.timedelta() | Decimal() | Fraction():
            return str(value)
        case list() | tuple() | deque():
            return [shown(each) for each in value]
        case set() | frozenset():
            return sorted((shown(each) for each in value), key=repr)
        case Mapping():
            return {str(shown(name)): shown(each) for name, each in value.items()}
        case None | bool() | str():
            return value
        case bytes():
            return base64.b64encode(value).decode()
        case float() if not isfinite(value):
            return repr(value)
        case int() if not -_WIDE <= value < _WIDE:
            return str(value)
        case int() | float():
            return value
    raise TypeError(f"{type(value).__name__} cannot be shown")


# Timestamps and dates that Arrow supports and Python does not: before the year 1 and after 9999.


_DAYS = -719_162, 2_932_896
_DAY_US = 86_400_000_000


def without_far(batch: pa.RecordBatch, columns: Collection[str]) -> tuple[pa.RecordBatch, list[int], list[Bad]]:
    """The rows whose times in `columns` Python supports, the index of each of them, and the errors of the other rows."""
    import pyarrow as pa
    import pyarrow.compute as pc

    far: dict[int, str] = {}
    for name in sorted(columns):
        column = batch.column(name)
        if pa.types.is_timestamp(column.type):
            numbers, first, last = (
                column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()),
                _DAYS[0] * _DAY_US,
                (_DAYS[1] + 1) * _DAY_US - 1,
            )
        elif pa.types.is_date32(column.type):
            numbers, (first, last) = column.cast(pa.int32()).cast(pa.int64()), _DAYS
        else:
            continue
        ends = pc.min_max(numbers).as_py()
        if ends["min"] is None or (ends["min"] >= first and ends["max"] <= last):
            continue
        beyond = pc.or_(pc.less(numbers, first), pc.greater(numbers, last)).fill_null(False)
        far |= dict.fromkeys(pc.indices_nonzero(beyond).to_pylist(), name)
    if not far:
        return batch, list(range(batch.num_rows)), []
    kept = [index for index in range(batch.num_rows) if index not in far]
    bad = [Bad(index, "out-of-range", f'column "{name}" is before the year 1 or after 9999') for index, name in sorted(far.items())]
    return batch.take(pa.array(kept, pa.int64())), kept, bad


_EXACT = Context(prec=100)
_CELLS = msgspec.json.Encoder(order="deterministic")


@dataclass(slots=True)
class GroupOfRows:
    """A group. `states` are in the order of the aggregates: a count, a sum, a minimum, a maximum, or (sum, count) of an average; None if
    there was no value."""

    key: tuple[Any, ...]
    rows: int
    states: list[Any]


@dataclass(slots=True)
class SummaryTable:
    """The groups of some rows. `rows` also counts the rows of groups that were left out. `kinds` are the types of the columns' values,
    empty before the first row: values of other types cannot be compared with them or added to them."""

    question: SummaryQuestion
    keep: int
    rows: int = 0
    groups: dict[bytes, GroupOfRows] = field(default_factory=dict)
    left_out: bool = False
    kinds: tuple[str, ...] = ()

    def add(self, batch: pa.RecordBatch) -> Sequence[Bad]:
        """Add rows; returns the rows with a time that cannot be shown."""
        batch, _, bad = without_far(batch, _stored_columns(self.question))
        if not batch.num_rows:
            return bad
        self.kinds = self.kinds or _kinds(self.question, batch)
        self.rows += batch.num_rows
        for group in _grouped(self.question, batch):
            self._take(group)
        if len(self.groups) > 2 * self.keep:
            self.trim()
        return bad

    def merge(self, other: SummaryTable) -> None:
        """Merge another partial result, which must pass `goes_with`."""
        self.rows += other.rows
        self.left_out = self.left_out or other.left_out
        self.kinds = self.kinds or other.kinds
        for group in other.groups.values():
            self._take(group)
        self.trim()

    def goes_with(self, part: Mapping[str, Any]) -> bool:
        """True if another partial result of the same form, as `as_json` returned it, can be merged with this one. If groups were left out
        of it, it must use the same order and keep at least as many groups: otherwise a kept group would be incomplete."""
        if self.kinds and part["kinds"] and list(self.kinds) != part["kinds"]:
            return False
        by = [list(each) for each in self.question.ranked_by]
        return not part["left_out"] or (part["keep"] >= self.keep and part["by"] == by)

    def trim(self) -> None:
        """Drop the groups beyond `keep`."""
        if len(self.groups) <= self.keep:
            return
        self.left_out = True
        ranked = _ranked(self.question, self.groups)
        self.groups = {identity: self.groups[identity] for identity in ranked[: self.keep]}

    @property
    def rows_left_out(self) -> int:
        """The number of rows in groups that are not kept."""
        return self.rows - sum(group.rows for group in self.groups.values())

    @property
    def size(self) -> int:
        """The number of kept groups."""
        return len(self.groups)

    def result(self) -> list[dict[str, Any]]:
        """One row per group, in the order of the SQL, else in the order of the keys."""
        rows = []
        for group in self.groups.values():
            named = {name: value for (name, _), value in zip(self.question.keys, group.key, strict=True)}
            named |= {each.name: _value(each, state) for each, state in zip(self.question.figures, group.states, strict=True)}
            rows.append({name: named[name] for name in self.question.outputs})
        if not rows and not self.question.keys:
            rows = [{each.name: 0 if each.kind == "count" else None for each in self.question.figures}]
        rows.sort(key=lambda row: [_sortable(row[name]) for name, _ in self.question.keys])
        rows = _sorted(rows, self.question.order)
        return rows if self.question.limit is None else rows[: self.question.limit]

    def outputs(self, rows: list[dict[str, Any]]) -> list[str]:  # noqa: ARG002 (the form's)
        """The columns in the order of the SELECT."""
        return list(self.question.outputs)

    def as_json(self, most_bytes: int | None = None) -> dict[str, Any]:  # noqa: ARG002 (the form's)
        """The partial result for a write receipt or a snapshot."""
        self.trim()

        def part(group: GroupOfRows) -> list[Any]:
            return [[as_cell(value) for value in group.key], group.rows, [_state_out(state) for state in group.states]]

        groups = [part(group) for group in self.groups.values()]
        said = {"form": self.question.form, "rows": self.rows, "groups": groups, "left_out": self.left_out}
        return said | {"keep": self.keep, "by": [list(each) for each in self.question.ranked_by], "kinds": list(self.kinds)}

    @staticmethod
    def from_json(data: Mapping[str, Any], question: SummaryQuestion, keep: int) -> SummaryTable:
        """The partial result from the JSON that `as_json` returned; it must have the same form."""
        table = SummaryTable(question, keep, data["rows"], left_out=data["left_out"], kinds=tuple(data["kinds"]))
        for key, rows, states in data["groups"]:
            group = GroupOfRows(tuple(map(of_cell, key)), rows, [_state_in(state) for state in states])
            table.groups[_identity(group.key)] = group
        return table

    def _take(self, group: GroupOfRows) -> None:
        identity = _identity(group.key)
        known = self.groups.get(identity)
        if known is None:
            self.groups[identity] = GroupOfRows(group.key, group.rows, list(group.states))
            return
        known.rows += group.rows
        for index, figure in enumerate(self.question.figures):
            known.states[index] = _joined(figure, known.states[index], group.states[index])


def _identity(key: tuple[Any, ...]) -> bytes:
    return _CELLS.encode([as_cell(part) for part in key])


def _ranked(question: SummaryQuestion, groups: Mapping[bytes, GroupOfRows]) -> list[bytes]:
    """The keys of the groups, sorted in an order that does not depend on the rows seen so far."""
    ranked = sorted(groups, key=lambda identity: blake2b(identity, digest_size=16).digest())
    for index, descending in reversed(question.ranked_by):
        ranked.sort(key=lambda identity, index=index: _sortable(groups[identity].key[index]), reverse=descending)  # type: ignore[misc]
    return ranked


def _sorted(rows: list[dict[str, Any]], order: Sequence[OutputOrder]) -> list[dict[str, Any]]:
    for each in reversed(order):
        rows.sort(key=lambda row, name=each.name: _sortable(row[name]), reverse=each.descending)  # type: ignore[misc]
    return rows


def _sortable(value: Any) -> tuple[int, Any]:
    """A sort key: null first and NaN last, as in Spark."""
    if value is None:
        return 0, 0
    return (2, 0) if value != value else (1, value)  # noqa: PLR0124 (NaN)


def _joined(figure: Figure, one: Any, other: Any) -> Any:
    if one is None or other is None:
        return other if one is None else one
    if figure.kind in ("min", "max") and (one != one or other != other):  # noqa: PLR0124 (NaN, which Arrow passes over too)
        return one if other != other else other  # noqa: PLR0124
    match figure.kind:
        case "min":
            return min(one, other)
        case "max":
            return max(one, other)
        case "avg":
            return _added(one[0], other[0]), one[1] + other[1]
    return _added(one, other)


def _added(one: Any, other: Any) -> Any:
    """The sum with all digits: Python rounds decimals to 28."""
    return _EXACT.add(one, other) if isinstance(one, Decimal) else one + other


def _value(figure: Figure, state: Any) -> Any:
    if figure.kind == "avg" and state is not None:
        return state[0] / state[1]
    return state


def _state_out(state: Any) -> Any:
    return [as_cell(state[0]), state[1]] if isinstance(state, tuple) else as_cell(state)


def _state_in(state: Any) -> Any:
    return (of_cell(state[0]), state[1]) if isinstance(state, list) else of_cell(state)


def _stored_columns(question: SummaryQuestion) -> list[str]:
    """The key columns, and the columns whose values an aggregate stores."""
    figures = [figure.column for figure in question.figures if figure.column is not None and figure.kind != "count"]
    return [column for _, column in question.keys] + figures


def _kinds(question: SummaryQuestion, batch: pa.RecordBatch) -> tuple[str, ...]:
    """The types of the values of `_stored_columns`."""
    import pyarrow as pa

    def kind(type_: pa.DataType) -> str:
        if pa.types.is_integer(type_) or pa.types.is_floating(type_):
            return "int" if pa.types.is_integer(type_) else "float"
        if pa.types.is_decimal(type_):
            return f"decimal {type_.scale}"  # 1.5 and 1.50 are the same value, but different texts in a key
        return "time" if pa.types.is_timestamp(type_) else str(type_).removeprefix("large_")

    found = [kind(batch.schema.field(column).type) for column in _stored_columns(question)]
    return tuple(text if nth < len(question.keys) else text.partition(" ")[0] for nth, text in enumerate(found))


def _grouped(question: SummaryQuestion, batch: pa.RecordBatch) -> list[GroupOfRows]:
    """The groups of one batch of rows, computed by Arrow."""
    import pyarrow as pa

    columns: dict[str, pa.Array] = {f"k{index}": _as_key(batch.column(column)) for index, (_, column) in enumerate(question.keys)}
    asked: list[tuple[str, str]] = []
    columns["rows"] = pa.repeat(pa.scalar(1, pa.int64()), batch.num_rows)
    asked.append(("rows", "sum"))
    for index, figure in enumerate(question.figures):
        if figure.column is not None:
            for name, column, how in _asked(f"f{index}", figure, batch.column(figure.column)):
                columns[name] = column
                asked.append((name, how))
    keys = [f"k{index}" for index in range(len(question.keys))]
    found = pa.table(columns).group_by(keys, use_threads=False).aggregate(asked)
    groups = []
    for row in found.to_pylist():
        states = [_state(f"f{index}", figure, row) for index, figure in enumerate(question.figures)]
        groups.append(GroupOfRows(tuple(row[key] for key in keys), row["rows_sum"], states))
    return groups


def _as_key(column: pa.Array) -> pa.Array:
    """The key column with -0.0 replaced by 0.0, which is the same key, as in Spark."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.add(column, pa.scalar(0.0, column.type)) if pa.types.is_floating(column.type) else column


def _asked(name: str, figure: Figure, column: pa.Array) -> list[tuple[str, pa.Array, str]]:
    """The (name, column, Arrow function) to compute an aggregate. Integers are added up in two halves, because their sum may exceed 64
    bits."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if figure.kind in ("count", "min", "max"):
        return [(name, column, figure.kind)]
    counted = [(f"{name}n", column, "count")]
    if pa.types.is_integer(column.type):
        wide = column.cast(pa.int64())
        return [
            *counted,
            (f"{name}h", pc.shift_right(wide, pa.scalar(32, pa.int64())), "sum"),
            (f"{name}l", pc.bit_wise_and(wide, pa.scalar(0xFFFFFFFF, pa.int64())), "sum"),
        ]
    if pa.types.is_decimal(column.type):
        return [*counted, (name, column.cast(pa.decimal256(76, column.type.scale)), "sum")]
    return [*counted, (name, column.cast(pa.float64()), "sum")]


def _state(name: str, figure: Figure, row: Mapping[str, Any]) -> Any:
    match figure.kind:
        case "count":
            return row["rows_sum"] if figure.column is None else row[f"{name}_count"]
        case "min" | "max":
            return row[f"{name}_{figure.kind}"]
    total = row.get(f"{name}_sum")
    if f"{name}h_sum" in row and row[f"{name}h_sum"] is not None:
        total = (row[f"{name}h_sum"] << 32) + row[f"{name}l_sum"]
    if total is None:
        return None
    return total if figure.kind == "sum" else (total, row[f"{name}n_count"])
