"""Models of the REST API for the texts of flow files; see also `models`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from scribengin.client.change_models import TopologyPlan
from scribengin.client.models import CLOSED, Submit
from scribengin.client.state_models import FlowGraph


@dataclass(frozen=True, slots=True)
class FlowText:
    """The flow file of a version: the path `file` in its package, its text without secrets, and `lines`: node → the number of its line,
    empty for a flow in Python."""

    flow: str
    version: int
    file: str
    text: str
    lines: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class CheckText:
    """The text of a flow file to be checked."""

    text: str
    __pydantic_config__ = CLOSED


@dataclass(frozen=True, slots=True)
class TextProblem:
    """A problem of a text, and its place, from 1."""

    severity: Literal["error", "warning"]
    code: str
    line: int
    column: int
    message: str
    remedy: str


@dataclass(frozen=True, slots=True)
class CheckedText:
    """The name of the text's flow, empty if it has none, its problems, and its graph, null if it has errors."""

    flow: str
    problems: tuple[TextProblem, ...]
    graph: FlowGraph | None = None


@dataclass(frozen=True, slots=True)
class PlanText:
    """The text of the flow file of `flow`, to be planned. `base`: the folder where its relative paths start, an absolute path; empty if it
    has none."""

    flow: str
    text: str
    base: str = ""
    __pydantic_config__ = CLOSED


@dataclass(frozen=True, slots=True)
class PlannedText:
    """What to submit, and the changes that this would make, with the hash that agrees to them."""

    submit: Submit
    plan: TopologyPlan


@dataclass(frozen=True, slots=True)
class FileDifference:
    """A setting with which a flow runs otherwise than its flow file says. `undo`: the command that sets it as in the file; empty if none
    does."""

    what: str
    file: str
    runs: str
    undo: str


@dataclass(frozen=True, slots=True)
class FlowFileView:
    """The flow file that the desired version came from, and where what runs differs from it.

    `path`: where it was when it was submitted. `text`: as it was submitted; `now`: as it is there now, null if this master's host has no
    such file of this flow. Both are without secrets.
    """

    flow: str
    version: int
    path: str
    text: str
    now: str | None
    differences: tuple[FileDifference, ...]
