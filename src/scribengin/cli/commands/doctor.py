"""`scribengin doctor`: one function for each check. A check reports what it found and, if that is not sufficient, a remedy."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from uuid import uuid4

import click

from scribengin.cli.answer import AnsweringCommand, CommandAnswer
from scribengin.cli.settings import read_settings, setting_flags
from scribengin.cli.warm import warm_processes
from scribengin.core.errors import EnvironmentFault, Exit, ScribenginError
from scribengin.core.java import find_java
from scribengin.core.problems import Place, Problem
from scribengin.core.remote import RemotePath
from scribengin.core.units import show_bytes, show_duration
from scribengin.spark.java_process import COMPARED

if TYPE_CHECKING:
    from collections.abc import Callable

_ENOUGH_MEMORY = 2 * 2**30
_ENOUGH_ROOM = 2**30


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check. `state` is ok, warning (Scribengin runs, but with a disadvantage) or missing (it cannot run)."""

    check: str
    state: Literal["ok", "warning", "missing"]
    found: str
    remedy: str = ""


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
        return _elsewhere(check, folder)
    there = next(parent for parent in (folder.absolute(), *folder.absolute().parents) if parent.exists())
    if not os.access(there, os.W_OK | os.X_OK):
        return Finding(check, "missing", f"{there} cannot be written", remedy)
    free = shutil.disk_usage(there).free
    if free < _ENOUGH_ROOM:
        return Finding(
            check, "warning", f"{folder}: {show_bytes(free)} free", "make room: a Batch is staged on the disk before it is published"
        )
    return Finding(check, "ok", f"{folder}: {show_bytes(free)} free")


def _elsewhere(check: str, folder: RemotePath) -> Finding:
    probe = folder / f".doctor.{uuid4().hex}"
    try:
        probe.touch_over()
        probe.remove(all_in_it=False)
    except ScribenginError as error:
        return Finding(check, "missing", error.message, error.remedy)
    return Finding(check, "ok", f"{folder}: can be written")


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


@click.command(cls=AnsweringCommand)
@click.option("--spark", is_flag=True, help="Also start Spark and send a row through a Python worker (5 to 15 s).")
@setting_flags("state")
def command(spark: bool, state: Path | None) -> CommandAnswer:
    """Check this machine and say how to fix what is missing.

    \b
    Example:
      scribengin doctor --spark
    """
    chosen = read_settings({"state": state})
    folder = chosen["state"].value or Path.cwd()
    checks: list[Callable[[], Finding]] = [_python, _java, _pyspark, _jars, _memory, _loopback, _warm]
    findings = [check() for check in checks]
    findings.append(_folder("state", folder, "name a folder that can be written with --state or SCRIBENGIN_STATE"))
    findings.append(_folder("scratch", Path(tempfile.gettempdir()), "point TMPDIR at a folder that can be written"))
    if spark and all(finding.state != "missing" for finding in findings):
        findings.append(_session())
    missing = any(finding.state == "missing" for finding in findings)
    problems = [_problem(finding) for finding in findings if finding.state != "ok"]
    result: dict[str, Any] = {"checks": [asdict(finding) for finding in findings]}
    return CommandAnswer(result, problems, Exit.ENVIRONMENT if missing else Exit.DONE, show=lambda: _show(findings))


def _problem(finding: Finding) -> Problem:
    severity: Literal["error", "warning"] = "error" if finding.state == "missing" else "warning"
    return Problem(f"doctor-{finding.check.lower()}", Place(""), f"{finding.check}: {finding.found}", finding.remedy, severity)


def _show(findings: list[Finding]) -> None:
    marks = {"ok": click.style("✓", fg="green"), "warning": click.style("!", fg="yellow"), "missing": click.style("✗", fg="red")}
    for finding in findings:
        click.echo(f"{marks[finding.state]} {finding.check:<9} {finding.found}")
