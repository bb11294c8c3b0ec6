"""Prints the graph of one flow for people: a line for each node, below its tier, and the channels between tiers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from scribengin.core.units import show_bytes, show_duration

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scribengin.client.state_models import FlowGraph, GraphNode


def show_steps(graph: FlowGraph) -> None:
    """Print the graph, with the current rates and backlogs of nodes and channels if they are known."""
    click.echo(f"{click.style(f'flow {graph.flow}', bold=True)}, version {graph.version}")
    if not graph.told:
        click.echo("no report from a worker yet")
    reads: dict[str, list[str]] = {}
    for edge in graph.edges:
        reads.setdefault(edge.node, []).append(edge.reads + (f" (by {edge.channel})" if edge.channel else ""))
    for tier in graph.tiers:
        where = f" on group {tier.group}" if tier.group else ""
        click.echo(f"\ntier {click.style(tier.tier, bold=True)}{where}, {tier.state or 'created'}, worker {tier.worker or '–'}")
        for node in graph.nodes:
            if tier.tier in node.tiers:
                _show_node(node, reads.get(node.node, []))
    if graph.channels:
        click.echo("\nchannels")
    for channel in graph.channels:
        click.echo(f"  {click.style(channel.channel, bold=True)}  {channel.feeding} to {channel.reading}, {channel.place}")
        click.echo(click.style(f"    {'; '.join(f'{name} {value}' for name, value in channel.properties.items())}", dim=True))
        if channel.live is not None:
            click.echo(f"    {_gate_text(channel.live)}")


def _show_node(node: GraphNode, reads: list[str]) -> None:
    arrow = f" <- {', '.join(reads)}" if reads else ""
    kind = f"{node.kind} " if node.kind in ("source", "sink") else ""
    click.echo(f"  {kind}{click.style(node.node, bold=True)}{arrow}  {click.style(node.about, dim=True)}")
    if node.live is not None:
        click.echo(f"    {_live_text(node.live)}")


def _live_text(live: Mapping[str, Any]) -> str:
    """A text such as `412 rows/s, 120,000 rows by this process; 1,200 rows wait, the oldest 4s`."""
    said = f"{live['rows_per_s']:,.0f} rows/s, {live['rows']:,} rows by this process"
    waits = f"{live['lag_rows']:,} rows" if live.get("lag_rows") else show_bytes(live["lag_bytes"]) if live.get("lag_bytes") else ""
    age = f", the oldest {show_duration(live['lag_seconds'])}" if waits and live.get("lag_seconds") else ""
    return f"{said}; {waits} wait{age}" if waits else said


def _gate_text(live: Mapping[str, Any]) -> str:
    rates = f"in {live['in_per_s']:,.0f} rows/s, out {live['out_per_s']:,.0f} rows/s"
    waits = f"{live['rows']:,} rows wait, {show_bytes(live['bytes'])}, the oldest {show_duration(live['age_s'])}"
    return f"{rates}; {waits if live['rows'] else 'nothing waits'}{'; it is full, and its upstream is paused' * live['paused']}"
