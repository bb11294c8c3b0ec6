"""Spark in the driver, for the sink: the session that runs the flow, whether it has a writer, and its errors as Scribengin errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.core.errors import Refused, SinkError, Unreachable
from scribengin.core.remedies import flow_command

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import SparkSession

    from scribengin.core.errors import ScribenginError

_PASSES = (
    "Connection refused",
    "Connection reset",
    "Broken pipe",
    "timed out",
    "TimeoutException",
    "UnknownHostException",
    "No route to host",
    "No space left on device",
    "Disk quota exceeded",
    "could only be written to 0 of",
    "ExecutorLostFailure",
    "Python worker exited unexpectedly",
    "Python worker failed to connect back",
    "ConcurrentModificationException",
    "CommitFailedException",
)
"""errors that a retry may solve: an unavailable or full system (HDFS: no DataNode accepts a block), a conflicting commit"""
_MOST = 500
_CALL = "An error occurred while calling "
"""beginning of a Java exception in Python; the exception itself is in the next line, after a colon"""


def session(sink: str) -> SparkSession:
    """The running session. Raises Refused if there is none: among commands only a run has one."""
    found = _running()
    if found is None:
        raise Refused(
            f'sink "{sink}": a batch is decided and not written, and only a run can write it, with Spark',
            remedy=f"run the unchanged flow once: {flow_command('run', '--once')}",
            code="spark-needed",
            node=sink,
        )
    return found


def check_format(sink: str, format: str) -> None:
    """Ask the running Spark for a writer of that name. Raises SinkError."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    spark = _running()
    if spark is None:
        return
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    try:
        jvm.org.apache.spark.sql.execution.datasources.DataSource.lookupDataSource(format, spark._jsparkSession.sessionState().conf())
    except (PySparkException, Py4JJavaError) as error:
        raise SinkError(
            f'sink "{sink}": Spark has no writer called "{format}": {_sentence(str(error))}',
            remedy="correct the name; if the writer is in a package, add it to the Spark settings: spark.jars.packages",
            code="spark-format",
            node=sink,
        ) from None


def fault(error: Exception, sink: str, what: str, secrets: Iterable[str]) -> ScribenginError:
    """Spark's message about a failed write, as a Scribengin error without secrets. `what` begins the sentence."""
    text = str(error)
    for secret in secrets:
        text = text.replace(secret, "***") if secret else text
    said = f'sink "{sink}": {what}: {_sentence(text)}'
    if any(each in text for each in _PASSES):
        return Unreachable(
            said,
            remedy="check that the target is up and has free space; a running flow retries automatically",
            code="spark-away",
            node=sink,
        )
    return SinkError(
        said, remedy="correct the sink's options, or its columns, according to the writer's message", code="spark-write", node=sink
    )


def _running() -> SparkSession | None:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if SparkContext._active_spark_context is None:
        return None
    return SparkSession.builder.getOrCreate()


def _sentence(text: str) -> str:
    """The innermost cause, else the first line: a writer's own error is below those of its job."""
    lines = [line.strip().removeprefix(": ") for line in text.splitlines() if line.strip()]
    lines = lines[1:] if len(lines) > 1 and lines[0].startswith(_CALL) else lines
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    raised = [line for line in lines if _is_python_error(line)]
    chosen = (raised or causes or lines or [type(text).__name__])[-1 if raised or causes else 0]
    return chosen if len(chosen) <= _MOST else f"{chosen[:_MOST]}…"


def _is_python_error(line: str) -> bool:
    name, colon, _ = line.partition(": ")
    return bool(colon) and name.replace(".", "").isidentifier() and name.endswith(("Error", "Exception")) and "." not in name
