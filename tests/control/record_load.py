"""Records the load of a real flow for `test_autoscale_recorded.py`: tweets arrive at a rate that wanders and bursts, a flow with a Python
step reads them with Spark on one core, and its figures are written down every five seconds.

    python -m tests.control.record_load [--minutes 10] [--seed 7]

in the folder of the repository. The file has a line for each five seconds: seconds since the beginning, rows that the producer has added
so far, and what a report of the worker says then: rows read, seconds in Batches, seconds of tasks.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from harness.tweets import write_tweets
from scribengin.local.contract import RunSettings
from scribengin.local.run import run_flow

if TYPE_CHECKING:
    from scribengin.local.contract import RunView

RECORDED = Path(__file__).with_name("recorded_load.jsonl")
EVERY_S = 5.0
ROWS = 5_000
"""tweets of a file"""
FILES = 16
LEAST, MOST = 1_000.0, 40_000.0
"""rows that arrive in a second"""
FLOW = """\
version: 1
name: measured
sources:
  tweets:
    type: files
    path: data
    format: json
    settle: 0s
    max_files: 12
    schema: id BIGINT, user STRING, text STRING, followers BIGINT, retweets BIGINT, ts TIMESTAMP
    on_error: dead_letter
steps:
  weighed: {from: tweets, python: "steps:weighed", schema: "id BIGINT, weight BIGINT"}
sinks:
  kept: {from: weighed, type: files, path: out, format: parquet}
"""
STEPS = '''\
from scribengin import record


@record
def weighed(tweet: dict) -> dict:
    """The number of different sequences of three letters."""
    text = tweet["text"] or ""
    return {"id": tweet["id"], "weight": len({text[at : at + 3] for at in range(len(text))})}
'''


def produce(folder: Path, stop: threading.Event, added: list[int], seed: int) -> None:
    """Add files at a rate that wanders, with bursts of one to two minutes."""
    random, rate, burst_until = Random(seed), 6_000.0, 0.0
    pool = sorted((folder / "pool").glob("*.jsonl"))
    number = 0
    while not stop.is_set():
        now = time.monotonic()
        rate = min(MOST, max(LEAST, rate * random.gauss(1.0, 0.08)))
        if now > burst_until and random.random() < ROWS / rate / 120:
            burst_until = now + random.uniform(60, 120)
        os.link(pool[number % len(pool)], folder / "data" / f"{number:07}.jsonl")
        number += 1
        added[0] += ROWS
        stop.wait(random.expovariate(max(rate, MOST * 0.75 if now < burst_until else 0.0) / ROWS))


def sampled(view: RunView) -> dict[str, Any] | None:
    """The figures of a running query, as a report of a worker has them."""
    if not view.queries or view.queries[0].state not in ("running", "waiting"):
        return None
    query = view.queries[0]
    busy_s = sum(query.phases_total_s.values()) + query.batch_s
    return {
        "rows": query.rows_in,
        "busy_s": round(busy_s, 2),
        "work_s": round(query.tasks_s, 2),
    }


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--minutes", type=float, default=10.0)
    options.add_argument("--seed", type=int, default=7)
    asked = options.parse_args()
    lines: list[str] = []
    with tempfile.TemporaryDirectory(prefix="scribengin-load-") as name:
        folder = Path(name)
        (folder / "flow.yaml").write_text(FLOW)
        (folder / "steps.py").write_text(STEPS)
        (folder / "data").mkdir()
        tweets = folder / "tweets"
        write_tweets(tweets, rows=ROWS * FILES, seed=asked.seed)
        text = [line for path in sorted(tweets.glob("*")) for line in path.read_text().splitlines()]
        (folder / "pool").mkdir()
        for at in range(FILES):
            part = text[at * ROWS : (at + 1) * ROWS]
            (folder / "pool" / f"{at}.jsonl").write_text("\n".join(part) + "\n")
        stop, added = threading.Event(), [0]
        producer = threading.Thread(target=produce, args=(folder, stop, added, asked.seed), daemon=True)
        begun_s: float | None = None

        def watch(view: RunView) -> None:
            nonlocal begun_s
            found = sampled(view)
            if found is None:
                return
            if begun_s is None:
                begun_s = time.monotonic()
                producer.start()
            at = time.monotonic() - begun_s
            if at >= EVERY_S * len(lines):
                lines.append(json.dumps({"at": round(at, 1), "added": added[0], **found}))
                print(lines[-1], flush=True)
            if at >= asked.minutes * 60:
                stop.set()

        run_flow(folder / "flow.yaml", RunSettings(stop=stop, master="local[1,3]"), watch)
        stop.set()
    RECORDED.write_text("\n".join(lines) + "\n")
    print(f"{len(lines)} samples in {RECORDED}", file=sys.stderr)


if __name__ == "__main__":
    main()
