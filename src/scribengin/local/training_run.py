"""`python -m scribengin.local.training_run`: runs a small flow whose classes become the archive that later starts of Spark map.

`make setup` calls it at its end; after the first run of an installed Scribengin, a process in the background does (`--background`: with the
lowest priority). The flow reads JSON, filters in Spark and in Python, keeps state, writes Parquet and JSON: what nearly every flow loads.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from scribengin.core.errors import ScribenginError
from scribengin.core.java import find_java
from scribengin.local.contract import RunSettings
from scribengin.local.run import run_flow
from scribengin.spark.class_archive import claim, dump_archive
from scribengin.spark.session import start_session, stop_session

_FLOW = """
version: 1
name: training
sources:
  orders: {type: files, path: data, format: json, schema: "id BIGINT, shop STRING, amount DOUBLE, ts TIMESTAMP", watermark: ts 1m}
steps:
  large: {from: orders, filter: amount > 1, require: {dated: ts IS NOT NULL}}
  known: {from: large, python: "training_steps:known"}
  by_hour:
    from: known
    sql: "SELECT window(ts, '1 hour').start AS hour, shop, count(*) AS n FROM known GROUP BY window(ts, '1 hour'), shop"
sinks:
  kept: {from: known, type: files, path: out/kept, format: parquet}
  counts: {from: by_hour, type: files, path: out/counts, format: json}
"""
_STEPS = '''
def known(row):
    """Keep rows of a shop."""
    return row["shop"] is not None
'''
_ROWS = 100


def main(arguments: list[str]) -> int:
    """Make the archive. Returns 0 if it exists now, or is not wanted; 1 if it could not be made. Neither is a failure: Spark starts without
    it."""
    background = "--background" in arguments
    if background:
        os.nice(19)
    java = find_java()
    with claim(java) as claimed:
        if not claimed:
            return 0
        if not background:
            print("setup: creating an archive of Spark's classes (30 s, once), which halves the start time", flush=True)
        with tempfile.TemporaryDirectory(prefix="scribengin-training-") as name:
            folder = Path(name)
            _write(folder)
            spark = start_session("training", master="local[1,1]", memory="", conf={}, folder=folder / "spark")
            try:
                with suppress(ScribenginError):  # an archive of a part of the classes is useful too
                    run_flow(folder / "flow.yaml", RunSettings(once=True), lambda _view: None, spark=spark)
                made = dump_archive(spark, java)
            finally:
                stop_session(spark)
    return 0 if made else 1


def _write(folder: Path) -> None:
    (folder / "data").mkdir()
    rows = [{"id": id_, "shop": "a", "amount": float(id_), "ts": f"2026-01-01T{id_ % 24:02}:00:00Z"} for id_ in range(_ROWS)]
    (folder / "data" / "orders.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "flow.yaml").write_text(_FLOW)
    (folder / "training_steps.py").write_text(_STEPS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
