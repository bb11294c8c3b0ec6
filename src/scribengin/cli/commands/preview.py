"""`scribengin preview FLOW`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from scribengin.cli.answer import Answer
from scribengin.cli.flow_argument import flow_argument, flow_path
from scribengin.cli.preview_settings import preview_settings
from scribengin.cli.settings import setting_flags
from scribengin.cli.warm import WarmCommand

if TYPE_CHECKING:
    from scribengin.local.preview_contract import Preview


@click.command(cls=WarmCommand)
@flow_argument
@click.option("--at", metavar="NODE", help="This step only; what feeds it runs, nothing else.")
@click.option("--rows", type=click.IntRange(1, 10_000), default=20, show_default=True, help="How many rows are shown of each node.")
@click.option(
    "--sample", type=click.IntRange(1, 100_000), help="How many records are taken of each source; 20, or as many as --rows, by default."
)
@click.option(
    "--from", "files", multiple=True, metavar="[SOURCE=]FILE", help="Records of a file instead of a source's. Can be given again."
)
@click.option("--watch", is_flag=True, help="Again at each change of the flow file or its modules, until Ctrl-C.")
@setting_flags("state", "spark_memory", "spark_conf", "warm")
def command(*, flow: str, at: str | None, rows: int, sample: int | None, files: tuple[str, ...], watch: bool, **flags: Any) -> Answer:
    """Show what a flow makes of some records, step by step: rows before and after, what each step drops, dead letters, types.

    The first records of each source go through the same steps as in a run. Nothing is written and nothing is acknowledged: it may be looked
    at while the flow runs. Steps that keep state see the sample as one Batch, without a watermark.
    """
    path = flow_path(flow)
    settings = preview_settings(at=at, rows=rows, sample=sample, files=files, flags=flags)
    if watch:
        from scribengin.cli.preview_watch import watch_previews

        return watch_previews(path, settings)
    from scribengin.local.preview import Previews

    with Previews(path, settings, tell=lambda said: click.echo(said, err=True)) as previews:
        preview = previews.look()
    return Answer(preview.as_json(), preview.problems, preview.exit, show=lambda: _show(preview))


def _show(preview: Preview) -> None:
    from scribengin.cli.preview_text import show_preview

    show_preview(preview)
