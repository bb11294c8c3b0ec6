"""The SQL of a summary: aggregates that can be combined from partial results.

The sum of counts is a count, the minimum of minima a minimum; a median of medians has no meaning. So only such aggregates are allowed, over
plain columns: other computations are done in a step before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["count", "sum", "min", "max", "avg"]
_FORM = "write SELECT column, count(*) AS n FROM rows GROUP BY column"
_BEFORE = "compute it in a `select` step before, and name the column here"


@dataclass(frozen=True, slots=True)
class Figure:
    """An aggregate. `name` is its output column; `column` is None for `count(*)`."""

    name: str
    kind: Kind
    column: str | None


@dataclass(frozen=True, slots=True)
class OutputOrder:
    """A column of the ORDER BY."""

    name: str
    descending: bool


@dataclass(frozen=True, slots=True)
class SummaryQuestion:
    """A parsed query. `outputs` are all output columns in the order of the SELECT; `keys` are (output, column) of the grouping columns."""

    outputs: tuple[str, ...]
    keys: tuple[tuple[str, str], ...]
    figures: tuple[Figure, ...]
    order: tuple[OutputOrder, ...] = ()
    limit: int | None = None

    @property
    def form(self) -> str:
        """A text that identifies the groups and aggregates: partial results with the same form can be merged."""
        keys = ",".join(column for _, column in self.keys)
        return f"{keys}|{','.join(f'{each.kind}({each.column or chr(42)})' for each in self.figures)}"

    @property
    def ranked_by(self) -> tuple[tuple[int, bool], ...]:
        """The order that decides which groups are kept if there are too many: (position of the key, whether descending) of each sort key;
        empty for the order of a hash of all keys."""
        places = {name: place for place, (name, _) in enumerate(self.keys)}
        if any(each.name not in places for each in self.order):
            return ()
        return tuple((places[each.name], each.descending) for each in self.order)


class QuestionError(ValueError):
    """The SQL is not valid, or cannot be updated incrementally. It also contains the remedy."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.remedy = remedy


def read_question(sql: str) -> SummaryQuestion:
    """Parse the SELECT of a summary. Raises QuestionError.

    >>> read_question("SELECT user, count(*) AS n FROM rows GROUP BY user").form
    'user|count(*)'
    """
    from sqlglot import exp, parse
    from sqlglot.errors import SqlglotError

    try:
        (tree, *more) = parse(sql, read="spark")
    except (SqlglotError, ValueError) as error:
        raise QuestionError(
            f"it is not valid SQL: {str(error).splitlines()[0]}", "write SELECT column, count(*) FROM rows GROUP BY column"
        ) from None
    if more or not isinstance(tree, exp.Select):
        raise QuestionError("it is not one SELECT", _FORM)
    _check_clauses(tree)
    _check_rest(tree)
    named = [(each.alias or (each.name if isinstance(each, exp.Column) else ""), each.unalias()) for each in tree.expressions]
    group = tree.args.get("group")
    columns = [_group_column(each, named) for each in group.expressions] if group else []
    keys, figures = [], []
    for name, value in named:
        if isinstance(value, exp.Column):
            if value.name not in columns:
                raise QuestionError(f'column "{value.name}" is neither inside an aggregate nor in GROUP BY', "put it there")
            keys.append((name, value.name))
        else:
            figures.append(_figure(name, value))
    missing = [column for column in columns if column not in [column for _, column in keys]]
    if missing:
        raise QuestionError(f'"{missing[0]}" is in GROUP BY, but not selected', "select it too: each row must show its group")
    outputs = tuple(name for name, _ in named)
    if "" in outputs or len(set(outputs)) < len(outputs):
        raise QuestionError("two columns have one name, or one has none", "name them: count(*) AS n")
    order = tuple(_order(each, outputs) for each in (tree.args["order"].expressions if tree.args.get("order") else ()))
    return SummaryQuestion(outputs, tuple(keys), tuple(figures), order, _limit(tree))


def _check_clauses(tree: object) -> None:
    from sqlglot import exp

    assert isinstance(tree, exp.Select)
    said = {
        "where": "WHERE",
        "having": "HAVING",
        "joins": "a join",
        "distinct": "DISTINCT",
        "with": "WITH",
        "with_": "WITH",
        "windows": "WINDOW",
    }
    said |= {"qualify": "QUALIFY", "laterals": "LATERAL", "offset": "OFFSET", "pivots": "PIVOT"}
    for key, word in said.items():
        if tree.args.get(key):
            remedy = "filter in a step before" if key == "where" else "remove it, or use a `sql` step before"
            raise QuestionError(f"it has {word}, but a summary is updated incrementally", remedy)
    from_ = tree.args.get("from") or tree.args.get("from_")
    if from_ is None or not isinstance(from_.this, exp.Table) or from_.this.name != "rows":
        raise QuestionError("it does not read `rows`", "write FROM rows: the rows from the node that `from:` names")
    group = tree.args.get("group")
    if group is not None and any(value for key, value in group.args.items() if key != "expressions"):
        raise QuestionError("GROUP BY has more than columns", "write GROUP BY with columns, without ROLLUP, CUBE or ALL")


def _check_rest(tree: object) -> None:
    """Raise QuestionError for any clause that is not handled: an unknown one must not be ignored."""
    from sqlglot import exp

    assert isinstance(tree, exp.Select)
    table = (tree.args.get("from") or tree.args["from_"]).this
    alias = table.args.get("alias")
    known: dict[type[Any], set[str]] = {
        exp.Select: {"expressions", "from", "from_", "group", "order", "limit"},
        exp.Table: {"this", "alias"},
        exp.TableAlias: {"this"},
        exp.Column: {"this", "table"},
        exp.AggFunc: {"this", "expressions", "big_int"},
        exp.Ordered: {"this", "desc", "nulls_first"},
    }
    for node in tree.walk():
        names = next((names for type_, names in known.items() if isinstance(node, type_)), None)
        odd = None if names is None else next((value for name, value in node.args.items() if value and name not in names), None)
        if odd is not None:
            raise QuestionError(f"{_shown(node)} has {_shown(odd[0] if isinstance(odd, list) else odd)}", f"remove it; {_FORM}")
        if isinstance(node, exp.Column) and node.table not in ("", "rows", alias.name if alias else ""):
            raise QuestionError(f"{_shown(node)} is not a column of `rows`", _BEFORE)
        if isinstance(node, exp.Ordered) and bool(node.args.get("nulls_first")) == bool(node.args.get("desc")):
            raise QuestionError("ORDER BY has NULLS", "remove it: null sorts before all values, and with DESC after them")


def _group_column(each: object, named: list[tuple[str, object]]) -> str:
    from sqlglot import exp

    if isinstance(each, exp.Literal) and each.is_int and 1 <= int(each.this) <= len(named):
        each = named[int(each.this) - 1][1]
    if isinstance(each, exp.Column):
        aliased = dict(named).get(each.name)
        return aliased.name if isinstance(aliased, exp.Column) else each.name
    raise QuestionError(f"GROUP BY {_shown(each)} is not a column", _BEFORE)


def _figure(name: str, value: object) -> Figure:
    from sqlglot import exp

    kinds: dict[type[exp.Expression], Kind] = {exp.Count: "count", exp.Sum: "sum", exp.Min: "min", exp.Max: "max", exp.Avg: "avg"}
    kind = kinds.get(type(value))  # type: ignore[arg-type]
    if kind is None:
        parts = "only count, sum, min, max and avg can be combined from partial results"
        raise QuestionError(f"{_shown(value)}: {parts}", "use one of these, or compute it in a step before")
    assert isinstance(value, exp.Func)
    inner = value.this
    if kind == "count" and (inner is None or isinstance(inner, exp.Star) or (isinstance(inner, exp.Literal) and not value.expressions)):
        return Figure(name, "count", None)
    if isinstance(inner, exp.Distinct):
        why = "distinct values cannot be combined from partial counts"
        raise QuestionError(f"{_shown(value)}: {why}", "remove DISTINCT; a `dedupe` step before the sink keeps each value once")
    if not isinstance(inner, exp.Column) or value.expressions:
        raise QuestionError(f"{_shown(value)} is not of a single column", _BEFORE)
    return Figure(name, kind, inner.name)


def _order(each: object, outputs: tuple[str, ...]) -> OutputOrder:
    from sqlglot import exp

    assert isinstance(each, exp.Ordered)
    if not isinstance(each.this, exp.Column) or each.this.name not in outputs:
        raise QuestionError(f"ORDER BY {_shown(each.this)} is not a column of the SELECT", f"order by {' or '.join(outputs)}")
    return OutputOrder(each.this.name, bool(each.args.get("desc")))


def _limit(tree: object) -> int | None:
    from sqlglot import exp

    assert isinstance(tree, exp.Select)
    limit = tree.args.get("limit")
    if limit is None:
        return None
    if not isinstance(limit.expression, exp.Literal) or not limit.expression.is_int:
        raise QuestionError("LIMIT is not a number", "write LIMIT 10")
    return int(limit.expression.this)


def _shown(value: object) -> str:
    from sqlglot import exp

    text = value.sql(dialect="spark") if isinstance(value, exp.Expression) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."
