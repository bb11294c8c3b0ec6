"""`scribengin object list FLOW|URL`: list the objects that sinks have committed to object stores."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from scribengin.cli.answer import AnsweringCommand, CommandAnswer
from scribengin.cli.complete_values import nodes
from scribengin.cli.guesses import GuessingGroup
from scribengin.core.errors import Refused

if TYPE_CHECKING:
    from scribengin.connectors.objects.reading import CommittedObjects

_SHOWN = 50


@click.group(cls=GuessingGroup)
def command() -> None:
    """Committed objects of `type: objects` and `type: hdfs` sinks.

    \b
    Example:
      scribengin object list flow.yaml
    """


@command.command("list", cls=AnsweringCommand)
@click.argument("where", metavar="FLOW|URL")
@click.option("--sink", help="Only this sink.", shell_complete=nodes("sinks"))
@click.option("--endpoint", metavar="URL", help="With URL: address of the server, if it is not AWS.")
@click.option("--region", default="us-east-1", show_default=True, help="With URL: region.")
@click.option("--profile", help="With URL: profile of the access key. Default: the environment's.")
def list_(*, where: str, sink: str | None, endpoint: str | None, region: str, profile: str | None) -> CommandAnswer:
    """List committed objects in order of their Batches: url, rows, bytes, Batch.

    FLOW is a flow file; URL is the `url` of its sink, such as s3://shop/orders.

    \b
    Example:
      scribengin object list flow.yaml
    """
    if "://" in where:
        from scribengin.connectors.objects.reading import committed

        found = [("", committed(where, endpoint=endpoint, region=region, profile=profile))]
    else:
        found = _of_flow(where, sink)
    sinks = [
        {
            "sink": name,
            "url": each.address.url,
            "format": each.format,
            "rows": each.rows,
            "files": [{"url": url} | asdict(one) for url, one in zip(each.urls, each.objects, strict=True)],
        }
        for name, each in found
    ]
    return CommandAnswer(sinks, show=lambda: _show(sinks))


def _of_flow(flow: str, sink: str | None) -> list[tuple[str, CommittedObjects]]:
    """Returns (sink, committed objects) for each place of the flow's sinks; a sink that writes to a group has several places."""
    from scribengin.cli.flow_state import open_state
    from scribengin.connectors.objects.reading import committed_at
    from scribengin.plan.maintained_places import places_in_stores, sinks_in_stores

    declared = open_state(flow, None).declared
    nodes = sinks_in_stores(declared)
    if sink is not None and sink not in nodes:
        raise Refused(f'flow "{declared.name}" has no sink "{sink}" of type objects or hdfs', remedy=f"it has {', '.join(nodes) or 'none'}")
    if not nodes:
        raise Refused(
            f'flow "{declared.name}" has no sink of type objects or hdfs',
            remedy="files of `type: files` are committed once they have their final names: list the folder",
        )
    return [(name, committed_at(address)) for name, address, _ in places_in_stores(declared) if sink in (None, name)]


def _show(sinks: list[dict[str, Any]]) -> None:
    from scribengin.cli.tables import print_table
    from scribengin.core.units import show_bytes

    for each in sinks:
        files = each["files"]
        name = f"sink {each['sink']}: " if each["sink"] else ""
        click.echo(
            f"{name}{len(files):,} objects, {each['rows']:,} rows, {show_bytes(sum(file['bytes'] for file in files))}, {each['format']}"
        )
        shown = [{**file, "rows": f"{file['rows']:,}", "bytes": show_bytes(file["bytes"])} for file in files[:_SHOWN]]
        if shown:
            print_table(shown, {"url": "object", "rows": "rows", "bytes": "size", "batch": "Batch"})
        if len(files) > _SHOWN:
            click.echo(f"… and {len(files) - _SHOWN:,} more; --json has all")
