"""The exception tree and the exit statuses of the commands.

Every error that a user can cause is a `ScribenginError`; any other exception is a bug and shows its traceback.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scribengin.core.problems import Place, Problem


class Exit(IntEnum):
    """The exit statuses of commands."""

    DONE = 0
    FAILED = 1  # the flow failed, or its ledger does not balance
    INPUT = 2  # what the user wrote is wrong
    ENVIRONMENT = 3  # Java, memory, a folder, a jar
    INTERRUPTED = 130  # second Ctrl-C


class ScribenginError(Exception):
    """An error that a user can cause. The message says where, what is wrong and what was found; `remedy` says what to do."""

    exit = Exit.FAILED
    code = "failed"

    def __init__(self, message: str, *, remedy: str = "", code: str | None = None, node: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.node = node
        """the node of the flow that the error concerns, if any"""
        self.option = ""
        """the option of that node that the error concerns, if any"""
        self.place: Place | None = None
        """where the cause is written in the flow's files, once a caller that knows it has seen the error"""
        if code is not None:
            self.code = code
        # a traceback shows notes below the message, and what a Python worker raises reaches the driver only as the text of a traceback
        for name, value in (("remedy", remedy), ("code", code), ("node", node)):
            if value:
                self.add_note(f"  {name}: {value}")


class InputError(ScribenginError):
    """The user's input is wrong; carries every Problem that was found."""

    exit = Exit.INPUT
    code = "input"

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


class EnvironmentFault(ScribenginError):
    """The machine lacks something: Java, a module, disk space, a permission on a folder."""

    exit = Exit.ENVIRONMENT
    code = "environment"


class DeclarationError(EnvironmentFault):
    """A connector declares what it does not have, or has what it does not declare."""

    code = "connector-declaration"


class Refused(ScribenginError):
    """An operation was refused because it would risk data: a second run, another lineage's output, a changed stateful step."""

    exit = Exit.INPUT
    code = "refused"


class SourceError(ScribenginError):
    """A source cannot be read as it was recorded: a file removed, changed or forbidden."""

    code = "source"


class SourceMissing(SourceError):
    """The folder or topic that a source reads does not exist; its writer may create it later."""


class ColumnsOutdated(SourceError):
    """The input has other columns than the flow was planned with; a new plan takes them in."""

    code = "channel-columns"


class SinkError(ScribenginError):
    """A sink's target rejects the output: it is forbidden, missing or changed."""

    code = "sink"


class Unreachable(ScribenginError):
    """Another system does not answer; a retry may succeed."""

    exit = Exit.ENVIRONMENT
    code = "unreachable"


class StateError(ScribenginError):
    """The state folder or a sink's target is inconsistent: to continue would lose or duplicate records."""

    code = "state"


class StepError(ScribenginError):
    """A step failed and its `on_error` is `fail`."""

    code = "step-failed"


class FencedError(StateError):
    """Another driver with a newer Term, or another lineage, has replaced this one as the writer."""

    code = "fenced"


def text_of(error: BaseException) -> str:
    """The text of an error for people, without the remedy: for use if another remedy follows, or none can be shown."""
    return error.message if isinstance(error, ScribenginError) else str(error)
