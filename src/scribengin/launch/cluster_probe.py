"""The program of the job with which `doctor --cluster` checks a cluster: `cluster_probe.py WORDS`, with WORDS as a JSON object.

It is the driver of a Spark application with two tasks. The driver and each task report what is installed on their hosts, how the clock
differs, and whether they can read and write the folder of the state. Each report is a line of the output: `MARK` and a JSON object.

It is a file of its own, which is shipped: Scribengin may be missing on a host, which is to be reported. So it imports nothing but the
standard library until it runs there.
"""

import base64
import json
import os
import pickle
import platform
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import uuid
from dataclasses import asdict
from email.utils import parsedate_to_datetime
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

MARK = "scribengin-doctor: "
TASKS = 2
GATHER_S = 30.0
"""seconds to wait for the second executor, once there is one"""
PLACES = "SCRIBENGIN_DOCTOR_PLACES"
"""the variable with the check of sources and sinks: it may contain secrets"""
_ANSWER_S = 5.0
LATE = "the time is over"
_LATE_STATUS = 4


def clock_lead(url: str) -> tuple[float, float] | None:
    """By how many seconds the clock of a web server is ahead of this one: at least, and at most. The server reports whole seconds.

    Args:
        url: the address of any of its pages.

    Returns:
        The bounds; None if the server does not answer, or does not report its time.
    """
    before_s = time.time()
    try:
        with urllib.request.urlopen(url, timeout=_ANSWER_S) as answer:
            date = answer.headers["Date"]
    except urllib.error.HTTPError as error:
        date = error.headers["Date"]
        error.close()
    except (OSError, ValueError):
        return None
    after_s = time.time()
    try:
        server_s = parsedate_to_datetime(date).timestamp()
    except (TypeError, ValueError):
        return None
    return server_s - after_s, server_s + 1 - before_s


def examine(role: str, words: dict[str, Any], java: str) -> dict[str, Any]:
    """What a process of the application finds on its host.

    Args:
        role: `driver` or `task 0`, `task 1`.
        words: `clock`: a page whose server's time is compared; empty: none. `folder`: the folder of the state; empty: none. `file`,
            `text`: a file in it, and its content. `places`: a function that checks sources and sinks, in pickle and Base64; empty: none.
        java: the version of the Java beside this Python.
    """
    versions = {}
    for name in ("scribengin", "pyspark"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "unknown" if find_spec(name) is not None else ""
    return {
        "role": role,
        "host": socket.gethostname(),
        "process": os.getppid(),  # Spark's daemon: one for each executor
        "python": platform.python_version(),
        "executable": sys.executable,
        "scribengin": versions["scribengin"],
        "pyspark": versions["pyspark"],
        "java": java,
        "lead_s": clock_lead(words["clock"]) if words["clock"] else None,
        "at_s": time.time(),
        "fault": _folder_fault(words) if words["folder"] else "",
        "reached": _reached(words["places"]) if words["places"] and versions["scribengin"] else [],
    }


def _reached(places: str) -> list[dict[str, str]]:
    """The results of the check of sources and sinks from here."""
    try:
        return [asdict(each) for each in pickle.loads(base64.b64decode(places))()]
    except Exception as error:  # a module of the flow is missing here, for example
        why = f"cannot be checked: {type(error).__name__}: {error}"
        return [{"node": "", "role": "source", "state": "unreached", "says": why, "remedy": ""}]


def _folder_fault(words: dict[str, Any]) -> str:
    """Why the folder of the state cannot be used from here; empty if it can: the file is read, another one is written, read, deleted."""
    try:
        from scribengin.state.places import located

        folder = located(words["folder"])
        if (folder / words["file"]).read_bytes() != words["text"].encode():
            return f"{folder / words['file']} has another content here: it is not the same folder"
        mine = folder / uuid.uuid4().hex
        mine.write_bytes(b"written")
        if mine.read_bytes() != b"written":
            return f"{mine} has another content than was written"
        mine.unlink()
    except Exception as error:
        return str(getattr(error, "message", "") or f"{type(error).__name__}: {error}")
    return ""


def report(**what: Any) -> None:
    """Print a report, in a line of its own."""
    print(f"{MARK}{json.dumps(what)}", flush=True)


def _late() -> None:
    report(failed=LATE)
    os._exit(_LATE_STATUS)


def _java_version() -> str:
    """The version of JAVA_HOME's Java, or of that on the PATH; empty if there is none."""
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java")
    try:
        asked = subprocess.run([str(java), "-version"], capture_output=True, text=True, check=False, timeout=_ANSWER_S * 4)
    except (OSError, subprocess.SubprocessError):
        return ""
    words = asked.stderr.split('"')
    return words[1] if len(words) > 1 else ""


def main() -> None:
    """Start Spark, run two tasks, and report."""
    words = json.loads(sys.argv[1])
    words["places"] = os.environ.pop(PLACES, "")
    clock = threading.Timer(words["within_s"], _late)
    clock.daemon = True
    clock.start()
    driver = examine("driver", words | {"places": ""}, _java_version())
    report(driver=driver)
    checking = threading.Thread(target=lambda: driver.update(reached=_reached(words["places"])), daemon=True)
    if words["places"] and driver["scribengin"]:
        checking.start()  # while Spark starts: a place that does not answer takes its time
    os.environ["PYSPARK_PYTHON"] = os.environ.get("SCRIBENGIN_EXECUTOR_PYTHON", sys.executable)  # as the sessions of workers
    try:
        from pyspark.sql import SparkSession

        spark = SparkSession.builder.getOrCreate()
        seen = -1
        gathered_s = float("inf")
        while seen < TASKS and time.monotonic() < gathered_s:
            found = int(spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size()) - 1
            if found != seen:
                report(executors=found)
            if found > 0 and seen <= 0:
                gathered_s = time.monotonic() + GATHER_S
            seen = found
            time.sleep(0.2)
        # evaluated by the executor's JVM, in the same task
        versions = spark.range(0, TASKS, 1, TASKS).selectExpr("id", "java_method('java.lang.System', 'getProperty', 'java.version') java")
        tasks = versions.rdd.map(lambda row: examine(f"task {row.id}", words, row.java)).collect()
        if checking.ident is not None:
            checking.join()
        report(driver=driver, tasks=tasks)
        spark.stop()
    except Exception as error:
        report(failed=str(error))
        sys.exit(1)


if __name__ == "__main__":
    main()
