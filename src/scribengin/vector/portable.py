"""Which SQL expressions give the same result in the task pipeline as in Spark: a list of allowed operations by types.

These operations were compared with Spark over generated expressions and difficult values (`tests/spark/test_portable.py`). Everything that
is not certain is left to Spark: an expression is portable as a whole or not at all.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import replace
from itertools import permutations
from typing import TYPE_CHECKING

from sqlglot import exp

from scribengin.core.types import INTEGER_BITS
from scribengin.vector.expression import Expression

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from scribengin.core.types import Schema


# Whether Spark may evaluate an expression on rows that earlier conditions, in the written order, have dropped. From `n = m AND 100 / m > 3`
# Spark concludes `100 / n > 3`, and evaluates that first (InferFiltersFromConstraints); from `n = 0` it replaces n by 0 elsewhere
# (ConstantPropagation). So an expression may fail in Spark on a row on which it would not be evaluated in the written order.


_EQUALITIES = frozenset({"=", "<=>", "<>", "in", "like"})
"""operations that Spark may turn into an equality: NOT inverts `<>`, IN and LIKE with one text are equalities"""
_CAST_OPERATORS = frozenset({"as", "cast"})


def may_evaluate_early(predicates: Sequence[Expression]) -> bool:
    """True if Spark may evaluate one of the conditions on rows that another one drops: one of the two may fail, and one is an equality of a
    column that both read, with a column or a constant. Spark combines all conditions. `predicates` are over the columns that enter the
    steps."""
    tests = [test for predicate in predicates for test in _tests(predicate)]
    return any(
        _is_equality(one) and (one.fallible or other.fallible) and not one.columns.isdisjoint(other.columns)
        for one, other in permutations(tests, 2)
    )


def over_inputs(asked: Expression, made: Mapping[str, Expression]) -> Expression:
    """The expression in terms of the input columns: each column that an earlier `select` computes is replaced by its expression."""
    if asked.op == "column":
        return made.get(str(asked.value), asked)
    return replace(asked, args=tuple(over_inputs(arg, made) for arg in asked.args)) if asked.args else asked


def _tests(asked: Expression) -> Iterator[Expression]:
    """The conditions between AND, OR and NOT, and the conditions inside a CASE or a coalesce."""
    if asked.op not in ("and", "or", "not"):
        yield asked
    for arg in asked.args:
        if arg.type == "BOOLEAN":
            yield from _tests(arg)


def _is_equality(test: Expression) -> bool:
    return test.op in _EQUALITIES and all(_is_plain(arg) for arg in test.args)


def _is_plain(asked: Expression) -> bool:
    return asked.op in ("column", "literal") or (asked.op in _CAST_OPERATORS and _is_plain(asked.args[0]))


_COMPARE: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.NullSafeEQ: "<=>",
}
_ARITHMETIC: dict[type[exp.Expr], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*"}
_TEXT_TESTS: dict[type[exp.Expr], str] = {exp.Contains: "contains", exp.StartsWith: "startswith", exp.EndsWith: "endswith"}
_TIME_PARTS: dict[type[exp.Expr], str] = {
    exp.Year: "year",
    exp.Month: "month",
    exp.Day: "day",
    exp.Hour: "hour",
    exp.Minute: "minute",
    exp.Second: "second",
}
_OTHERS: frozenset[type[exp.Expr]] = frozenset(
    {
        *(exp.Column, exp.Literal, exp.Boolean, exp.And, exp.Or, exp.Not, exp.Is, exp.Anonymous, exp.Between, exp.In, exp.Like, exp.Neg),
        *(exp.Div, exp.Mod, exp.Cast, exp.Length, exp.Trim, exp.Substring, exp.Concat, exp.DPipe, exp.Coalesce, exp.Case, exp.If),
        exp.TryCast,  # sqlglot parses Spark's CAST as this class
    }
)
"""other classes that are translated; exactly these classes, since subclasses mean something else: concat_ws() is a kind of concat()"""
_ORDERED = frozenset({*INTEGER_BITS, "DOUBLE", "STRING", "DATE", "TIMESTAMP"})
_VALUES = frozenset({*_ORDERED, "BOOLEAN"})
"""the types with which expressions may compute; columns of other types may be passed on and tested for null"""
_INSTANT = re.compile(r"(\d{4})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?Z?)?\Z", re.ASCII)
_CASTS = {"TEXT": "STRING", "TIMESTAMPTZ": "TIMESTAMP"}


class NotPortableError(ValueError):
    """The reason why an expression stays with Spark, as a short text: `lower()`, `DECIMAL price`."""


def translate(tree: exp.Expr, sql: str, schema: Schema) -> Expression:
    """The expression `sql`, parsed as `tree`, over columns of `schema`. Raises NotPortableError."""
    if "\\" in sql or '"' in sql:
        raise NotPortableError("a text that only Spark can parse")
    if "try_cast" in sql.lower():  # sqlglot parses Spark's CAST as the same
        raise NotPortableError("try_cast()")
    return _Translation(schema).of(tree)


def predicate(tree: exp.Expr, sql: str, schema: Schema) -> Expression:
    """Translate an expression that is true, false or null; see `translate`."""
    found = translate(tree, sql, schema)
    if found.type != "BOOLEAN":
        raise NotPortableError(f"a predicate of type {found.type}")
    return found


class _Translation:
    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def of(self, tree: exp.Expr) -> Expression:
        tree = tree.unnest()
        kind = type(tree)
        if isinstance(tree, exp.Binary) and kind in _COMPARE:
            return self._compared(_COMPARE[kind], self.of(tree.left), self.of(tree.right))
        if isinstance(tree, exp.Binary) and kind in _ARITHMETIC:
            return self._computed(_ARITHMETIC[kind], tree)
        if kind in _TEXT_TESTS:
            return Expression(_TEXT_TESTS[kind], "BOOLEAN", (self._text(tree.this),), self._constant_text(tree.expression))
        if kind in _TIME_PARTS:
            return self._time_part(_TIME_PARTS[kind], tree)
        if kind not in _OTHERS:
            raise NotPortableError(_name(tree))
        match tree:
            case exp.Column():
                return self._column(tree)
            case exp.Literal() | exp.Boolean():
                return _literal(tree)
            case exp.And() | exp.Or():
                return Expression("and" if kind is exp.And else "or", "BOOLEAN", (self._test(tree.left), self._test(tree.right)))
            case exp.Not():
                return Expression("not", "BOOLEAN", (self._test(tree.this),))
            case exp.Is(expression=exp.Null()):
                return Expression("isnull", "BOOLEAN", (self._any(tree.this),))
            case exp.Anonymous() if tree.name.lower() in ("isnull", "isnotnull") and len(tree.expressions) == 1:
                null = Expression("isnull", "BOOLEAN", (self._any(tree.expressions[0]),))
                return null if tree.name.lower() == "isnull" else Expression("not", "BOOLEAN", (null,))
            case exp.Between():
                asked = self.of(tree.this)
                low, high = (self._compared(op, asked, self.of(tree.args[name])) for op, name in ((">=", "low"), ("<=", "high")))
                return Expression("and", "BOOLEAN", (low, high))
            case exp.In():
                return self._among(tree)
            case exp.Like():
                return self._like(tree)
            case exp.Neg():
                return self._negative(tree)
            case exp.Div():
                return Expression("/", "DOUBLE", (self._double(tree.left), self._double(tree.right)))
            case exp.Mod():
                return self._computed("%", tree)
            case exp.Cast():
                return self._cast(tree)
            case exp.Length():
                return Expression("length", "INT", (self._text(tree.this),))
            case exp.Trim(expression=None) if not tree.args.get("position"):
                return Expression("trim", "STRING", (self._text(tree.this),))
            case exp.Substring():
                return self._substring(tree)
            case exp.Concat() if all(isinstance(part, exp.Literal) for part in tree.expressions):
                raise NotPortableError("a text that only Spark can parse")  # sqlglot parses 'it''s' as two texts
            case exp.Concat():
                return Expression("concat", "STRING", tuple(self._text(part) for part in tree.expressions))
            case exp.DPipe():
                return Expression("concat", "STRING", (self._text(tree.left), self._text(tree.right)))
            case exp.Coalesce():
                return self._same("coalesce", [self.of(part) for part in (tree.this, *tree.expressions)])
            case exp.Case() if tree.this is None:
                ways = [(self._test(way.this), self.of(way.args["true"])) for way in tree.args["ifs"]]
                return self._chosen(ways, tree.args.get("default"))
            case exp.If():
                return self._chosen([(self._test(tree.this), self.of(tree.args["true"]))], tree.args.get("false"))
        raise NotPortableError(_name(tree))

    # --- leaves ---

    def _column(self, tree: exp.Column) -> Expression:
        if tree.table or tree.name not in self._schema:
            raise NotPortableError(f'"{tree.sql()}"')
        return Expression("column", str(self._schema[tree.name].type), value=tree.name)

    def _any(self, tree: exp.Expr) -> Expression:
        found = self.of(tree)
        if found.op == "literal":
            raise NotPortableError("a computation with a constant")
        return found

    def _of_type(self, tree: exp.Expr, *types: str) -> Expression:
        found = self.of(tree)
        if found.type not in types:
            raise NotPortableError(f"{found.type} instead of {types[0]}")
        return found

    def _test(self, tree: exp.Expr) -> Expression:
        return self._of_type(tree, "BOOLEAN")

    def _text(self, tree: exp.Expr) -> Expression:
        return self._of_type(tree, "STRING")

    def _constant_text(self, tree: exp.Expr) -> str:
        if not isinstance(tree, exp.Literal) or not tree.is_string:
            raise NotPortableError("a pattern that is not a constant")
        return str(tree.name)

    def _double(self, tree: exp.Expr) -> Expression:
        return _as_double(self._of_type(tree, "DOUBLE", *INTEGER_BITS))

    # --- operations ---

    def _compared(self, op: str, left: Expression, right: Expression) -> Expression:
        left, right = _alike(left, right)
        if left.type not in _VALUES or (left.type not in _ORDERED and op not in ("=", "<>", "<=>")):
            raise NotPortableError(f"{op} of {left.type}")
        _with_column(left, right)
        return Expression(op, "BOOLEAN", (left, right))

    def _computed(self, op: str, tree: exp.Binary) -> Expression:
        left, right = _alike(self.of(tree.left), self.of(tree.right))
        if left.type not in INTEGER_BITS and not (left.type == "DOUBLE" and op != "%"):
            raise NotPortableError(f"{op} of {left.type}")
        _with_column(left, right)
        return Expression(op, left.type, (left, right))

    def _negative(self, tree: exp.Neg) -> Expression:
        inner = self.of(tree.this)
        if inner.type not in INTEGER_BITS and inner.type != "DOUBLE":
            raise NotPortableError(f"- of {inner.type}")
        if inner.op == "literal":
            if not isinstance(tree.this, exp.Literal):
                raise NotPortableError("a computation with a constant")
            least = inner.value == 1 << 31  # the number and its sign are one token
            return Expression("literal", "INT" if least else inner.type, value=-inner.value)
        return Expression("neg", inner.type, (inner,))

    def _among(self, tree: exp.In) -> Expression:
        if tree.args.get("query") or tree.args.get("unnest") or not tree.expressions:
            raise NotPortableError("IN with a query")
        asked = self.of(tree.this)
        if asked.type not in (*INTEGER_BITS, "STRING"):
            raise NotPortableError(f"IN of {asked.type}")
        values = [self.of(part) for part in tree.expressions]
        kinds = {"STRING"} if asked.type == "STRING" else set(INTEGER_BITS)
        if any(value.op != "literal" or value.type not in kinds for value in values):
            raise NotPortableError("IN with values that are not constants of the column's type")
        _with_column(asked)
        asked = asked if asked.type == "STRING" else _cast_to(asked, "BIGINT")
        return Expression("in", "BOOLEAN", (asked,), tuple(value.value for value in values))

    def _like(self, tree: exp.Like) -> Expression:
        found = Expression("like", "BOOLEAN", (self._text(tree.this),), self._constant_text(tree.expression))
        _with_column(found.args[0])
        return Expression("not", "BOOLEAN", (found,)) if tree.args.get("negate") else found

    def _substring(self, tree: exp.Substring) -> Expression:
        start, length = (_constant(tree.args.get(name)) for name in ("start", "length"))
        if start is None or start < 1 or (tree.args.get("length") is not None and (length is None or length < 0)):
            raise NotPortableError("substring with positions that are not constants from 1 on")
        return Expression("substring", "STRING", (self._text(tree.this),), (start, length))

    def _time_part(self, part: str, tree: exp.Expr) -> Expression:
        inner = tree.this.this if isinstance(tree.this, exp.TsOrDsToDate) else tree.this
        given = ("TIMESTAMP", "DATE") if part in ("year", "month", "day") else ("TIMESTAMP",)
        asked = self._of_type(inner, *given)
        _with_column(asked)
        return Expression("part", "INT", (asked,), part)

    def _cast(self, tree: exp.Cast) -> Expression:
        word = tree.to.this.value if hasattr(tree.to.this, "value") else str(tree.to.this)
        to = _CASTS.get(word, word)
        if isinstance(tree.this, exp.Literal) and tree.this.is_string:
            if to in ("TIMESTAMP", "DATE"):
                return _instant(tree.this.name, to)
            raise NotPortableError("a constant text that is cast")
        inner = self.of(tree.this)
        if inner.op == "literal":
            if inner.type in INTEGER_BITS and to in ("BIGINT", "DOUBLE"):
                return Expression("literal", to, value=float(inner.value) if to == "DOUBLE" else inner.value)
            raise NotPortableError("a constant that is cast")
        if inner.type == to and to in _VALUES:
            return inner
        narrower = inner.type in INTEGER_BITS and to in INTEGER_BITS
        if narrower or (inner.type in INTEGER_BITS and to in ("DOUBLE", "STRING")) or (inner.type == "STRING" and to in INTEGER_BITS):
            return _cast_to(inner, to)
        if (inner.type, to) == ("TIMESTAMP", "DATE"):
            return Expression("date", "DATE", (inner,))
        raise NotPortableError(f"a cast of {inner.type} to {to}")

    def _chosen(self, ways: list[tuple[Expression, Expression]], default: exp.Expr | None) -> Expression:
        if default is None or isinstance(default, exp.Null):
            raise NotPortableError("CASE without ELSE")
        results = self._same("case", [*(value for _, value in ways), self.of(default)])
        return Expression("case", results.type, (*(test for test, _ in ways), *results.args), len(ways))

    def _same(self, op: str, parts: Sequence[Expression]) -> Expression:
        types = {part.type for part in parts}
        if types <= set(INTEGER_BITS):
            widest = max(types, key=lambda name: INTEGER_BITS[name])
            parts = [_cast_to(part, widest) for part in parts]
            types = {widest}
        if len(types) != 1 or not types <= _VALUES:
            raise NotPortableError(f"{op} of {', '.join(sorted(types))}")
        if all(part.op == "literal" for part in parts) and op == "coalesce":
            raise NotPortableError("a computation with a constant")
        return Expression(op, types.pop(), tuple(parts))


def _literal(tree: exp.Literal | exp.Boolean) -> Expression:
    if isinstance(tree, exp.Boolean):
        return Expression("literal", "BOOLEAN", value=bool(tree.this))
    if tree.is_string:
        return Expression("literal", "STRING", value=str(tree.name))
    if tree.name.isascii() and tree.name.isdigit() and int(tree.name) < 1 << 63:
        return Expression("literal", "INT" if int(tree.name) < 1 << 31 else "BIGINT", value=int(tree.name))
    raise NotPortableError(f"the number {tree.name}")


def _constant(tree: exp.Expr | None) -> int | None:
    return int(tree.name) if isinstance(tree, exp.Literal) and not tree.is_string and tree.name.isdigit() else None


def _instant(text: str, to: str) -> Expression:
    found = _INSTANT.match(text)
    if found is None or (to == "DATE" and found[4] is not None):
        raise NotPortableError(f"the time '{text}'")
    numbers = [int(part) for part in found.groups(default="0")[:6]]
    try:
        at = dt.datetime(*numbers, int((found[7] or "").ljust(6, "0")), tzinfo=dt.UTC)  # type: ignore[arg-type,misc]
    except ValueError:
        raise NotPortableError(f"the time '{text}'") from None
    return Expression("literal", to, value=at if to == "TIMESTAMP" else at.date())


def _alike(left: Expression, right: Expression) -> tuple[Expression, Expression]:
    """Cast both to one type, as Spark does before it compares them or computes with them."""
    both = {left.type, right.type}
    if len(both) == 1:
        return left, right
    if both <= set(INTEGER_BITS):
        widest = max(both, key=lambda name: INTEGER_BITS[name])
        return _cast_to(left, widest), _cast_to(right, widest)
    if both <= {"DOUBLE", *INTEGER_BITS}:
        return _as_double(left), _as_double(right)
    for one, other in ((left, right), (right, left)):
        if one.op == "literal" and one.type == "STRING" and other.type in ("TIMESTAMP", "DATE"):
            moment = _instant(one.value, other.type)
            return (moment, right) if one is left else (left, moment)
    raise NotPortableError(f"{left.type} with {right.type}")


def _as_double(found: Expression) -> Expression:
    return found if found.type == "DOUBLE" else _cast_to(found, "DOUBLE")


def _cast_to(found: Expression, to: str) -> Expression:
    """Cast to a type, as Spark does implicitly or a CAST in the text requests; a cast to a type that can hold every value cannot fail."""
    if found.type == to:
        return found
    if found.op == "literal":
        return Expression("literal", to, value=float(found.value) if to == "DOUBLE" else found.value)
    wider = to in ("DOUBLE", "STRING") or (found.type in INTEGER_BITS and INTEGER_BITS[found.type] < INTEGER_BITS[to])
    return Expression("as" if wider else "cast", to, (found,))


def _with_column(*parts: Expression) -> None:
    if not any(part.columns for part in parts):
        raise NotPortableError("only constants")


def _name(tree: exp.Expr) -> str:
    if isinstance(tree, exp.Anonymous):
        return f"{tree.name.lower()}()"
    return f"{tree.sql_name().lower()}()" if isinstance(tree, exp.Func) else type(tree).__name__.upper()
