"""Finds implicit casts: if an operation has a text and a number, Spark casts the text to a number. In ANSI mode a text that is not a number
fails the row."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from scribengin.plan.sql.parse import SqlFault, start_of
from scribengin.plan.sql.types import NUMBERS, expression_type

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlglot import exp

    from scribengin.core.types import Type
    from scribengin.plan.sql.types import Lookup

CODE = "sql-cast-can-fail"


def implicit_casts(tree: exp.Expr, lookup: Lookup) -> Iterator[SqlFault]:
    """The faults of one expression, or of a query without its subqueries."""
    from sqlglot import exp

    for node in tree.walk(bfs=False, prune=lambda node: node is not tree and isinstance(node, exp.Query)):
        does, parts = _parts(node)
        types = [(part, _type(part, lookup)) for part in parts]
        texts = [part for part, type_ in types if type_ is not None and type_.name == "STRING" and not _is_number_text(part)]
        number = next((type_ for _, type_ in types if type_ is not None and type_.name in NUMBERS), None)
        if texts and isinstance(node, (exp.Sum, exp.Avg)):
            yield _of_aggregate(node, texts[0])
        elif texts and (number is not None or does == _COMPUTES):
            yield _fault(texts[0], does, number)


def union_fault(query: exp.Expr, column: str, one: Type, other: Type) -> SqlFault | None:
    """The fault of a column that is a text on one side of a UNION and a number on the other; None if there is none."""
    if {one.name, other.name} & NUMBERS and "STRING" in (one.name, other.name):
        message = (
            f'"{column}" is {one} in the first query and {other} in the second: Spark casts the texts to numbers, and fails at '
            "a text that is not a number"
        )
        remedy = f"cast one of them: try_cast({column} AS DOUBLE), or CAST({column} AS STRING)"
        return SqlFault(CODE, start_of(query) or 0, message, remedy, "warning")
    return None


_COMPARES, _COMPUTES, _CHOOSES = "is compared with a number", "is used as a number", "is combined with a number in one result"


@cache
def _kinds() -> tuple[tuple[type[exp.Expr], ...], ...]:
    from sqlglot import exp

    compared = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ)
    return compared, (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod), (exp.Sum, exp.Avg, exp.Abs, exp.Round, exp.Ceil, exp.Floor, exp.Neg)


def _parts(node: exp.Expr) -> tuple[str, list[exp.Expr]]:
    """(what an operation does with texts, the operands that Spark casts to a common type)."""
    from sqlglot import exp

    compared, computed, called = _kinds()
    if type(node) in compared:
        return _COMPARES, [node.this, node.expression]
    if type(node) in computed:
        # a date can be moved by an interval, which may be a text
        both = [node.this, node.expression]
        return _COMPUTES, [] if any(part.find(exp.Interval) for part in both) else both
    if type(node) in called:
        return _COMPUTES, [node.this]
    match node:
        case exp.Between():
            return _COMPARES, [node.this, node.args["low"], node.args["high"]]
        case exp.In() if node.expressions:
            return _COMPARES, [node.this, *node.expressions]
        case exp.Coalesce() | exp.Greatest() | exp.Least():
            return _CHOOSES, [node.this, *node.expressions]
        case exp.Case():
            ways = [way.args["true"] for way in node.args["ifs"]]
            return _CHOOSES, [*ways, *([node.args["default"]] if node.args.get("default") else [])]
        case exp.If() if not isinstance(node.parent, exp.Case):
            return _CHOOSES, [node.args["true"], *([node.args["false"]] if node.args.get("false") else [])]
    return "", []


def _type(part: exp.Expr, lookup: Lookup) -> Type | None:
    from sqlglot import exp

    from scribengin.core.types import Type

    inner = part.unnest()
    if isinstance(inner, exp.Neg):
        inner = inner.this
    if isinstance(inner, exp.Literal) and not inner.is_string:
        return expression_type(inner, lookup) or Type("DOUBLE")
    return expression_type(inner, lookup)


def _is_number_text(part: exp.Expr) -> bool:
    """True for `'5'`: a constant that every cast accepts."""
    from sqlglot import exp

    if not (isinstance(part, exp.Literal) and part.is_string):
        return False
    try:
        float(part.name)
    except ValueError:
        return False
    return "_" not in part.name


def _fault(text: exp.Expr, does: str, number: Type | None) -> SqlFault:
    shown = text.sql("spark")
    to = "BIGINT" if number is not None and number.name in ("TINYINT", "SMALLINT", "INT", "BIGINT") else "DOUBLE"
    fails = 'which fails for "5.5", and if the text is not a number' if to == "BIGINT" else "which fails if the text is not a number"
    with_ = f" ({number})" if number is not None and does == _COMPARES else ""
    message = f"{shown} is a text and {does}{with_}: Spark casts it to {to}, {fails}"
    return SqlFault(CODE, start_of(text) or 0, message, f"write try_cast({shown} AS DOUBLE): null if it is not a number", "warning")


def _of_aggregate(call: exp.Sum | exp.Avg, text: exp.Expr) -> SqlFault:
    """The fault of an aggregate function, in which the whole query fails, not only the row."""
    name, shown = call.key, text.sql("spark")
    message = (
        f"{name}({shown}) needs numbers, and {shown} is a STRING: Spark casts it to DOUBLE, and the query stops if one is not a number"
    )
    remedy = (
        f"write {name}(try_cast({shown} AS DOUBLE)), which leaves such values out; or give the column a number type in `schema:` of its "
        "source, which makes dead letters of such records"
    )
    return SqlFault(CODE, start_of(text) or 0, message, remedy, "warning")
