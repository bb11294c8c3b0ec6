"""The types of expressions, if they are certain. For intricate rules of Spark the result is None: only Spark knows the type."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from scribengin.core.types import Type

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlglot import exp

    Lookup = Callable[[exp.Column], Type | None]
    """The type of a column reference, or None"""

_INTEGERS = ("TINYINT", "SMALLINT", "INT", "BIGINT")
_WORDS = {
    "INT": "INT",
    "BIGINT": "BIGINT",
    "SMALLINT": "SMALLINT",
    "TINYINT": "TINYINT",
    "FLOAT": "FLOAT",
    "DOUBLE": "DOUBLE",
    "TEXT": "STRING",
    "BOOLEAN": "BOOLEAN",
    "DATE": "DATE",
    "TIMESTAMPTZ": "TIMESTAMP",
    "BINARY": "BINARY",
}
WINDOW_FUNCTIONS = ("window", "session_window")
_CLASSES = {
    "BOOLEAN": (
        "And Or Not EQ NEQ GT GTE LT LTE Is In Between Like ILike RegexpLike NullSafeEQ NullSafeNEQ StartsWith EndsWith Contains Boolean "
        "IsNan ArrayContains LogicalAnd LogicalOr"
    ),
    "STRING": (
        "Upper Lower Trim ConcatWs Initcap RegexpReplace RegexpExtract Replace TimeToStr MD5 SHA2 UnixToStr JSONExtractScalar ToBase64 Uuid"
    ),
    "BIGINT": "Count CountIf ApproxDistinct UnixMillis StrToUnix IntDiv",
    "INT": "Length Year Month Day Hour Minute Second ArraySize DayOfWeek DayOfMonth StrPosition",
    "DOUBLE": "Stddev Rand",
    "TIMESTAMP": "TimestampTrunc CurrentTimestamp",
    "DATE": "CurrentDate TsOrDsToDate TsOrDsAdd LastDay",
}
"""result types of sqlglot's classes, whatever their arguments"""
_NAMED = {
    "timestamp_millis": "TIMESTAMP",
    "timestamp_micros": "TIMESTAMP",
    "timestamp_seconds": "TIMESTAMP",
    "isnull": "BOOLEAN",
    "isnotnull": "BOOLEAN",
    "hash": "INT",
    "xxhash64": "BIGINT",
}
"""result types of functions without a class in sqlglot"""
NUMBERS = frozenset({*_INTEGERS, "FLOAT", "DOUBLE", "DECIMAL"})
_SAME_AS_ARGUMENT = ("Max", "Min", "First", "Last", "AnyValue", "Paren")


@cache
def _results() -> dict[type[exp.Expr], Type]:
    from sqlglot import exp

    return {getattr(exp, name): Type(type_) for type_, names in _CLASSES.items() for name in names.split() if hasattr(exp, name)}


@cache
def _like_argument() -> tuple[type[exp.Expr], ...]:
    from sqlglot import exp

    return tuple(getattr(exp, name) for name in _SAME_AS_ARGUMENT)


def cast_type(data_type: exp.DataType) -> Type | None:
    """The result type of a cast, for types without parts; None for others."""
    from sqlglot import exp

    word = data_type.this.value if hasattr(data_type.this, "value") else str(data_type.this)
    if word == "DECIMAL":
        sizes = [part.this.name for part in data_type.expressions if isinstance(part, exp.DataTypeParam)]
        if all(size.isdigit() for size in sizes):
            return Type("DECIMAL", int(sizes[0]) if sizes else 10, int(sizes[1]) if len(sizes) > 1 else 0)
    return Type(_WORDS[word]) if word in _WORDS else None


def expression_type(tree: exp.Expr, lookup: Lookup) -> Type | None:
    """The type of an expression; None if it is not certain."""
    from sqlglot import exp

    match tree:
        case exp.Column():
            return lookup(tree)
        case exp.Alias() | exp.Filter():
            return expression_type(tree.this, lookup)
        case exp.Cast():  # and TryCast
            return cast_type(tree.to)
        case exp.Literal():
            return _literal(tree)
        case exp.Neg():
            return expression_type(tree.this, lookup)
        case exp.Dot():
            return _member(tree)
        case exp.Sum():
            return _sum(expression_type(tree.this, lookup))
        case exp.Avg():
            inner = expression_type(tree.this, lookup)
            return Type("DOUBLE") if inner and inner.name in (*_INTEGERS, "FLOAT", "DOUBLE") else None
        case exp.Add() | exp.Sub() | exp.Mul():
            return _arithmetic(expression_type(tree.this, lookup), expression_type(tree.expression, lookup))
        case exp.Concat() | exp.Substring():  # BINARY for BINARY
            joined = [expression_type(part, lookup) for part in tree.expressions or [tree.this]]
            return Type("STRING") if all(one and one.name == "STRING" for one in joined) else None
        case exp.Div():
            both = [expression_type(part, lookup) for part in (tree.this, tree.expression)]
            return Type("DOUBLE") if all(one and one.name in (*_INTEGERS, "FLOAT", "DOUBLE") for one in both) else None
        case exp.Anonymous():
            return Type(_NAMED[tree.name.lower()]) if tree.name.lower() in _NAMED else None
        case exp.Coalesce():
            return _common([expression_type(part, lookup) for part in (tree.this, *tree.expressions)])
        case exp.Case():
            parts = [part.args["true"] for part in tree.args["ifs"]] + ([tree.args["default"]] if tree.args.get("default") else [])
            return _common([expression_type(part, lookup) for part in parts])
    if isinstance(tree, _like_argument()):
        return expression_type(tree.this, lookup)
    return _results().get(type(tree))


def _literal(tree: exp.Literal) -> Type | None:
    if tree.is_string:
        return Type("STRING")
    if not tree.name.isdigit():
        return None
    return Type("INT" if int(tree.name) < 2**31 else "BIGINT") if int(tree.name) < 2**63 else None


def _member(tree: exp.Dot) -> Type | None:
    """The type of `window(…).start`."""
    from sqlglot import exp

    of_window = isinstance(tree.this, exp.Anonymous) and tree.this.name.lower() in WINDOW_FUNCTIONS
    return Type("TIMESTAMP") if of_window and tree.expression.name.lower() in ("start", "end") else None


def _sum(inner: Type | None) -> Type | None:
    if inner is None:
        return None
    if inner.name in _INTEGERS:
        return Type("BIGINT")
    return Type("DOUBLE") if inner.name in ("FLOAT", "DOUBLE") else None


def _arithmetic(left: Type | None, right: Type | None) -> Type | None:
    if left is None or right is None:
        return None
    if left.name in _INTEGERS and right.name in _INTEGERS:
        return max(left, right, key=lambda type_: _INTEGERS.index(type_.name))
    return Type("DOUBLE") if "DOUBLE" in (left.name, right.name) and {left.name, right.name} <= {*_INTEGERS, "DOUBLE", "FLOAT"} else None


def _common(types: list[Type | None]) -> Type | None:
    return types[0] if len(set(types)) == 1 else None
