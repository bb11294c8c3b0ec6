"""Evaluates portable expressions over Arrow batches with Arrow's own kernels: the same values as Spark in ANSI mode, or `NotSureError`.

If a row might fail in Spark, the engine gives no result; Spark then runs the Batch, and reports the row and the reason. So the engine need
not reproduce Spark's messages; it must only never give a result if Spark fails. Expressions after `false AND`, in a branch of a CASE that
is not chosen, or after a value in a coalesce are not evaluated, as in Spark.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from scribengin.core.errors import StepError
from scribengin.core.types import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from scribengin.core.types import Schema
    from scribengin.vector.expression import Expression


ARROW: dict[str, pa.DataType] = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", tz="UTC"),
}
_INTEGERS = ("TINYINT", "SMALLINT", "INT", "BIGINT")
_WHOLE_NUMBER = "^[+-]?[0-9]{1,18}$"


class NotSureError(StepError):
    """A value for which Spark may fail, so that Spark must run the Batch."""

    code = "vector-not-sure"


def holds(test: Expression, batch: pa.RecordBatch) -> pa.BooleanArray:
    """For each row, whether the predicate is true (not false or null). Raises NotSureError."""
    return pc.fill_null(values(test, batch), False)


def values(asked: Expression, batch: pa.RecordBatch) -> pa.Array:
    """The expression's value for each row. Raises NotSureError."""
    try:
        return _array(_of(asked, batch), batch.num_rows, asked.type)
    except pa.ArrowInvalid as error:  # from a checked kernel: an overflow, a value out of range
        raise NotSureError(f"{asked.op}: {error}") from error


def _of(asked: Expression, batch: pa.RecordBatch) -> Any:
    """The expression's values as an array, or a scalar for a literal."""
    op = asked.op
    match op:
        case "column":
            return batch.column(asked.value)
        case "literal":
            return pa.scalar(asked.value, ARROW[asked.type])
        case "and" | "or":
            return _joined(asked, batch)
        case "case":
            return _chosen(asked, batch)
        case "coalesce":
            return _first(asked, batch)
    args = [_of(arg, batch) for arg in asked.args]
    if op in _KERNELS:
        return _KERNELS[op](*args)
    if op in _ORDER:
        return _nan_aware(op, *args) if asked.args[0].type == "DOUBLE" else _ORDER[op](*args)
    if op == "<=>":
        equal = _nan_aware("=", *args) if asked.args[0].type == "DOUBLE" else pc.equal(*args)
        return pc.or_(pc.fill_null(equal, False), pc.and_(*(pc.is_null(arg) for arg in args)))
    if op in _CHECKED:
        return _CHECKED[op][asked.type == "DOUBLE"](*args)
    match op:
        case "/":
            _no_zero(*args)
            return pc.divide(*args)
        case "%":
            return _remainder(args[0], args[1], batch.num_rows, asked.type)
        case "as":
            return pc.cast(args[0], ARROW[asked.type], safe=False)
        case "cast":
            return _cast(args[0], asked.args[0].type, asked.type)
        case "date":
            return pc.cast(args[0], pa.date32(), safe=False)
        case "part":
            return pc.cast(getattr(pc, asked.value)(args[0]), pa.int32())
        case "in":
            (found,) = args
            among = pc.is_in(found, value_set=pa.array(asked.value, found.type))
            return pc.if_else(pc.is_valid(found), among, pa.scalar(None, pa.bool_()))
        case "substring":
            start, length = asked.value
            return pc.utf8_slice_codeunits(args[0], start - 1, None if length is None else start - 1 + length)
        case "concat":
            return pc.binary_join_element_wise(*args, "")
    return _TEXT_TESTS[op](args[0], pattern=asked.value)


_KERNELS: dict[str, Callable[..., Any]] = {
    "not": pc.invert,
    "isnull": pc.is_null,
    "length": lambda text: pc.cast(pc.utf8_length(text), pa.int32()),
    "trim": lambda text: pc.utf8_trim(text, characters=" "),
}
_ORDER: dict[str, Callable[..., Any]] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
    "<": pc.less,
    "<=": pc.less_equal,
}
_CHECKED: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "+": (pc.add_checked, pc.add),
    "-": (pc.subtract_checked, pc.subtract),
    "*": (pc.multiply_checked, pc.multiply),
    "neg": (pc.negate_checked, pc.negate),
}
_TEXT_TESTS: dict[str, Callable[..., Any]] = {
    "contains": pc.match_substring,
    "startswith": pc.starts_with,
    "endswith": pc.ends_with,
    "like": pc.match_like,
}


def _nan_aware(op: str, left: Any, right: Any) -> Any:
    """Compare doubles as Spark does: NaN is equal to itself and greater than any other number."""
    plain = _ORDER[op](left, right)
    left_nan, right_nan = pc.is_nan(left), pc.is_nan(right)
    if not (pc.any(_array(left_nan)).as_py() or pc.any(_array(right_nan)).as_py()):
        return plain
    match op:
        case "=":
            return pc.or_(plain, pc.and_(left_nan, right_nan))
        case "<>":
            return pc.and_(plain, pc.invert(pc.and_(left_nan, right_nan)))
        case ">":
            return pc.or_(plain, pc.and_(left_nan, pc.invert(right_nan)))
        case ">=":
            return pc.or_(plain, left_nan)
        case "<":
            return pc.or_(plain, pc.and_(right_nan, pc.invert(left_nan)))
    return pc.or_(plain, right_nan)


def _no_zero(left: Any, right: Any) -> None:
    zero = pc.and_(pc.equal(right, pa.scalar(0, right.type)), pc.is_valid(left))
    if pc.any(_array(zero)).as_py():
        raise NotSureError("a division by zero")


def _remainder(left: Any, right: Any, size: int, type_: str) -> pa.Array:
    """The remainder with the sign of the dividend, as in Java. `size` and `type_` are those of the result."""
    import numpy as np

    _no_zero(left, right)
    left, right = _array(left, size, type_), _array(right, size, type_)
    null = pc.or_(pc.is_null(left), pc.is_null(right))
    with np.errstate(all="ignore"):
        found = np.fmod(
            pc.fill_null(left, 0).to_numpy(zero_copy_only=False),
            pc.if_else(null, pa.scalar(1, right.type), right).to_numpy(zero_copy_only=False),
        )
    return pc.if_else(null, pa.scalar(None, ARROW[type_]), pa.array(found, ARROW[type_]))


def _cast(found: pa.Array, given: str, asked: str) -> pa.Array:
    """Cast between integers, or from a text that is a plain number."""
    if given in _INTEGERS:
        return pc.cast(found, ARROW[asked])
    if pc.all(pc.match_substring_regex(found, _WHOLE_NUMBER)).as_py() is False:
        raise NotSureError("a text that is not a plain number")
    return pc.cast(pc.cast(pc.utf8_ltrim(found, characters="+"), pa.int64()), ARROW[asked])


def _joined(asked: Expression, batch: pa.RecordBatch) -> Any:
    """Evaluate AND or OR: where the left side decides, the right side is not evaluated."""
    left, right = asked.args
    ends = asked.op == "or"
    join = pc.or_kleene if ends else pc.and_kleene
    first = _of(left, batch)
    if not right.fallible:
        return join(first, _of(right, batch))
    first = _array(first, batch.num_rows, "BOOLEAN")
    open_ = pc.fill_null(pc.not_equal(first, ends), True)
    return join(first, _where(open_, right, batch))


def _chosen(asked: Expression, batch: pa.RecordBatch) -> pa.Array:
    """Evaluate CASE: the result of the first test that is true; other results are not evaluated."""
    size, ways = batch.num_rows, asked.value
    waiting = _array(pa.scalar(True), size)
    choices: list[tuple[pa.Array, pa.Array]] = []
    for test, way in zip(asked.args[:ways], asked.args[ways : 2 * ways], strict=True):
        taken = pc.and_(waiting, pc.fill_null(_where(waiting, test, batch), False))
        choices.append((taken, _where(taken, way, batch)))
        waiting = pc.and_(waiting, pc.invert(taken))
    found = _where(waiting, asked.args[-1], batch)
    for taken, way in choices:
        found = pc.if_else(taken, way, found)
    return found


def _first(asked: Expression, batch: pa.RecordBatch) -> pa.Array:
    found = _array(_of(asked.args[0], batch), batch.num_rows, asked.type)
    for other in asked.args[1:]:
        missing = pc.is_null(found)
        if not pc.any(missing).as_py():
            break
        found = pc.coalesce(found, _where(missing, other, batch))
    return found


def _where(rows: pa.BooleanArray, asked: Expression, batch: pa.RecordBatch) -> pa.Array:
    """The expression's values for some rows, null in the others, on which it is not evaluated."""
    if not asked.fallible or pc.all(rows).as_py():
        return _array(_of(asked, batch), batch.num_rows, asked.type)
    nulls = pa.nulls(batch.num_rows, ARROW[asked.type])
    some = batch.filter(rows)
    if not some.num_rows:
        return nulls
    return pc.replace_with_mask(nulls, rows, _array(_of(asked, some), some.num_rows, asked.type))


def _array(found: Any, size: int = 1, type_: str = "BOOLEAN") -> pa.Array:
    """An array as it is; a scalar repeated `size` times."""
    if not isinstance(found, pa.Scalar):
        return found
    return pa.repeat(found, size) if found.is_valid else pa.nulls(size, ARROW[type_])


def computed(columns: Sequence[tuple[str, Expression]], batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of a `select`, as a batch.

    Args:
        columns: (name, expression) of each.
        batch: the input.
        schema: the schema of the result.

    Raises:
        NotSureError: Spark must decide on a row.
    """
    arrays = [values(asked, batch) for _, asked in columns]
    return pa.RecordBatch.from_arrays([array.cast(field.type) for array, field in zip(arrays, schema, strict=True)], schema=schema)


# A run of `filter` and `select` steps on one Arrow batch.


@dataclass(frozen=True, slots=True)
class VectorStep:
    """One step: its predicate or its columns, and what it requires of its output. `schema` is that of its output columns."""

    id: str
    schema: Schema
    predicate: Expression | None = None
    columns: tuple[tuple[str, Expression], ...] = ()
    require: tuple[tuple[str, Expression], ...] = ()

    @property
    def fallible(self) -> bool:
        """True if one of its expressions may fail in Spark on some rows."""
        own = () if self.predicate is None else (self.predicate,)
        return any(each.fallible for each in (*own, *(each for _, each in (*self.columns, *self.require))))


@dataclass(frozen=True, slots=True)
class VectorResult:
    """The result for a batch: the rows that passed, their indexes, and (row, step, name) of each row that fails a `require`, by row and in
    Spark's order."""

    batch: pa.RecordBatch
    passed: NDArray[np.int64]
    failed: tuple[tuple[int, str, str], ...]


def run_steps(steps: Sequence[VectorStep], batch: pa.RecordBatch) -> VectorResult:
    """Run a batch through all steps. Raises NotSureError if Spark must decide on one of its rows."""
    rows = np.arange(batch.num_rows, dtype=np.int64)
    failed: list[tuple[int, str, str]] = []
    for step in steps:
        if step.predicate is not None:
            batch, rows = _kept(batch, rows, holds(step.predicate, batch))
        if step.columns:
            batch = computed(step.columns, batch, arrow_schema(step.schema))
        for name, predicate in step.require:
            passes = holds(predicate, batch)
            if not pc.all(passes).as_py():
                failed += [(int(row), step.id, name) for row in rows[~passes.to_numpy(zero_copy_only=False)]]
                batch, rows = _kept(batch, rows, passes)
    return VectorResult(batch, rows, tuple(sorted(failed, key=lambda each: each[0])))


def _kept(batch: pa.RecordBatch, rows: NDArray[np.int64], keep: pa.BooleanArray) -> tuple[pa.RecordBatch, NDArray[np.int64]]:
    if keep.true_count == len(keep):
        return batch, rows
    return batch.filter(keep), rows[keep.to_numpy(zero_copy_only=False)]
