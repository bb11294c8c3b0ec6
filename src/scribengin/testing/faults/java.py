"""A Java that starts faster: thousands of starts of a few seconds each want no second compiler, and an archive of Spark's classes."""

from __future__ import annotations

import os
import re
import subprocess
from typing import TYPE_CHECKING

from scribengin.core.java import find_java

if TYPE_CHECKING:
    from pathlib import Path

_BRIEF = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData -Xshare:auto"
_ARCHIVE = "-XX:SharedArchiveFile="
_CLASS_PATH = re.compile(r"^Spark Command: .*? -cp (\S+) ", re.MULTILINE)


def java_settings(archive: Path | None = None) -> dict[str, str]:
    """The environment for Spark's Java, and for the small one that starts it. An archive that does not fit is ignored by Java; without one
    that stays which the environment names already, as in tests."""
    named = f"{_ARCHIVE}{archive}" if archive is not None else _named_archive()
    return {"SPARK_SUBMIT_OPTS": f"{_BRIEF} {named}".strip(), "SPARK_LAUNCHER_OPTS": _BRIEF}


def _named_archive() -> str:
    options = os.environ.get("SPARK_SUBMIT_OPTS", "").split()
    return next((option for option in options if option.startswith(_ARCHIVE)), "")


def list_classes(file: Path) -> dict[str, str]:
    """The environment with which a run leaves the names of its classes in `file`, and its command in Spark's log."""
    return {"SPARK_SUBMIT_OPTS": f"{_BRIEF} -XX:DumpLoadedClassList={file}", "SPARK_PRINT_LAUNCH_COMMAND": "1"}


def make_archive(file: Path, classes: Path, spark_log: Path) -> bool:
    """Write the archive of what a run under `list_classes` has loaded; about half a minute. False where this Java can make none."""
    found = _CLASS_PATH.search(spark_log.read_text(errors="replace"))
    if found is None or not classes.exists():
        return False
    draft = file.with_name(f"{file.name}.{os.getpid()}")
    command = [str(find_java().home / "bin" / "java"), "-XX:+UseSerialGC", "-Xshare:dump", f"-XX:SharedClassListFile={classes}"]
    ended = subprocess.run([*command, f"{_ARCHIVE}{draft}", "-cp", found[1]], capture_output=True, check=False)
    if ended.returncode or not draft.exists():
        draft.unlink(missing_ok=True)
        return False
    draft.rename(file)
    return True
