"""`scribengin version`."""

from __future__ import annotations

import platform
from importlib.metadata import version

import click

from scribengin.cli.answer import Answer, AnsweringCommand


@click.command(cls=AnsweringCommand)
def command() -> Answer:
    """Print the version of Scribengin, and of what it runs on."""
    result = {"scribengin": version("scribengin"), "pyspark": version("pyspark"), "python": platform.python_version()}
    return Answer(result, show=lambda: click.echo("\n".join(f"{name:<10} {number}" for name, number in result.items())))
