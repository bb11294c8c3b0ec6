"""An archive of Spark's classes (Java class data sharing). Java maps it when it starts, instead of reading and verifying each class: Spark
starts in about half the time (measured: docs/performance.md).

There is one archive for each Java and PySpark, in the cache folder. A session uses it if it exists; Java ignores one that does not fit. A
second JVM creates it from the classes that a JVM has loaded in a training run: some 20 s of one core, 170 MB. SCRIBENGIN_CLASS_ARCHIVE=no
disables it; `use` uses an existing archive and does not create one.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scribengin.core.cache import cache_folder
from scribengin.core.java import spark_home
from scribengin.spark.java_process import OPTION_VARIABLES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from scribengin.core.java import Java

_FLAG = "-XX:SharedArchiveFile"
VARIABLE = "SCRIBENGIN_CLASS_ARCHIVE"
_PRINTED = "java_pid*_std???"
_ROOM_BYTES = 500 * 2**20
"""free space that is needed to create one"""
_TRY_AGAIN_S = 24 * 3600.0
"""the time after a failed attempt in which no new one is made"""


def archive_path(java: Java) -> Path:
    """The path of the archive. The file may not exist."""
    home = spark_home()
    with suppress(OSError):
        jars = (home / "jars").stat().st_mtime_ns  # Java refuses an archive that was made with other jars
        place = f"{java.home} {java.version} {home} {jars}"
        return cache_folder() / "java" / f"spark-{sha256(place.encode()).hexdigest()[:16]}.jsa"
    return cache_folder() / "java" / "spark.jsa"


def archive_options(java: Java) -> str:
    """The Java options that name the archive; empty if there is none, if it is disabled, or if the user's Java options name one."""
    path = archive_path(java)
    return f"{shlex.quote(f'{_FLAG}={path}')} -Xshare:auto" if _is_wanted(path) and path.exists() else ""


@contextmanager
def claim(java: Java) -> Iterator[bool]:
    """Yields True if an archive is needed and does not exist; until the block ends no other process creates it."""
    path = archive_path(java)
    if not _may_be_made(path):
        yield False
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.with_suffix(".lock").open("w")
    except OSError:  # a cache that cannot be written
        yield False
        return
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
            return
        yield not path.exists()


def dump_archive(spark: SparkSession, java: Java) -> bool:
    """Make this session's JVM create the archive. The caller has claimed it. True if the archive was created."""
    path = archive_path(java)
    draft = path.with_suffix(".draft")
    with suppress(OSError):
        if shutil.disk_usage(path.parent).free >= _ROOM_BYTES:
            draft.unlink(missing_ok=True)
            before = set(Path.cwd().glob(_PRINTED))
            with suppress(Exception):  # errors of Java and Py4J: without the archive Spark only starts more slowly
                _dump(spark, draft)
            # the list of classes that the archive was made from; the output of the second JVM, in a file named after its process
            for left in (*path.parent.glob(f"{draft.name}.*"), *(set(Path.cwd().glob(_PRINTED)) - before)):
                left.unlink()
        if draft.exists():
            path.with_suffix(".spark").write_text(str(spark_home()))
            draft.rename(path)
            path.with_suffix(".failed").unlink(missing_ok=True)
            _remove_stale(path)
            return True
        path.with_suffix(".failed").touch()
    return False


def start_training() -> bool:
    """Create the archive in a separate process of low priority, which outlives this one. False if none is needed, another process creates
    it, or the last attempt failed less than a day ago."""
    from scribengin.core.java import find_java

    java = find_java()
    failed = archive_path(java).with_suffix(".failed")
    with suppress(OSError):
        if time.time() - failed.stat().st_mtime < _TRY_AGAIN_S:
            return False
    with claim(java) as claimed:
        if not claimed:
            return False
    with suppress(OSError):
        command = [sys.executable, "-m", "scribengin.local.training_run", "--background"]
        quiet = subprocess.DEVNULL
        subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True, cwd=archive_path(java).parent)
        return True
    return False


def _remove_stale(path: Path) -> None:
    """Remove archives of a PySpark that no longer exists, or that this one replaces."""
    for note in path.parent.glob("spark-*.spark"):
        home = Path(note.read_text())
        if note.stem != path.stem and (home == spark_home() or not home.exists()):
            for suffix in (".jsa", ".lock", ".failed", ".spark"):
                note.with_suffix(suffix).unlink(missing_ok=True)


def _may_be_made(path: Path) -> bool:
    return _is_wanted(path) and os.environ.get(VARIABLE) != "use" and not path.exists()


def _is_wanted(path: Path) -> bool:
    # Spark splits Java's options at blanks
    return (
        os.environ.get(VARIABLE) != "no"
        and " " not in str(path)
        and not any(_FLAG in os.environ.get(name, "") for name in OPTION_VARIABLES)
    )


def _dump(spark: SparkSession, file: Path) -> None:
    """Does what `jcmd PID VM.cds static_dump FILE` does. It calls Java's diagnostic commands, since a Java runtime may have no `jcmd`."""
    jvm: Any = spark._jvm
    gateway: Any = spark.sparkContext._gateway
    words = gateway.new_array(jvm.java.lang.String, 2)
    words[0], words[1] = "static_dump", str(file)
    arguments = gateway.new_array(jvm.java.lang.Object, 1)
    arguments[0] = words
    signature = gateway.new_array(jvm.java.lang.String, 1)
    signature[0] = "[Ljava.lang.String;"
    call = gateway.new_array(jvm.java.lang.Object, 4)
    call[0] = jvm.javax.management.ObjectName("com.sun.management:type=DiagnosticCommand")
    call[1], call[2], call[3] = "vmCds", arguments, signature
    # Py4J cannot access the server's own class, but it can access its interface
    methods = jvm.java.lang.Class.forName("javax.management.MBeanServer").getMethods()
    invoke = next(method for method in methods if method.getName() == "invoke")
    invoke.invoke(jvm.java.lang.management.ManagementFactory.getPlatformMBeanServer(), call)
