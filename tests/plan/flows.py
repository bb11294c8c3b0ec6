"""Flows as values, for the tests of this folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from scribengin.core.types import parse_schema
from scribengin.spec.model import Action, Defaults, Flow, SchemaSpec, Sink, Source, Step, Watermark
from tests.design_flow import FLOW

TWEETS = "id BIGINT, user STRING, text STRING, followers BIGINT, retweets BIGINT, ts TIMESTAMP"


def schema(text: str) -> SchemaSpec:
    return SchemaSpec(parse_schema(text))


def source(id_: str = "tweets", *, columns: str | None = TWEETS, watermark: str | None = "ts", type_: str = "files", **rest: Any) -> Source:
    options = rest.pop("options", {"path": id_, "format": "json"} if type_ == "files" else {})
    return Source(
        id_, type_, options, schema(columns) if columns else None, watermark=Watermark(watermark, 600.0) if watermark else None, **rest
    )


def step(id_: str, inputs: str, action: Action, **rest: Any) -> Step:
    return Step(id_, tuple(inputs.split()), action, **rest)


def sink(id_: str, inputs: str, *, format_: str = "parquet", type_: str = "files", **rest: Any) -> Sink:
    options = rest.pop("options", {"path": f"out/{id_}", "format": format_} if type_ == "files" else {})
    return Sink(id_, tuple(inputs.split()), type_, options, **rest)


def flow(*nodes: Source | Step | Sink, folder: Path = Path(), **rest: Any) -> Flow:
    return Flow(
        rest.pop("name", "tweets"),
        {node.id: node for node in nodes if isinstance(node, Source)},
        {node.id: node for node in nodes if isinstance(node, Step)},
        {node.id: node for node in nodes if isinstance(node, Sink)},
        folder=folder,
        **rest,
    )


def tweets(folder: Path) -> Flow:
    """The flow of the design, with what it says of no single node left to its defaults."""
    (folder / "steps.py").write_text("from scribengin import record\n\n\n@record\ndef has_tag(row):\n    return '#' in row['text']\n")
    return replace(FLOW, about="", defaults=Defaults(), folder=folder)


MODULE = """
from scribengin import batch, frame, record, to as send, to

def one(row): return row
def none(): return None
def two(row, more): return row
def marks(row) -> bool: return bool(row.pop("id"))
def keyword(row, *, must): return row
async def later(row): return row
value = 3
alias = one
made = make()
@frame
def whole(df): return df
@batch
def many(rows): return rows
class Whole:
    def open(self): ...
    def __call__(self, row): return row
class Uncallable:
    pass
class Greedy:
    def __init__(self, path): ...
    def __call__(self, row): return row
class Opens:
    def open(self, where): ...
    def __call__(self, row): return row
class Heir(Whole):
    pass
def sorts(row): return to("left", row)
"""
"""A user's module with functions that fit and functions that do not"""
