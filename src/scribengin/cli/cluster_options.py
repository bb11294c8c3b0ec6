"""Options that name a cluster: `--spark-…` of a standalone one, `--yarn-…`, and `--kubernetes-…`."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from scribengin.launch.kubernetes_cluster import KubernetesCluster
    from scribengin.launch.standalone import SparkCluster
    from scribengin.launch.yarn_cluster import YarnCluster

    Cluster = SparkCluster | YarnCluster | KubernetesCluster

C = TypeVar("C")
_OF = {
    "spark_master": "standalone",
    "spark_web": "standalone",
    "yarn_conf": "yarn",
    "yarn_queue": "yarn",
    "yarn_python": "yarn",
    "yarn_mode": "yarn",
    "kubernetes_image": "kubernetes",
    "kubernetes_config": "kubernetes",
    "kubernetes_context": "kubernetes",
    "kubernetes_namespace": "kubernetes",
    "kubernetes_service_account": "kubernetes",
    "kubernetes_pod_template": "kubernetes",
    "kubernetes_python": "kubernetes",
    "kubernetes_api": "kubernetes",
}
"""option → the kind of cluster that it belongs to"""


def _spark_master(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    from scribengin.launch.standalone import SparkCluster

    try:
        if value is not None:
            SparkCluster.of(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return value


def cluster_options(command: Callable[..., C]) -> Callable[..., C]:
    """Add the options to a command, which receives each by its name; None if it was not given."""
    for option in reversed(
        [
            click.option("--spark-master", metavar="URL", callback=_spark_master, help="Master of that cluster: spark://HOST:PORT."),
            click.option("--spark-web", metavar="URL", help="Web page of its master. Default: port 8080 of the same host."),
            click.option(
                "--yarn-conf",
                metavar="FOLDER",
                type=click.Path(exists=True, file_okay=False),
                help="Client settings of YARN and HDFS: core-site.xml, hdfs-site.xml, yarn-site.xml. Default: HADOOP_CONF_DIR.",
            ),
            click.option("--yarn-queue", metavar="NAME", help="Queue of the workers' applications. Default: YARN's own."),
            click.option(
                "--yarn-python", metavar="PATH", help="Python with Scribengin on the cluster's hosts. Default: the path of this one."
            ),
            click.option("--kubernetes-image", metavar="IMAGE", help="Image of drivers and executors, with Scribengin, Python and Java."),
            click.option(
                "--kubernetes-config",
                metavar="FILE",
                type=click.Path(exists=True, dir_okay=False),
                help="A kubeconfig file. Default: the service account of this pod, else KUBECONFIG, else ~/.kube/config.",
            ),
            click.option("--kubernetes-context", metavar="NAME", help="Context in that file. Default: its current one."),
            click.option("--kubernetes-namespace", metavar="NAME", help="Namespace of the workers. Default: that of the context."),
            click.option("--kubernetes-service-account", metavar="NAME", help="Service account of drivers. Default: scribengin-worker."),
            click.option(
                "--kubernetes-pod-template",
                metavar="FILE",
                type=click.Path(exists=True, dir_okay=False),
                help="A Pod in YAML that drivers and executors extend: tolerations, volumes, labels.",
            ),
            click.option("--kubernetes-python", metavar="PATH", help="Python in the image. Default: python."),
            click.option("--kubernetes-api", metavar="URL", help="Address of the API for pods. Default: https://kubernetes.default.svc."),
        ]
    ):
        command = option(command)
    return command


def named_cluster(flag: str, kind: str | None, options: Mapping[str, Any]) -> Cluster | None:
    """The cluster that the options name.

    Args:
        flag: the option with the kind of the cluster, such as `--launcher`.
        kind: its value. Any but `standalone`, `yarn` and `kubernetes` names no cluster.
        options: what `cluster_options` has added, and `yarn_mode` of commands that have it.

    Returns:
        The cluster; None if none is named.

    Raises:
        click.UsageError: an option is missing, or belongs to another kind.
        EnvironmentFault: the settings of YARN or of Kubernetes are not valid.
    """
    for name, value in options.items():
        if value is not None and (of := _OF[name]) != kind:
            raise click.UsageError(f"--{name.replace('_', '-')} needs {flag} {of}")
    if kind == "standalone":
        from scribengin.launch.standalone import SparkCluster

        if options["spark_master"] is None:
            raise click.UsageError(f"{flag} standalone needs --spark-master spark://HOST:PORT")
        return SparkCluster.of(options["spark_master"], options["spark_web"] or "")
    if kind == "yarn":
        from scribengin.launch.yarn_cluster import YarnCluster

        conf = options["yarn_conf"] or os.environ.get("HADOOP_CONF_DIR")
        if not conf:
            raise click.UsageError(f"{flag} yarn needs --yarn-conf FOLDER, or HADOOP_CONF_DIR in the environment")
        client = options.get("yarn_mode") == "client"
        if client and options["yarn_python"] is not None:
            raise click.UsageError("--yarn-python needs --yarn-mode cluster: in client mode executors use the path of this Python")
        return YarnCluster.of(Path(conf), queue=options["yarn_queue"] or "", python=options["yarn_python"] or "", client=client)
    if kind == "kubernetes":
        if options["kubernetes_image"] is None:
            raise click.UsageError(f"{flag} kubernetes needs --kubernetes-image IMAGE")
        from scribengin.launch.kubernetes_cluster import KubernetesCluster

        template = options["kubernetes_pod_template"]
        return KubernetesCluster.of(
            options["kubernetes_image"],
            config=options["kubernetes_config"],
            context=options["kubernetes_context"],
            namespace=options["kubernetes_namespace"],
            service_account=options["kubernetes_service_account"],
            template=Path(template) if template else None,
            python=options["kubernetes_python"],
            api=options["kubernetes_api"],
        )
    return None


@contextmanager
def hadoop_settings(cluster: Cluster | None) -> Iterator[None]:
    """Let HDFS's client use the settings of a YARN cluster inside the block, unless HADOOP_CONF_DIR names others."""
    if cluster is None:
        yield
        return
    from scribengin.launch.yarn_cluster import YarnCluster

    if not isinstance(cluster, YarnCluster) or "HADOOP_CONF_DIR" in os.environ:
        yield
        return
    os.environ["HADOOP_CONF_DIR"] = str(cluster.conf)
    try:
        yield
    finally:
        del os.environ["HADOOP_CONF_DIR"]
