"""Spark's Python daemon with our modules loaded before it forks: a worker starts with all it needs.

Without it every worker imports Arrow, msgspec and the stage by itself, about a second each at the first Batch and after a kill.
"""

from pyspark.daemon import manager

import scribengin.connectors.files.sink
import scribengin.connectors.files.source
import scribengin.formats.json
import scribengin.spark.compile
import scribengin.spark.stage  # noqa: F401

if __name__ == "__main__":
    manager()
