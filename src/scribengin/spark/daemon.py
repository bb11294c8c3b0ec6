"""Spark's Python daemon with our modules loaded before it forks: a worker starts with all it needs.

Without it every worker imports Arrow, msgspec and the stage by itself, about a second each at the first Batch and after a kill;
so too pandas, which Arrow looks for when it first sees Python values.
"""

from importlib import import_module

from pyspark.daemon import manager

LOADED = (
    "pandas",
    "pyarrow.parquet",
    "scribengin.connectors.files.sink",
    "scribengin.connectors.files.source",
    "scribengin.formats.json",
    "scribengin.spark.arrow_functions",
)

if __name__ == "__main__":
    for name in LOADED:
        import_module(name)
    manager()
