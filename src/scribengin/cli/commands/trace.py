"""`scribengin trace FLOW RECORD_ID`: show the path of a record, hop by hop."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from scribengin.cli.answer import CommandAnswer
from scribengin.cli.each_flow import FlowCommand, each_flow
from scribengin.cli.flow_argument import flow_argument, is_name
from scribengin.cli.flow_state import prepared_flow
from scribengin.cli.plane_option import masters_option
from scribengin.cli.settings import setting_flags
from scribengin.core.errors import ScribenginError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from scribengin.cli.plane_option import Masters
    from scribengin.client.client import Client

_MOST_FOLLOWED = 100
"""the number of traces in other flows that are followed, in each direction"""


@click.command(cls=FlowCommand)
@flow_argument
@click.argument("record_id")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="Maximum number of traces to show; --json has all.")
@setting_flags("state")
@masters_option
@each_flow("flow")
def command(*, flow: str, record_id: str, limit: int, state: Path | None, masters: Masters) -> CommandAnswer:
    """Trace a record through tiers, Batches and times to every sink and dead letter that it reached.

    RECORD_ID is the place where the record was first read (tweets/part-1.jsonl[0:4096]+17, tweets/topic-0@17, for an agent's record
    access/AGENT@NUMBER), a prefix of it, or the key of a dead letter (kept:0:2). Traces are kept for the share of records that
    `defaults: {trace: …}` sets, and for every dead letter.
    Headers of Kafka messages name the records they were made of, so the trace of a submitted flow continues in the flows upstream and
    downstream of it.

    \b
    Example:
      scribengin trace flow.yaml tweets/part-1.jsonl
    """
    if is_name(flow):
        with masters.client() as client:
            way = client.trace(flow, record_id)
            way |= _followed(client, way)
        ways = [*way["before"], way, *way["after"]]
        return CommandAnswer(way, show=lambda: _show_all(ways, limit))
    from scribengin.local.tracing import trace_record

    prepared = prepared_flow(flow, state)
    found = trace_record(prepared, record_id)
    return CommandAnswer(found, show=lambda: _show(found, limit))


def _followed(client: Client, way: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Follow a trace into other flows. `before` has the traces, in the flows upstream, of the records that this one was made from, the most
    upstream first. `after` has the traces of its rows in the flows downstream. A trace that cannot be read becomes a note of the trace that
    leads to it."""
    seen = {(way["flow"], way["record"])}

    def ahead(way: dict[str, Any]) -> Iterator[tuple[str, str]]:
        return ((each["flow"], each["record"]) for went in way.get("went", ()) for each in went["readers"])

    def behind(way: dict[str, Any]) -> Iterator[tuple[str, str]]:
        return ((each["flow"], each["record"]) for each in way.get("came", ()))

    def follow(way: dict[str, Any], on: Callable[[dict[str, Any]], Iterator[tuple[str, str]]]) -> list[dict[str, Any]]:
        found, coming = list[dict[str, Any]](), [way]
        while coming:
            here = coming.pop(0)
            for flow, record in on(here):
                if (flow, record) in seen:
                    continue
                if len(found) == _MOST_FOLLOWED:
                    here["notes"].append(
                        f" only {_MOST_FOLLOWED} are followed; continue with: scribengin trace {flow} {shlex.quote(record)}"
                    )
                    return found
                seen.add((flow, record))
                peer, far, there = flow.partition("/")
                if far:
                    here["notes"].append(f"it continues at peer {peer}; ask its masters: scribengin trace {there} {shlex.quote(record)}")
                    continue
                try:
                    found.append(client.trace(flow, record))
                except ScribenginError as error:
                    why = f"{record} of flow {flow} cannot be read: {error.message}"
                    elsewhere = "; for flows of a peer see: scribengin peer list" if error.code == "flow-unknown" else ""
                    here["notes"].append(why + elsewhere)
                else:
                    coming.append(found[-1])
        return found

    return {"before": follow(way, behind)[::-1], "after": follow(way, ahead)}


def _show_all(ways: Sequence[dict[str, Any]], limit: int) -> None:
    for way in ways:
        if len(ways) > 1:
            click.echo(click.style(f"flow {way['flow']}, record {way['record']}", bold=True))
        _show(way, limit)


def _show(found: dict[str, Any], limit: int) -> None:
    for came in found.get("came", ()):
        click.echo(f"made from record {came['record']} of flow {came['flow']}")
    for origin in {origin["read_at"]: origin for read in found["read"] if (origin := read.get("origin"))}.values():
        line = f", line {origin['line']:,}" if origin["line"] else ""
        click.echo(f"{origin['read_at']}  read on host {origin['host']}, {origin['file']}{line}, by agent {origin['agent']}")
        click.echo(f"{origin['stored_at']}  stored by gateway {origin['gateway']}")
    ways = [(each, f"sink {each['sink']}") for each in found["arrivals"]]
    ways += [(each, f"dead letter of {each['step']}: {each['reason']}: {each['message']}") for each in found["dead"]]
    for each, end in ways[:limit]:
        click.echo(click.style(each["id"], bold=True))
        for hop in each["hops"]:
            click.echo(f"  {hop_text(hop)}")
        click.echo(f"  → {end}")
    for read in found["read"]:
        acknowledged = "everything made from it is committed" if read["acknowledged"] else "not yet acknowledged"
        batch = f"Batch {read['batch']:,} of query {read['query']}, tier {read['tier']}"
        click.echo(f"{batch}, read {read['stream']} at {read['decided_at']}; {acknowledged}")
    all_went = found.get("went", ())
    for went in all_went[:limit]:
        readers = " and ".join(f"flow {each['flow']} reads it as {each['record']}" for each in went.get("readers", ()))
        click.echo(f"  → sink {went['sink']}, {went['place']}" + (f"; {readers}" if readers else ""))
    more = max(0, len(ways) - limit) + max(0, len(all_went) - limit)
    if more:
        click.echo(f"{more:,} more; see --limit")
    for note in found["notes"]:
        click.echo(note)


def hop_text(hop: dict[str, Any]) -> str:
    """A line such as `2026-01-01T10:00:00.000Z  edge, query hot_to_core, Batch 17, on host1`."""
    at = datetime.fromtimestamp(hop["time_ms"] / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    member = f", by {hop['member']}" if hop.get("member") else ""
    return f"{at}  {hop['tier']}, query {hop['query']}, Batch {hop['batch']:,}, on {hop['host']}{member}"
