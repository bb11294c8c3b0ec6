"""A worker for tests: `program.py DIARY WORDS…`. Each word is done in turn; then it sleeps until it is ended. It writes a diary."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

DIARY = Path(sys.argv[1])
CHILD = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: time.sleep(60)"


def note(line: str) -> None:
    with DIARY.open("a") as file:
        file.write(f"{line}\n")


def end_in_order(number: int, frame: object) -> None:
    note(f"asked {os.getpid()}")
    sys.exit(0)


def note_only(number: int, frame: object) -> None:
    note(f"asked {os.getpid()}")


signal.signal(signal.SIGTERM, end_in_order)
for word in sys.argv[2:]:
    name, _, value = word.partition("=")
    if name == "deaf":
        signal.signal(signal.SIGTERM, note_only)
    elif name == "exit":
        note(f"ended {os.getpid()}")
        sys.exit(int(value))
    elif name == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    elif name == "say":
        print(os.environ[value], flush=True)
    elif name == "child":  # one that outlives it, and does not heed SIGTERM
        child = subprocess.Popen([sys.executable, "-c", CHILD], start_new_session=True)
        note(f"child {child.pid}")
    elif name == "jvm":  # what Spark's looks like to who only sees processes
        jvm = subprocess.Popen(["java", "-c", CHILD, "org.apache.spark.deploy.SparkSubmit"], executable=sys.executable)
        note(f"jvm {jvm.pid}")
    elif name == "flood":
        for number in range(int(value)):
            print(f"{number:09d}", flush=number % 1000 == 0)
        sys.stdout.flush()
note(f"up {os.getpid()}")
while True:
    time.sleep(60)
