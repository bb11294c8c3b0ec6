"""How queries and expressions change the known facts on made rows (`plan.key_facts`): groups, copies, predicates that fix a column."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from scribengin.plan.key_facts import WINDOW, DerivedRows, EdgeRows, KeyColumn
from scribengin.plan.sql.functions import AGGREGATES
from scribengin.plan.sql.names import table_names, table_reference
from scribengin.plan.sql.parse import parse_expression, parse_query
from scribengin.plan.sql.types import WINDOW_FUNCTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from sqlglot import exp
    from sqlglot.optimizer.scope import Scope

    from scribengin.plan.columns import Columns
    from scribengin.spec.model import Emit


# A JOIN of two inputs: by which equal columns their rows come together, and what a column of either says of that.


@dataclass(frozen=True, slots=True)
class Pairs:
    """All names but those of `parts` are in lower case."""

    parts: tuple[str, ...]
    """what is equal in both rows, as it is written first"""
    _of: Mapping[tuple[str, str], str]
    """(input, column) → its part"""
    _columns: Mapping[str, frozenset[str]]
    """input → its columns"""

    @staticmethod
    def of(select: exp.Select, columns: Mapping[str, frozenset[str]]) -> Pairs | None:
        """`columns`: of each input, by the name that the query has for it. None where rows do not come in pairs."""
        joins = select.args.get("joins") or []
        if len(columns) != 2 or len(joins) != 1 or select.args.get("laterals") or joins[0].kind in ("SEMI", "ANTI", "CROSS"):
            return None
        parts: dict[str, None] = {}
        of: dict[tuple[str, str], str] = {}
        for name in joins[0].args.get("using") or ():
            parts[name.name] = None
            of |= {(input_, name.name.lower()): name.name for input_ in columns}
        for left, right in _equal(joins[0].args.get("on")):
            sides = [_place(left, columns), _place(right, columns)]
            if None not in sides and len({side[0] for side in sides if side}) == 2:
                part = next((of[side] for side in sides if side in of), left.name)
                parts[part] = None
                of |= {side: part for side in sides if side}
        return Pairs(tuple(parts), of, columns)

    def cell(self, column: exp.Column) -> KeyColumn | None:
        """What it says; None where it is not known which column it is."""
        place = _place(column, self._columns) or self._merged(column)
        if place is None:
            return None
        part = self._of.get(place, "")
        return KeyColumn(frozenset({part} - {""}), part)

    def _merged(self, column: exp.Column) -> tuple[str, str] | None:
        """A column of USING, which both have and which is one."""
        places = [(input_, column.name.lower()) for input_ in self._columns]
        return places[0] if len(column.parts) == 1 and all(place in self._of for place in places) else None


def _equal(condition: exp.Expr | None) -> Iterator[tuple[exp.Column, exp.Column]]:
    from sqlglot import exp

    waiting = [] if condition is None else [condition]
    while waiting:
        match waiting.pop().unnest():
            case exp.And() as both:
                waiting += [both.right, both.left]
            case exp.EQ(this=exp.Column() as left, expression=exp.Column() as right):
                yield left, right
            case _:
                pass


def _place(column: exp.Column, columns: Mapping[str, frozenset[str]]) -> tuple[str, str] | None:
    """(input, column), where it is one for certain."""
    names = [part.name.lower() for part in column.parts]
    if len(names) == 2 and names[0] in columns:
        return (names[0], names[1]) if names[1] in columns[names[0]] else None
    having = [input_ for input_, known in columns.items() if names[0] in known]
    return (having[0], names[0]) if len(names) == 1 and len(having) == 1 else None


_GENERATORS = frozenset({"inline", "inline_outer", "json_tuple", "variant_explode", "variant_explode_outer", "stack"})
"""beside those that sqlglot has classes for"""


@dataclass(frozen=True, slots=True)
class Query:
    """The step of the query, and its inputs."""

    id: str
    emit: Emit
    inputs: Mapping[str, EdgeRows]
    """those that are streams, as the step calls them"""
    columns: Mapping[str, Columns | None]


def held_fast(predicate: str) -> frozenset[str]:
    """The columns, in lower case, that are the same in all rows for which the predicate holds: `kind = 'a'`, `flag`, `x IS NULL`."""
    tree = parse_expression(predicate).tree
    return frozenset() if tree is None else frozenset(name for name, _ in _fixed_columns(tree, frozenset()))


def compared(predicate: str) -> frozenset[str]:
    """The columns that may be the same in all rows for which the predicate does not hold."""
    tree = parse_expression(predicate).tree
    if tree is None:
        return frozenset()
    from sqlglot import exp

    asked = [node for node in tree.walk() if not isinstance(node, exp.Column) or isinstance(node.parent, exp.Connector | exp.Not | None)]
    return frozenset(name for node in asked for name, _ in _atom(node, frozenset()))


def selected(rows: EdgeRows, columns: Iterable[tuple[str, str]]) -> EdgeRows:
    """The rows behind (name, expression)s over them."""
    trees = [(name, parse_expression(expression).tree) for name, expression in columns]
    return _projected(rows, [(name, tree) for name, tree in trees if tree is not None], frozenset())


def query_rows(sql: str, step: Query) -> EdgeRows:
    """The rows of a query."""
    from sqlglot.errors import SqlglotError
    from sqlglot.optimizer.scope import traverse_scope

    text = parse_query(sql)
    if text.tree is None:
        return EdgeRows()
    try:
        scopes = traverse_scope(text.tree)
    except SqlglotError:
        return EdgeRows()
    walk = _Walk(step)
    for scope in scopes:  # inner ones first
        walk.visit(scope)
    return walk.given.get(id(scopes[-1]), EdgeRows()) if scopes else EdgeRows()


class _Walk:
    def __init__(self, step: Query) -> None:
        self._step = step
        self._inputs = {word.lower(): name for name in step.inputs for word in table_names(name)}
        self.given: dict[int, EdgeRows] = {}
        """id of a scope → its rows"""

    def visit(self, scope: Scope) -> None:
        from sqlglot import exp

        if isinstance(scope.expression, exp.Select):
            self.given[id(scope)] = self._select(scope, scope.expression)

    def _select(self, scope: Scope, select: exp.Select) -> EdgeRows:
        sources = frozenset(name.lower() for name in scope.selected_sources)
        alone = len(sources) == 1 and not select.args.get("joins") and not select.args.get("laterals")
        rows = self._of(*next(iter(scope.selected_sources.values()))) if alone else EdgeRows()
        where = select.args.get("where")
        rows = rows.where(name for name, _ in _fixed_columns(where.this, sources)) if where is not None else rows
        if select.args.get("distinct") or any(_changes_rows(node) for tree in select.expressions for node in tree.walk()):
            return EdgeRows()
        group = select.args.get("group")
        if group is not None or any(_aggregate(node) for node in _own(select)):
            return self._grouped(select, group, rows.fixed, sources)
        if alone:
            return _projected(rows, _named(select), sources)
        return self._paired(scope, select, rows.fixed)

    def _of(self, node: exp.Expr, source: exp.Table | Scope) -> EdgeRows:
        from sqlglot import exp

        if node.args.get("pivots"):
            return EdgeRows()
        if not isinstance(source, exp.Table):
            return self.given.get(id(source), EdgeRows())
        name = self._inputs.get(table_reference(source).lower())
        return EdgeRows() if name is None or source.alias_column_names else self._step.inputs[name]

    def _grouped(self, select: exp.Select, group: exp.Expr | None, fixed: frozenset[str], sources: frozenset[str]) -> EdgeRows:
        parts = _parts(select, group, fixed, sources)
        if parts is None:
            return EdgeRows()
        having = select.args.get("having")
        if having is not None:
            held = {name for name, _ in _fixed_columns(having.this, sources)}
            parts = [part for part in parts if not part.words & held]
        cells: dict[str, KeyColumn] = {}
        for name, tree in _named(select):
            cell = _grouped_cell(tree, parts, cells, sources)
            if cell is not None:
                cells[name] = cell
        made = DerivedRows(self._step.id, "group", self._step.emit, tuple(dict.fromkeys(part.name for part in parts)), cells)
        return EdgeRows((made,), frozenset(name.lower() for name, tree in _named(select) if _is_fixed(tree, fixed, sources)))

    def _paired(self, scope: Scope, select: exp.Select, fixed: frozenset[str]) -> EdgeRows:
        """Of two streams and one JOIN with equalities."""
        from sqlglot import exp

        named = {}
        for name, (_, source) in scope.selected_sources.items():
            if not isinstance(source, exp.Table) or source.alias_column_names:
                return EdgeRows()
            input_ = self._inputs.get(table_reference(source).lower(), "")
            columns = self._step.columns.get(input_)
            if input_ not in self._step.inputs or columns is None:
                return EdgeRows()
            named[name.lower()] = frozenset(column.name.lower() for column in columns)
            fixed |= self._step.inputs[input_].fixed
        pairs = Pairs.of(select, named)
        if pairs is None:
            return EdgeRows()
        parts = tuple(part for part in pairs.parts if part.lower() not in fixed)
        cells: dict[str, KeyColumn] = {}
        for name, tree in _named(select):
            cell = None if name == "*" else cell_of(tree, pairs.cell)
            if cell is not None:
                cells[name] = replace(cell, parts=cell.parts & set(parts))
        return EdgeRows((DerivedRows(self._step.id, "pair", self._step.emit, parts, cells),))


@dataclass(frozen=True, slots=True)
class _Part:
    """An expression of GROUP BY."""

    name: str
    tree: exp.Expr
    words: frozenset[str]
    """by which the rest of the query may mean it, in lower case: its columns, its alias, `window`"""


def _parts(select: exp.Select, group: exp.Expr | None, fixed: frozenset[str], sources: frozenset[str]) -> list[_Part] | None:
    """The group key; empty for one group of all rows, None if there are several keys (ROLLUP and similar)."""
    from sqlglot import exp

    if group is None:
        return []
    named = _named(select)
    trees = list(group.expressions)
    if group.args.get("all"):
        trees = [tree for _, tree in named if not any(map(_aggregate, tree.walk()))]
    elif any(group.args.get(key) for key in ("cube", "rollup", "grouping_sets")) or any(
        isinstance(tree, exp.Cube | exp.Rollup | exp.GroupingSets) for tree in trees
    ):
        return None
    parts = []
    for given in trees:
        tree, words = given, _words(given, sources)
        if isinstance(given, exp.Literal) and given.name.isdigit() and 0 < int(given.name) <= len(select.expressions):
            tree = select.expressions[int(given.name) - 1].unalias()
        elif isinstance(given, exp.Column) and (alias := next((tree for name, tree in named if name.lower() in words), None)) is not None:
            tree = alias
        aliases = {name for name, other in named if other == tree}
        words |= _words(tree, sources) | {name.lower() for name in aliases}
        if not words <= fixed and (words or not isinstance(tree, exp.Literal)):
            parts.append(_Part(_part_name(tree, aliases, words), tree, words))
    return [part for part in parts if not _follows(part, parts, sources)]


def _part_name(tree: exp.Expr, aliases: set[str], words: frozenset[str]) -> str:
    from sqlglot import exp

    if words & set(WINDOW_FUNCTIONS):
        return WINDOW
    if isinstance(tree, exp.Column):
        return str(tree.name)
    return min(aliases) if aliases else tree.sql("spark")


def _follows(part: _Part, parts: list[_Part], sources: frozenset[str]) -> bool:
    """Whether it is computed from columns that are parts themselves."""
    from sqlglot import exp

    if isinstance(part.tree, exp.Column):
        return False
    plain = {root(other.tree, sources) for other in parts if isinstance(other.tree, exp.Column)}
    columns = {root(column, sources) for column in part.tree.find_all(exp.Column)}
    return bool(columns) and columns <= plain


def _grouped_cell(tree: exp.Expr, parts: list[_Part], before: Mapping[str, KeyColumn], sources: frozenset[str]) -> KeyColumn | None:
    """What a projection beside GROUP BY holds; `before`: the projections before it, whose names it may use."""
    from sqlglot import exp

    if tree.find(exp.Query):
        return None
    told: set[str] = set()
    computed = ""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        same = next((part for part in parts if part.tree == node), None)
        if same is not None:
            told.add(same.name)
        elif _aggregate(node):
            computed = computed or node.sql("spark")
        elif isinstance(node, exp.Column):
            word = root(node, sources)
            exact = [part for part in parts if isinstance(part.tree, exp.Column) and root(part.tree, sources) == word]
            found = exact or [part for part in parts if word in part.words]
            told |= {part.name for part in found}
            alias = next((cell for name, cell in before.items() if name.lower() == word), None)
            if not found and alias is not None:
                told |= alias.parts
                computed = computed or alias.computed
        else:
            waiting += node.iter_expressions()
    copied = next(iter(told)) if len(told) == 1 and not computed and _is_copy(tree, parts) else ""
    return KeyColumn(frozenset(told), copied, computed)


def _is_copy(tree: exp.Expr, parts: list[_Part]) -> bool:
    from sqlglot import exp

    whole = tree.this if isinstance(tree, exp.Dot) and tree.expression.name.lower() in ("start", "end") else tree
    return isinstance(whole, exp.Column) or any(part.tree == whole for part in parts)


def cell_of(tree: exp.Expr, lookup: Callable[[exp.Column], KeyColumn | None]) -> KeyColumn | None:
    """The known facts on an expression over made rows; None if one of its columns is not known."""
    from sqlglot import exp

    if isinstance(tree, exp.Column):
        return lookup(tree)
    if tree.find(exp.Query):
        return None
    cells = [lookup(column) for column in tree.find_all(exp.Column)]
    known = [cell for cell in cells if cell is not None]
    if len(known) < len(cells):
        return None
    computed = next((cell.computed for cell in known if cell.computed), "")
    return KeyColumn(frozenset(part for cell in known for part in cell.parts), "", computed)


def _projected(rows: EdgeRows, named: list[tuple[str, exp.Expr]], sources: frozenset[str]) -> EdgeRows:
    """Columns over rows of one input; a name of "*" stands for all of them but those that it leaves out."""
    from sqlglot import exp

    if any(_changes_rows(node) for _, tree in named for node in tree.walk()):
        return EdgeRows()

    def of(made: DerivedRows) -> DerivedRows:
        cells: dict[str, KeyColumn] = {}
        for name, tree in named:
            if name == "*":
                out = {column.name.lower() for star in tree.find_all(exp.Star) for column in star.args.get("except_") or []}
                cells |= {other: cell for other, cell in made.cells.items() if other.lower() not in out}
            elif (cell := cell_of(tree, lambda column: made.cell(root(column, sources)))) is not None:
                cells[name] = cell
        return replace(made, cells=cells)

    fixed = {name.lower() for name, tree in named if name != "*" and _is_fixed(tree, rows.fixed, sources)}
    fixed |= rows.fixed if any(name == "*" for name, _ in named) else set()
    return EdgeRows(tuple(map(of, rows.made)), frozenset(fixed))


def _named(select: exp.Select) -> list[tuple[str, exp.Expr]]:
    """(name, expression) of what is selected; "*" for a star, and nothing for what Spark makes up a name of."""
    from sqlglot import exp

    named: list[tuple[str, exp.Expr]] = []
    for projection in select.expressions:
        if isinstance(projection, exp.Star) or (isinstance(projection, exp.Column) and isinstance(projection.this, exp.Star)):
            named.append(("*", projection))
        elif projection.alias or isinstance(projection, exp.Column):
            named.append((projection.alias or projection.name, projection.unalias()))
    return named


def root(column: exp.Column, sources: frozenset[str]) -> str:
    """The column's own name in lower case, without the input's before it and fields of it behind it."""
    names = [part.name.lower() for part in column.parts]
    if len(names) > 2 and names[1] in sources:  # a branch: `r.big.id`
        return str(names[2])
    return str(names[1] if len(names) > 1 and names[0] in sources else names[0])


def _words(tree: exp.Expr, sources: frozenset[str]) -> frozenset[str]:
    from sqlglot import exp

    calls = {call.name.lower() for call in tree.find_all(exp.Anonymous)} & set(WINDOW_FUNCTIONS)
    return frozenset(calls | {root(column, sources) for column in tree.find_all(exp.Column)})


def _own(select: exp.Select) -> Iterable[exp.Expr]:
    """What stands in a query, without the queries inside it."""
    from sqlglot import exp

    return select.walk(bfs=False, prune=lambda node: node is not select and isinstance(node, exp.Query))


def _aggregate(node: exp.Expr) -> bool:
    from sqlglot import exp

    if isinstance(node, exp.AggFunc):
        return True
    return isinstance(node, exp.Anonymous) and node.name.lower() in AGGREGATES


def _changes_rows(node: exp.Expr) -> bool:
    """Whether it makes several rows of one, or uses other rows."""
    from sqlglot import exp

    if isinstance(node, exp.Anonymous):
        return node.name.lower() in _GENERATORS
    return isinstance(node, exp.Window | exp.UDTF | exp.Explode | exp.Posexplode | exp.Inline | exp.Stack)


@cache
def _still() -> tuple[type[exp.Expr], ...]:
    from sqlglot import exp

    return exp.Column, exp.Identifier, exp.Literal, exp.Boolean, exp.Null, exp.Neg, exp.Paren, exp.Cast, exp.DataType, exp.Interval, exp.Var


def _is_fixed(tree: exp.Expr, fixed: frozenset[str], sources: frozenset[str]) -> bool:
    """Made of literals, and of columns that are the same in all rows."""
    return all(isinstance(node, _still()) for node in tree.walk()) and _words(tree, sources) <= fixed


def _fixed_columns(tree: exp.Expr, sources: frozenset[str]) -> frozenset[tuple[str, str]]:
    """(column, the comparison that holds it fast)."""
    from sqlglot import exp

    match tree:
        case exp.Paren():
            return _fixed_columns(tree.this, sources)
        case exp.And():
            return _fixed_columns(tree.left, sources) | _fixed_columns(tree.right, sources)
        case exp.Or():
            return _fixed_columns(tree.left, sources) & _fixed_columns(tree.right, sources)
        case _:
            return _atom(tree, sources)


def _atom(tree: exp.Expr, sources: frozenset[str]) -> frozenset[tuple[str, str]]:
    from sqlglot import exp

    match tree:
        case exp.EQ() | exp.NullSafeEQ() | exp.Is():
            sides = [tree.left, tree.right]
        case exp.In() if len(tree.expressions) == 1:
            sides = [tree.this, *tree.expressions]
        case exp.Column():
            sides = [tree]
        case exp.Not() if isinstance(tree.this, exp.Column):
            sides = [tree.this]
        case _:
            return frozenset()
    if not all(isinstance(node, _still()) for side in sides for node in side.walk()):
        return frozenset()
    return frozenset((word, tree.sql("spark")) for side in sides for word in _words(side, sources))
