"""An archive of Spark's classes, which Java maps at its start in place of reading and checking them one by one: Spark is up in about half
the time (measured: docs/recovery.md).

One for each Java and PySpark, in the cache folder; SCRIBENGIN_CLASS_ARCHIVE=no does without. A session takes it where it is there; Java
ignores one that does not fit. It is made of what a running flow has loaded, by that flow's own JVM, which has a second one do the work:
some 20 s of one core, 170 MB.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scribengin.core.cache import cache_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from scribengin.core.java import Java

_FLAG = "-XX:SharedArchiveFile"
VARIABLE = "SCRIBENGIN_CLASS_ARCHIVE"
_PRINTED = "java_pid*_std???"
_OTHERS = ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")
"""where a person may have named an archive of his own"""


def archive_path(java: Java) -> Path:
    """Where it is, or would be."""
    found = find_spec("pyspark")
    place = f"{java.home} {java.version} {found.origin if found is not None else ''}"
    return cache_folder() / "java" / f"spark-{sha256(place.encode()).hexdigest()[:16]}.jsa"


def archive_options(java: Java) -> str:
    """What Java is told at its start; empty where there is no archive, or a person has named one."""
    path = archive_path(java)
    return f"{_FLAG}={path} -Xshare:auto" if _is_wanted(path) and path.exists() else ""


def make_archive(spark: SparkSession, java: Java) -> bool:
    """Have this session's JVM make it, where there is none; True where this call has. Blocks until it is made; another process that makes
    it meanwhile is left to it. False also where this Java cannot (before 17), or the disk has no room."""
    path = archive_path(java)
    if not _is_wanted(path):
        return False
    draft = path.with_suffix(".draft")
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.exists():
                return False
            draft.unlink(missing_ok=True)
            before = set(Path.cwd().glob(_PRINTED))
            with suppress(Exception):  # Java's and Py4J's own: nothing depends on it but time
                _dump(spark, draft)
            # the list of classes that it was made from; what the second JVM has printed, in a file that bears its number
            for left in (*path.parent.glob(f"{draft.name}.*"), *(set(Path.cwd().glob(_PRINTED)) - before)):
                left.unlink()
            if draft.exists():
                draft.rename(path)
                return True
    return False


def _is_wanted(path: Path) -> bool:
    # Spark splits Java's options at blanks
    return os.environ.get(VARIABLE) != "no" and " " not in str(path) and not any(_FLAG in os.environ.get(name, "") for name in _OTHERS)


def _dump(spark: SparkSession, file: Path) -> None:
    """`jcmd PID VM.cds static_dump FILE`, which a Java without its tools can do as well: through its own diagnostic commands."""
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
    # the server's own class is closed to Py4J; its interface is not
    methods = jvm.java.lang.Class.forName("javax.management.MBeanServer").getMethods()
    invoke = next(method for method in methods if method.getName() == "invoke")
    invoke.invoke(jvm.java.lang.management.ManagementFactory.getPlatformMBeanServer(), call)
