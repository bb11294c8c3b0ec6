"""Derives the inputs and output columns of a query: unknown inputs and columns with their places, and the columns of the result."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from scribengin.core.problems import did_you_mean
from scribengin.core.types import in_backticks
from scribengin.plan.columns import Column, Columns, find
from scribengin.plan.graph import flat_name
from scribengin.plan.sql.implicit_casts import implicit_casts, union_fault
from scribengin.plan.sql.parse import SqlFault, Text, start_of
from scribengin.plan.sql.types import WINDOW_FUNCTIONS, expression_type

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sqlglot import exp
    from sqlglot.optimizer.scope import Scope

    from scribengin.core.types import Type
    from scribengin.plan.sql.types import Lookup

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class QueryFacts:
    """The inputs and outputs of a query. `columns` is None if a name is known only to Spark."""

    faults: tuple[SqlFault, ...]
    tables: tuple[str, ...]
    """the inputs that it reads, each once"""
    columns: Columns | None
    known: Columns = ()
    """the columns of its inputs whose names occur in one input only"""


def check_expression(text: Text, columns: Columns | None, of: str) -> list[SqlFault]:
    """The faults of an expression over one input: unknown columns. `of` is the name of the input in messages."""
    from sqlglot import exp

    if text.tree is None:
        return [with_backticks(text.fault, text, columns or ())] if text.fault else []
    if columns is None:
        return []
    faults = []
    for column in text.tree.find_all(exp.Column):
        first = _first_part(column)
        if find(columns, first) is None and not isinstance(column.this, exp.Star):
            fault = with_backticks(_unknown_column(column, first, columns, of), text, columns)
            if first == of and len(column.parts) > 1:
                rest = ".".join(part.name for part in column.parts[1:])
                fault = replace(fault, remedy=f"write {rest}; with one input, columns have no prefix")
            faults.append(fault)
    return faults


def with_backticks(fault: SqlFault, text: Text, columns: Columns) -> SqlFault:
    """The fault, with a remedy for a name with special characters that is written without backticks: `log.level`, `user id`."""
    odd = sorted((column.name for column in columns if not _WORD.fullmatch(column.name)), key=len, reverse=True)
    for name in odd:
        for found in re.finditer(rf"(?<![\w`]){re.escape(name)}(?![\w`])", text.sql):
            if fault.code == "sql-syntax" or found.start() <= fault.offset < found.end():
                return replace(fault, remedy=f"write it in backticks: {in_backticks(name)}")
    return fault


def implicit_casts_of(text: Text, columns: Columns | None) -> list[SqlFault]:
    """The faults of an expression over one input: texts that it casts to numbers."""
    return [] if text.tree is None else list(implicit_casts(text.tree, _lookup(columns)))


def expression_result(text: Text, columns: Columns | None) -> Type | None:
    """The type of an expression over one input; None if it is not certain."""
    if text.tree is None:
        return None

    return expression_type(text.tree, _lookup(columns))


def _lookup(columns: Columns | None) -> Lookup:
    def lookup(column: exp.Column) -> Type | None:
        found = find(columns or (), column.name) if len(column.parts) == 1 else None
        return found.type if found else None

    return lookup


def table_names(reference: str) -> tuple[str, ...]:
    """The names of an input in a query: its id; for a branch `r.big` also `r_big`.

    >>> table_names("r.big")
    ('r.big', 'r_big')
    """
    return (reference, flat_name(reference)) if "." in reference else (reference,)


def table_reference(table: exp.Table) -> str:
    """The name of an input in a flow: `r.big` for a branch."""
    return ".".join(part.name for part in table.parts)


def read_query(text: Text, inputs: Mapping[str, Columns | None]) -> QueryFacts:
    """Check a query against its step's inputs, and derive its output columns."""
    from sqlglot.errors import SqlglotError
    from sqlglot.optimizer.scope import traverse_scope

    everything = [column for given in inputs.values() for column in given or ()]
    if text.tree is None:
        return QueryFacts((with_backticks(text.fault, text, tuple(everything)),) if text.fault else (), (), None)
    try:
        scopes = traverse_scope(text.tree)
    except SqlglotError:  # a duplicate alias or the like: Spark reports it
        return QueryFacts((), tuple(inputs), None)
    reader = _Reader({word: (name, columns) for name, columns in inputs.items() for word in table_names(name)})
    for scope in scopes:  # inner ones first
        reader.read(scope)
    columns = reader.given.get(id(scopes[-1])) if scopes else None
    names = Counter(column.name for column in everything)
    known = tuple(column for column in everything if names[column.name] == 1)
    faults = tuple(with_backticks(fault, text, tuple(everything)) for fault in reader.faults)
    return QueryFacts(faults, tuple(dict.fromkeys(reader.tables)), columns, known)


class _Reader:
    def __init__(self, inputs: dict[str, tuple[str, Columns | None]]) -> None:
        self._inputs = inputs
        self.faults: list[SqlFault] = []
        self.tables: list[str] = []
        self.given: dict[int, Columns | None] = {}
        """id of a scope → its columns"""
        self._told: set[int] = set()

    def read(self, scope: Scope) -> None:
        from sqlglot import exp

        sources = {name: self._columns_of(source) for name, source in scope.sources.items() if self._visible(scope, name)}
        match scope.expression:
            case exp.SetOperation():
                self.given[id(scope)] = self._set_operation(scope)
            case exp.Select() as select:
                self._check_columns(scope, select, sources)
                self.faults += implicit_casts(select, lambda column: _type(_resolve(column, sources)))
                self.given[id(scope)] = self._select(select, sources)
            case _:
                pass

    def _visible(self, scope: Scope, name: str) -> bool:
        """True if the scope reads that source: the names of CTEs are sources of every scope."""
        return name in scope.selected_sources

    def _columns_of(self, source: exp.Table | Scope) -> Columns | None:
        from sqlglot import exp

        if not isinstance(source, exp.Table):
            return self.given.get(id(source))
        if not isinstance(source.this, exp.Identifier):  # explode(…), range(…), VALUES
            return None
        name = table_reference(source)
        known = self._inputs.get(name)
        if known is not None:
            self.tables.append(known[0])
            return _renamed(known[1], source)
        if id(source) not in self._told:
            self._told.add(id(source))
            remedy = did_you_mean(name, self._inputs) or f"the step's inputs are {', '.join(self._inputs)}; add it to `from:`"
            self.faults.append(
                SqlFault(
                    "sql-input-unknown", start_of(source) or 0, f'the query reads "{name}", which is not in the step\'s `from:`', remedy
                )
            )
        return None

    def _check_columns(self, scope: Scope, select: exp.Select, sources: Mapping[str, Columns | None]) -> None:
        from sqlglot import exp

        if (
            any(columns is None for columns in sources.values())
            or select.args.get("laterals")
            or scope.is_correlated_subquery
            or not sources
        ):
            return
        if scope.parent is not None and not (scope.is_cte or scope.is_derived_table or scope.is_set_operation):
            return  # a subquery in an expression may refer to the outer query's columns
        aliases = {projection.alias for projection in select.expressions if projection.alias}
        aliases |= {call.name.lower() for call in select.find_all(exp.Anonymous) if call.name.lower() in WINDOW_FUNCTIONS}  # like Spark
        everything = tuple(column for columns in sources.values() for column in columns or ())
        for column in self._own_columns(select):
            parts = [part.name for part in column.parts]
            if isinstance(column.this, exp.Star) or _branch_qualified(parts, sources):
                continue
            if len(parts) > 1 and parts[0] in sources:
                if find(sources[parts[0]] or (), parts[1]) is None:
                    self.faults.append(_unknown_column(column, parts[1], sources[parts[0]] or (), parts[0]))
            elif find(everything, parts[0]) is None and parts[0] not in aliases:
                where = " and ".join(sources)
                self.faults.append(_unknown_column(column, parts[0], everything, where))

    def _own_columns(self, select: exp.Select) -> Iterator[exp.Column]:
        """The columns of a query, without those of the queries inside it."""
        from sqlglot import exp

        for node in select.walk(bfs=False, prune=lambda node: node is not select and isinstance(node, exp.Query)):
            if isinstance(node, exp.Column):
                yield node

    def _set_operation(self, scope: Scope) -> Columns | None:
        sides = [self.given.get(id(side)) for side in scope.set_operation_scopes]
        left, right = sides if len(sides) == 2 else (None, None)
        if left is None or right is None or len(left) != len(right):
            return None
        for one, other in zip(left, right, strict=True):
            fault = union_fault(scope.expression.expression, other.name, one.type, other.type) if one.type and other.type else None
            self.faults += [] if fault is None else [fault]
        return tuple(
            Column(one.name, one.type if one.type == other.type else None, one.nullable or other.nullable)
            for one, other in zip(left, right, strict=True)
        )

    def _select(self, select: exp.Select, sources: Mapping[str, Columns | None]) -> Columns | None:
        from sqlglot import exp

        outer = any(join.side or join.method for join in select.args.get("joins") or [])
        merged = any(join.args.get("using") for join in select.args.get("joins") or [])
        given: list[Column] = []
        for projection in select.expressions:
            if isinstance(projection, exp.Star) or (isinstance(projection, exp.Column) and isinstance(projection.this, exp.Star)):
                star = _expand(projection, sources)
                if star is None or merged or outer or select.args.get("laterals"):
                    return None
                given += star
            elif not projection.alias and not isinstance(projection, exp.Column):
                return None  # Spark generates a name
            else:
                name = projection.alias or projection.name
                plain = None if outer else _resolve(projection.unalias(), sources)
                given.append(
                    Column(name, plain.type, plain.nullable)
                    if plain
                    else Column(name, expression_type(projection, lambda column: _type(_resolve(column, sources))))
                )
        return tuple(given)


def _type(column: Column | None) -> Type | None:
    return column.type if column else None


def _renamed(columns: Columns | None, table: exp.Table) -> Columns | None:
    """The columns with the names of `FROM t AS u(a, b)`."""
    alias = table.args.get("alias")
    names = [column.name for column in alias.columns] if alias else []
    if not names or columns is None:
        return columns
    return tuple(Column(name, column.type, column.nullable) for name, column in zip(names, columns, strict=False))


def _resolve(column: exp.Expr, sources: Mapping[str, Columns | None]) -> Column | None:
    """The source column of a plain reference, if there is exactly one."""
    from sqlglot import exp

    if not isinstance(column, exp.Column):
        return None
    parts = [part.name for part in column.parts]
    if len(parts) == 2 and parts[0] in sources:
        return find(sources[parts[0]] or (), parts[1])
    if len(parts) != 1 or any(columns is None for columns in sources.values()):
        return None
    found = [hit for columns in sources.values() if (hit := find(columns or (), parts[0]))]
    return found[0] if len(found) == 1 else None


def _expand(star: exp.Expr, sources: Mapping[str, Columns | None]) -> list[Column] | None:
    """The columns of `*`, `t.*` and `* EXCEPT (…)`; None if they are unknown."""
    from sqlglot import exp

    inner = star.this if isinstance(star, exp.Column) else star
    if inner.args.get("replace") or inner.args.get("rename"):
        return None
    wanted = [star.table] if isinstance(star, exp.Column) and star.table else list(sources)
    left_out = {column.name for column in inner.args.get("except_") or []}
    columns: list[Column] = []
    for name in wanted:
        of_source = sources.get(name)
        if of_source is None:
            return None
        columns += [column for column in of_source if column.name not in left_out]
    return columns


def _branch_qualified(parts: list[str], sources: Mapping[str, Columns | None]) -> bool:
    """True for `r.big.id` if `r.big` is an input; sqlglot names that source by its last part."""
    return len(parts) > 2 and parts[1] in sources


def _first_part(column: exp.Column) -> str:
    return str(column.parts[0].name)


def _unknown_column(column: exp.Column, name: str, columns: Columns, of: str) -> SqlFault:
    from sqlglot import exp

    known = [known.name for known in columns]
    some = ", ".join(known[:12]) + (", …" if len(known) > 12 else "")
    compared = isinstance(column.parent, exp.EQ | exp.NEQ | exp.In) and not column.table
    text = f"for a text, write '{name}'; otherwise " if compared else ""
    remedy = did_you_mean(name, known) or f"{text}its columns are {some}"
    if name == "_metadata":
        remedy = "to get the origin of a row as columns, write at the source: metadata: [file, line]"
    part = next(part for part in column.parts if part.name == name)
    return SqlFault("column-unknown", start_of(part) or 0, f'unknown column "{name}" of {of}', remedy)
