"""`scribengin version`: print versions."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

import click

from scribengin.cli.answer import AnsweringCommand, CommandAnswer


@click.command(cls=AnsweringCommand)
def command() -> CommandAnswer:
    """Print the versions of Scribengin and of what it runs on.

    \b
    Example:
      scribengin version
    """
    try:
        pyspark = version("pyspark")
    except PackageNotFoundError:
        pyspark = "not installed"
    result = {"scribengin": version("scribengin"), "pyspark": pyspark, "python": platform.python_version()}
    return CommandAnswer(result, show=lambda: click.echo("\n".join(f"{name:<10} {number}" for name, number in result.items())))
