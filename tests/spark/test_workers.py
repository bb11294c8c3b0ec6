"""What a Python worker finds when it starts."""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_worker_that_is_silent_for_long_is_left_alone(spark: SparkSession) -> None:
    # a tail says one thing, at its end: what Spark calls idle is a slow step
    assert spark.conf.get("spark.python.worker.idleTimeoutSeconds", "0") == "0"


def test_a_worker_starts_with_all_loaded_and_no_zip_to_read_again(spark: SparkSession) -> None:
    def look(_: Any) -> tuple[list[str], list[str], bool]:
        zips = [path for path in [*sys.path, *sys.path_importer_cache] if "pyspark.zip" in path or "py4j-" in path]
        loaded = [name for name in ("scribengin.spark.stage", "scribengin.formats.json") if name in sys.modules]
        return zips, loaded, gc.get_freeze_count() > 10_000

    (found,) = spark.sparkContext.parallelize([0], 1).map(look).collect()
    assert found == ([], ["scribengin.spark.stage", "scribengin.formats.json"], True)
