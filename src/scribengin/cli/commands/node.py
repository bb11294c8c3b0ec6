"""`scribengin server node`: make this machine a host of workers."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

import click

from scribengin.cli.answer import AnsweringCommand, CommandAnswer
from scribengin.cli.server_options import folder_option, listen_options, registry_options, until_asked
from scribengin.cli.value_options import capacity_options

if TYPE_CHECKING:
    from scribengin.api.serving import Listen
    from scribengin.control.home import Home
    from scribengin.hosts.node import Capacity
    from scribengin.launch.standalone import SparkCluster
    from scribengin.registry.connection_settings import ConnectionSettings


def _spark_master(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    from scribengin.launch.standalone import SparkCluster

    try:
        if value is not None:
            SparkCluster.of(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return value


def _cluster(launcher: str, master: str | None, web: str | None) -> SparkCluster | None:
    from scribengin.launch.standalone import SparkCluster

    if launcher == "local":
        if master or web:
            raise click.UsageError("--spark-master and --spark-web need --launcher standalone")
        return None
    if master is None:
        raise click.UsageError("--launcher standalone needs --spark-master spark://HOST:PORT")
    return SparkCluster.of(master, web or "")


@click.command(cls=AnsweringCommand)
@registry_options(required=True)
@click.option("--name", metavar="NAME", help="Name of this node. Default: the name of the machine.")
@capacity_options
@click.option(
    "--launcher",
    type=click.Choice(["local", "standalone"]),
    default="local",
    show_default=True,
    help="Where Spark runs: inside the workers, or with executors on a Spark standalone cluster.",
)
@click.option("--spark-master", metavar="URL", callback=_spark_master, help="Master of that cluster: spark://HOST:PORT.")
@click.option("--spark-web", metavar="URL", help="Web page of its master. Default: port 8080 of the same host.")
@listen_options
@folder_option
def command(
    *,
    entrance: ConnectionSettings,
    name: str | None,
    capacity: Capacity,
    launcher: str,
    spark_master: str | None,
    spark_web: str | None,
    listen: Listen,
    home: Home,
) -> CommandAnswer:
    """Run a node: a host on which masters start workers, until Ctrl-C or SIGTERM. The node registers itself.

    Its workers outlive it and continue; the next node with the same folder and name adopts them. To move them to other nodes first, run
    `scribengin node drain NAME --wait`. The node's page and the logs of its workers are served to this machine; with --listen also to
    masters on other hosts, which authenticate with a key that both derive from the registry's password.

    \b
    Example:
      scribengin server node --registry zk://z1:2181/flows --login-file login --cores 8
    """
    from scribengin.control.masters import token_of
    from scribengin.hosts.node import NodeAgent

    cluster = _cluster(launcher, spark_master, spark_web)
    if cluster is not None and (capacity.cores or capacity.memory_bytes):
        raise click.UsageError("--cores and --memory are for nodes where Spark runs in the workers; a Spark cluster reports its own")
    called = name or socket.gethostname()
    token = token_of(os.environ)
    with until_asked() as asked, NodeAgent(home, called, entrance, capacity=capacity, token=token, cluster=cluster, listen=listen) as node:
        click.echo(f"node {called} is up: page {node.url}, registry {entrance.address}, files in {home.folder}", err=True)
        asked.wait()
        click.echo("stopping; its workers keep running", err=True)
    return CommandAnswer({"name": called, "registry": str(entrance.address), "http": node.url, "home": str(home.folder)})
