"""The contract of a connector's own checks: what `validate` and `plan` report of a node, beyond the types of its options.

A check is a function of one node that yields Problems. `NodeType.checks` names it, as `module:function`, or is the function itself; by name
it is loaded only for a flow with such a node:

    SINK = NodeType(type="tape", role="sink", …, checks=("my_tape.checks:reel_is_free",))

    def reel_is_free(node: CheckedNode) -> Iterator[Problem]:
        if node.options.get("reel") == 0:
            yield node.problem("tape-reel", node.path("reel"), f"{node.called} writes to reel 0, which is the label", "write reel: 1")

A check sees the flow as it is written, also one with errors: a value may be absent, and columns may be unknown. It imports neither Spark
nor Arrow nor a client library, opens nothing and takes milliseconds. Problems that may be consequences of another error are left out by
the planner: a code with one of the prefixes `option-`, `folder-`, `sql-syntax` and others of `plan/checks/subject.py` is always reported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from scribengin.core.options import NodeType
    from scribengin.core.problems import Problem, Severity
    from scribengin.core.types import Schema, Type

    Check = Callable[["CheckedNode"], Iterator[Problem]]

Keys = tuple[str | int, ...]
"""Keys and list indexes from the root of the flow file: `("sinks", "kept", "path")`."""


class CheckedColumn(Protocol):
    """A column of a node, with the properties that are known without Spark. Its text is `name TYPE`."""

    @property
    def name(self) -> str:
        """Its exact name."""

    @property
    def type(self) -> Type | None:
        """None if only Spark knows it."""


class CheckedNode(Protocol):
    """A source or a sink under check."""

    @property
    def id(self) -> str:
        """Its name in the flow."""

    @property
    def type(self) -> str:
        """The value of `type:`."""

    @property
    def declared(self) -> NodeType:
        """The declaration of its type by its connector."""

    @property
    def role(self) -> Literal["source", "sink"]:
        """`source` or `sink`."""

    @property
    def called(self) -> str:
        """Its name in messages: `sink "kept"`."""

    @property
    def options(self) -> Mapping[str, Any]:
        """The options that the flow file gives, typed; without the defaults of those that it leaves out."""

    @property
    def group(self) -> str | None:
        """For a sink: the group, or `group.member`, that it writes to."""

    @property
    def static(self) -> bool:
        """For a source: True if it is read completely, as a lookup table beside a stream."""

    @property
    def schema(self) -> Schema | None:
        """For a source: the columns that the flow declares."""

    @property
    def columns(self) -> Sequence[CheckedColumn] | None:
        """The columns of a source, or of the input of a sink; None if they are not known."""

    @property
    def folder(self) -> pathlib.Path:
        """The folder of the flow file; relative paths start there."""

    def placements(self) -> Iterator[tuple[Keys, Mapping[str, Any]]]:
        """The places of a sink: (where the place is written in the flow file, the options there). One, or one for each member of its group.
        The keys are those of the option that members set, or of `at` of the member."""

    def earlier(self) -> Iterator[CheckedNode]:
        """The sinks, or sources, before this one in the flow file, in its order; those of unknown types are left out."""

    def module_file(self, name: str) -> pathlib.Path | None:
        """The source file of a module of the flow's code, found without importing the module; None if there is none."""

    def path(self, *keys: str | int) -> Keys:
        """The keys of this node, or of a value inside it."""

    def problem(self, code: str, path: Keys, message: str, remedy: str = "", *, severity: Severity = "error") -> Problem:
        """A problem at a value of the flow file.

        Args:
            code: The code of the problem.
            path: The keys of the value; if there is no such value, the problem is at its nearest existing parent.
            message: What is wrong.
            remedy: What to write instead.
            severity: The severity of the problem.
        """

    def problem_at_key(self, code: str, path: Keys, message: str, remedy: str = "", *, severity: Severity = "error") -> Problem:
        """Like `problem`, but at the key at the end of `path`, not at its value."""
