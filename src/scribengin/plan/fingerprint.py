"""Fingerprints: SHA-256 over canonical JSON of everything that a Batch's rows, or the meaning of a state, depend on."""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scribengin.core.types import Schema
from scribengin.plan.graph import Graph, base, inputs_of
from scribengin.plan.python_functions import find_module
from scribengin.spec.model import Defaults, Filter, Python, Route, Sink, Source, Sql, Step, Utilities

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from scribengin.core.options import NodeType
    from scribengin.plan.resolve import Resolved
    from scribengin.spec.model import Flow

_WATERS = ("high_water", "low_water", "capacity")
"""fields of a source that affect other sources (back-pressure)"""
_LATER = ("origin", "to", "cells", "ahead_s", "idle_s", "late", *_WATERS)
"""fields added in later versions: they are left out if not set, so that older stored fingerprints stay equal"""


def node_fingerprints(
    flow: Flow, graph: Graph, members: Iterable[str], source_types: Mapping[str, NodeType], sink_types: Mapping[str, NodeType]
) -> dict[str, str]:
    """Node → fingerprint of its definition, the text of the user's modules included.

    Rates and intervals of sources are left out, because the input of a Batch is logged before it is read; so are write rates of
    sinks.
    """
    parts: dict[str, Any] = {}
    for id_ in members:
        node = graph.nodes[id_]
        match node:
            case Source():
                parts[id_] = _source_part(flow, node, source_types)
            case Step():
                late = [flow.late(node)] if flow.late(node) != Defaults().late else []
                parts[id_] = [_plain(replace(node, late=None)), flow.on_error(node), *_python_texts(flow, node), *late]
            case Sink():
                own = {"options": _plain(_without_pace(node, sink_types)), "trigger_s": None}
                parts[id_] = [_plain(node) | own, node.delivery or flow.defaults.delivery]
    return {id_: _digest(part) for id_, part in parts.items()}


def renamed_source(flow: Flow, source: str, earlier: Mapping[str, str], source_types: Mapping[str, NodeType]) -> str:
    """The id of an earlier source with the same definition under another name; empty if there is none. `earlier`: source → fingerprint."""
    for id_, fingerprint in earlier.items():
        if _digest(_source_part(flow, replace(flow.sources[source], id=id_), source_types)) == fingerprint:
            return id_
    return ""


def _source_part(flow: Flow, node: Source, types: Mapping[str, NodeType]) -> list[Any]:
    dry = replace(node, high_water=None, low_water=None, capacity=None)
    return [_plain(dry) | {"options": _plain(_without_pace(node, types))}, flow.on_error(node)]


def _without_pace(node: Source | Sink, types: Mapping[str, NodeType]) -> dict[str, Any]:
    """The options without those for batch sizes and rates."""
    pace = {option.name for option in types[node.type].options if option.pace} if node.type in types else set()
    return {name: value for name, value in node.options.items() if name not in pace}


def query_fingerprint(parts: Mapping[str, str]) -> str:
    """The fingerprint of a query: it changes when anything changes that a Batch's rows depend on. `parts`: see `node_fingerprints`."""
    return _digest(sorted(parts.items()))


def state_fingerprint(graph: Graph, resolved: Resolved, members: tuple[str, ...], sinks: Iterable[str]) -> str:
    """The fingerprint of a query's state: it changes when a stateful step changes, or anything that gives its rows their meaning. Empty for
    a stateless query.

    Filters, routes and requirements change which rows arrive, not their meaning, so they are left out. Stateful steps are in the order in
    which Spark visits them from the sinks upwards, because Spark numbers their states in that order.
    """
    stateful = [id_ for id_ in members if id_ in resolved.stateful]
    if not stateful:
        return ""
    meaning = _Meaning(graph, resolved)
    order = dict.fromkeys(id_ for sink in sinks for id_ in _postorder(graph, sink, set()) if id_ in stateful)
    return _digest([meaning.of(id_) for id_ in order])


def _postorder(graph: Graph, id_: str, seen: set[str]) -> Iterable[str]:
    if id_ in seen:
        return
    seen.add(id_)
    for parent in graph.parents[id_]:
        yield from _postorder(graph, parent, seen)
    yield id_


class _Meaning:
    """The meaning of a node's rows, as JSON."""

    def __init__(self, graph: Graph, resolved: Resolved) -> None:
        self._graph = graph
        self._resolved = resolved
        self._known: dict[str, Any] = {}

    def of(self, reference: str) -> Any:
        id_ = base(reference)
        if id_ not in self._known:
            self._known[id_] = self._make(id_)
        return self._known[id_]

    def _make(self, id_: str) -> Any:
        node = self._graph.nodes[id_]
        inputs = [self.of(reference) for reference in inputs_of(node)]
        declared = getattr(node, "watermark", None)
        # these change which rows arrive and how long others wait for them, not their meaning
        watermark = None if declared is None else _plain(replace(declared, ahead_s=None, idle_s=None))
        if isinstance(node, Source):
            return ["source", id_, node.type, self._columns_text(id_), watermark, node.static]
        assert isinstance(node, Step)
        match node.action:
            case Filter() | Route() if not watermark:
                return inputs[0]
            case Utilities(order="free") if not watermark:
                return inputs[0]
            case Utilities(references):
                return ["utilities", *references, self._columns_text(id_), None, watermark, inputs]
            case Python():
                own: list[Any] = ["python", node.action.reference, self._columns_text(id_)]
            case Sql(text):
                own = ["sql", " ".join(text.split()), list(node.inputs)]
            case _:
                own = [_plain(node.action)]
        emit = node.emit if id_ in self._resolved.stateful else None
        return [*own, emit, watermark, inputs]

    def _columns_text(self, id_: str) -> str:
        """The columns as text, without those added from the data: state never contains them (`evolve-state`), so a newly added column is
        not a change."""
        columns = self._resolved.of(id_)
        if columns is None:
            return "?"
        node = self._graph.nodes[id_]
        declares = not isinstance(node, Source) and getattr(node, "schema", None) is not None
        added = set() if declares else self._learned_above(id_)
        return ", ".join(str(column) for column in columns if column.name not in added)

    def _learned_above(self, id_: str) -> set[str]:
        nodes = (self._graph.nodes[each] for each in _postorder(self._graph, id_, set()))
        return {name for node in nodes if isinstance(node, Source) and node.schema is not None for name in node.schema.learned}


def _python_texts(flow: Flow, step: Step) -> list[Any]:
    """The code of the step's functions: each module and the modules in the flow's folder that it imports, directly or indirectly."""
    match step.action:
        case Python(reference, function=function):
            return _function_texts(flow, reference, function)
        case Utilities(references) as action:
            return [_function_texts(flow, reference, action.function(index)) for index, reference in enumerate(references)]
        case _:
            return []


def _function_texts(flow: Flow, reference: str, function: Callable[..., Any] | None) -> list[Any]:
    module = reference.partition(":")[0]
    if function is None:
        return [_module_texts(module, find_module(module, flow.code_folder), flow.code_folder)]
    own, file = _source_of(function)
    return [own, _module_texts(module, file, flow.code_folder)]


def _module_texts(module: str, file: Path | None, folder: Path) -> dict[str, str]:
    """Module → SHA-256 of its file."""
    texts: dict[str, str] = {}
    waiting = [(module, file)]
    while waiting:
        name, found = waiting.pop()
        if found is None or name in texts or (name != module and not found.is_relative_to(folder)):
            continue
        content = found.read_bytes()
        texts[name] = hashlib.sha256(content).hexdigest()
        waiting += [(imported, find_module(imported, folder)) for imported in _imports(content, name, found)]
    return dict(sorted(texts.items()))


def _source_of(function: Any) -> tuple[str, Path | None]:
    """The text and the file of a function that was passed as an object; its bytecode if there is no text (an interactive session)."""
    target = function if inspect.isroutine(function) or inspect.isclass(function) else type(function)
    try:
        file = inspect.getsourcefile(target)
        return inspect.getsource(target), Path(file) if file else None
    except (OSError, TypeError):
        code = getattr(function, "__code__", None)
        return repr((code.co_code, code.co_consts, code.co_names)) if code is not None else repr(target), None


def _imports(content: bytes, module: str, file: Path) -> list[str]:
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError):  # a compiled module, or an error that the checks report
        return []
    package = module.split(".") if file.name == "__init__.py" else module.split(".")[:-1]
    found: list[str] = []
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                found += [alias.name for alias in names]
            case ast.ImportFrom(module=name, names=names, level=level):
                parent = [*package[: len(package) - level + 1], *([name] if name else [])] if level else [name or ""]
                above = ".".join(parent)
                found += [above, *(f"{above}.{alias.name}" for alias in names)]
            case _:
                pass
    return [name for name in found if name and not name.startswith(".")]


def _plain(value: Any) -> Any:
    """Values of the model as JSON, with the class names: two kinds of action never give the same."""
    if isinstance(value, Schema):
        return str(value)
    if is_dataclass(value) and not isinstance(value, type):
        given = {part.name: getattr(value, part.name) for part in fields(value) if part.compare}
        held = {name: _plain(one) for name, one in given.items() if one is not None or name not in _LATER}
        return {"": type(value).__name__} | held
    if hasattr(value, "items"):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()
