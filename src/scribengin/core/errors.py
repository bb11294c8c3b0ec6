"""The exception tree and the exit statuses of the commands.

Every error that a person can meet is a `ScribenginError`; anything else that escapes is a bug and shows its traceback.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scribengin.core.problems import Place, Problem


class Exit(IntEnum):
    """What a command's exit status means."""

    DONE = 0
    FAILED = 1  # the flow failed, or its ledger does not balance
    INPUT = 2  # what the person wrote is wrong
    ENVIRONMENT = 3  # Java, memory, a folder, a jar
    INTERRUPTED = 130  # second Ctrl-C


class ScribenginError(Exception):
    """Says where, what is wrong and what was found; `remedy` says what to do."""

    exit = Exit.FAILED
    code = "failed"

    def __init__(self, message: str, *, remedy: str = "", code: str | None = None, node: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.node = node
        """the flow's node that it is about, where it is about one"""
        self.option = ""
        """the option of that node, where it is about one"""
        self.place: Place | None = None
        """where that is written, once somebody who knows has seen the error"""
        if code is not None:
            self.code = code
        # a traceback shows notes below the message: what a Python worker raises reaches the driver as the text of one
        for name, value in (("remedy", remedy), ("code", code), ("node", node)):
            if value:
                self.add_note(f"  {name}: {value}")


class InputError(ScribenginError):
    """What the person wrote is wrong; carries every Problem that was found."""

    exit = Exit.INPUT
    code = "input"

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


class EnvironmentFault(ScribenginError):
    """The machine lacks something: Java, a module, room on the disk, a right on a folder."""

    exit = Exit.ENVIRONMENT
    code = "environment"


class Refused(ScribenginError):
    """Going on would risk data: a second run, another lineage's output, a changed stateful step."""

    exit = Exit.INPUT
    code = "refused"


class SourceError(ScribenginError):
    """A source cannot be read as it was recorded: a file removed, changed or forbidden."""

    code = "source"


class SourceMissing(SourceError):
    """The folder or topic that a source reads is not there; who writes it may make it."""


class ColumnsOutdated(SourceError):
    """What is read has got other columns than those it was planned with; planned again it is read as it is."""

    code = "channel-columns"


class SinkError(ScribenginError):
    """A sink's place does not take what is written: forbidden, missing, not what it was."""

    code = "sink"


class Unreachable(ScribenginError):
    """Another system does not answer; a later try may go through."""

    exit = Exit.ENVIRONMENT
    code = "unreachable"


class StateError(ScribenginError):
    """The state folder or a sink's place contradicts itself; going on would lose or double records."""

    code = "state"


class StepError(ScribenginError):
    """A step failed and its `on_error` is `fail`."""

    code = "step-failed"


class FencedError(StateError):
    """Another driver with a newer Term, or another lineage, has the right to write here."""

    code = "fenced"
