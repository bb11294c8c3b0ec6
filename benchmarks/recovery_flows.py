"""The flows of benchmarks/recovery.py and their load: 4,000 tweets a second, into a folder or into a topic."""

from __future__ import annotations

import itertools
import shutil
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

EVERY_S = 0.5
ROWS = 2_000
"""every EVERY_S seconds"""
_SCHEMA = "schema: id BIGINT, user STRING, text STRING, followers BIGINT, retweets BIGINT, ts TIMESTAMP"
_STEPS = """
steps:
  known: {from: tweets, filter: followers > 5000, require: {dated: ts IS NOT NULL}}
  hot: {from: known, filter: retweets > 500}
  tagged: {from: hot, python: "steps:has_tag"}
"""
FILES = f"""
version: 1
name: recovery
defaults: {{delivery: exactly_once, on_error: dead_letter, standby: STANDBY}}
sources:
  tweets:
    type: files
    path: data
    format: json
    settle: 0s
    max_bytes: 40MiB
    {_SCHEMA}
{_STEPS}
sinks:
  kept: {{from: tagged, type: files, path: out, format: parquet}}
"""
"""files to files, in one piece"""
KAFKA = f"""
version: 1
name: recovery
defaults: {{delivery: exactly_once, on_error: dead_letter, standby: STANDBY}}
sources:
  tweets:
    type: kafka
    bootstrap: "BOOTSTRAP"
    topics: [tweets]
    format: json
    {_SCHEMA}
{_STEPS}
sinks:
  kept: {{from: tagged, type: kafka, bootstrap: "BOOTSTRAP", topic: kept, format: json, missing_topic: make, partitions: 4}}
tiers:
  near: {{steps: [known, hot]}}
  core: {{steps: [tagged]}}
"""
"""topic to topic in two tiers; the second one's worker is killed"""
STEPS = """
from scribengin import record


@record
def has_tag(tweet):
    return "#PresidentialDebate" in tweet["text"]
"""


def bring_files(stock: Sequence[Path], data: Path) -> Callable[[int], None]:
    """Puts one file of the stock into the folder, under a name of its number."""

    def bring(number: int) -> None:
        draft = data / f".{number}"
        shutil.copyfile(stock[number % len(stock)], draft)
        draft.rename(draft.with_name(f"{number:06}.jsonl"))

    return bring


def bring_messages(stock: Sequence[Path], bootstrap: str) -> Callable[[int], None]:
    """Puts the lines of one file of the stock into the topic."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for future in admin.create_topics([NewTopic("tweets", 4, 1)]).values():
        future.result(60)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "log_level": 0, "queue.buffering.max.messages": 1_000_000})

    def bring(number: int) -> None:
        for line in stock[number % len(stock)].read_bytes().splitlines():
            producer.produce("tweets", line)
        producer.poll(0)

    return bring


@contextmanager
def load(bring: Callable[[int], None]) -> Iterator[None]:
    """Steadily, until the block ends."""
    stop = threading.Event()

    def run() -> None:
        for number in itertools.count():
            if stop.wait(EVERY_S):
                return
            bring(number)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
