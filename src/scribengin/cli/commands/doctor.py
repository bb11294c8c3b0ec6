"""`scribengin doctor`: one function for each check. A check reports what it found and, if that is not sufficient, a remedy."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import sys
import tempfile
import time
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from scribengin.cli.answer import AnsweringCommand, CommandAnswer
from scribengin.cli.cluster_options import cluster_options, hadoop_settings, named_cluster
from scribengin.cli.complete_values import flow_files
from scribengin.cli.findings import Finding, check_files, is_missing, show_findings
from scribengin.cli.settings import read_settings, setting_flags
from scribengin.cli.warm import warm_processes
from scribengin.core.errors import EnvironmentFault, Exit
from scribengin.core.java import find_java
from scribengin.core.remote import RemotePath
from scribengin.core.units import parse_duration_s, show_bytes, show_duration
from scribengin.spark.java_process import COMPARED

if TYPE_CHECKING:
    from scribengin.local.connection_checks import NodePlace

_ENOUGH_MEMORY = 2 * 2**30
_ENOUGH_ROOM = 2**30


def _python() -> Finding:
    return Finding("Python", "ok", f"{platform.python_version()} ({sys.executable})")


def _java() -> Finding:
    try:
        java = find_java()
    except EnvironmentFault as fault:
        return Finding("Java", "missing", fault.message, fault.remedy)
    return Finding("Java", "ok", f"{java.version} ({java.origin}: {java.home})")


def _pyspark() -> Finding:
    try:
        found = version("pyspark")
    except PackageNotFoundError:
        return Finding("PySpark", "missing", "not installed", "install it: pip install 'scribengin[spark]'")
    if not found.startswith(tuple(f"{release}." for release in COMPARED)):
        newest = COMPARED[-1]
        return Finding(
            "PySpark", "warning", found, f"Scribengin is tested with {' and '.join(COMPARED)}: pip install 'pyspark~={newest}.0'"
        )
    return Finding("PySpark", "ok", found)


def _jars() -> Finding:
    spec = find_spec("pyspark")
    home = os.environ.get("SPARK_HOME")
    folder = Path(home) if home else Path(spec.submodule_search_locations[0]) if spec and spec.submodule_search_locations else None
    jars = len(list((folder / "jars").glob("*.jar"))) if folder else 0
    if not jars:
        return Finding("jars", "missing", f"none in {folder}/jars", "unset SPARK_HOME, or install PySpark again")
    if home:
        return Finding(
            "jars", "warning", f"{jars} in {home}/jars (SPARK_HOME)", "unset SPARK_HOME, unless it is the same Spark as PySpark's"
        )
    return Finding("jars", "ok", f"{jars} in {folder}/jars")


def _memory() -> Finding:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = Path("/sys/fs/cgroup/memory.max")
    if limit.exists() and (text := limit.read_text().strip()).isdigit():
        total = min(total, int(text))
    found = f"{show_bytes(total)}, {os.cpu_count()} cores"
    if total < _ENOUGH_MEMORY:
        return Finding(
            "memory", "warning", found, "Spark and its Python workers need 2 GiB or more; set a smaller heap: --spark-memory 512m"
        )
    return Finding("memory", "ok", found)


def _loopback() -> Finding:
    try:
        with socket.create_server(("127.0.0.1", 0)):
            return Finding("loopback", "ok", "127.0.0.1 can be bound")
    except OSError as error:
        return Finding(
            "loopback",
            "missing",
            f"127.0.0.1 cannot be bound: {error.strerror}",
            "allow processes of this machine to connect to each other",
        )


def _folder(check: str, folder: Path, remedy: str) -> Finding:
    """Check that a local folder can be created and written, and that its disk has free space. Of a remote folder only check that it can be
    written."""
    if isinstance(folder, RemotePath):
        return check_files(check, folder)
    there = next(parent for parent in (folder.absolute(), *folder.absolute().parents) if parent.exists())
    if not os.access(there, os.W_OK | os.X_OK):
        return Finding(check, "missing", f"{there} cannot be written", remedy)
    free = shutil.disk_usage(there).free
    if free < _ENOUGH_ROOM:
        return Finding(
            check, "warning", f"{folder}: {show_bytes(free)} free", "make room: a Batch is staged on the disk before it is published"
        )
    return Finding(check, "ok", f"{folder}: {show_bytes(free)} free")


def _session() -> Finding:
    """Send a thousand rows through Spark and a Python worker."""
    from scribengin.spark.session import start_session, stop_session
    from scribengin.spark.without_pandas import map_in_arrow

    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="scribengin-") as folder:
        try:
            spark = start_session("doctor", master="", memory="", conf={}, folder=Path(folder), plans_only=True)
        except EnvironmentFault as fault:
            return Finding("Spark", "missing", fault.message, fault.remedy)
        try:
            rows = map_in_arrow(spark.range(1000), lambda batches: batches, "id BIGINT").count()
        finally:
            stop_session(spark)
    found = f"{rows} rows through Spark and a Python worker in {show_duration(time.monotonic() - begun)}"
    return Finding("Spark", "ok", found) if rows == 1000 else Finding("Spark", "missing", f"{found}, sent were 1000", "please report it")


def _warm() -> Finding:
    kept = warm_processes()
    sessions = ", ".join(f"{each.folder} (pid {each.pid})" for each in kept)
    return Finding("warm", "ok", f"Spark sessions kept for the next test, preview or plan: {sessions or 'none'}")


def _places(file: str, state: Path | None) -> list[NodePlace]:
    """The sources and sinks of a flow file. Raises InputError."""
    from scribengin.cli.flow_state import prepared_flow
    from scribengin.local.connection_checks import node_places

    return node_places(prepared_flow(file, state))


def _seconds(_context: click.Context, _parameter: click.Parameter, value: str) -> float:
    try:
        return parse_duration_s(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command(cls=AnsweringCommand)
@click.option("--spark", is_flag=True, help="Also start Spark and send a row through a Python worker (5 to 15 s).")
@click.option(
    "--cluster",
    type=click.Choice(["standalone", "yarn", "kubernetes"]),
    help="Also check a cluster: its servers, its rights, its queue, its files, and with a job of two tasks its hosts (about a minute).",
)
@cluster_options
@click.option(
    "--flow",
    "file",
    metavar="FILE",
    type=click.Path(),
    shell_complete=flow_files,
    help="Also check that the hosts of the cluster reach the sources and sinks of this flow.",
)
@click.option("--timeout", metavar="TIME", default="5m", show_default=True, callback=_seconds, help="Time after which the job is ended.")
@setting_flags("state", "spark_conf")
def command(
    *,
    spark: bool,
    cluster: str | None,
    file: str | None,
    timeout: float,
    state: Path | None,
    spark_conf: tuple[tuple[str, str], ...],
    **options: str | None,
) -> CommandAnswer:
    """Check this machine, and with --cluster a cluster. Show how to fix what is missing.

    \b
    Example:
      scribengin doctor --spark
      scribengin doctor --cluster yarn --yarn-conf /etc/hadoop/conf --yarn-queue etl
    """
    chosen = read_settings({"state": state, "spark_conf": spark_conf})
    place = chosen["state"].value
    if cluster is None and file is not None:
        raise click.UsageError("--flow needs --cluster; to check sources and sinks from this machine: scribengin validate FILE --env")
    named, refused = None, list[Finding]()
    try:
        named = named_cluster("--cluster", cluster, options)
    except EnvironmentFault as fault:
        refused = [Finding("settings", "missing", fault.message, fault.remedy)]
    with hadoop_settings(named):
        findings = [check() for check in (_python, _java, _pyspark, _jars, _memory, _loopback, _warm)]
        findings.append(_folder("state", place or Path.cwd(), "name a folder that can be written with --state or SCRIBENGIN_STATE"))
        findings.append(_folder("scratch", Path(tempfile.gettempdir()), "point TMPDIR at a folder that can be written"))
        if spark and not is_missing(findings):
            findings.append(_session())
        findings += refused
        if named is not None:
            from scribengin.cli.cluster_checks import ClusterChecks

            checks = ClusterChecks(
                named,
                place,
                places=[] if file is None else _places(file, state),
                spark=dict(chosen["spark_conf"].value),
                within_s=timeout,
                machine=not is_missing(findings),
            )
            findings += checks.findings()
    problems = [finding.problem for finding in findings if finding.state != "ok"]
    result: dict[str, Any] = {"checks": [asdict(finding) for finding in findings]}
    status = Exit.ENVIRONMENT if is_missing(findings) else Exit.DONE
    return CommandAnswer(result, problems, status, show=lambda: show_findings(findings))
