"""The Python form of a flow: `source(…).filter(…).map(f).to(…)`, and `Flow(name, sink, …)`.

Every call records the keys of a flow file and its own line. `build_flow` writes them as a flow file and reads it with the parser. So both
forms have one set of rules, and `parse(dump(flow)) == flow` by construction. Texts have the same meaning as in the file.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from scribengin.core.errors import InputError
from scribengin.core.problems import Place, Problem
from scribengin.core.secret import Secret
from scribengin.core.types import Schema
from scribengin.core.units import show_duration_exactly
from scribengin.spec.call_sites import caller, data_folder
from scribengin.spec.model import Flow, Python, Step, Utilities
from scribengin.spec.parse import Parsed, parse_flow
from scribengin.spec.yaml_text import write_yaml

if TYPE_CHECKING:
    from typing import Unpack

    from scribengin.core.options import NodeType
    from scribengin.spec.model import Flow


# Converts Python values to the plain data of a flow file.


def plain(value: Any) -> Any:
    """The value as texts, numbers, booleans, lists and mappings; a path, a timedelta, a Schema or a Secret becomes its text in a flow file.

    >>> from datetime import timedelta
    >>> plain({"within": timedelta(minutes=10), "key": ("id",)})
    {'within': '10m', 'key': ['id']}
    """
    match value:
        case None | bool() | int() | float() | str():
            return value
        case timedelta():
            return show_duration_exactly(value.total_seconds())
        case PurePath() | Schema():
            return str(value)
        case Secret():
            return value.reference
        case Mapping():
            return {str(key): plain(item) for key, item in value.items()}
        case Sequence():
            return [plain(item) for item in value]
        case _:
            raise TypeError(f"a flow cannot hold {value!r}, a {type(value).__name__}")


Function = Callable[..., Any] | str
Texts = str | Sequence[str]


class Common(TypedDict, total=False):
    """The keys that every step can have besides its operation, as in the flow file. `id` is its name; the default is a stable generated
    name."""

    id: str
    require: Mapping[str, str]
    on_error: str
    late: str
    watermark: str | Mapping[str, Any]


_COMMON = (*Common.__annotations__, "emit")


@dataclass(eq=False, slots=True)
class _Names:
    """Generates ids for nodes without one: `<source>_<operation>`, with a number from the second on. All steps of one source share it."""

    root: str
    given: dict[str, int] = field(default_factory=dict)

    def derive(self, operation: str) -> str:
        name = f"{self.root}_{operation}"[:60]
        self.given[name] = self.given.get(name, 0) + 1
        return name if self.given[name] == 1 else f"{name}_{self.given[name]}"


@dataclass(eq=False, slots=True)
class _Node:
    """A declared node, with the data that a flow file would have for it."""

    section: str
    id: str
    data: dict[str, Any]
    inputs: tuple[Stream, ...]
    names: _Names
    place: Place
    functions: tuple[Callable[..., Any] | None, ...] = ()
    sinks: list[_Node] = field(default_factory=list)


class Stream:
    """The rows of a source or step. Each method adds one step and returns its rows; the stream itself does not change."""

    def __init__(self, node: _Node, branch: str = "") -> None:
        self._node = node
        self._branch = branch

    @property
    def id(self) -> str:
        """The name of these rows in `from` and in SQL."""
        return f"{self._node.id}.{self._branch}" if self._branch else self._node.id

    def __getitem__(self, branch: str) -> Stream:
        """The rows of one branch of a route, or of a function that returns `to("branch", row)`."""
        return Stream(self._node, branch)

    def filter(self, predicate: str, **common: Unpack[Common]) -> Stream:
        """Keep the rows for which the SQL predicate is true."""
        return self._step("filter", predicate, common)

    def select(self, *columns: str, named: Mapping[str, str] | None = None, **common: Unpack[Common]) -> Stream:
        """Keep and compute columns: `select("id", "upper(user) AS who")`, or `select(named={"who": "upper(user)"})`."""
        return self._step("select", dict(named) if named is not None else list(columns), common)

    def sql(self, query: str, *others: Stream, emit: str | None = None, **common: Unpack[Common]) -> Stream:
        """Apply a Spark SQL query to this stream and others; each is a table named by its id."""
        return self._step("sql", query, {**common, **_given(emit=emit)}, others=others)

    def map(self, function: Function, *, schema: str | Schema | None = None, **common: Unpack[Common]) -> Stream:
        """Apply a record function: a dict in; a dict, True, False, None or a list out."""
        return self._python(function, {}, {**common, **_given(schema=schema)})

    def python(
        self,
        function: Function,
        *,
        branches: Texts = (),
        time_limit: str | timedelta | None = None,
        schema: str | Schema | None = None,
        **common: Unpack[Common],
    ) -> Stream:
        """Apply a function of any form (`@record`, `@batch`, `@frame`, a class), given as an object or as `module:name`."""
        long = _given(branches=branches or None, time_limit=time_limit)
        return self._python(function, long, {**common, **_given(schema=schema)})

    def utilities(
        self,
        *functions: Function,
        order: str | None = None,
        schema: str | Schema | None = None,
        **common: Unpack[Common],
    ) -> Stream:
        """Apply a sequence of Python functions as one step. With `order="free"` they are tests (`-> bool`) and run in the cheapest
        order."""
        references = [_reference_of(function) for function in functions]
        stream = self._step("utilities", references, {**common, **_given(order=order, schema=schema)})
        stream._node.functions = tuple(None if isinstance(function, str) else function for function in functions)
        return stream

    def parse(
        self,
        column: str,
        *,
        format: str = "json",
        schema: str | Schema,
        delimiter: str | None = None,
        null: str | Sequence[str] | None = None,
        quote: str | None = None,
        escape: str | None = None,
        quoted_null: str | None = None,
        trim: bool | None = None,
        extra_cells: str | None = None,
        encoding: str | None = None,
        time: Literal["exact", "truncate"] | None = None,
        **common: Unpack[Common],
    ) -> Stream:
        """Parse a text column; its fields replace it. `delimiter` to `encoding` are for csv; `time="truncate"` cuts off decimals beyond
        microseconds."""
        cells = _given(
            delimiter=delimiter,
            null=null if null is None or isinstance(null, str) else list(null),
            quote=quote,
            escape=escape,
            quoted_null=quoted_null,
            trim=trim,
            extra_cells=extra_cells,
            encoding=encoding,
        )
        return self._step("parse", {"column": column, "format": format, "schema": schema, **cells, **_given(time=time)}, common)

    def route(self, cases: Mapping[str, str] | None = None, *, otherwise: str | None = None, **more: Any) -> Stream:
        """Split the rows by predicates; the first that is true decides. `routed["big"]` are the rows of one branch.

        `more` has further cases, and `id`, `require`, `on_error`, `watermark`; a branch of such a name goes into `cases`.
        """
        common, named = _parted(more)
        return self._step("route", {**(cases or {}), **named, **_given(otherwise=otherwise)}, common)

    def dedupe(self, *key: str, time: str | None = None, within: str | timedelta | None = None, **common: Unpack[Common]) -> Stream:
        """Keep the first row of each key."""
        return self._step("dedupe", _given(key=list(key), time=time, within=within), common)

    def join(
        self,
        other: Stream,
        *,
        key: Texts,
        how: str | None = None,
        time: tuple[str, str] | Mapping[str, str] | None = None,
        within: str | timedelta | None = None,
        **common: Unpack[Common],
    ) -> Stream:
        """Join with another stream; this one is the left one. `time` names both time columns: `("ts", "at")`."""
        columns = dict(zip((self.id, other.id), time, strict=True)) if isinstance(time, tuple) else time
        return self._step("join", _given(key=key, how=how, time=columns, within=within), common, others=(other,))

    def merge(
        self,
        *others: Stream,
        how: str | None = None,
        key: Texts | None = None,
        time: str | None = None,
        within: str | timedelta | None = None,
        origin: str | None = None,
        **common: Unpack[Common],
    ) -> Stream:
        """The union by name with other streams, or the rows whose key all of them have (`how="intersect"`)."""
        return self._step("merge", _given(how=how or "union", key=key, time=time, within=within, origin=origin), common, others=others)

    def group_by(self, *columns: str) -> Grouped:
        """Begin an aggregation: `.group_by("user").window("ts", size="1h").agg(n="count(*)")`."""
        return Grouped(self, columns)

    def to(
        self,
        type: str,
        *others: Stream,
        id: str | None = None,
        together: str | None = None,
        trigger: str | timedelta | None = None,
        delivery: str | None = None,
        to: str | None = None,
        **options: Any,
    ) -> Output:
        """Write the rows (with those of `others`, as a union) to a sink of that type; pass the result to `Flow(…)`."""
        data = {"type": type, **options, **_given(together=together, trigger=trigger, delivery=delivery, to=to)}
        inputs = (self, *others)
        node = _Node("sinks", id or f"{self._node.id}_{type}", data, inputs, self._node.names, caller())
        for stream in inputs:
            stream._node.sinks.append(node)
        return Output(node)

    def _python(self, function: Function, long: dict[str, Any], common: Mapping[str, Any]) -> Stream:
        reference = _reference_of(function)
        value = {"function": reference, **long} if long else reference
        stream = self._step("python", value, common, name=reference.rpartition(":")[2].rpartition(".")[2].lower())
        stream._node.functions = (None if isinstance(function, str) else function,)
        return stream

    def _step(self, operation: str, value: Any, common: Mapping[str, Any], *, others: tuple[Stream, ...] = (), name: str = "") -> Stream:
        data = {operation: value, **{key: item for key, item in common.items() if key != "id"}}
        names = self._node.names
        id_ = common.get("id") or names.derive(name or operation)
        return Stream(_Node("steps", id_, data, (self, *others), names, caller()))


class Grouped:
    """An aggregation that is being built; `agg` completes it."""

    def __init__(self, stream: Stream, columns: tuple[str, ...], window: Mapping[str, Any] | None = None) -> None:
        self._stream = stream
        self._columns = columns
        self._window = window

    def window(self, time: str, *, size: str | timedelta, slide: str | timedelta | None = None, time_zone: str | None = None) -> Grouped:
        """Also group by time windows."""
        return Grouped(self._stream, self._columns, _given(time=time, size=size, slide=slide, time_zone=time_zone))

    def agg(self, columns: Mapping[str, str] | None = None, /, **more: Any) -> Stream:
        """Compute columns of each group: `agg(n="count(*)", id="by_user")`.

        `more` has further columns, and `id`, `emit`, `late`, `require`, `on_error`, `watermark`; a column of such a name goes into
        `columns`.
        """
        common, named = _parted(more)
        value = _given(by=list(self._columns) or None, window=self._window)
        return self._stream._step("aggregate", value | {"columns": {**(columns or {}), **named}}, common)


@dataclass(frozen=True, slots=True)
class Output:
    """A sink; pass it to `Flow(…)`."""

    node: _Node


def make_source(type: str, *, id: str | None = None, **keys: Any) -> Stream:
    """A source of that type. `keys` are its options, and `schema`, `watermark`, `static`, `on_error`, `high_water`, `low_water`,
    `capacity`."""
    name = id or type
    return Stream(_Node("sources", name, {"type": type, **keys}, (), _Names(name), caller()))


def build_flow(
    name: str,
    *sinks: Output,
    about: str = "",
    defaults: Mapping[str, Any] | None = None,
    tiers: Mapping[str, Any] | None = None,
    edges: Mapping[str, Any] | None = None,
    groups: Mapping[str, Any] | None = None,
    max_delay: str | None = None,
    max_dead: str | int | Mapping[str, Any] | None = None,
    alerts: Mapping[str, Any] | None = None,
    labels: Mapping[str, str] | None = None,
    tests: Sequence[Mapping[str, Any] | str] = (),
    source_types: Mapping[str, NodeType],
    sink_types: Mapping[str, NodeType],
    environment: Mapping[str, str],
) -> Flow:
    """Build the Flow of these sinks. Its folder is the folder of the calling file, unless `call_sites.data_in` sets another.

    Raises:
        InputError: It holds every Problem, at its call.
    """
    place = caller()
    nodes = _all_nodes([output.node for output in sinks])
    problems = [*_twice(nodes), *_left_out(nodes)]
    if problems:
        raise InputError(problems)
    data: dict[str, Any] = {"version": 1, "name": name, **_given(about=about or None, defaults=dict(defaults) if defaults else None)}
    data |= _given(labels=dict(labels) if labels else None)
    for section in ("sources", "steps", "sinks"):
        members = {node.id: _data(node) for node in nodes if node.section == section}
        data |= {section: members} if members else {}
    data |= _given(tiers=tiers or None, edges=edges or None, groups=groups or None, max_delay=max_delay, alerts=alerts or None)
    data |= _given(max_dead=dict(max_dead) if isinstance(max_dead, Mapping) else max_dead)
    data |= _given(tests=list(tests) or None)
    text = write_yaml(plain(data))
    own = Path(place.file).resolve().parent if Path(place.file).exists() else Path.cwd()
    base = data_folder()
    folder, code = (own, None) if base is None else (base.resolve(), own)
    types = {"source_types": source_types, "sink_types": sink_types}
    parsed = parse_flow(text, place.file, folder=folder, code=code, environment=environment, **types)
    if not parsed.ok or parsed.flow is None:
        raise InputError([_at_call(problem, parsed, nodes, place) for problem in parsed.problems if problem.severity == "error"])
    functions = {node.id: node.functions for node in nodes if any(node.functions)}
    steps = {step.id: _with_functions(step, functions.get(step.id, ())) for step in parsed.flow.steps.values()}
    return replace(parsed.flow, steps=steps, calls={node.id: node.place for node in nodes})


def _parted(more: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split keyword arguments into (keys of the step, the rest)."""
    return {name: more[name] for name in more if name in _COMMON}, {name: more[name] for name in more if name not in _COMMON}


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _data(node: _Node) -> dict[str, Any]:
    names = [stream.id for stream in node.inputs]
    return ({"from": names[0] if len(names) == 1 else names} if names else {}) | node.data


def _with_functions(step: Step, functions: tuple[Callable[..., Any] | None, ...]) -> Step:
    match step.action:
        case Python() as action if functions:
            return replace(step, action=replace(action, function=functions[0]))
        case Utilities() as action if functions:
            return replace(step, action=replace(action, functions=functions))
        case _:
            return step


def _all_nodes(sinks: list[_Node]) -> list[_Node]:
    """Every node upstream of a sink, each after its inputs, in the order of the sinks."""
    found: dict[int, _Node] = {}
    waiting = list(reversed(sinks))
    while waiting:
        node = waiting[-1]
        before = [stream._node for stream in node.inputs if id(stream._node) not in found]
        if before:
            waiting += reversed(before)
        else:
            found.setdefault(id(node), node)
            waiting.pop()
    return list(found.values())


def _twice(nodes: list[_Node]) -> list[Problem]:
    first: dict[str, _Node] = {}
    problems = []
    for node in nodes:
        if node.id in first:
            message = f'two nodes have the id "{node.id}"; the other one is in line {first[node.id].place.line}'
            problems.append(Problem("id-twice", node.place, message, "give one of them another id="))
        first.setdefault(node.id, node)
    return problems


def _left_out(nodes: list[_Node]) -> list[Problem]:
    here = {id(node) for node in nodes}
    left_out = {id(sink): sink for node in nodes for sink in node.sinks if id(sink) not in here}
    return [
        Problem("sink-left-out", sink.place, f'sink "{sink.id}" is not part of the flow', "pass it to Flow(…) with the other sinks")
        for sink in left_out.values()
    ]


def _at_call(problem: Problem, parsed: Parsed, nodes: list[_Node], whole: Place) -> Problem:
    """The problem with its place in the written flow file replaced by that of the call that made the node there."""
    starts = sorted((parsed.places.key((node.section, node.id)).line, index) for index, node in enumerate(nodes))
    sections = {
        parsed.places.key((section,)).line for section in ("sources", "steps", "sinks", "tiers", "edges", "groups", "alerts", "tests")
    }
    above = [(line, index) for line, index in starts if line <= problem.place.line]
    inside = above and not any(above[-1][0] < line <= problem.place.line for line in sections)
    return replace(problem, place=nodes[above[-1][1]].place if inside else whole)


def _reference_of(function: Function) -> str:
    return function if isinstance(function, str) else _reference(function, caller())


def _reference(function: Callable[..., Any], place: Place) -> str:
    """`module:name` of a function or class, by which executors and a restarted flow find it."""
    name = getattr(function, "__qualname__", "")
    module = getattr(function, "__module__", "")
    if not name or not module or "<" in name:
        what = "a lambda" if "<lambda>" in name else "a function inside another" if "<" in name else f"a {type(function).__name__}"
        remedy = "define a function (or a class) at the top level of a module, so that executors find it by its name"
        raise InputError([Problem("function-nameless", place, f"{what} cannot be imported by name", remedy)])
    if module == "__main__":
        main = getattr(sys.modules["__main__"], "__file__", None)
        module = Path(main).stem if main else module
    return f"{module}:{name}"


# The short Python form: an application is a source, an ordered list of Python steps, and a sink.


STEP = "utilities"
"""the id of the one step of an app: the ledger names its utilities `utilities.f`"""


def build_app(
    name: str,
    source: Stream,
    utilities: Sequence[Function],
    sink: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    *,
    order: str | None,
    schema: Any,
    on_error: str | None,
    **rest: Any,
) -> Flow:
    """Build the Flow of an app.

    Args:
        name: The name of the flow.
        source: Its source.
        utilities: The functions of its step; empty: no step.
        sink: The keys of a sink in a flow file; or a list of these, for sinks that all receive the same rows.
        order: The `order` of the step.
        schema: The `schema` of the step.
        on_error: The `on_error` of the step.
        rest: See `build_flow`.

    Raises:
        InputError: A part is invalid.
    """
    place = caller()
    if not isinstance(source, Stream):
        raise InputError([Problem("app-part", place, f"the app's source is {_kind(source)}", 'write source("files", path="data", …)')])
    if not isinstance(utilities, list | tuple):
        raise InputError([Problem("app-part", place, f"the app's utilities are {_kind(utilities)}", "write a list: utilities=[tagged]")])
    rows = source
    given: dict[str, Any] = {key: value for key, value in (("order", order), ("schema", schema), ("on_error", on_error)) if value}
    if given and not utilities:
        raise InputError([Problem("app-part", place, f"the app has {', '.join(given)} but no utilities", "add utilities, or leave it out")])
    if utilities:
        rows = source.utilities(*utilities, id=STEP, **given)
    sinks = sink if isinstance(sink, list | tuple) else [sink]
    return build_flow(name, *(_output(rows, each, place, number) for number, each in enumerate(sinks, 1)), **rest)


def _output(rows: Stream, sink: Any, place: Any, number: int) -> Output:
    if not isinstance(sink, Mapping) or "type" not in sink:
        raise InputError([Problem("app-part", place, f"the app's sink is {_kind(sink)}", 'write sink("files", path="out", format="json")')])
    return rows.to(**{"id": "kept" if number == 1 else f"kept_{number}", **sink})


def _kind(value: object) -> str:
    return f"a {type(value).__name__}" + (" without a type" if isinstance(value, Mapping) else "")
