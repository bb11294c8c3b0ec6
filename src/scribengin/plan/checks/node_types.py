"""Runs the checks that node types declare: `NodeType.checks`, whose contract is `connectors/check_contract.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from scribengin.core.options import loaded
from scribengin.plan.checks.subject import called, path_of
from scribengin.plan.groups import placements
from scribengin.plan.python_functions import find_module
from scribengin.spec.model import Sink, Source

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterator, Mapping

    from scribengin.connectors.check_contract import Check
    from scribengin.core.options import NodeType
    from scribengin.core.problems import Problem, Severity
    from scribengin.core.types import Schema
    from scribengin.plan.checks.subject import Subject
    from scribengin.plan.columns import Columns
    from scribengin.spec.places import Path


def node_types_hold(subject: Subject) -> Iterator[Problem]:
    """Report what the checks of the types find: check by check, each over the nodes in the file's order."""
    for types, nodes in ((subject.source_types, subject.flow.sources), (subject.sink_types, subject.flow.sinks)):
        used = [(types[node.type], SubjectNode(subject, node)) for node in nodes.values() if node.type in types]
        for check in dict.fromkeys(check for declared, _ in used for check in declared.checks):
            rule: Check = loaded(check)
            for declared, node in used:
                if check in declared.checks:
                    yield from rule(node)


@dataclass(frozen=True)
class SubjectNode:
    """A node of the subject, in the form that the checks of its type read (`CheckedNode`)."""

    subject: Subject
    node: Source | Sink

    @property
    def id(self) -> str:
        """The name of the node in the flow."""
        return self.node.id

    @property
    def type(self) -> str:
        """The value of `type:`."""
        return self.node.type

    @property
    def declared(self) -> NodeType:
        """The declaration of its type."""
        return (self.subject.source_types if isinstance(self.node, Source) else self.subject.sink_types)[self.node.type]

    @property
    def role(self) -> Literal["source", "sink"]:
        """`source` or `sink`."""
        return "source" if isinstance(self.node, Source) else "sink"

    @property
    def called(self) -> str:
        """The name of the node in messages."""
        return called(self.node)

    @property
    def options(self) -> Mapping[str, Any]:
        """The options in the flow file."""
        return self.node.options

    @property
    def group(self) -> str | None:
        """The group that a sink goes to; None for others."""
        return self.node.to if isinstance(self.node, Sink) else None

    @property
    def static(self) -> bool:
        """True for a static source."""
        return isinstance(self.node, Source) and self.node.static

    @property
    def schema(self) -> Schema | None:
        """The declared columns of a source; None if there are none."""
        return self.node.schema.fields if isinstance(self.node, Source) and self.node.schema is not None else None

    @property
    def columns(self) -> Columns | None:
        """The columns of a source, or of the input of a sink; None if unknown."""
        return self.subject.resolved.of(self.node.id)

    @property
    def folder(self) -> pathlib.Path:
        """The folder of the flow file."""
        return self.subject.flow.folder

    def placements(self) -> Iterator[tuple[Path, Mapping[str, Any]]]:
        """(the path in the document, the options) for each location of a sink."""
        if isinstance(self.node, Source):
            return
        option = self.subject.sink_types[self.node.type].by_member
        group = (self.node.to or "").partition(".")[0]
        for index, options in placements(self.subject.flow, self.node):
            own = path_of(self.node, option.name) if option is not None else path_of(self.node)
            yield own if index is None else ("groups", group, "members", index, "at"), options

    def earlier(self) -> Iterator[SubjectNode]:
        """The nodes of known types before it in its section."""
        nodes: Mapping[str, Source | Sink] = self.subject.flow.sources if isinstance(self.node, Source) else self.subject.flow.sinks
        for node in nodes.values():
            if node.id == self.node.id:
                return
            if self.subject.declared(node) is not None:
                yield SubjectNode(self.subject, node)

    def module_file(self, name: str) -> pathlib.Path | None:
        """The source file of a module of the flow's code; None if it is not found."""
        return find_module(name, self.subject.flow.code_folder)

    def path(self, *keys: str | int) -> Path:
        """The path of the node, or of a value inside it."""
        return path_of(self.node, *keys)

    def problem(self, code: str, path: Path, message: str, remedy: str = "", *, severity: Severity = "error") -> Problem:
        """A problem at a value."""
        return self.subject.problem(code, path, message, remedy, severity=severity)

    def problem_at_key(self, code: str, path: Path, message: str, remedy: str = "", *, severity: Severity = "error") -> Problem:
        """A problem at a key."""
        return self.subject.problem_at_key(code, path, message, remedy, severity=severity)
