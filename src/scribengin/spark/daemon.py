"""Spark's Python daemon with Scribengin's modules loaded before it forks, so that a worker process starts with all it needs.

Without it every worker process imports Arrow, msgspec and the stage by itself: about a second each at the first Batch and after a kill.
pandas is loaded as well if it is installed, since Arrow imports it when it first converts Python values.
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
"""container objects allocated and not freed before Python looks for cycles; if a step leaves cycles, they take tens of MB at most"""


def leave_zips() -> None:
    """Remove Spark's copies of PySpark from the path if PySpark is installed. PySpark invalidates import caches when a worker starts, and
    each worker then reads the directory of each such zip 32 times: 0.15 s of a core."""
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
    import_module("scribengin.connectors.catalog").source_types()  # scans the installed packages, once for all workers
    # rows are many objects without cycles: by default Python looks for cycles every 700 of them, which takes a sixth of a worker's time
    gc.set_threshold(COLLECT_EVERY)
    # these objects are never freed: a worker's first collection must not visit them, since that would copy their pages
    gc.freeze()
    import_module("scribengin.spark.watchdog").watch_workers()
    import_module("pyspark.daemon").manager()
