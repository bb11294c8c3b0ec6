"""The values of a preview: each node with some of its rows, before and after. Does not need Spark."""

from __future__ import annotations

import base64
import datetime as dt
import math
from dataclasses import dataclass, field
from pathlib import Path  # noqa: TC003  an annotation of PreviewSettings
from typing import TYPE_CHECKING, Any, Literal

from scribengin.core.errors import Exit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scribengin.core.problems import Problem
    from scribengin.core.types import Schema

Fate = Literal["kept", "dropped", "dead", "made"]
"""`made`: a row that no single input row corresponds to, as after an aggregation"""


@dataclass(frozen=True, slots=True)
class PreviewSettings:
    """The settings of a preview. `sample` records are taken from each stream, `rows` of them are shown at each node."""

    rows: int = 20
    sample: int = 20
    at: str | None = None
    """the only node that is shown; only its upstream nodes are run"""
    files: Mapping[str, Path] = field(default_factory=dict)
    """source → a file that replaces it; the key "" stands for the only source"""
    state: Path | None = None
    """the state folder, from which only the columns are read that sources with `evolve: add` have learned"""
    memory: str = ""
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    base: Path | None = None
    """the folder that the paths of its data are relative to; None: the file's folder"""


@dataclass(frozen=True, slots=True)
class PreviewedRow:
    """One row and its outcome at a node.

    `before` is the input row, None if there is no single one. `after` has (branch, row) for each output row. A dead row has `reason` and
    `message`; `code_line` in the user's code; `place`, the place of its record; `payload`, the record if it is not a row yet; and
    `utility`, the one of the step that rejected it.
    """

    fate: Fate
    before: Mapping[str, Any] | None
    after: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    place: str = ""
    reason: str = ""
    message: str = ""
    code_line: str = ""
    payload: str = ""
    utility: str = ""

    def as_json(self) -> dict[str, Any]:
        """The row as JSON: times in ISO 8601, bytes in Base64."""
        after = [{"branch": branch, "row": plain(row)} for branch, row in self.after]
        shown = {"fate": self.fate, "place": self.place, "before": plain(self.before), "after": after}
        return shown | {
            "reason": self.reason,
            "message": self.message,
            "code_line": self.code_line,
            "payload": self.payload,
            "utility": self.utility,
        }


@dataclass(frozen=True, slots=True)
class NodePreview:
    """The preview of a node. `rows_in` counts its input rows (for a source, the records of the sample), `out` the output rows of each
    branch; the key "" is the node itself. `dropped` is None if rows in and rows out cannot be matched. `failure` says why the node has no
    output."""

    node: str
    kind: str
    about: str
    inputs: tuple[str, ...]
    columns: Schema | None = None
    columns_in: Schema | None = None
    """for a node with one input, or with inputs of equal columns"""
    rows_in: int = 0
    out: Mapping[str, int] = field(default_factory=dict)
    dropped: int | None = None
    dead: int = 0
    on_error: str = "dead_letter"
    """what a run does with dead rows"""
    rows: tuple[PreviewedRow, ...] = ()
    notes: tuple[str, ...] = ()
    failure: str = ""
    came: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    """(input, row): the first rows of each input, if rows in and rows out cannot be matched"""

    def as_json(self) -> dict[str, Any]:
        """The node as JSON, in the form that docs/json.md shows."""
        return {
            "node": self.node,
            "kind": self.kind,
            "about": self.about,
            "inputs": list(self.inputs),
            "columns": _columns(self.columns),
            "columns_in": _columns(self.columns_in),
            "in": self.rows_in,
            "out": dict(self.out),
            "dropped": self.dropped,
            "dead": self.dead,
            "on_error": self.on_error,
            "rows": [row.as_json() for row in self.rows],
            "came": [{"input": id_, "row": plain(row)} for id_, row in self.came],
            "notes": list(self.notes),
            "failure": self.failure,
        }


@dataclass(frozen=True, slots=True)
class Preview:
    """The preview of a flow, node by node in the direction of the stream. `problems` are warnings and failures; `exit` is the exit status
    of the command."""

    flow: str
    nodes: tuple[NodePreview, ...]
    problems: tuple[Problem, ...] = ()
    exit: Exit = Exit.DONE

    def as_json(self) -> dict[str, Any]:
        """The preview as JSON, in the form that docs/json.md shows."""
        return {"flow": self.flow, "nodes": [node.as_json() for node in self.nodes]}


def _columns(schema: Schema | None) -> list[dict[str, Any]] | None:
    return [{"name": field.name, "type": str(field.type), "nullable": field.nullable} for field in schema.fields] if schema else None


def plain(value: Any) -> Any:
    """A value of a row in a form that JSON supports."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case dict():
            return {str(key): plain(each) for key, each in value.items()}
        case list() | tuple():
            return [plain(each) for each in value]
        case dt.datetime():
            return value.isoformat().replace("+00:00", "Z")
        case bytes():
            return base64.b64encode(value).decode()
    return str(value)
