"""A worker on Spark for tests: `counting.py DIARY WORDS…`. It counts on the executors, again and again, until it is asked to end.

`sleep`: when it has counted once it only sleeps, and does not touch Spark any more.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

DIARY = Path(sys.argv[1])
asked = False


def note(line: str) -> None:
    with DIARY.open("a") as file:
        file.write(f"{line}\n")


def ask(number: int, frame: object) -> None:
    global asked
    asked = True


def who(rows: object) -> list[int]:
    time.sleep(0.2)
    return [os.getppid()]


signal.signal(signal.SIGTERM, ask)
spark = SparkSession.builder.getOrCreate()
sc = spark.sparkContext
if sc.master != os.environ["SCRIBENGIN_SPARK_MASTER"]:
    sys.exit(f"it runs on {sc.master}")
note(f"master {sc.master}")
note(f"odd {sc.getConf().get('spark.odd')}")
note(f"application {sc.applicationId}")
note(f"jvm {sc._gateway.proc.pid}")
while not asked:
    daemons = sc.parallelize(range(2), 2).mapPartitions(who).collect()
    note(f"counted {daemons[0]}")
    if "sleep" in sys.argv:
        note(f"up {os.getpid()}")
        while not asked:
            time.sleep(60)
    else:
        note(f"up {os.getpid()}")
spark.stop()
note("asked and ended")
