"""Derives for every node, without Spark: its columns, its watermarks, whether it is a stream and whether it keeps state.

Works on flows with errors: unknown values are None or empty, so that every rule can still run.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, assert_never

from scribengin.connectors import catalog
from scribengin.core.types import Schema, Type
from scribengin.plan.columns import Column, Columns, columns_of, find, schema_of
from scribengin.plan.graph import base
from scribengin.plan.sql.names import expression_result, read_query
from scribengin.plan.sql.parse import parse_expression, parse_query
from scribengin.plan.sql.shape import QueryShape, shape_of
from scribengin.spec.model import Aggregate, Dedupe, Filter, Join, Merge, Parse, Python, Route, Select, Sink, Source, Sql, Step, Utilities

if TYPE_CHECKING:
    from scribengin.plan.graph import Graph
    from scribengin.spec.model import Watermark

WINDOW_COLUMNS = (Column("window_start", Type("TIMESTAMP")), Column("window_end", Type("TIMESTAMP")))


@dataclass(frozen=True, slots=True)
class Inherited:
    """A watermark that reaches a node: `column` is `delay_s` behind the newest time of `origin`."""

    column: str
    delay_s: float
    origin: str
    ahead_s: float | None = None
    idle_s: float | None = None

    @staticmethod
    def of(watermark: Watermark, origin: str) -> Inherited:
        """The watermark that `origin` declares."""
        return Inherited(watermark.column, watermark.delay_s, origin, watermark.ahead_s, watermark.idle_s)


@dataclass
class Resolved:
    """What is known of each node, by its id."""

    columns: dict[str, Columns | None] = field(default_factory=dict)
    watermarks: dict[str, tuple[Inherited, ...]] = field(default_factory=dict)
    static: set[str] = field(default_factory=set)
    """nodes without a streaming source"""
    stateful: set[str] = field(default_factory=set)

    def of(self, reference: str) -> Columns | None:
        """The columns of `a` or `r.big`; None if unknown."""
        return self.columns.get(base(reference))

    def schema(self, reference: str) -> Schema | None:
        """The Schema of a node whose columns and types are all known; else None."""
        return schema_of(self.of(reference))

    def reaching(self, step: Step) -> tuple[Inherited, ...]:
        """The watermarks of the step's inputs."""
        return tuple(dict.fromkeys(mark for reference in step.inputs for mark in self.watermarks.get(base(reference), ())))

    def streams(self, step: Step) -> tuple[str, ...]:
        """The inputs that are streams, in order."""
        return tuple(reference for reference in step.inputs if base(reference) not in self.static)


def slowest(marks: tuple[Inherited, ...]) -> Inherited | None:
    """The watermark in force for several inputs: the slowest one; None if there are none."""
    return max(marks, key=lambda mark: mark.delay_s, default=None)


def sql_shape(step: Step, resolved: Resolved) -> QueryShape:
    """What the query of a `sql` step does to the streams that it reads."""
    assert isinstance(step.action, Sql)
    return shape_of(step.action.text, frozenset(resolved.streams(step)))


def resolve(graph: Graph) -> Resolved:
    """Resolve all nodes in one pass down the stream."""
    resolved = Resolved()
    for id_ in graph.order:
        node = graph.nodes[id_]
        match node:
            case Source():
                resolved.columns[id_] = source_columns(node)
                resolved.watermarks[id_] = (Inherited.of(node.watermark, id_),) if node.watermark and not node.static else ()
                if node.static:
                    resolved.static.add(id_)
            case Step():
                if graph.parents[id_] and all(parent in resolved.static for parent in graph.parents[id_]):
                    resolved.static.add(id_)
                if is_stateful(node, resolved):
                    resolved.stateful.add(id_)
                resolved.columns[id_] = _step_columns(node, resolved)
                resolved.watermarks[id_] = _step_watermarks(node, resolved)
            case Sink():
                resolved.columns[id_] = union_columns([resolved.of(reference) for reference in node.inputs])
            case _:
                assert_never(node)
    return resolved


def is_stateful(step: Step, resolved: Resolved) -> bool:
    """True if Spark keeps state for this step between Batches. The step's inputs must have been resolved."""
    streams = resolved.streams(step)
    if not streams:
        return False
    match step.action:
        case Aggregate() | Dedupe():
            return True
        case Join():
            return len(streams) > 1
        case Merge(how):
            return how == "intersect"
        case Sql():
            return sql_shape(step, resolved).stateful
        case _:
            return False


def source_columns(source: Source) -> Columns | None:
    """The columns of a source, from its declaration, or from what every source of its type has; None if unknown."""
    if source.schema is not None:
        return columns_of(source.schema.fields)
    declared = catalog.source_types(internal=True).get(source.type)
    if declared is not None and declared.fixed_columns is not None:
        return columns_of(declared.fixed_columns)
    if source.options.get("format") == "text":
        return (Column("value", Type("STRING")),)
    return None


def union_columns(inputs: list[Columns | None]) -> Columns | None:
    """The common columns by name, in the first input's order, without a type if the types differ; None if an input is unknown."""
    first = inputs[0] if inputs else None
    if first is None or any(columns is None for columns in inputs):
        return None
    return tuple(_common(column, [find(columns or (), column.name) for columns in inputs]) for column in first)


def _with_origin(columns: Columns | None, origin: str | None) -> Columns | None:
    """The columns with the column that names the input of a row, at the end."""
    return columns if columns is None or origin is None else (*columns, Column(origin, Type("STRING"), nullable=False))


def _common(column: Column, same: list[Column | None]) -> Column:
    types = {one.type if one else None for one in same}
    nullable = any(one is None or one.nullable for one in same)
    return Column(column.name, column.type if len(types) == 1 else None, nullable)


def _step_columns(step: Step, resolved: Resolved) -> Columns | None:
    if step.schema is not None:
        return columns_of(step.schema.fields)
    inputs = [resolved.of(reference) for reference in step.inputs]
    first = inputs[0] if inputs else None
    match step.action:
        case Filter() | Route() | Dedupe() | Python() | Utilities():
            return first
        case Merge(how, origin=origin):
            return _with_origin(union_columns(inputs), origin) if how == "union" else first
        case Select(columns):
            return tuple(expression_column(name, expression, first) for name, expression in columns)
        case Aggregate():
            return _aggregate_columns(step.action, first)
        case Sql(text):
            given = dict(zip(step.inputs, inputs, strict=True))
            return read_query(parse_query(text), given).columns
        case Parse(column, _, schema):
            others = None if first is None else tuple(one for one in first if one.name != column and one.name not in schema)
            return None if others is None else (*others, *columns_of(schema))
        case Join():
            return _join_columns(step.action, inputs)
        case _:
            assert_never(step.action)


def expression_column(name: str, expression: str, columns: Columns | None) -> Column:
    """The column that an expression over one input makes; a plain reference keeps type and nullability."""
    plain = find(columns or (), expression.strip().strip("`"))
    if plain is not None:
        return Column(name, plain.type, plain.nullable)
    return Column(name, expression_result(parse_expression(expression), columns))


def _aggregate_columns(action: Aggregate, columns: Columns | None) -> Columns | None:
    keys = [find(columns or (), name) for name in action.by]
    if columns is not None and None in keys:
        return None  # it is unknown which name was meant, and readers of the step may have it right
    return (
        *(WINDOW_COLUMNS if action.window else ()),
        *(Column(name, key.type if key else None, key.nullable if key else True) for name, key in zip(action.by, keys, strict=True)),
        *(expression_column(name, expression, columns) for name, expression in action.columns),
    )


def _join_columns(action: Join, inputs: list[Columns | None]) -> Columns | None:
    left, right = inputs if len(inputs) == 2 else (None, None)
    if left is None or right is None:
        return None
    if action.how == "semi":
        return left
    found = [(find(left, name), find(right, name)) for name in action.key]
    keys = [mine for mine, other in found if mine is not None and other is not None]
    if len(keys) < len(action.key):
        return None
    loose_left = action.how in ("right", "full")
    loose_right = action.how in ("left", "full")
    return (
        *keys,
        *(Column(c.name, c.type, c.nullable or loose_left) for c in left if c.name not in action.key),
        *(Column(c.name, c.type, c.nullable or loose_right) for c in right if c.name not in action.key),
    )


def _step_watermarks(step: Step, resolved: Resolved) -> tuple[Inherited, ...]:
    own = (Inherited.of(step.watermark, step.id),) if step.watermark else ()
    if step.id in resolved.static:
        return ()
    columns = resolved.columns.get(step.id)
    inherited = resolved.reaching(step)
    match step.action:
        case Aggregate(window=window) if window is not None:
            inherited = tuple(replace(mark, column="window_end") for mark in inherited if mark.column == window.time)
        case Select(pairs):
            inherited = _renamed(inherited, {expression.strip(): name for name, expression in pairs})
        case Sql() if columns is not None and step.id in resolved.stateful:
            return own or tuple(mark for mark in inherited if mark.column in {column.name for column in columns})
        case _:
            pass
    if own:
        return own
    return tuple(mark for mark in inherited if columns is None or find(columns, mark.column))


def _renamed(marks: tuple[Inherited, ...], names: dict[str, str]) -> tuple[Inherited, ...]:
    return tuple(replace(mark, column=names[mark.column]) for mark in marks if mark.column in names)
