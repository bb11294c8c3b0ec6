"""`scribengin audit FLOW`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from scribengin.cli.answer import CommandAnswer
from scribengin.cli.each_flow import FlowCommand, each_flow
from scribengin.cli.flow_argument import as_called, flow_argument, is_name
from scribengin.cli.flow_state import prepared_flow
from scribengin.cli.plane_option import masters_option
from scribengin.cli.settings import setting_flags
from scribengin.connectors.contract import NEXT_RUN, Unaccounted
from scribengin.core.errors import Exit
from scribengin.core.problems import Place, Problem
from scribengin.core.remedies import start_over

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from scribengin.cli.plane_option import Masters

_LOSSES_SHOWN = 20
_RESTORE = "restore what is missing or was changed from a backup"
_LOOK = "this state does not name these rows: check whether they are duplicates"


@click.command(cls=FlowCommand)
@flow_argument
@setting_flags("state")
@masters_option
@each_flow("flow")
def command(*, flow: str, state: Path | None, masters: Masters) -> CommandAnswer:
    """Verify outputs, dead letters and the ledger by reading them again. Changes nothing; needs no Java.

    For a submitted flow a master does it, in up to 100 seconds.

    \b
    Example:
      scribengin audit flow.yaml
    """
    if is_name(flow):
        with masters.client() as client:
            # `reset` takes the flow file, which only a host has: no command to start over is offered
            return _answer(client.audit(flow), _RESTORE)
    from scribengin.local.audit import audit_as_json, audit_flow

    prepared = prepared_flow(flow, state)
    remedy = as_called(f"{_RESTORE}, or {start_over()}", {"flow": flow, "state": state})
    return _answer(audit_as_json(prepared, audit_flow(prepared)), remedy, prepared.warnings)


def _answer(found: dict[str, Any], remedy: str, warnings: Sequence[Problem] = ()) -> CommandAnswer:
    warnings = (*warnings, *(Problem("audit-others", Place(""), text, _LOOK, "warning") for text in _others(found)))
    return CommandAnswer(found, warnings, Exit.DONE if found["ledger"]["balanced"] else Exit.FAILED, show=lambda: _show(found, remedy))


def _name(query: dict[str, Any]) -> str:
    """The name of the query, with its lineage if a rewind has ended that lineage."""
    return f"{query['name']} (lineage {query['lineage']})" if query["past"] else str(query["name"])


def _others(found: dict[str, Any]) -> Iterator[str]:
    """Returns a line for each content of a sink's place that the flow's state does not account for."""
    for query in found["queries"]:
        for sink in query["sinks"]:
            for other in sink.get("others") or ():
                yield f"sink {sink['sink']}: its place also holds {Unaccounted(**other)}"


def _uncounted(found: dict[str, Any]) -> list[str]:
    """The sinks whose places were not searched for such content."""
    # masters of earlier releases leave "others" out
    return sorted({sink["sink"] for query in found["queries"] for sink in query["sinks"] if sink.get("others", ()) is None})


def _lacks(found: dict[str, Any]) -> bool:
    """True if rows of a sink are missing or were changed, and at least one violation does not name a remedy itself."""
    lacking = any(sink["found"] < sink["decided"] for query in found["queries"] for sink in query["sinks"])
    return lacking and any(NEXT_RUN not in each and "start over: " not in each for each in found["ledger"]["violations"])


def _show(found: dict[str, Any], remedy: str) -> None:
    """Print the audit. `remedy` is the advice to print if a sink's place lacks rows."""
    from rich.text import Text

    from scribengin.cli.summary import show_ledgers, show_losses, show_verdict
    from scribengin.cli.tables import open_console, print_table
    from scribengin.local.ledger import LedgerLine
    from scribengin.state.contract import Counts

    rows: list[dict[str, Any]] = []
    queries = found["queries"]
    for query in queries:
        name, dead = _name(query), query["dead"]
        for sink in query["sinks"]:
            counted = sink.get("counted", True)
            beside = " (as decided; Spark wrote them)" if sink.get("by_spark") else "" if counted else " (as recorded; not counted)"
            found_rows = sink["found"] if counted else "-"
            rows.append({"query": name, "what": f"sink {sink['sink']}{beside}", "decided": sink["decided"], "found": found_rows})
        expired = f" ({dead['expired']:,} more have outlived `retain`)" if dead["expired"] else ""
        purged = f" ({dead['purged']:,} more were purged)" if dead["purged"] else ""
        there = dead["decided"] - dead["expired"] - dead["purged"]
        rows.append({"query": name, "what": f"dead letters{expired}{purged}", "decided": there, "found": dead["found"]})
    for query in queries:
        if query.get("left_out") is not None:
            click.echo(f"query {_name(query)}: Batch {query['left_out']} is under way; this audit covers the Batches before it")
        if query["starts"]:
            positions = ", ".join(f"{source} {position}" for source, position in query["starts"].items())
            click.echo(f"query {_name(query)} went back to {positions}: what it read again is duplicated in the sinks")
    print_table(rows, {"query": "Query", "what": "rows of", "decided": "decided", "found": "found"})
    for query in queries:
        for sink in query["sinks"]:
            if "members" in sink:
                shares = ", ".join(f"{batches:,} to {member}" for member, batches in sink["members"].items())
                click.echo(f"sink {sink['sink']} goes to a group; of its Batches went to: {shares}")
    for channel in found["channels"]:
        left = f"; {channel['not_compared']:,} could not be" if channel["not_compared"] else ""
        click.echo(f"channel {channel['channel']} to {channel['reader']}: {channel['compared']:,} Batches compared at both ends{left}")
    console = open_console()
    counts = {_name(query): {node: Counts.from_json(each) for node, each in query["nodes"].items()} for query in queries}
    # masters of earlier releases leave "lines" out
    show_ledgers({"": {_name(query): [LedgerLine.from_json(each) for each in query.get("lines", ())] for query in queries}}, console)
    if any(query["batches"] for query in queries) or found["ledger"]["violations"]:
        show_verdict(found["ledger"]["violations"], console, besides=any(_others(found)), uncounted=_uncounted(found))
        if _lacks(found):
            console.print(Text(f"What to do: {remedy}"), soft_wrap=True)
    else:
        console.print(Text("Nothing was audited: no Batch is committed yet.", style="yellow"))
    show_losses(counts, console)
    for query in queries:
        losses = query["losses"]
        for loss in losses[-_LOSSES_SHOWN:]:
            click.echo(f"  query {_name(query)}, entry {loss['entry']} of {loss['source']}: {loss['what']}")
        if len(losses) > _LOSSES_SHOWN:
            click.echo(f"  query {_name(query)}: {len(losses) - _LOSSES_SHOWN:,} older ones are left out; --json has all")
