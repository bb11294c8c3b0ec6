"""`scribengin server node`: make this machine a host of workers."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

import click

from scribengin.cli.answer import AnsweringCommand, CommandAnswer
from scribengin.cli.cluster_options import cluster_options, hadoop_settings, named_cluster, ship_python
from scribengin.cli.server_options import folder_option, listen_options, registry_options, until_asked
from scribengin.cli.value_options import capacity_options

if TYPE_CHECKING:
    from scribengin.api.serving import Listen
    from scribengin.control.home import Home
    from scribengin.hosts.node import Capacity
    from scribengin.registry.connection_settings import ConnectionSettings


@click.command(cls=AnsweringCommand)
@registry_options(required=True)
@click.option("--name", metavar="NAME", help="Name of this node. Default: the name of the machine.")
@capacity_options
@click.option(
    "--launcher",
    type=click.Choice(["local", "standalone", "yarn", "kubernetes"]),
    default="local",
    show_default=True,
    help="Where Spark runs: inside the workers; with executors on a Spark standalone cluster; or all of it in YARN or Kubernetes.",
)
@cluster_options
@click.option(
    "--yarn-mode",
    type=click.Choice(["cluster", "client"]),
    help="Where drivers run: in YARN (cluster, the default), or on this machine with executors in YARN (client).",
)
@listen_options
@folder_option
def command(
    *,
    entrance: ConnectionSettings,
    name: str | None,
    capacity: Capacity,
    launcher: str,
    listen: Listen,
    home: Home,
    **options: str | None,
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
    from scribengin.hosts.node import NodeHost

    cluster = named_cluster("--launcher", launcher, options)
    if cluster is not None and (capacity.cores or capacity.memory_bytes):
        raise click.UsageError("--cores and --memory are for nodes where Spark runs in the workers; a cluster has its own limits")
    called = name or socket.gethostname()
    token = token_of(os.environ)
    host = NodeHost(home, called, entrance, capacity=capacity, token=token, cluster=cluster, listen=listen)
    with hadoop_settings(cluster), until_asked() as asked:
        ship_python(cluster)
        with host as node:
            click.echo(f"node {called} is up: page {node.url}, registry {entrance.address}, files in {home.folder}", err=True)
            asked.wait()
            click.echo("stopping; its workers keep running", err=True)
    return CommandAnswer({"name": called, "registry": str(entrance.address), "http": node.url, "home": str(home.folder)})
