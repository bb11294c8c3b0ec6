"""Translates Spark's exceptions to Scribengin's: the cause that a user can fix, with the line of the user's code, and whether a retry
helps."""

from __future__ import annotations

import re
from typing import Literal

from scribengin.core.errors import (
    EnvironmentFault,
    FencedError,
    Refused,
    ScribenginError,
    SinkError,
    SourceError,
    StateError,
    StepError,
    Unreachable,
)

Fate = Literal["transient", "permanent"]

# The end of a Python worker's traceback, wherever it is nested in a JVM message.
_OURS = re.compile(r"scribengin\.core\.errors\.(\w+): (.*?)(?=\n\s*\n|\nDuring handling|\n\s*at |\Z)", re.DOTALL)
_NOTE = re.compile(r"^  (remedy|code|node): (.*)$", re.MULTILINE)
_PYTHON = re.compile(r"^(\w+(?:\.\w+)*(?:Error|Exception|Warning|Interrupt)): (.*)$", re.MULTILINE)
_CLASS = re.compile(r"\[([A-Z][A-Z0-9_.]+)\]")
_CRASHED = re.compile(
    r"Python worker exited unexpectedly \(crashed\): Fatal Python error: ([^\n]+)\n(.*?)(?:\n\s*\n\s*(?:Extension|at )|\n\s*at |\Z)",
    re.DOTALL,
)
_USERS_FRAME = re.compile(r'File "[^"\n]*/code/\w+\.zip/([^"\n]+)", line (\d+) in (\w+)')
_KINDS = {kind.__name__: kind for kind in (SourceError, SinkError, Unreachable, StateError, StepError, FencedError, Refused)}
# Error conditions of Spark that a retry may not meet (docs/protocol.md lists them).
_TRANSIENT = (
    "Python worker exited unexpectedly",
    "Python worker failed to connect back",
    "Connection reset",
    "Connection refused",
    "java.net.SocketTimeoutException",
    "Broken pipe",
    "ExecutorLostFailure",
    "SparkOutOfMemoryError",
    "No space left on device",
    "Too many open files",
    "CONCURRENT_STREAM_LOG_UPDATE",
)
# Executors without the driver's Python: it has another version, does not exist there, is of another system, may not be executed.
_OTHER_PYTHON = re.compile(r"Python in worker has different version: (\S+) than that in driver: (\S+?),")
_NO_PYTHON = re.compile(r'Cannot run program "([^"]*python[^"]*)"[^\n]*error=(?:2|8|13),')
# Messages of Hadoop's client in Spark's JVM about an unavailable HDFS that stores the flow's checkpoints.
_CALL = re.compile(r"Call From \S+ to (\S+) failed on (?:[\w ]+: )?(?:[\w.]+\.)?(\w+: [^;\n]+)")
_CUT = re.compile(r'(\w[\w ]+) between local host is: [^;]+; destination host is: "([^"]+)":(\d+)')
_HDFS = (
    re.compile(r"Name node is in safe mode"),
    re.compile(r"could only be written to \d+ of the \d+ minReplication nodes"),
    re.compile(r"Could not obtain block: \S+"),
    re.compile(r"All datanodes \[.*?\] are bad"),
    re.compile(r"Unable to close file because the last block \S+ does not have enough number of replicas"),
)
# Conditions that say only that Python raised; the exception itself is in the traceback that follows.
_WRAPPERS = ("PYTHON_EXCEPTION", "PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR", "PYTHON_DATA_SOURCE_ERROR")
_DATA = (
    "CAST_INVALID_INPUT",
    "DIVIDE_BY_ZERO",
    "ARITHMETIC_OVERFLOW",
    "NUMERIC_VALUE_OUT_OF_RANGE",
    "INVALID_ARRAY_INDEX",
    "CANNOT_PARSE_TIMESTAMP",
    "INCONSISTENT_BEHAVIOR_CROSS_VERSION.PARSE_DATETIME",
)
_DATA_PREFIXES = (
    "CAST_",
    "INVALID_",
    "CANNOT_PARSE",
    "MALFORMED_",
    "USER_RAISED",
    "DATETIME_",
    "REMAINDER_BY_ZERO",
    "BINARY_ARITHMETIC",
    "INTERVAL_",
    "DECIMAL_",
)


def classify(error: BaseException) -> tuple[ScribenginError, Fate]:
    """(the Scribengin error for `error`, "transient" if a restart from the checkpoint may help, else "permanent")."""
    ours = find_ours(error)
    if ours is not None:
        return ours, "transient" if isinstance(ours, Unreachable) or "No space left on device" in str(error) else "permanent"
    text = message_of(error)
    if (crash := _crash(text)) is not None:
        return crash, "transient"
    if (away := _unreachable_hdfs(text)) is not None:
        return away, "transient"
    if (unlike := _python_of_executors(text)) is not None:
        return unlike, "permanent"
    if any(sign in text for sign in _TRANSIENT):
        return ScribenginError(_first_sentence(text), remedy="it is retried automatically; if the error persists, see the log"), "transient"
    condition = condition_of(error)
    if condition is not None and condition not in _WRAPPERS:
        return ScribenginError(_first_sentence(text), remedy=remedy_for(condition), code=_code(condition)), "permanent"
    found = _PYTHON.findall(text)
    if found:
        kind, message = found[-1]
        return ScribenginError(f"{kind}: {message}"), "permanent"
    return ScribenginError(_first_sentence(text)), "permanent"


def _python_of_executors(text: str) -> EnvironmentFault | None:
    """The error for executors whose Python is not the driver's, or cannot be started; None if `text` is not about that."""
    if found := _OTHER_PYTHON.search(text):
        said = f"the executors have Python {found[1]}, and the driver has {found[2]}"
    elif found := _NO_PYTHON.search(text):
        said = f"a host of the executors cannot start {found[1]}"
    else:
        return None
    remedy = "install the same minor version of Python, with Scribengin, under one path on all hosts of the cluster"
    return EnvironmentFault(said, remedy=f"{remedy}; in YARN it can be an archive: --yarn-python-archive", code="executor-python")


def _crash(text: str) -> ScribenginError | None:
    """The error for a Python worker that ended by a signal, with the line of the user's code: Spark passes on the output of the worker's
    fault handler. None if `text` is not about such an end."""
    found = _CRASHED.search(text)
    if found is None:
        return None
    frame = _USERS_FRAME.search(found.group(2))
    where = f" in {frame.group(1)}:{frame.group(2)} ({frame.group(3)})" if frame else ""
    if found.group(1) == "Aborted":
        remedy = "it is retried automatically, record by record; set a timeout in native libraries that can block"
        return StepError(f"a step hung{where}, where Python cannot interrupt it; its worker was stopped", remedy=remedy, code="worker-hung")
    remedy = "it is retried automatically; if the error persists, a native library called there crashes on a record or on this machine"
    return StepError(f"a Python worker crashed{where}: {found.group(1)}", remedy=remedy, code="worker-crashed")


def _unreachable_hdfs(text: str) -> Unreachable | None:
    """The error for a NameNode or DataNode of the Spark checkpoint that does not answer; None if `text` is not about that."""
    if call := _CALL.search(text):
        said = f"hdfs://{call[1]}, which stores the Spark checkpoint, does not answer: {call[2]}"
    elif cut := _CUT.search(text):
        said = f"hdfs://{cut[2]}:{cut[3]}, which stores the Spark checkpoint, does not answer: {cut[1]}"
    elif other := next((found for sign in _HDFS if (found := sign.search(text))), None):
        said = f"HDFS with the Spark checkpoint: {other[0]}"
    else:
        return None
    remedy = "check that its NameNode and DataNodes are running; a running flow retries automatically"
    return Unreachable(said, remedy=remedy, code="hdfs-away")


def is_stop(error: BaseException) -> bool:
    """True if the error only says that a query was stopped on request: by our own flag at a Batch's entry, or by an interrupt."""
    text = message_of(error)
    return any(
        sign in text for sign in ("StopRequested", "InterruptedException", "InterruptedIOException", "was cancelled", "Interrupted by")
    )


def find_ours(error: BaseException) -> ScribenginError | None:
    """Scribengin's own exception in the chain of causes, or rebuilt from the text that a Python worker sent; None if there is none."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, ScribenginError):
            return seen
        seen = seen.__cause__ or seen.__context__
    found = _OURS.findall(message_of(error))
    if not found:
        return None
    name, text = found[-1]
    message = re.split(r"\n  (?:remedy|code|node): ", text, maxsplit=1)[0]
    notes = dict(_NOTE.findall(text))
    kind = _KINDS.get(name, ScribenginError)
    return kind(message.strip(), remedy=notes.get("remedy", ""), code=notes.get("code"), node=notes.get("node", ""))


def condition_of(error: BaseException) -> str | None:
    """Spark's error condition (`CAST_INVALID_INPUT`) of the innermost cause that has one; None if there is none."""
    get = getattr(error, "getCondition", None) or getattr(error, "getErrorClass", None)
    named = [get()] if callable(get) and get() else []
    named += _CLASS.findall(message_of(error))
    told = [name for name in named if name not in ("STREAM_FAILED", "FOREACH_BATCH_USER_FUNCTION_ERROR")]
    return str(told[-1]) if told else None


def is_not_sure_error(error: BaseException) -> bool:
    """True if the vector engine in a task pipeline met a value that only Spark can evaluate."""
    return "scribengin.vector.engine.NotSureError" in message_of(error)


def is_data_error(error: BaseException) -> bool:
    """True if a Spark SQL step failed on a value of a record (ANSI mode)."""
    condition = condition_of(error)
    return condition is not None and find_ours(error) is None and (condition.startswith(_DATA) or condition.startswith(_DATA_PREFIXES))


def remedy_for(condition: str) -> str:
    """The remedy for an error condition of Spark; empty if the condition is empty."""
    if condition.startswith(_DATA) or condition.startswith(_DATA_PREFIXES):
        return "use try_ functions such as try_cast and try_divide, or filter such rows before the step"
    if condition.startswith("INCONSISTENT_BEHAVIOR"):
        return (
            "use a Spark pattern without the weekday when a time is parsed, such as to_timestamp(substring(x, 5), 'MMM dd HH:mm:ss Z yyyy')"
        )
    if condition.startswith("UNRESOLVED_COLUMN"):
        return "use a column of the step's input"
    if condition.startswith("UNRESOLVED_ROUTINE"):
        return "check the spelling; the functions are those of Spark SQL"
    if condition.startswith("DATATYPE_MISMATCH"):
        return "cast one side, such as CAST(x AS BIGINT)"
    return "correct the step; its syntax is Spark SQL" if condition else ""


def step_failure(node: str, error: BaseException) -> StepError:
    """The StepError for a step that Spark could not analyse."""
    condition = condition_of(error)
    text = _first_sentence(message_of(error))
    return StepError(f'step "{node}": {text}', remedy=remedy_for(condition or ""), code=_code(condition), node=node)


def _code(condition: str | None) -> str:
    return "spark-" + (condition or "analysis").split(".")[0].lower().replace("_", "-")


def message_of(error: BaseException) -> str:
    """The full text of the error, Java causes included."""
    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    return f"{error}\n{java}" if java is not None else str(error)


def _first_sentence(text: str) -> str:
    """The first line, without the names of Spark's exception and condition; with the next line if the first ends with a colon. At most 500
    characters."""
    first, _, rest = text.strip().partition("\n")
    if first.endswith(":"):
        first = f"{first} {rest.partition(chr(10))[0]}"
    cut = re.split(r"SQLSTATE| ==|\s+at org\.", first, maxsplit=1)[0].strip()
    return re.sub(r"^(?:[\w.]+(?:Exception|Error): )*(?:\[[A-Z0-9_.]+\] )?", "", cut)[:500]
