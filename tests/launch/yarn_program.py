"""A driver for tests in YARN: `yarn_program.py DIARY WORDS…`. It starts Spark, does each word in turn, then sleeps. It writes a diary."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

DIARY = Path(sys.argv[1])


def note(line: str) -> None:
    with DIARY.open("a") as file:
        file.write(f"{line}\n")


note(f"begun {os.getpid()}")
spark = SparkSession.builder.getOrCreate()
for word in sys.argv[2:]:
    name, _, value = word.partition("=")
    if name == "exit":
        note(f"ended {os.getpid()}")
        sys.exit(int(value))
    elif name == "die":
        os.kill(os.getppid(), signal.SIGKILL)  # Spark's JVM, which is the container
    elif name == "eat":  # memory, in MiB
        eaten = bytearray(os.urandom(2**20) * int(value))
    elif name == "say":
        print(os.environ[value], flush=True)
    elif name == "work":  # in executors: eight tasks of so many seconds each
        spark.sparkContext.parallelize(range(8), 8).foreach(lambda _, seconds=float(value): time.sleep(seconds))  # type: ignore[misc]
        note(f"worked {value}")
    elif name == "count":  # in executors
        note(f"counted {spark.range(int(value)).count()}")
note(f"up {os.getpid()}")
while True:
    time.sleep(60)
