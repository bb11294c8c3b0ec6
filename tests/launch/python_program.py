"""A driver for tests of packed Pythons in YARN: `python_program.py DIARY [stay]`. It writes what its driver and an executor run with."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession


def place(_: Any) -> dict[str, str]:
    import pyspark

    import scribengin

    return {"prefix": sys.prefix, "scribengin": str(scribengin.__file__), "pyspark": str(pyspark.__file__)}


spark = SparkSession.builder.getOrCreate()
(executor,) = spark.sparkContext.parallelize([0], 1).map(place).collect()
jars = spark._jvm.java.lang.System.getProperty("java.class.path").split(":")
about = {"driver": place(0), "executor": executor, "core": [each for each in jars if "spark-core" in each]}
diary = Path(sys.argv[1])
diary.with_suffix(".draft").write_text(json.dumps(about))
diary.with_suffix(".draft").rename(diary)
while "stay" in sys.argv:
    time.sleep(60)
