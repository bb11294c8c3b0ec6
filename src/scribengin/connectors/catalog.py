"""The available connectors: the packages beside this module that declare a type, and those of the entry points `scribengin.connectors`.

A connector is a module (or any object) with `SOURCE` and/or `SINK` (`core.options.NodeType`) and the functions `make_source(place) ->
SourceConnector`, `make_sink(place) -> SinkConnector`. Declarations are read at once, code only when a node is built.

A connector whose places are on this machine can declare `checks_local_place`, and have two more functions, so that `plan` reports what
`run` would refuse: `check_source_place(place)` and `check_sink_place(place, claimant)`. They change nothing, take milliseconds, import
neither Spark nor Arrow, and raise what `SourceConnector.reader`, `SinkConnector.prepare` and `SinkConnector.recover` would raise.
`claimant` is None if the ownership of the place is not checked. A connector that declares `fills_for_tasks` has `for_tasks(place)`: it
returns the context of a source, completed with values that only this process has.

If a module, a source or a sink differs from what its type declares, loading or opening it raises DeclarationError.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

    from scribengin.connectors.contract import Claimant, ConnectorContext, SinkConnector, SourceConnector
    from scribengin.core.abilities import BuiltKind
    from scribengin.core.options import NodeType

_ORDER = (
    "files",
    "objects",
    "hdfs",
    "kafka",
    "postgres",
    "delta",
    "opensearch",
    "elasticsearch",
    "cassandra",
    "hbase",
    "http",
    "spark",
    "sequence",
    "console",
    "channel",
    "summary",
)
"""the order of the reference pages; a package that is not named here comes after these"""

_MODULES: Mapping[str, BuiltKind] = {"SOURCE": "source_module", "SINK": "sink_module"}


@cache
def _modules() -> dict[str, ModuleType]:
    beside = import_module("scribengin.connectors").__path__
    others = sorted({module.name for module in iter_modules(beside) if module.ispkg}.difference(_ORDER))
    modules = {name: import_module(f"scribengin.connectors.{name}") for name in (*_ORDER, *others)}
    for point in entry_points(group="scribengin.connectors"):
        modules[point.name] = point.load()
    for module in modules.values():
        for role, kind in _MODULES.items():
            if hasattr(module, role):
                type_: NodeType = getattr(module, role)
                type_.check_built(kind, module, {})
    return modules


def source_types(*, internal: bool = False) -> dict[str, NodeType]:
    """`type:` → declaration, for every source that a flow file can name; with `internal`, for every source."""
    return _types("SOURCE", internal=internal)


def sink_types(*, internal: bool = False) -> dict[str, NodeType]:
    """`type:` → declaration, for every sink that a flow file can name; with `internal`, for every sink."""
    return _types("SINK", internal=internal)


def _types(role: str, *, internal: bool) -> dict[str, NodeType]:
    declared: list[NodeType] = [getattr(module, role) for module in _modules().values() if hasattr(module, role)]
    return {type_.type: type_ for type_ in declared if internal or not type_.internal}


def _module(role: str, type_: str) -> Any:
    """The module that declares a type. Raises KeyError if there is none."""
    found = next((m for m in _modules().values() if hasattr(m, role) and getattr(m, role).type == type_), None)
    if found is None:
        raise KeyError(type_)
    return found


def open_source(type_: str, place: ConnectorContext) -> SourceConnector:
    """The configured source, or that of a group. Raises KeyError for an unknown type, which earlier checks have already reported."""
    if place.members:
        grouped: SourceConnector = _group().make_source(type_, place, open_source)
        return grouped
    module = _module("SOURCE", type_)
    source: SourceConnector = module.make_source(place)
    module.SOURCE.check_built("source", source, place.options)
    return source


def for_tasks(type_: str, place: ConnectorContext) -> ConnectorContext:
    """The context of a source for processes with another environment. It includes values of this process's environment if the module has
    `for_tasks`."""
    module = _module("SOURCE", type_)
    filled: ConnectorContext = module.for_tasks(place) if "fills_for_tasks" in module.SOURCE.abilities else place
    return filled


def check_source_place(type_: str, place: ConnectorContext) -> bool:
    """Check a source's place on this machine. Returns False if the connector has no such check. Raises SourceError if `reader` would."""
    module = _module("SOURCE", type_)
    if place.members or "checks_local_place" not in module.SOURCE.abilities:
        return False
    module.check_source_place(place)
    return True


def check_sink_place(type_: str, place: ConnectorContext, claimant: Claimant | None) -> bool:
    """Check a sink's place on this machine.

    Args:
        type_: The sink's type.
        place: The sink's context.
        claimant: The flow that is going to claim the place; None if the ownership is not checked.

    Returns:
        False if the connector has no such check, or the place is not on this machine.

    Raises:
        SinkError, Refused, StateError: `prepare` or `recover` would raise it.
    """
    module = _module("SINK", type_)
    if place.members or "checks_local_place" not in module.SINK.abilities:
        return False
    return bool(module.check_sink_place(place, claimant))


def open_sink(type_: str, place: ConnectorContext) -> SinkConnector:
    """The configured sink, or that of a group. Raises KeyError for an unknown type, which earlier checks have already reported."""
    if place.members:
        grouped: SinkConnector = _group().make_sink(type_, place, open_sink)
        return grouped
    module = _module("SINK", type_)
    sink: SinkConnector = module.make_sink(place)
    module.SINK.check_built("sink", sink, place.options)
    return sink


def _group() -> Any:
    return import_module("scribengin.connectors.group")
