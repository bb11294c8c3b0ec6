"""Finds out how a query treats a stream: whether it keeps state, and whether it has a clause that would silently apply per Batch."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from scribengin.plan.sql.functions import AGGREGATES
from scribengin.plan.sql.names import table_names, table_reference
from scribengin.plan.sql.parse import Text, keyword, parse_query, start_of

if TYPE_CHECKING:
    from sqlglot import exp
    from sqlglot.optimizer.scope import Scope


# The time windows by which a query groups, read from its text: their length, their distance, and where the first one starts.


_SPAN = re.compile(r"(\d+)\s*(microsecond|millisecond|second|minute|hour|day|week)s?\b", re.IGNORECASE)
_US = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 10**6,
    "minute": 60 * 10**6,
    "hour": 3_600 * 10**6,
    "day": 86_400 * 10**6,
    "week": 7 * 86_400 * 10**6,
}


@dataclass(frozen=True, slots=True)
class SqlWindow:
    """`window(time, size, slide, start)`, or `session_window(time, gap)`, whose `size_us` is the gap. In microseconds."""

    size_us: int
    slide_us: int
    start_us: int = 0
    session: bool = False


@lru_cache(maxsize=256)
def windows_of(sql: str) -> frozenset[SqlWindow] | None:
    """All windows in the query; None if one of them is not constant or not a fixed time (a computed gap, months), or if the text is not
    valid SQL."""
    from sqlglot import exp

    tree = parse_query(sql).tree
    if tree is None:
        return None
    found: set[SqlWindow] = set()
    for call in tree.find_all(exp.Anonymous):
        if call.name.lower() in ("window", "session_window") and call.expressions:
            spans = [_span_us(argument) for argument in call.expressions[1:]]
            if None in spans or not spans or not spans[0]:
                return None
            size, *more = [each or 0 for each in spans]
            session = call.name.lower() == "session_window"
            found.add(SqlWindow(size, size if session or not more else more[0] or size, more[1] if len(more) > 1 else 0, session))
    return frozenset(found)


def _span_us(argument: exp.Expr) -> int | None:
    """The microseconds of `'1 hour 30 minutes'`, `'interval 1 hour'` or `INTERVAL 1 HOUR`; None for anything else."""
    from sqlglot import exp

    if isinstance(argument, exp.Interval):
        text = (
            f"{argument.this.name if argument.this is not None else ''} {argument.args['unit'].name if argument.args.get('unit') else ''}"
        )
    elif isinstance(argument, exp.Literal) and argument.is_string:
        text = argument.name
    else:
        return None
    rest = re.sub(r"^\s*interval\b", "", text, flags=re.IGNORECASE)
    if _SPAN.sub("", rest).strip():
        return None
    return sum(int(amount) * _US[unit.lower()] for amount, unit in _SPAN.findall(rest))


@dataclass(frozen=True, slots=True)
class QueryShape:
    """The offsets of the clauses that matter for streams; None for a clause that the query does not have."""

    aggregates: int | None = None
    joins: int | None = None
    """a join of two streams"""
    distinct: int | None = None
    limits: int | None = None
    orders: int | None = None
    ranks: int | None = None
    """`OVER (…)`"""
    grouped_by: frozenset[str] | None = None
    """lower-case names of the columns (and window functions) by which the stream is grouped; None if it is not grouped or the groups are
    not plain"""

    @property
    def stateful(self) -> bool:
        """True if Spark keeps state between Batches."""
        return self.aggregates is not None or self.joins is not None or self.distinct is not None


@lru_cache(maxsize=1024)
def shape_of(sql: str, streams: frozenset[str]) -> QueryShape:
    """The shape of a query. `streams`: the inputs that are not static. A text that cannot be parsed has an empty shape."""
    from sqlglot.errors import SqlglotError
    from sqlglot.optimizer.scope import traverse_scope

    text = parse_query(sql)
    if text.tree is None:
        return QueryShape()
    try:
        scopes = traverse_scope(text.tree)
    except SqlglotError:
        return QueryShape()
    return _Walk(text, frozenset(word.lower() for name in streams for word in table_names(name))).walk(scopes)


class _Walk:
    def __init__(self, text: Text, streams: frozenset[str]) -> None:
        self._text = text
        self._streams = streams
        self._live: dict[int, bool] = {}
        """id of a scope → True if it reads a stream"""
        self._found: dict[str, int] = {}
        self._groups: frozenset[str] | None = None

    def walk(self, scopes: list[Scope]) -> QueryShape:
        for scope in scopes:  # inner ones first
            self._visit(scope)
        return QueryShape(**self._found, grouped_by=self._groups)

    def _visit(self, scope: Scope) -> None:
        from sqlglot import exp

        query = scope.expression
        inside = [self._live.get(id(inner), False) for inner in (*scope.subquery_scopes, *scope.set_operation_scopes)]
        read = [self._is_stream(source) for _, source in scope.selected_sources.values()]
        live = any(read) or any(inside)
        self._live[id(scope)] = live
        if not live:
            return
        self._note("limits", "LIMIT", bool(query.args.get("limit") or query.args.get("offset")))
        self._note("orders", "ORDER BY", any(query.args.get(key) for key in ("order", "sort")))
        if isinstance(query, exp.SetOperation):
            self._note("distinct", "UNION", bool(query.args.get("distinct")) or not isinstance(query, exp.Union))
            return
        self._note("distinct", "DISTINCT", bool(query.args.get("distinct")))
        joins = bool(query.args.get("joins"))
        meets = (joins and sum(read) > 1) or (any(read) and any(self._live.get(id(inner), False) for inner in scope.subquery_scopes))
        self._note("joins", "JOIN", meets)
        if isinstance(query, exp.Select):
            self._select(query)

    def _select(self, query: exp.Select) -> None:
        from sqlglot import exp

        group = query.args.get("group")
        aggregate: exp.Expr | None = None
        for node in query.walk(bfs=False, prune=lambda node: node is not query and isinstance(node, exp.Query)):
            if isinstance(node, exp.Window):
                self._note("ranks", "OVER", True)
            elif aggregate is None and _is_aggregate(node) and not isinstance(node.parent, exp.Window):
                aggregate = node
        if group is None and aggregate is None:
            return
        self._note("aggregates", "GROUP BY", True, start_of(aggregate) if aggregate is not None else None)
        self._groups = _grouped_by(query, group)

    def _is_stream(self, source: exp.Table | Scope) -> bool:
        from sqlglot import exp

        if isinstance(source, exp.Table):
            return table_reference(source).lower() in self._streams
        return self._live.get(id(source), False)

    def _note(self, what: str, word: str, there: bool, offset: int | None = None) -> None:
        if there:
            self._found.setdefault(what, keyword(self._text, word) or offset or 0)


def _is_aggregate(node: exp.Expr) -> bool:
    from sqlglot import exp

    if isinstance(node, exp.AggFunc):
        return True
    return isinstance(node, exp.Anonymous) and node.name.lower() in AGGREGATES


def _grouped_by(query: exp.Select, group: exp.Expr | None) -> frozenset[str] | None:
    """The names in GROUP BY, with aliases and ordinals resolved; empty for an aggregation of everything, None for GROUP BY ALL."""
    from sqlglot import exp

    if group is None:
        return frozenset()
    if group.args.get("all"):
        return None
    aliases = {projection.alias.lower(): projection.this for projection in query.expressions if projection.alias}
    names: set[str] = set()
    for part in group.expressions:
        if isinstance(part, exp.Literal) and part.name.isdigit() and 0 < int(part.name) <= len(query.expressions):
            part = query.expressions[int(part.name) - 1]  # noqa: PLW2901
        elif isinstance(part, exp.Column) and part.name.lower() in aliases:
            names.add(part.name.lower())
            part = aliases[part.name.lower()]  # noqa: PLW2901
        names |= {column.name.lower() for column in part.find_all(exp.Column)}
        names |= {call.name.lower() for call in part.find_all(exp.Anonymous)}
    return frozenset(names)
