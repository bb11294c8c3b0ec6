"""Drops rows in a stage that the SQL filters after it would drop.

A filter that compares columns with constants is asked already of the Structs that a source's decoder makes: the rows that Spark
would drop are never made into Arrow. Spark asks again what passes, so that the sieve may know less than the filter, never more:
it holds only comparisons whose answer is the same in Python and in Spark, and of `a AND b AND c` only those before the first that
is not (what stands behind could raise, and the row must then be found).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from scribengin.core.types import INTEGER_BITS
from scribengin.formats.structs import attribute
from scribengin.plan.sql.parse import parse_expression
from scribengin.spec.model import Filter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from sqlglot import exp

    from scribengin.core.types import Schema
    from scribengin.spec.model import Step


_ESCAPED = re.compile(r"""[\\"]|''""")
"""what texts may hold that is Spark's to read"""


def sieve_of(steps: Iterable[Step], schema: Schema) -> str | None:
    """A Python expression over `row`, a Struct of `schema`: True for the rows that may pass `steps`, which follow each other.
    None if nothing can be said."""
    return deciding_sieve(steps, schema)[0]


def deciding_sieve(steps: Iterable[Step], schema: Schema) -> tuple[str | None, bool]:
    """(the sieve, whether all rows that it lets pass do pass `steps`, as what they were)."""
    tests: list[str] = []
    for step in steps:
        if not isinstance(step.action, Filter):
            break
        tree = parse_expression(step.action.predicate).tree
        if tree is None or _ESCAPED.search(step.action.predicate):
            break
        found, whole = _conjuncts(tree, schema)
        tests += found
        if not whole or step.require:  # a row that fails a `require` dies there, whatever comes behind
            break
    else:
        return " and ".join(tests) or None, bool(tests)
    return " and ".join(tests) or None, False


def compiled(sieve: str) -> Callable[[list[Any]], list[bool]]:
    """The sieve for many Structs at once."""
    test: Callable[[list[Any]], list[bool]] = eval(f"lambda rows: [{sieve} for row in rows]")
    return test


def _conjuncts(tree: exp.Expr, schema: Schema) -> tuple[list[str], bool]:
    """The tests that lead the predicate, and whether they are all of it."""
    tests: list[str] = []
    for part in _flat(tree):
        test = _test(part, schema)
        if test is None:
            return tests, False
        tests.append(test)
    return tests, True


def _flat(tree: exp.Expr) -> Iterator[exp.Expr]:
    from sqlglot import exp

    tree = tree.unnest()
    if isinstance(tree, exp.And):
        yield from _flat(tree.left)
        yield from _flat(tree.right)
    else:
        yield tree


def _test(tree: exp.Expr, schema: Schema) -> str | None:
    """A Python expression that is True if the predicate is (neither false nor null), else False; None if that is not known."""
    from sqlglot import exp

    tree = tree.unnest()
    match tree:
        case exp.And() | exp.Or():
            sides = [_test(tree.left, schema), _test(tree.right, schema)]
            if None in sides:
                return None
            return f"({(' and ' if isinstance(tree, exp.And) else ' or ').join(side for side in sides if side)})"
        case exp.Not(this=exp.Is(this=exp.Column() as column, expression=exp.Null())):
            found = _column(column, schema)
            return found and f"{found[0]} is not None"
        case exp.Column():
            found = _column(tree, schema)
            return f"{found[0]} is True" if found and found[1] == "BOOLEAN" else None
        case exp.Contains() | exp.StartsWith() | exp.EndsWith():
            return _text_test(tree, schema)
        case exp.GT() | exp.GTE() | exp.LT() | exp.LTE() | exp.EQ():
            return _comparison(tree, schema)
    return None


_TURNED = {"GT": "<", "GTE": "<=", "LT": ">", "LTE": ">=", "EQ": "=="}
_STRAIGHT = {"GT": ">", "GTE": ">=", "LT": "<", "LTE": "<=", "EQ": "=="}


def _comparison(tree: Any, schema: Schema) -> str | None:
    """A column with a constant of its own kind; texts for equality only."""
    kind = type(tree).__name__
    for side, other, sign in ((tree.left, tree.right, _STRAIGHT[kind]), (tree.right, tree.left, _TURNED[kind])):
        column = _column(side, schema)
        if column is None:
            continue
        attribute_, type_ = column
        constant: int | str | None = _integer(other) if type_ in INTEGER_BITS else None
        if type_ == "STRING" and sign == "==":
            constant = _text(other)
        if constant is not None:
            return f"({attribute_} is not None and {attribute_} {sign} {constant!r})"
    return None


def _text_test(tree: Any, schema: Schema) -> str | None:
    column, constant = _column(tree.this, schema), _text(tree.expression)
    if column is None or column[1] != "STRING" or constant is None:
        return None
    test = {"Contains": f"{constant!r} in {column[0]}", "StartsWith": f"{column[0]}.startswith({constant!r})"}.get(type(tree).__name__)
    return f"({column[0]} is not None and {test or f'{column[0]}.endswith({constant!r})'})"


def _column(tree: exp.Expr, schema: Schema) -> tuple[str, str] | None:
    """(`row.f3`, name of its type). Names are exact: our sessions set `spark.sql.caseSensitive`."""
    from sqlglot import exp

    tree = tree.unnest()
    if not isinstance(tree, exp.Column) or tree.table or tree.name not in schema:
        return None
    return f"row.{attribute(schema, tree.name)}", schema[tree.name].type.name


def _integer(tree: exp.Expr) -> int | None:
    from sqlglot import exp

    if isinstance(tree, exp.Neg):
        positive = _integer(tree.this)
        return None if positive is None else -positive
    if not isinstance(tree, exp.Literal) or tree.is_string or not tree.name.isascii() or not tree.name.isdigit():
        return None
    number = int(tree.name)
    return number if number < 1 << 63 else None  # beyond it is a DECIMAL


def _text(tree: exp.Expr) -> str | None:
    from sqlglot import exp

    return str(tree.name) if isinstance(tree, exp.Literal) and tree.is_string else None
