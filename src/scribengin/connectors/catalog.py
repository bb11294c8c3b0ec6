"""The available connectors: the packages beside this module that declare a type, and those of the entry points `scribengin.connectors`.

A connector is a module (or any object) with `SOURCE` and/or `SINK` (`core.options.NodeType`) and the functions
`make_source(place) -> SourceConnector`, `make_sink(place) -> SinkConnector`. Declarations are read at once, code only when a node is built.

A connector whose places are on this machine can have two more functions, so that `plan` reports what `run` would refuse:
`look_at_source(place)` and `look_at_sink(place, claimant)`. They change nothing, take milliseconds, import neither Spark nor Arrow, and
raise what `SourceConnector.reader`, `SinkConnector.prepare` and `SinkConnector.recover` would raise. `claimant` is None if the ownership of
the place is not checked.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import ModuleType

    from scribengin.connectors.contract import Claimant, ConnectorContext, SinkConnector, SourceConnector
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


@cache
def _modules() -> dict[str, ModuleType]:
    beside = import_module("scribengin.connectors").__path__
    others = sorted({module.name for module in iter_modules(beside) if module.ispkg}.difference(_ORDER))
    modules = {name: import_module(f"scribengin.connectors.{name}") for name in (*_ORDER, *others)}
    for point in entry_points(group="scribengin.connectors"):
        modules[point.name] = point.load()
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


def open_source(type_: str, place: ConnectorContext) -> SourceConnector:
    """The configured source, or that of a group. Raises KeyError for an unknown type, which earlier checks have already reported."""
    if place.members:
        grouped: SourceConnector = _group().make_source(type_, place, open_source)
        return grouped
    module: Any = next(m for m in _modules().values() if hasattr(m, "SOURCE") and m.SOURCE.type == type_)
    source: SourceConnector = module.make_source(place)
    return source


def for_tasks(type_: str, place: ConnectorContext) -> ConnectorContext:
    """The place of a source for processes with another environment: with values of this environment, if its module has `for_tasks`."""
    module: Any = next(m for m in _modules().values() if hasattr(m, "SOURCE") and m.SOURCE.type == type_)
    filled: ConnectorContext = module.for_tasks(place) if hasattr(module, "for_tasks") else place
    return filled


def look_at_source(type_: str, place: ConnectorContext) -> bool:
    """Check a source's place on this machine. Returns False if the connector has no such check. Raises SourceError if `reader` would."""
    module: Any = next(m for m in _modules().values() if hasattr(m, "SOURCE") and m.SOURCE.type == type_)
    if place.members or not hasattr(module, "look_at_source"):
        return False
    module.look_at_source(place)
    return True


def look_at_sink(type_: str, place: ConnectorContext, claimant: Claimant | None) -> bool:
    """Check a sink's place on this machine. Returns False if the connector has no such check, or the place is not on this machine. Raises
    SinkError, Refused or StateError if `prepare` or `recover` would."""
    module: Any = next(m for m in _modules().values() if hasattr(m, "SINK") and m.SINK.type == type_)
    if place.members or not hasattr(module, "look_at_sink"):
        return False
    return bool(module.look_at_sink(place, claimant))


def open_sink(type_: str, place: ConnectorContext) -> SinkConnector:
    """The configured sink, or that of a group. Raises KeyError for an unknown type, which earlier checks have already reported."""
    if place.members:
        grouped: SinkConnector = _group().make_sink(type_, place, open_sink)
        return grouped
    module: Any = next(m for m in _modules().values() if hasattr(m, "SINK") and m.SINK.type == type_)
    sink: SinkConnector = module.make_sink(place)
    return sink


def _group() -> Any:
    return import_module("scribengin.connectors.group")
