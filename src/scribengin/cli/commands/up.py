"""`scribengin server dev`: run a registry, a master and workers on this machine until Ctrl-C."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from scribengin.cli.answer import AnsweringCommand, CommandAnswer
from scribengin.cli.cluster_options import hadoop_settings
from scribengin.cli.server_options import folder_option, keep_versions_option, listen_options, state_option, until_asked
from scribengin.cli.value_options import bytes_of, capacity_options

if TYPE_CHECKING:
    from scribengin.api.serving import Listen
    from scribengin.control.home import Home
    from scribengin.hosts.node import Capacity
    from scribengin.launch.yarn_cluster import YarnCluster


@click.command(cls=AnsweringCommand)
@state_option
@keep_versions_option
@listen_options
@click.option("--spark-standalone", is_flag=True, help="Also start a Spark cluster; executors are then processes of their own.")
@click.option("--spark-workers", type=click.IntRange(min=1), default=1, show_default=True, help="Number of workers of that cluster.")
@click.option("--spark-cores", type=click.IntRange(min=1), default=2, show_default=True, help="Cores that each of these workers offers.")
@click.option(
    "--spark-memory", metavar="SIZE", callback=bytes_of, default="2GiB", show_default=True, help="Memory that each of these workers offers."
)
@click.option(
    "--yarn",
    is_flag=False,
    flag_value="",
    metavar="[FOLDER]",
    type=click.Path(file_okay=False),
    help="Also start YARN and HDFS, and run the workers there. With the client settings of a cluster in FOLDER: in that cluster.",
)
@capacity_options
@folder_option
def command(
    *,
    state: Path | None,
    keep_versions: int,
    listen: Listen,
    spark_standalone: bool,
    spark_workers: int,
    spark_cores: int,
    spark_memory: int,
    yarn: str | None,
    capacity: Capacity,
    home: Home,
) -> CommandAnswer:
    """Run a control plane (ZooKeeper, a master, workers) on this machine, all of it in one folder, until Ctrl-C.

    Ctrl-C stops the workers after the current Batches. The next start resumes every flow. Submit flows with `scribengin apply`.

    With --yarn each worker is an application of YARN. In a cluster of other machines only the executors are: drivers stay here, with the
    registry, and the state must be where executors reach it (--state).

    \b
    Example:
      scribengin server dev --port 8080
      scribengin server dev --yarn
    """
    from scribengin.hosts.up import House

    spark = {"workers": spark_workers, "cores": spark_cores, "memory_mib": spark_memory // 2**20} if spark_standalone else None
    if (spark is not None or yarn is not None) and (capacity.cores or capacity.memory_bytes):
        instead = "use --spark-cores and --spark-memory" if spark is not None else "YARN has its own limits"
        raise click.UsageError(f"--cores and --memory are for workers in which Spark runs; {instead}")
    if spark is not None and yarn is not None:
        raise click.UsageError("--spark-standalone and --yarn are two places for the same executors: give one of them")
    cluster = _yarn_cluster(yarn, state) if yarn else yarn is not None
    house = House(
        home,
        state=state,
        listen=listen,
        capacity=capacity,
        tell=lambda line: click.echo(line, err=True),
        keep_versions=keep_versions,
        spark=spark,
        yarn=cluster,
    )
    with hadoop_settings(None if isinstance(cluster, bool) else cluster), until_asked() as asked, house:
        click.echo(f"up: API {house.url}, registry {house.address}, files in {home.folder}", err=True)
        click.echo("submit a flow: scribengin apply FILE; Ctrl-C stops the control plane", err=True)
        asked.wait()
        click.echo("stopping; Ctrl-C again exits at once, and the workers keep running", err=True)
    return CommandAnswer({"home": str(home.folder), "registry": str(house.address), "http": house.url})


def _yarn_cluster(conf: str, state: Path | None) -> YarnCluster:
    """The cluster of a folder with settings. On other machines only executors run there: this registry is reached from here alone.

    Raises:
        click.UsageError: the state would be where executors do not reach it.
        EnvironmentFault: the settings are not valid.
    """
    from scribengin.launch.yarn_cluster import YarnCluster

    cluster = YarnCluster.of(Path(conf))
    if cluster.local:
        return cluster
    if state is None:
        raise click.UsageError("--yarn with a cluster of other machines needs --state URL, which all of them reach")
    return replace(cluster, client=True)
