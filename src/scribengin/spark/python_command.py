"""How Spark starts Python here: by a small script that takes Spark's copies of PySpark off the path.

Spark puts `pyspark.zip` and `py4j-*-src.zip` in front of every path. Both hold sources only, so each process that it starts compiles what
it imports of them: 0.2 to 0.5 s of a core, and a flow that keeps state starts four such processes before its first Batch.
"""

from __future__ import annotations

import os
import shlex
import site
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from scribengin.spark import source_runner

_SCRIPT = """#!/bin/sh
# Made by Scribengin: Python, without the zips of sources that Spark puts first on its path.
set -f
kept=
IFS=:
for entry in $PYTHONPATH; do
  case $entry in
    */pyspark.zip | */py4j-*-src.zip | */spark-core_*.jar) ;;
    *) kept=$kept${{kept:+:}}$entry ;;
  esac
done
unset IFS
{forks}PYTHONPATH=$kept exec {python} "$@"
"""


_FORKS = """\
case "$*" in
  "-m {runner}") PYTHONPATH=$kept exec {python} -I -S {asks} ;;
esac
"""
"""where processes are known by handles: elsewhere each planner process is a new one"""


def python_command(folder: Path, master: str) -> str:
    """The program that Spark of this master is to start for Python; writes the script into `folder`, where it is of use.

    It is Python itself where executors may be on other machines, where PySpark is found through the zips only, and if nothing in
    `folder` may be executed.
    """
    if not master.startswith("local") or not _is_installed():
        return sys.executable
    script = (folder / "python").resolve()
    draft = script.with_name(f"python.{os.getpid()}")
    with suppress(OSError):
        python, asks = shlex.quote(sys.executable), shlex.quote(source_runner.__file__)
        forks = _FORKS.format(runner=source_runner.RUNNER, python=python, asks=asks) if hasattr(os, "pidfd_open") else ""
        draft.write_text(_SCRIPT.format(python=python, forks=forks))
        draft.chmod(0o700)
        draft.replace(script)  # whole at any time: a driver that was overtaken may be starting a Python by the one that is there
        if os.access(script, os.X_OK):
            return str(script)
    return sys.executable


def _is_installed() -> bool:
    """Whether a Python that is started anew finds PySpark and Py4J without the zips."""
    places = {*site.getsitepackages(), site.getusersitepackages(), *os.environ.get("PYTHONPATH", "").split(os.pathsep)}
    for name in ("pyspark", "py4j"):
        found = find_spec(name)
        if found is None or found.origin is None or str(Path(found.origin).parents[1]) not in places:
            return False
    return True
