"""Options that name a cluster: `--spark-…` of a standalone one, `--yarn-…`, and `--kubernetes-…`."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from scribengin.core.errors import EnvironmentFault
from scribengin.core.units import show_bytes, show_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from scribengin.launch.kubernetes_cluster import KubernetesCluster
    from scribengin.launch.standalone import SparkCluster
    from scribengin.launch.yarn_cluster import KerberosLogin, YarnCluster
    from scribengin.launch.yarn_python import PythonArchive

    Cluster = SparkCluster | YarnCluster | KubernetesCluster

C = TypeVar("C")
_KINDS = {"spark": "standalone"}
"""first word of an option → the kind of cluster that it belongs to, if that is not the word itself"""


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
            click.option(
                "--yarn-python-archive",
                metavar="FILE",
                type=click.Path(exists=True, dir_okay=False),
                help="Packed Python with Scribengin (.tar.gz), which the hosts get from HDFS; it is uploaded once.",
            ),
            click.option("--yarn-principal", metavar="NAME@REALM", help="Kerberos principal of the workers' applications."),
            click.option(
                "--yarn-keytab",
                metavar="FILE",
                type=click.Path(exists=True, dir_okay=False),
                help="Keytab with its key, which only this user may read.",
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
        word = name.partition("_")[0]
        if value is not None and (of := _KINDS.get(word, word)) != kind:
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
        packed = options["yarn_python_archive"]
        for name in ("yarn_python", "yarn_python_archive"):
            if client and options[name] is not None:
                flag_of_it = f"--{name.replace('_', '-')}"
                raise click.UsageError(f"{flag_of_it} needs --yarn-mode cluster: in client mode executors use the path of this Python")
        if packed is not None and options["yarn_python"] is not None:
            raise click.UsageError("--yarn-python names a Python of the hosts, --yarn-python-archive a packed one: give one of them")
        principal, keytab = options["yarn_principal"], options["yarn_keytab"]
        if (principal is None) != (keytab is None):
            raise click.UsageError("--yarn-principal and --yarn-keytab need each other")
        login = None if principal is None else _kerberos_login(principal, Path(keytab))
        archive = None if packed is None else _python_archive(Path(packed))
        python = options["yarn_python"] or ""
        queue = options["yarn_queue"] or ""
        return YarnCluster.of(Path(conf), queue=queue, python=python, client=client, archive=archive, login=login)
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


def _kerberos_login(principal: str, keytab: Path) -> KerberosLogin:
    """A login with a keytab. Raises EnvironmentFault: it cannot be used."""
    from scribengin.launch.yarn_cluster import KerberosLogin

    login = KerberosLogin(principal, keytab)
    login.check()
    return login


def _python_archive(path: Path) -> PythonArchive:
    """A packed Python. Raises EnvironmentFault: workers could not run with it."""
    from scribengin.launch.yarn_python import PythonArchive

    archive = PythonArchive.read(path)
    if archive.target:
        click.echo(f"note: the Python of {path} is only a link: every host of the cluster needs {archive.target}", err=True)
    return archive


def ship_python(cluster: Cluster | None) -> None:
    """Bring a packed Python to HDFS, and report it. If HDFS does not answer that is only reported: a worker's start tries it again."""
    from scribengin.launch.yarn_cluster import YarnCluster
    from scribengin.launch.yarn_python import PythonStore

    if not isinstance(cluster, YarnCluster) or cluster.archive is None:
        return
    store, archive, begun_s = PythonStore(cluster.file_system, cluster.user, cluster.web), cluster.archive, time.monotonic()
    try:
        place, uploaded = store.put(archive)
    except EnvironmentFault as fault:
        click.echo(f"{fault.message}; it is tried again when a worker is started", err=True)
        return
    took = f"uploaded, {show_bytes(archive.size)} in {show_duration(time.monotonic() - begun_s)}" if uploaded else "there already"
    click.echo(f"Python archive of the workers: {place} ({took})", err=True)


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
