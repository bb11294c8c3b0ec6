"""The input of every rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from scribengin.core.problems import Problem
from scribengin.plan.channels import plan_channels
from scribengin.plan.graph import Graph, base, inputs_of
from scribengin.plan.python_functions import inspect_function, inspect_utilities
from scribengin.plan.resolve import resolve
from scribengin.plan.tiers import assign
from scribengin.spec.model import Flow, Python, Sink, Source, Step, Utilities

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scribengin.core.options import NodeType
    from scribengin.core.problems import Severity
    from scribengin.plan.channels import PlannedChannel
    from scribengin.plan.python_functions import FunctionInfo
    from scribengin.plan.resolve import Resolved
    from scribengin.plan.sql.parse import SqlFault
    from scribengin.plan.tiers import Assignment
    from scribengin.spec.places import Path, Places

_STANDS_ALONE = (
    "sql-syntax",
    "sql-function",
    "sql-cast",
    "python-",
    "utilit",
    "folder-",
    "cycle",
    "branch-unknown",
    "input-",
    "option-",
    "function-",
    "twice",
    "group-",
    "member-",
)
"""prefixes of the codes of mistakes that do not depend on the rest of the flow"""

_BRINGING = ("spark.sql.extensions", "spark.sql.catalog", "spark.jars", "spark.plugins", "spark.driver.extraClassPath")
"""prefixes of Spark settings that can define functions"""

NODE_SECTIONS = ("sources", "steps", "sinks")

Rule = Callable[["Subject"], Iterator[Problem]]


@dataclass(frozen=True)
class Subject:
    """A flow with the places of its text and everything derived from it."""

    flow: Flow
    places: Places
    source_types: Mapping[str, NodeType]
    sink_types: Mapping[str, NodeType]
    broken: frozenset[str] = frozenset()
    """nodes that the parser could not read, or only in part"""
    unread: frozenset[str] = frozenset()
    """the sections `tiers`, `edges`, `groups`, `defaults` that the parser could not read, or only in part; those of `sources`, `steps`,
    `sinks` that it could not read at all"""
    _about: dict[Problem, str] = field(default_factory=dict)
    """problem → its node"""

    def declared(self, node: Source | Sink) -> NodeType | None:
        """The declaration of the node's type; None if the type is unknown."""
        return (self.source_types if isinstance(node, Source) else self.sink_types).get(node.type)

    def has(self, node: Source | Sink, ability: str) -> bool:
        """True if the node's type declares that ability."""
        declared = self.declared(node)
        return declared is not None and ability in declared.abilities

    @cached_property
    def graph(self) -> Graph:
        """The graph of the flow."""
        return Graph(self.flow)

    @cached_property
    def resolved(self) -> Resolved:
        """Columns, watermarks, static and stateful nodes."""
        return resolve(self.graph)

    @cached_property
    def assignment(self) -> Assignment:
        """The tier of each node."""
        return assign(self.graph)

    @cached_property
    def channels(self) -> tuple[PlannedChannel, ...]:
        """The channels that are certain to exist."""
        if not self.flow.tiers or self.unread or self.graph.cycles:
            return ()
        planned = plan_channels(self.graph, self.assignment)
        return tuple(channel for channel in planned if not {base(channel.reference), *channel.readers} & self.shaken)

    @cached_property
    def functions(self) -> dict[str, FunctionInfo]:
        """Python step → information on its function, from its module."""
        return {
            step.id: inspect_function(step.action.reference, self.flow.code_folder, step.action.function)
            for step in self.flow.steps.values()
            if isinstance(step.action, Python)
        }

    @cached_property
    def utilities(self) -> dict[str, tuple[FunctionInfo, ...]]:
        """Step of utilities → information on each function, in order."""
        return {
            step.id: inspect_utilities(step.action, self.flow.code_folder)
            for step in self.flow.steps.values()
            if isinstance(step.action, Utilities)
        }

    @cached_property
    def may_have_own_functions(self) -> bool:
        """True if the flow's SQL may use functions that are not Spark's: a `@frame` function can register some, and settings of a tier can
        define them."""
        infos = [*self.functions.values(), *(info for infos in self.utilities.values() for info in infos)]
        settings = [key for tier in self.flow.tiers.values() for key in tier.resources.spark]
        return any(info.form == "frame" or info.kind == "unknown" for info in infos) or any(key.startswith(_BRINGING) for key in settings)

    @property
    def knows_nodes(self) -> bool:
        """False if a whole section of nodes could not be read: an unknown node may be in it."""
        return not self.unread.intersection(NODE_SECTIONS)

    @cached_property
    def shaken(self) -> frozenset[str]:
        """Nodes downstream of a broken or missing node, and all nodes of a cycle."""
        nodes = self.graph.nodes
        first = [id_ for id_, node in nodes.items() if id_ in self.broken or any(base(ref) not in nodes for ref in inputs_of(node))]
        return self.graph.downstream([*first, *(id_ for cycle in self.graph.cycles for id_ in cycle)])

    def follows(self, problem: Problem) -> bool:
        """True if the problem may be only a consequence of another one."""
        return self._about.get(problem) in self.shaken and not problem.code.startswith(_STANDS_ALONE)

    def problem(self, code: str, path: Path, message: str, remedy: str = "", *, severity: Severity = "error") -> Problem:
        """A problem at the value at `path`."""
        return self._problem(path, Problem(code, self.places.value(path), message, remedy, severity))

    def problem_at_key(self, code: str, path: Path, message: str, remedy: str = "", *, severity: Severity = "error") -> Problem:
        """A problem at the key at the end of `path`."""
        return self._problem(path, Problem(code, self.places.key(path), message, remedy, severity))

    def problem_inside(
        self, code: str, path: Path, offset: int, message: str, *, remedy: str = "", severity: Severity = "error"
    ) -> Problem:
        """A problem at character `offset` of the text at `path`."""
        return self._problem(path, Problem(code, self.places.inside(path, offset), message, remedy, severity))

    def _problem(self, path: Path, problem: Problem) -> Problem:
        if len(path) > 1 and path[0] in NODE_SECTIONS:
            self._about[problem] = str(path[1])
        return problem

    def fault(self, fault: SqlFault, path: Path, name: str) -> Problem:
        """The problem for a fault inside the text at `path`; `name` is the owner of the text."""
        return self.problem_inside(fault.code, path, fault.offset, f"{name}: {fault.message}", remedy=fault.remedy, severity=fault.severity)

    def item(self, path: Path, key: str, index: int) -> Path:
        """The path of an item that may be in a mapping (under `key`) or in a list (at `index`)."""
        in_mapping = (*path, key)
        return in_mapping if self.places.value(in_mapping) != self.places.value(path) else (*path, index)


def path_of(node: Source | Step | Sink, *keys: str | int) -> Path:
    """The path of a node, or of a key inside it, in the document."""
    section = {Source: "sources", Step: "steps", Sink: "sinks"}[type(node)]
    return (section, node.id, *keys)


def called(node: Source | Step | Sink) -> str:
    """The name of a node in messages: `step "hot"`."""
    return f'{type(node).__name__.lower()} "{node.id}"'
