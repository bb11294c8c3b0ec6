"""`scribengin dev-services start|stop|status [NAMES…]`: run servers such as Kafka, ZooKeeper or Spark on this machine for development."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from scribengin.cli.answer import AnsweringCommand, CommandAnswer
from scribengin.cli.guesses import GuessingGroup
from scribengin.core.errors import Exit
from scribengin.core.problems import Place, Problem
from scribengin.embedded import services
from scribengin.embedded.services import NAMES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scribengin.embedded.services import ServiceInfo

_TROUBLE = {"dead": "ended without being stopped", "silent": "is running and does not answer"}


def _which(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add NAMES and --folder, which the three commands share."""
    folder = click.option(
        "--folder",
        type=click.Path(path_type=Path, file_okay=False),
        default=Path(".scribengin"),
        show_default=True,
        metavar="DIR",
        help="Folder whose services/ holds data, logs and ports.",
    )
    return click.argument("names", nargs=-1, metavar="[NAMES]...", type=click.Choice(NAMES))(folder(function))


@click.group(cls=GuessingGroup)
def command() -> None:
    """Real servers for trying and testing, on 127.0.0.1: a Kafka broker, a ZooKeeper, a Spark standalone cluster, and stores.

    NAMES are kafka, zookeeper, spark, postgres, opensearch, elasticsearch, cassandra, objects, hdfs, hbase. Without NAMES `start` starts
    kafka and zookeeper, and `stop` and `status` apply to all that were ever started.

    \b
    Example:
      scribengin dev-services start kafka
    """


@command.command(cls=AnsweringCommand)
@_which
def start(*, names: tuple[str, ...], folder: Path) -> CommandAnswer:
    """Start servers that are not running, and return when they answer. They run until `dev-services stop`.

    \b
    Example:
      scribengin dev-services start kafka
    """
    return _answer(services.start(_chosen(names, services.BY_DEFAULT), folder, partial(click.echo, err=True)))


@command.command(cls=AnsweringCommand)
@_which
def stop(*, names: tuple[str, ...], folder: Path) -> CommandAnswer:
    """Stop servers. Their data is kept.

    \b
    Example:
      scribengin dev-services stop kafka
    """
    return _answer(services.stop(_chosen(names, services.known(folder)), folder))


@command.command(cls=AnsweringCommand)
@_which
def status(*, names: tuple[str, ...], folder: Path) -> CommandAnswer:
    """Show running servers with address, process and log. The exit status is 1 if a server has died or does not answer.

    \b
    Example:
      scribengin dev-services status
    """
    return _answer(services.status(_chosen(names, services.known(folder)), folder))


def _chosen(names: tuple[str, ...], otherwise: Sequence[str]) -> Sequence[str]:
    return [name for name in NAMES if name in names] or otherwise


def _answer(found: list[ServiceInfo]) -> CommandAnswer:
    rows = [asdict(service) for service in found]
    problems = [
        Problem(
            f"service-{service.state}",
            Place(""),
            f"{service.name} {_TROUBLE[service.state]}",
            f"read {service.log}" + (f", then: scribengin dev-services start {service.name}" if service.state == "dead" else ""),
        )
        for service in found
        if service.state in _TROUBLE
    ]

    def show() -> None:
        from scribengin.cli.tables import print_table

        shown = [{name: "-" if value in ("", None) else str(value) for name, value in row.items()} for row in rows]
        print_table(shown, {"name": "service", "state": "state", "address": "address", "pid": "pid", "since": "since", "log": "log"})

    return CommandAnswer({"services": rows}, problems, Exit.FAILED if problems else Exit.DONE, show=show)
