"""What every rule looks at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from scribengin.core.problems import Problem
from scribengin.plan.graph import Graph
from scribengin.plan.python_functions import inspect_function
from scribengin.plan.resolve import resolve
from scribengin.spec.model import Flow, Python, Sink, Source, Step

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scribengin.core.options import NodeType
    from scribengin.core.problems import Severity
    from scribengin.plan.python_functions import FunctionInfo
    from scribengin.plan.resolve import Resolved
    from scribengin.plan.sql.parse import Fault
    from scribengin.spec.places import Path, Places

Rule = Callable[["Subject"], Iterator[Problem]]


@dataclass(frozen=True)
class Subject:
    """A flow with the places of its text and all that was found out about it."""

    flow: Flow
    places: Places
    source_types: Mapping[str, NodeType]
    sink_types: Mapping[str, NodeType]

    @cached_property
    def graph(self) -> Graph:
        """The flow's arrows."""
        return Graph(self.flow)

    @cached_property
    def resolved(self) -> Resolved:
        """Columns, watermarks, static and stateful nodes."""
        return resolve(self.graph)

    @cached_property
    def functions(self) -> dict[str, FunctionInfo]:
        """Python step → what its module says of its function."""
        return {
            step.id: inspect_function(step.action.reference, self.flow.folder, step.action.function)
            for step in self.flow.steps.values()
            if isinstance(step.action, Python)
        }

    def problem(self, code: str, path: Path, message: str, remedy: str = "", *, severity: Severity = "error") -> Problem:
        """A problem at the value that stands at `path`."""
        return Problem(code, self.places.value(path), message, remedy, severity)

    def problem_at_key(self, code: str, path: Path, message: str, remedy: str = "", *, severity: Severity = "error") -> Problem:
        """A problem at the key at the end of `path`."""
        return Problem(code, self.places.key(path), message, remedy, severity)

    def problem_inside(
        self, code: str, path: Path, offset: int, message: str, *, remedy: str = "", severity: Severity = "error"
    ) -> Problem:
        """A problem at character `offset` of the text at `path`."""
        return Problem(code, self.places.inside(path, offset), message, remedy, severity)

    def fault(self, fault: Fault, path: Path, name: str) -> Problem:
        """A fault inside the text at `path`; `name` says whose text it is."""
        return self.problem_inside(fault.code, path, fault.offset, f"{name}: {fault.message}", remedy=fault.remedy, severity=fault.severity)

    def item(self, path: Path, key: str, index: int) -> Path:
        """The path of an item that may stand in a mapping (under `key`) or in a list (at `index`)."""
        in_mapping = (*path, key)
        return in_mapping if self.places.value(in_mapping) != self.places.value(path) else (*path, index)


def path_of(node: Source | Step | Sink, *keys: str | int) -> Path:
    """Where a node, or something in it, stands in the document."""
    section = {Source: "sources", Step: "steps", Sink: "sinks"}[type(node)]
    return (section, node.id, *keys)


def called(node: Source | Step | Sink) -> str:
    """How messages name a node: `step "hot"`."""
    return f'{type(node).__name__.lower()} "{node.id}"'
