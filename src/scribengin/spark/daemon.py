"""Spark's Python daemon with Scribengin's modules loaded before it forks, so that a worker starts with all it needs.

Without it every worker imports Arrow, msgspec and the stage by itself, about a second each at the first Batch and after a kill;
so too pandas where it is installed: Arrow looks for it when it first sees Python values.
"""

import gc
import sys
from importlib import import_module
from importlib.machinery import PathFinder
from pathlib import Path

LOADED = (
    "pyarrow.parquet",
    "scribengin.connectors.files.sink",
    "scribengin.connectors.files.source",
    "scribengin.formats.encoders",
    "scribengin.formats.json",
    "scribengin.spark.stage",
)

COLLECT_EVERY = 100_000
"""objects that can hold others, made and not yet freed, for a look for cycles; where a step leaves some, that is tens of MB at most"""


def leave_zips() -> None:
    """Take Spark's copies of PySpark off the path where PySpark is installed: each worker reads the directory of each such zip anew,
    32 times, because PySpark invalidates import caches when a worker starts. That is 0.15 s of a core."""
    zips = [path for path in sys.path if Path(path).name == "pyspark.zip" or Path(path).match("py4j-*-src.zip")]
    others = [path for path in sys.path if path not in zips]
    if PathFinder.find_spec("pyspark", others) is None or PathFinder.find_spec("py4j", others) is None:
        return
    sys.path[:] = others
    for path in list(sys.path_importer_cache):
        if path.startswith(tuple(zips)):
            del sys.path_importer_cache[path]


if __name__ == "__main__":
    leave_zips()
    for name in LOADED:
        import_module(name)
    if PathFinder.find_spec("pandas") is not None:
        import_module("pandas")
    import_module("scribengin.connectors.catalog").source_types()  # looks through the installed packages, once for all workers
    # rows are many objects, and no cycles: by default every 700th of them makes Python look for some, a sixth of all that a worker does
    gc.set_threshold(COLLECT_EVERY)
    # what is there now lives for ever: a worker's first collection must not walk through it, and so copy it, page by page
    gc.freeze()
    import_module("scribengin.spark.watchdog").watch_workers()
    import_module("pyspark.daemon").manager()
