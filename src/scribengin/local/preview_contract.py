"""What a preview shows of a flow: each node with some of its rows, before and after. Spark-free values."""

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
"""`made`: a row that has no single row before it, as behind an aggregation"""


@dataclass(frozen=True, slots=True)
class PreviewSettings:
    """What to look at. `sample` records are taken of each stream, `rows` of them shown at each node."""

    rows: int = 20
    sample: int = 20
    at: str | None = None
    """the one node that is shown; only what feeds it runs"""
    files: Mapping[str, Path] = field(default_factory=dict)
    """source → a file that stands for it; under "" for the only one there is"""
    state: Path | None = None
    """the state folder, which says what columns sources with `evolve: add` have learned; nothing else of it is looked at"""
    memory: str = ""
    spark_conf: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PreviewedRow:
    """One row on its way through a node. `before` is None where none stands behind it, `after` holds (branch, row), several where a step
    makes several. Of a dead one `reason` and `message` say why, `code_line` where in a person's code, `place` where the record stood, and
    `payload` what it was where it is no row yet, `utility` which of the step's it was."""

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
        """Times are ISO 8601, bytes BASE64."""
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
    """A node. `rows_in` counts what came in (of a source what was looked at), `out` what each branch gave, the node itself under "".
    `dropped` is None where rows in and rows out cannot be matched. `failure` says why there is nothing behind it."""

    node: str
    kind: str
    about: str
    inputs: tuple[str, ...]
    columns: Schema | None = None
    columns_in: Schema | None = None
    """of a node with one input, or with equal ones"""
    rows_in: int = 0
    out: Mapping[str, int] = field(default_factory=dict)
    dropped: int | None = None
    dead: int = 0
    on_error: str = "dead_letter"
    """what a run does with the dead ones"""
    rows: tuple[PreviewedRow, ...] = ()
    notes: tuple[str, ...] = ()
    failure: str = ""
    came: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    """(input, row): the first rows of each input, where rows in and rows out cannot be matched"""

    def as_json(self) -> dict[str, Any]:
        """As docs/json.md shows it."""
        columns = [{"name": f.name, "type": str(f.type), "nullable": f.nullable} for f in self.columns.fields] if self.columns else None
        return {
            "node": self.node,
            "kind": self.kind,
            "about": self.about,
            "inputs": list(self.inputs),
            "columns": columns,
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
    """A flow, node by node along the stream. `problems` are warnings and what failed, `exit` is what the command ends with for it."""

    flow: str
    nodes: tuple[NodePreview, ...]
    problems: tuple[Problem, ...] = ()
    exit: Exit = Exit.DONE

    def as_json(self) -> dict[str, Any]:
        """As docs/json.md shows it."""
        return {"flow": self.flow, "nodes": [node.as_json() for node in self.nodes]}


def plain(value: Any) -> Any:
    """A value of a row as JSON has it."""
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
