"""The sink: tasks stage Parquet in the state folder; after the decision the driver passes the whole Batch to Spark's writer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from scribengin.connectors.contract import Receipt
from scribengin.connectors.files.sink_stream import FilesSinkStream, SegmentRules, StagedPlace
from scribengin.connectors.plain.sink import PlainSink
from scribengin.core.errors import Refused, SinkError, Unreachable
from scribengin.core.remedies import flow_command
from scribengin.core.secret import Secret
from scribengin.formats.catalog import encoder_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from scribengin.connectors.contract import BatchId, ConnectorContext, Decided
    from scribengin.connectors.plain.marks import Marks
    from scribengin.core.errors import ScribenginError
    from scribengin.core.types import Schema
    from scribengin.formats.contract import Bad


# Access to Spark in the driver: the session that runs the flow, a check for a writer, and Spark's errors as Scribengin errors.


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
"""errors that a retry may solve: a system that is unavailable or full (HDFS: no DataNode accepts a block), a conflicting commit"""
_MOST = 500
_CALL = "An error occurred while calling "
"""beginning of a Java exception in Python; the exception itself follows in the next line, after a colon"""


def session(sink: str) -> SparkSession:
    """The running session. Raises Refused if there is none: only the command `run` has one."""
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
    """Check that the running Spark has a writer of that name. Raises SinkError."""
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
    """Convert an error of a failed write to a Scribengin error without secrets.

    Args:
        error: Spark's error.
        sink: The id of the sink.
        what: The beginning of the sentence.
        secrets: Texts that must not appear in the message.
    """
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
    """The innermost cause, else the first line: the writer's own error is below the errors of its Spark job."""
    lines = [line.strip().removeprefix(": ") for line in text.splitlines() if line.strip()]
    lines = lines[1:] if len(lines) > 1 and lines[0].startswith(_CALL) else lines
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    raised = [line for line in lines if _is_python_error(line)]
    chosen = (raised or causes or lines or [type(text).__name__])[-1 if raised or causes else 0]
    return chosen if len(chosen) <= _MOST else f"{chosen[:_MOST]}…"


def _is_python_error(line: str) -> bool:
    name, colon, _ = line.partition(": ")
    return bool(colon) and name.replace(".", "").isidentifier() and name.endswith(("Error", "Exception")) and "." not in name


class SparkWriterSink(PlainSink):
    """A `type: spark` sink."""

    def __init__(self, place: ConnectorContext) -> None:
        super().__init__(place)
        options = place.options
        self._format: str = options["format"]
        path: str | None = options["path"]
        self._path = path if path is None or "://" in path else str(Path(place.folder, Path(path).expanduser()).absolute())
        self._given: Mapping[str, Any] = options["options"]
        self._partition_by: tuple[str, ...] = tuple(options["partition_by"])
        self._transaction: Mapping[str, str] | None = options["transaction"]
        self.exactly_once = self._transaction is not None

    def __str__(self) -> str:
        return f"{self._format} {self._path}" if self._path else f"Spark's writer of {self._format}"

    @property
    def redacted(self) -> Sequence[str]:
        """The options whose values Spark must not show; see `abilities.redacts`."""
        return [name for name, value in self._given.items() if isinstance(value, Secret)]

    def check(self) -> None:
        """Check that Spark has the writer; without a session nothing is checked."""
        check_format(self.node, self._format)

    def stream(self, batch: BatchId, unit: int, attempt: str, schema: Schema) -> ParquetRows:
        """A stream that stages one task output."""
        folder = self._marks(batch.lineage).folder(batch.number)
        return ParquetRows(StagedPlace(self.node, batch.lineage, batch.number, unit, attempt, folder), schema)

    def give(self, decided: Decided, marks: Marks) -> int:
        """Write the Batch with one Spark write; adds a notice if it is not the first attempt."""
        batch = decided.batch
        tries = marks.begin(batch.number)
        if tries > 1 and not self.exactly_once:
            self._notes.append(
                f'sink "{self.node}": batch {batch.number} ({decided.rows:,} rows) is written again: the previous attempt was '
                f"interrupted, and rows that it wrote to {self} may be duplicated"
            )
        self._write(decided, marks.folder(batch.number))
        return tries

    def _write(self, decided: Decided, folder: Path) -> None:
        """Pass exactly the decided files to the writer."""
        segments = [segment for receipt in decided.receipts for segment in receipt.segments]
        options = {name: value.reveal() if isinstance(value, Secret) else value for name, value in self._given.items()}
        if self._transaction is not None:
            batch = decided.batch
            # Batch numbers start from 0 in each lineage, and the writer would skip Batches that it considers old
            options[self._transaction["app"]] = f"scribengin {self._owner} {self._flow} {self.node} {batch.lineage}"
            options[self._transaction["version"]] = str(batch.number)
        spark = session(self.node)
        try:
            rows = spark.read.schema(segments[0]["columns"]).parquet(*(str(folder / segment["staged"]) for segment in segments))
            writer = rows.write.format(self._format).mode("append").options(**options)
            if self._partition_by:
                writer = writer.partitionBy(*self._partition_by)
            writer.save(self._path)
        except Exception as error:
            raise fault(error, self.node, f"{self} did not accept batch {decided.batch.number}", self._secrets()) from None

    def _secrets(self) -> list[str]:
        return [value.reveal() for value in self._given.values() if isinstance(value, Secret)]


class ParquetRows:
    """The rows of one task output, staged as Parquet. A segment also contains its `columns`."""

    wants_ids = False
    json_needs = None

    def __init__(self, place: StagedPlace, schema: Schema) -> None:
        encoders = encoder_for("parquet", compression="auto", options={})
        self._rows = FilesSinkStream(place, schema, encoders, (), SegmentRules())
        self._columns = schema.ddl()

    def write(self, batch: pa.RecordBatch, ids: Sequence[str] | None = None) -> Sequence[Bad]:
        """Stage the rows; all are accepted."""
        return self._rows.write(batch, ids)

    def close(self) -> Receipt:
        """Make the files durable, and return the write receipt."""
        receipt = self._rows.close()
        segments = tuple({**segment, "columns": self._columns} for segment in receipt.segments)
        return Receipt(receipt.sink, receipt.unit, receipt.rows, receipt.bytes, segments)

    def abort(self) -> None:
        """Delete the staged files."""
        self._rows.abort()
