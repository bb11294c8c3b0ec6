"""`scribengin source show FLOW`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from scribengin.cli.answer import Answer, AnsweringCommand
from scribengin.cli.flow_argument import flow_argument
from scribengin.cli.flow_state import chosen_queries, open_state
from scribengin.cli.settings import setting_flags

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.state.folder import QueryFolder


@click.group()
def command() -> None:
    """How far sources are read. A position counts the entries of a source's log that committed Batches are through with."""


@command.command(cls=AnsweringCommand)
@flow_argument
@click.option("--query", help="Of this Query only.")
@setting_flags("state")
def show(*, flow: str, query: str | None, state: Path | None) -> Answer:
    """Print the position of every source in every Query."""
    declared, folder = open_state(flow, state)
    rows = [row for part in chosen_queries(folder, query) for row in _positions(part)]

    def display() -> None:
        from scribengin.cli.tables import print_table

        print_table(
            rows,
            {"query": "Query", "source": "source", "position": "position", "logged": "logged", "batch": "last Batch", "last": "last read"},
        )

    return Answer({"flow": declared.name, "sources": rows}, show=display)


def _positions(part: QueryFolder) -> list[dict[str, Any]]:
    from scribengin.state.decisions import Decisions
    from scribengin.state.lineage import read_lineage
    from scribengin.state.source_log import SourceLog

    lineage = read_lineage(part)
    assert lineage is not None
    newest = Decisions(part.decisions).newest()
    ends = {taken.source: taken.end for taken in newest.sources} if newest else {}
    rows = []
    for source in lineage.sources:
        log = SourceLog(part.sources, source)
        position = ends.get(source, 0)
        streams = log.read(position - 1) if position else []
        row = {"query": part.name, "source": source, "position": position, "logged": log.length()}
        rows.append(row | {"batch": newest.batch.number if newest else None, "last": streams[-1].label if streams else ""})
    return rows
