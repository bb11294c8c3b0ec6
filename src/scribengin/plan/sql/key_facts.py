"""What is surely known of derived rows (each made from several rows): the columns that identify them, and what queries make of these."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from scribengin.plan.sql.functions import AGGREGATES
from scribengin.plan.sql.names import table_names, table_reference
from scribengin.plan.sql.parse import parse_expression, parse_query
from scribengin.plan.sql.types import WINDOW_FUNCTIONS

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

    from sqlglot import exp
    from sqlglot.optimizer.scope import Scope

    from scribengin.spec.model import Emit

WINDOW = "window"
"""the name of a time window among identifying columns"""


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """What is known of one column of derived rows."""

    identifies: frozenset[str] = frozenset()
    """the identifying columns that its value may contain"""
    copy_of: str = ""
    """the identifying column that it is a copy of; for a window its start, its end or both"""
    aggregate: str = ""
    """an aggregate that it is computed from, as SQL"""


@dataclass(frozen=True, slots=True)
class DerivedRows:
    """The rows of one step: a group each, or a pair of two streams' rows each."""

    step: str
    what: Literal["group", "pair"]
    emit: Emit
    identifying: tuple[str, ...]
    fixed: frozenset[str]
    """identifying columns, in lower case, that may be the same in all rows, and columns that are not identifying"""
    columns: Mapping[str, KeyColumn]
    """nothing is known of a column that is not here"""

    def column(self, name: str) -> KeyColumn | None:
        """The column of that name, in upper or lower case."""
        return next((column for other, column in self.columns.items() if other.lower() == name.lower()), None)


@dataclass(frozen=True, slots=True)
class RowFacts:
    """What is known of the rows of one reference."""

    derived: tuple[DerivedRows, ...] = ()
    """one for each step that derived some of them; nothing is known of the others"""
    fixed: frozenset[str] = frozenset()
    """columns, in lower case, that may be the same in all rows"""

    def where(self, fixed: frozenset[str]) -> RowFacts:
        """Those of the rows in which these columns may be the same."""
        derived = []
        for one in self.derived:
            parts = {part.lower() for column in map(one.column, fixed) if column for part in column.identifies}
            derived.append(replace(one, fixed=one.fixed | parts))
        return RowFacts(tuple(derived), self.fixed | fixed)


def fixed_by(predicate: str) -> frozenset[str]:
    """The columns that may be the same in all rows for which the predicate holds."""
    return _fixed(parse_expression(predicate).tree)


def columns_of(expression: str) -> frozenset[str]:
    """The columns that it uses, in lower case."""
    tree = parse_expression(expression).tree
    return frozenset() if tree is None else _words(tree)


def selected(rows: RowFacts, columns: Iterable[tuple[str, str]]) -> RowFacts:
    """The rows behind (name, expression)s over them."""
    trees = [(name, parse_expression(expression).tree) for name, expression in columns]
    return _projected(rows, [(name, tree) for name, tree in trees if tree is not None])


def query_rows(sql: str, step: str, emit: Emit, inputs: Mapping[str, RowFacts]) -> RowFacts:
    """The rows of a step's query; `inputs`: those that are streams, as the step names them."""
    from sqlglot.errors import SqlglotError
    from sqlglot.optimizer.scope import traverse_scope

    tree = parse_query(sql).tree
    try:
        scopes = [] if tree is None else traverse_scope(tree)
    except SqlglotError:
        scopes = []
    known: dict[str | int, RowFacts] = {word.lower(): rows for name, rows in inputs.items() for word in table_names(name)}
    rows = RowFacts()
    for scope in scopes:  # inner ones first
        rows = known[id(scope)] = _select(scope, step, emit, known)
    return rows


def _select(scope: Scope, step: str, emit: Emit, known: Mapping[str | int, RowFacts]) -> RowFacts:
    """`known`: the inputs by name, and the queries inside by the id of their scope."""
    from sqlglot import exp

    select = scope.expression
    if not isinstance(select, exp.Select) or select.args.get("distinct"):
        return RowFacts()
    sources = {name.lower() for name in scope.selected_sources}
    given = [_source(node, source, known) for node, source in scope.selected_sources.values()]
    joins = select.args.get("joins") or []
    conditions = [select.args.get("where"), *(join.args.get("on") for join in joins)]
    fixed = frozenset().union(*(rows.fixed for rows in given), *(_fixed(condition, sources) for condition in conditions))
    if select.args.get("group") or select.args.get("having") or any(map(_aggregate, select.expressions)):
        return _grouped(select, step, emit, fixed, sources)
    alone = len(given) == 1 and not joins and not select.args.get("laterals")
    return _projected(given[0].where(fixed) if alone else RowFacts((), fixed), _named(select), sources)


def _source(node: exp.Expr, source: exp.Table | Scope, known: Mapping[str | int, RowFacts]) -> RowFacts:
    from sqlglot import exp

    query = None if isinstance(source, exp.Table) else source.expression.parent
    if node.args.get("pivots") or node.alias_column_names or (query is not None and query.alias_column_names):  # `t(a, b)`
        return RowFacts()
    return known.get(table_reference(source).lower() if isinstance(source, exp.Table) else id(source), RowFacts())


def _grouped(select: exp.Select, step: str, emit: Emit, fixed: frozenset[str], sources: Container[str]) -> RowFacts:
    named = _named(select)
    trees = _group_key(select, named)
    if trees is None or any(map(_not_followed, select.expressions)):
        return RowFacts()
    words: dict[str, frozenset[str]] = {}
    for name, tree in named:
        words[name.lower()] = _expanded(_words(tree, sources), words)  # it may use the columns before it
    same = frozenset(name.lower() for name, tree in named if words[name.lower()] <= fixed and not _aggregate(tree))
    held = _expanded(_fixed(select.args.get("having"), sources), words)
    parts: dict[str, frozenset[str]] = {}
    for tree in trees:
        part = _label(tree, named, sources)
        parts[part] = parts.get(part, frozenset()) | _expanded(_words(tree, sources), words)
    columns = {}
    for name, tree in named:
        # what is computed from the same may contain it, and it may follow from that: `upper(customer)` beside `customer`
        contains = frozenset(part for part, used in parts.items() if used & words[name.lower()])
        copied = _label(tree, named, sources)
        columns[name] = KeyColumn(contains, copied) if copied in parts else KeyColumn(contains, aggregate=_aggregate(tree))
    given = frozenset(part.lower() for part, used in parts.items() if used <= fixed | same or used & held)
    return RowFacts((DerivedRows(step, "group", emit, tuple(parts), given, columns),), same)


def _group_key(select: exp.Select, named: list[tuple[str, exp.Expr]]) -> list[exp.Expr] | None:
    """The expressions of GROUP BY; empty for one group of all rows, None if they are not plain (ROLLUP and similar)."""
    from sqlglot import exp

    group = select.args.get("group")
    if group is None:
        return []
    if group.args.get("all"):
        return [tree for _, tree in named if not _aggregate(tree)]
    several = [tree for tree in group.expressions if isinstance(tree, exp.Cube | exp.Rollup | exp.GroupingSets)]
    if several or any(value for key, value in group.args.items() if key != "expressions"):
        return None
    meant = {name.lower(): tree for name, tree in named} | {str(n): tree.unalias() for n, tree in enumerate(select.expressions, 1)}
    plain = [isinstance(tree, exp.Literal) or (isinstance(tree, exp.Column) and not tree.table) for tree in group.expressions]
    return [meant.get(tree.name.lower(), tree) if by_name else tree for tree, by_name in zip(group.expressions, plain, strict=True)]


def _label(tree: exp.Expr, named: list[tuple[str, exp.Expr]], sources: Container[str]) -> str:
    """The same for an expression of GROUP BY and a copy of it: `customer` and `o.customer`, `window(ts, '1 hour')` and `window.start`."""
    from sqlglot import exp

    whole = tree.this if isinstance(tree, exp.Dot) and tree.expression.name.lower() in ("start", "end") else tree
    root = _root(whole, sources) if isinstance(whole, exp.Column) else whole.name.lower()
    if isinstance(whole, exp.Column | exp.Anonymous) and root in WINDOW_FUNCTIONS:
        return WINDOW
    return whole.name if isinstance(whole, exp.Column) else next((name for name, other in named if other == whole), whole.sql("spark"))


def _projected(rows: RowFacts, named: list[tuple[str, exp.Expr]], sources: Container[str] = ()) -> RowFacts:
    """Columns over rows of one input; a name of "*" stands for all of them but those that it leaves out."""
    from sqlglot import exp

    def of(derived: DerivedRows) -> DerivedRows:
        columns: dict[str, KeyColumn] = {}
        for name, tree in named:
            if name == "*":
                out = {column.name.lower() for star in tree.find_all(exp.Star) for column in star.args.get("except_") or []}
                columns |= {other: column for other, column in derived.columns.items() if other.lower() not in out}
            elif (column := _computed(tree, derived, sources)) is not None:
                columns[name] = column
        return replace(derived, columns=columns)

    fixed = {name.lower() for name, tree in named if _words(tree, sources) <= rows.fixed}
    fixed |= rows.fixed if any(name == "*" for name, _ in named) else set()
    followed = not any(_not_followed(tree) for _, tree in named)
    return RowFacts(tuple(map(of, rows.derived)) if followed else (), frozenset(fixed))


def _computed(tree: exp.Expr, derived: DerivedRows, sources: Container[str]) -> KeyColumn | None:
    """An expression over derived rows; None if one of its columns is not known."""
    from sqlglot import exp

    used = [derived.column(_root(column, sources)) for column in tree.find_all(exp.Column)]
    known = [column for column in used if column is not None]
    if len(known) < len(used):
        return None
    if isinstance(tree, exp.Column):
        return known[0]
    aggregate = next((column.aggregate for column in known if column.aggregate), "")
    return KeyColumn(frozenset(name for column in known for name in column.identifies), aggregate=aggregate)


def _named(select: exp.Select) -> list[tuple[str, exp.Expr]]:
    """(name, expression) of what is selected; "*" for a star, and nothing for what Spark makes up a name of."""
    from sqlglot import exp

    plain = [column for column in select.expressions if column.alias or isinstance(column, exp.Column | exp.Star)]
    return [("*" if column.is_star else column.alias_or_name, column.unalias()) for column in plain]


def _root(column: exp.Column, sources: Container[str]) -> str:
    """The column's own name in lower case, without the input's before it and fields of it behind it."""
    names = [part.name.lower() for part in column.parts]
    if len(names) > 2 and names[1] in sources:  # a branch: `r.big.id`
        return str(names[2])
    return str(names[1] if len(names) > 1 and names[0] in sources else names[0])


def _words(tree: exp.Expr, sources: Container[str] = ()) -> frozenset[str]:
    """The columns that an expression uses, and `window` where it calls that, in lower case."""
    from sqlglot import exp

    calls = {call.name.lower() for call in tree.find_all(exp.Anonymous)} & set(WINDOW_FUNCTIONS)
    return frozenset(calls | {_root(column, sources) for column in tree.find_all(exp.Column)})


def _expanded(words: frozenset[str], meant: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """With the words of columns of the same query that are among them."""
    return words.union(*(meant.get(word, ()) for word in words))


def _aggregate(tree: exp.Expr) -> str:
    """The first aggregate in an expression, as SQL; empty if there is none."""
    from sqlglot import exp

    calls = (node for node in tree.walk() if isinstance(node, exp.AggFunc | exp.Anonymous))
    return next((call.sql("spark") for call in calls if isinstance(call, exp.AggFunc) or call.name.lower() in AGGREGATES), "")


_GENERATORS = frozenset({"inline", "inline_outer", "json_tuple", "variant_explode", "variant_explode_outer", "stack"})
"""beside those that sqlglot has classes for"""


def _not_followed(tree: exp.Expr) -> bool:
    """Whether a column makes several rows of one, or uses other rows."""
    from sqlglot import exp

    called = {call.name.lower() for call in tree.find_all(exp.Anonymous)}
    known = tree.find(exp.Query, exp.Window, exp.UDTF, exp.Explode, exp.Posexplode, exp.Inline, exp.Stack)
    return known is not None or not called.isdisjoint(_GENERATORS)


def _fixed(condition: exp.Expr | None, sources: Container[str] = ()) -> frozenset[str]:
    """The columns that may be the same in all rows for which it holds: all of them, but for `<>`, a range, and IS NOT NULL."""
    from sqlglot import exp

    if condition is None:
        return frozenset()
    whole = condition.this if isinstance(condition, exp.Where | exp.Having) else condition
    words: set[str] = set()
    for part in whole.flatten() if isinstance(whole, exp.And) else [whole]:
        not_null = isinstance(part, exp.Not) and isinstance(part.this, exp.Is) and isinstance(part.this.expression, exp.Null)
        if not not_null and not isinstance(part, exp.NEQ | exp.GT | exp.GTE | exp.LT | exp.LTE | exp.Between):
            words |= _words(part, sources)
    return frozenset(words)
