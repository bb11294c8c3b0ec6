"""`scribengin server node`: make this machine a host of workers."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from scribengin.cli.answer import AnsweringCommand, CommandAnswer
from scribengin.cli.server_options import folder_option, listen_options, registry_options, until_asked
from scribengin.cli.value_options import capacity_options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scribengin.api.serving import Listen
    from scribengin.control.home import Home
    from scribengin.hosts.node import Capacity
    from scribengin.launch.standalone import SparkCluster
    from scribengin.launch.yarn import YarnCluster
    from scribengin.registry.connection_settings import ConnectionSettings


def _spark_master(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    from scribengin.launch.standalone import SparkCluster

    try:
        if value is not None:
            SparkCluster.of(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return value


def _cluster(launcher: str, options: Mapping[str, Any]) -> SparkCluster | YarnCluster | None:
    """The cluster that the options name; None: Spark runs in the workers."""
    from scribengin.launch.standalone import SparkCluster
    from scribengin.launch.yarn import YarnCluster

    for name, value in options.items():
        if value is not None and (of := _OF[name]) != launcher:
            raise click.UsageError(f"--{name.replace('_', '-')} needs --launcher {of}")
    if launcher == "standalone":
        if options["spark_master"] is None:
            raise click.UsageError("--launcher standalone needs --spark-master spark://HOST:PORT")
        return SparkCluster.of(options["spark_master"], options["spark_web"] or "")
    if launcher == "yarn":
        conf = options["yarn_conf"] or os.environ.get("HADOOP_CONF_DIR")
        if not conf:
            raise click.UsageError("--launcher yarn needs --yarn-conf FOLDER, or HADOOP_CONF_DIR in the environment")
        client = options["yarn_mode"] == "client"
        if client and options["yarn_python"] is not None:
            raise click.UsageError("--yarn-python needs --yarn-mode cluster: in client mode executors use the path of this Python")
        return YarnCluster.of(Path(conf), queue=options["yarn_queue"] or "", python=options["yarn_python"] or "", client=client)
    return None


_OF = {
    "spark_master": "standalone",
    "spark_web": "standalone",
    "yarn_conf": "yarn",
    "yarn_queue": "yarn",
    "yarn_python": "yarn",
    "yarn_mode": "yarn",
}
"""option → the launcher that it belongs to"""


@click.command(cls=AnsweringCommand)
@registry_options(required=True)
@click.option("--name", metavar="NAME", help="Name of this node. Default: the name of the machine.")
@capacity_options
@click.option(
    "--launcher",
    type=click.Choice(["local", "standalone", "yarn"]),
    default="local",
    show_default=True,
    help="Where Spark runs: inside the workers; with executors on a Spark standalone cluster; or all of it in YARN.",
)
@click.option("--spark-master", metavar="URL", callback=_spark_master, help="Master of that cluster: spark://HOST:PORT.")
@click.option("--spark-web", metavar="URL", help="Web page of its master. Default: port 8080 of the same host.")
@click.option(
    "--yarn-conf",
    metavar="FOLDER",
    type=click.Path(exists=True, file_okay=False),
    help="Client settings of YARN and HDFS: core-site.xml, hdfs-site.xml, yarn-site.xml. Default: HADOOP_CONF_DIR.",
)
@click.option("--yarn-queue", metavar="NAME", help="Queue of the workers' applications. Default: YARN's own.")
@click.option("--yarn-python", metavar="PATH", help="Python with Scribengin on the cluster's hosts. Default: the path of this one.")
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
    from scribengin.hosts.node import NodeAgent

    cluster = _cluster(launcher, options)
    if cluster is not None and (capacity.cores or capacity.memory_bytes):
        raise click.UsageError("--cores and --memory are for nodes where Spark runs in the workers; a cluster has its own limits")
    called = name or socket.gethostname()
    token = token_of(os.environ)
    with until_asked() as asked, NodeAgent(home, called, entrance, capacity=capacity, token=token, cluster=cluster, listen=listen) as node:
        click.echo(f"node {called} is up: page {node.url}, registry {entrance.address}, files in {home.folder}", err=True)
        asked.wait()
        click.echo("stopping; its workers keep running", err=True)
    return CommandAnswer({"name": called, "registry": str(entrance.address), "http": node.url, "home": str(home.folder)})
