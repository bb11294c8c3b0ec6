"""Makes the archive of Spark's classes, once for a folder, by a run whose loads are noted."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from scribengin.core.java import find_java
from scribengin.testing.faults.drivers import start_run
from scribengin.testing.faults.flows import FaultFlow
from scribengin.testing.faults.java import list_classes, make_archive

if TYPE_CHECKING:
    import threading
    from pathlib import Path

_LIMIT_S = 300.0


def prepare_archive(folder: Path, stop: threading.Event) -> Path | None:
    """The archive in `folder`, made where there is none for this Java; costs about a minute then. None where none can be made."""
    import pyspark

    archive = folder / f"spark-{pyspark.__version__}-java-{find_java().version}.jsa"
    if archive.exists():
        return archive
    work = folder / "archive"
    shutil.rmtree(work, ignore_errors=True)
    flow = FaultFlow(work, "aggregate", "parquet", partitioned=False)
    flow.write()
    flow.grow(2)
    flow.close()
    classes = work / "classes"
    with start_run(flow.flow, (), work / "start", limit_s=_LIMIT_S, stop=stop, java=list_classes(classes)) as driver:
        driver.wait()
    made = make_archive(archive, classes, flow.folder / ".scribengin" / "struck" / "main" / "tmp" / "spark.log")
    shutil.rmtree(work)
    return archive if made else None
