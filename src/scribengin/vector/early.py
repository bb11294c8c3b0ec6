"""Whether Spark may evaluate an expression on rows that earlier conditions, in the written order, have dropped.

From `n = m AND 100 / m > 3` Spark concludes `100 / n > 3`, and evaluates that first (InferFiltersFromConstraints); from `n = 0` it puts 0
in the place of n elsewhere (ConstantPropagation). So an expression may fail in Spark on a row that it would never see in the written
order."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from scribengin.vector.expression import Expression

_EQUALITIES = frozenset({"=", "<=>", "<>", "in", "like"})
"""what Spark may make an equality of: NOT turns `<>` around, IN and LIKE of one text are one"""
_CASTS = frozenset({"as", "cast"})


def asks_early(predicates: Sequence[Expression]) -> bool:
    """True where one of the tests in the conditions of a run, which Spark takes together, may raise, and another one is an equality of a
    column that both read: with a column or a constant. `predicates` are over the columns that enter the run."""
    tests = [test for predicate in predicates for test in _tests(predicate)]
    return any(
        _is_equality(one) and (one.fallible or other.fallible) and not one.columns.isdisjoint(other.columns)
        for one, other in permutations(tests, 2)
    )


def over_inputs(asked: Expression, made: Mapping[str, Expression]) -> Expression:
    """The expression with each column that a `select` before it has made replaced by what that is."""
    if asked.op == "column":
        return made.get(str(asked.value), asked)
    return replace(asked, args=tuple(over_inputs(arg, made) for arg in asked.args)) if asked.args else asked


def _tests(asked: Expression) -> Iterator[Expression]:
    """What stands between AND, OR and NOT, and the tests inside of a CASE or a coalesce with it."""
    if asked.op not in ("and", "or", "not"):
        yield asked
    for arg in asked.args:
        if arg.type == "BOOLEAN":
            yield from _tests(arg)


def _is_equality(test: Expression) -> bool:
    return test.op in _EQUALITIES and all(_is_plain(arg) for arg in test.args)


def _is_plain(asked: Expression) -> bool:
    return asked.op in ("column", "literal") or (asked.op in _CASTS and _is_plain(asked.args[0]))
