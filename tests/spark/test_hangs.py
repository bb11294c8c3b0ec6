"""A step that hangs where no signal reaches it costs its record: its worker is ended, and the record found."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scribengin.spark.failures import classify
from tests.spark.test_stateless_steps import letters, ran

if TYPE_CHECKING:
    from tests.conftest import FlowFolder

STEPS = """
import ctypes

import pyarrow as pa

from scribengin import batch


def deadlock():
    mutex = ctypes.create_string_buffer(64)  # zeros are a mutex that is free
    library = ctypes.PyDLL(None)  # holds the interpreter's lock, as a C extension does
    library.pthread_mutex_lock(mutex)
    library.pthread_mutex_lock(mutex)


def work(row):
    if row["n"] == 3:
        deadlock()
    return {"n": row["n"] * 10}


def several(row):
    yield row
    if row["n"] == 3:
        deadlock()


@batch
def endless(rows: pa.RecordBatch):
    while 3 in rows.column("n").to_pylist():
        pass
    return rows


@batch
def together(rows: pa.RecordBatch):
    if 3 in rows.column("n").to_pylist():
        deadlock()
    return rows
"""


FLOW = """
version: 1
name: hung
sources:
  rows: {type: files, path: data, format: json, schema: "n BIGINT"}
steps:
  worked: {from: rows, python: {function: "steps:FUNCTION", time_limit: 500ms}}
sinks:
  kept: {from: worked, type: files, path: out, format: json}
"""


@pytest.mark.parametrize(
    ("function", "times"),
    [("work", 10), pytest.param("several", 1, marks=pytest.mark.long), pytest.param("together", 1, marks=pytest.mark.long)],
)
def test_a_record_that_hangs_in_c_is_found_and_the_others_come_through(folder: FlowFolder, function: str, times: int) -> None:
    folder.steps(STEPS).flow(FLOW.replace("FUNCTION", function))
    folder.data("data/a.jsonl", [{"n": n} for n in range(6)])
    folder.data("data/b.jsonl", [{"n": n} for n in range(6, 9)])
    ran(folder)

    assert sorted(row["n"] for row in folder.read("out")) == [n * times for n in (0, 1, 2, 4, 5, 6, 7, 8)]
    (letter,) = letters(folder, "hung", "kept")
    assert (letter.reason, letter.line) == ("time-limit", 4)
    assert "cannot interrupt" in letter.message


def test_a_batch_that_hangs_in_python_is_halved_until_the_record_is_found(folder: FlowFolder) -> None:
    folder.steps(STEPS).flow(FLOW.replace("FUNCTION", "endless"))
    folder.data("data/a.jsonl", [{"n": n} for n in range(6)])
    ran(folder)

    assert [row["n"] for row in folder.read("out")] == [0, 1, 2, 4, 5]
    (letter,) = letters(folder, "hung", "kept")
    assert (letter.reason, letter.line, letter.code_line[:9]) == ("time-limit", 4, "steps.py:")


@pytest.mark.parametrize(
    ("signal", "code", "told"),
    [
        ("Segmentation fault", "worker-crashed", "a Python worker crashed in steps.py:3 (boom): Segmentation fault"),
        ("Aborted", "worker-hung", "a step hung in steps.py:3 (boom)"),
    ],
)
def test_a_worker_that_dies_is_told_with_the_users_line(signal: str, code: str, told: str) -> None:
    text = f"""An error occurred while calling o347.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Lost task 0.2 in stage 0.0 (TID 3) (192.0.2.2 executor driver): \
org.apache.spark.SparkException: Python worker exited unexpectedly (crashed): Fatal Python error: {signal}

Current thread 0x00007f2c26a0eb80 (most recent call first):
  File "/usr/lib/python3.11/ctypes/__init__.py", line 519 in string_at
  File "/flows/.scribengin/code/ec0c53c6e5540ce0.zip/steps.py", line 3 in boom
  File "/flows/.scribengin/code/ec0c53c6e5540ce0.zip/steps.py", line 5 in work
  File "/usr/lib/python3.11/site-packages/scribengin/spark/python_step.py", line 111 in _answers

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.read(PythonRunner.scala:1)
"""
    fault, fate = classify(Exception(text))
    assert (fault.code, fate) == (code, "transient")
    assert fault.message.startswith(told)


def test_a_worker_that_does_not_start_in_time_is_tried_again() -> None:
    """Spark gives it ten seconds, which cannot be changed; on a machine that does much else that is not always enough."""
    text = "[STREAM_FAILED] Query [id = 71b2db73] terminated with exception: Python worker failed to connect back. SQLSTATE: XXKST"
    fault, fate = classify(Exception(text))
    assert fate == "transient"
    assert "failed to connect back" in fault.message
