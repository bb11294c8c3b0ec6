"""`scribengin preview FLOW`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from scribengin.cli.answer import CommandAnswer
from scribengin.cli.complete_values import nodes
from scribengin.cli.flow_argument import flow_argument, flow_path
from scribengin.cli.preview_settings import preview_settings
from scribengin.cli.settings import setting_flags
from scribengin.cli.warm import WarmCommand

if TYPE_CHECKING:
    from scribengin.local.preview_contract import Preview


@click.command(cls=WarmCommand)
@flow_argument
@click.option(
    "--at",
    metavar="NODE",
    help="Show only this step; only the nodes upstream of it run.",
    shell_complete=nodes("sources", "steps", "sinks"),
)
@click.option("--rows", type=click.IntRange(1, 10_000), default=20, show_default=True, help="Number of rows to show of each node.")
@click.option(
    "--sample",
    type=click.IntRange(1, 100_000),
    help="Number of records to read from each source. Default: 20, or the value of --rows if that is larger.",
)
@click.option(
    "--from", "files", multiple=True, metavar="[SOURCE=]FILE", help="Read records from FILE instead of the source. May be repeated."
)
@click.option("--watch", is_flag=True, help="Repeat on each change of the flow file or its modules, until Ctrl-C.")
@setting_flags("state", "spark_memory", "spark_conf", "warm")
def command(
    *, flow: str, at: str | None, rows: int, sample: int | None, files: tuple[str, ...], watch: bool, **flags: Any
) -> CommandAnswer:
    """Show what a flow makes of sample records, step by step: rows before and after, rows that each step drops, dead letters, types.

    The first records of each source go through the same steps as in a run. Nothing is written or acknowledged, so the flow may run
    meanwhile. Steps that keep state process the sample as one Batch, without a watermark.

    \b
    Example:
      scribengin preview flow.yaml --rows 5
    """
    path = flow_path(flow)
    settings = preview_settings(at=at, rows=rows, sample=sample, files=files, flags=flags)
    if watch:
        from scribengin.cli.preview_view import watch_previews

        return watch_previews(path, settings)
    from scribengin.local.preview import Previews

    with Previews(path, settings, tell=lambda said: click.echo(said, err=True)) as previews:
        preview = previews.preview_now()
    return CommandAnswer(preview.as_json(), preview.problems, preview.exit, show=lambda: _show(preview))


def _show(preview: Preview) -> None:
    from scribengin.cli.preview_view import show_preview

    show_preview(preview)
