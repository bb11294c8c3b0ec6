"""`scribengin dev-jars fetch [SETS…]`."""

from __future__ import annotations

from functools import partial

import click

from scribengin.cli.answer import AnsweringCommand, CommandAnswer
from scribengin.cli.guesses import GuessingGroup
from scribengin.core.problems import did_you_mean
from scribengin.embedded import jars


@click.group(cls=GuessingGroup)
def command() -> None:
    """Jars that PySpark does not include, pinned by SHA-256, in a cache that all projects share.

    \b
    Example:
      scribengin dev-jars fetch kafka
    """


@command.command(cls=AnsweringCommand)
@click.argument("sets", nargs=-1, metavar="[SETS]...")
def fetch(*, sets: tuple[str, ...]) -> CommandAnswer:
    """Download missing jars into the cache; all sets by default.

    SCRIBENGIN_CACHE sets the folder of the cache. SCRIBENGIN_IVY_SETTINGS names an Ivy settings file, for a machine that reaches only a
    repository of your own.

    \b
    Example:
      scribengin dev-jars fetch kafka
    """
    known = jars.set_names()
    for name in sets:
        if name not in known:
            near = did_you_mean(name, known) or f"they are {', '.join(known)}"
            raise click.UsageError(f'there is no set "{name}" of jars; {near}')
    rows = []
    for name in [name for name in known if name in sets] or known:
        lacked = len(jars.missing(name))
        paths = jars.fetch(name, partial(click.echo, err=True))
        rows.append({"set": name, "jars": len(paths), "fetched": lacked})
    folder = str(jars.jars_folder())

    def show() -> None:
        for row in rows:
            click.echo(f"{row['set']}: {row['jars']} jars in {folder}, {row['fetched']} of them fetched now")

    return CommandAnswer({"folder": folder, "sets": rows}, show=show)
