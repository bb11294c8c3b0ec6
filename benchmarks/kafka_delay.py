"""What a tier adds to a record's way: the delay from a producer's hand to a reader of committed records, at a steady rate.

python benchmarks/kafka_delay.py [--rates 1000] [--seconds 30] [--only scribengin,loop] [--flow FILE]

A producer sends `--rates` records/s (250-byte JSON, `linger.ms` 0), each with the time at which it is sent; the contender does the
record step from topic to topic; a reader of committed records takes the time at which each comes out. When the first has come out,
`--settle` seconds go by; then those sent in the next `--seconds` are measured, and each that the step keeps must come out once.
*direct* is the same with nothing between producer and reader: what it shows is no contender's. *added* is a contender's median less
that of *direct*; *cores* is what it used meanwhile.

`--flow` names further flow files, which are run as contenders (kafka_contenders.given says what they must name). Several
rates give the curve of delay against throughput: --only profile --rates 1000,5000,20000
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import threading
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from kafka import installed, make_flows
from kafka_contenders import CONTENDERS, Contender, ContenderError, Process, clean_up_when_ended, given, profiles, started
from kafka_rows import encode_row, kept
from kafka_topics import BROKER, PARTITIONS, Topics, WrongOutputError

from scribengin.embedded.kafka import KafkaCluster

if TYPE_CHECKING:
    from collections.abc import Callable

DIRECT = "direct"
TICK_S = 0.002
FIRST_WITHIN_S = 300.0
LAST_WITHIN_S = 60.0
BASELINE = "pyspark: row UDF"
LEFT_OUT = ("scribengin: filter", "pyspark: filter", "no record id", "per core", "lingering")
"""unless they are named: a filter and a record step differ little in delay"""


@dataclass(frozen=True)
class Delay:
    """Of one contender at one rate."""

    median_s: float
    p99_s: float
    longest_s: float
    cores: float


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rates", default="1000", help="records a second, with commas")
    options.add_argument("--settle", type=float, default=20.0)
    options.add_argument("--seconds", type=float, default=30.0)
    options.add_argument("--only", default="", help="contenders whose name contains one of these, with commas")
    options.add_argument("--flow", type=Path, action="append", default=[], help="a flow file to measure too")
    asked = options.parse_args()
    clean_up_when_ended()
    wanted = [word.strip() for word in asked.only.split(",") if word.strip()]
    with tempfile.TemporaryDirectory(prefix="scribengin-delay-") as name:
        folder = Path(name)
        make_flows(folder)
        known = (*CONTENDERS, *profiles(folder))
        contenders = [one for one in known if chosen(one.name, wanted)] + given(asked.flow, folder)
        contenders, left_out = installed(contenders)
        with KafkaCluster(folder / "kafka", properties=BROKER) as cluster:
            for rate in map(int, asked.rates.split(",")):
                measure_all(Topics(cluster.bootstrap), folder, contenders, left_out, rate, asked.settle, asked.seconds)
    for contender, reason in left_out.items():
        print(f"{contender} left out: {reason}")


def chosen(name: str, wanted: list[str]) -> bool:
    return any(word in name for word in wanted) if wanted else not any(word in name for word in LEFT_OUT)


def measure_all(
    topics: Topics, folder: Path, contenders: list[Contender], left_out: dict[str, str], rate: int, settle_s: float, seconds: float
) -> None:
    """Who fails is left out from there on, with the reason in `left_out`."""
    found: dict[str, Delay] = {}
    for contender in [None, *contenders]:
        name = contender.name if contender else DIRECT
        if name in left_out:
            continue
        try:
            found[name] = measure(topics, folder, contender, rate, settle_s, seconds)
        except (ContenderError, WrongOutputError) as error:
            left_out[name] = str(error)
            print(f"{name} left out: {error}", file=sys.stderr)
            continue
        print(f"{rate:,}/s  {name:<46} median {found[name].median_s:.3f} s", file=sys.stderr)
    show(found, rate)


def measure(topics: Topics, folder: Path, contender: Contender | None, rate: int, settle_s: float, seconds: float) -> Delay:
    name = f"{contender.flow or contender.key if contender else DIRECT}-{rate}-{time.time_ns()}"
    source = topics.make(f"{name}-in")
    sink = topics.make(f"{name}-out") if contender else source
    job = {"name": name, "bootstrap": topics.bootstrap, "source": source, "sink": sink, "folder": str(folder), "rows": None, "kept": None}
    jobs = {"warm": None, "timed": job | {"flow": contender.flow if contender else ""}}
    sender = Sender(topics.bootstrap, source, rate)
    try:
        with started(contender, jobs, folder) if contender else nullcontext() as process:
            if process is not None:
                process.wait_for("@ready")
                process.go_on()
            sender.thread.start()
            try:
                reader = Reader(topics.bootstrap, sink, sender, process)
                return reader.measure(settle_s, seconds)
            finally:
                sender.ended.set()
                sender.thread.join()
    finally:
        for topic in {source, sink}:
            topics.delete(topic)
        shutil.rmtree(folder / name, ignore_errors=True)


class Sender:
    """Sends rows 0, 1, … at a steady rate, in steps of 2 ms; where it was held up it catches up."""

    def __init__(self, bootstrap: str, topic: str, rate: int) -> None:
        self.sent = 0
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._send, args=(bootstrap, topic, rate), daemon=True)

    def _send(self, bootstrap: str, topic: str, rate: int) -> None:
        producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
        begun = time.monotonic()
        while not self.ended.wait(TICK_S):
            due = int((time.monotonic() - begun) * rate)
            while self.sent < due:
                producer.produce(topic, encode_row(self.sent, time.time_ns()), partition=self.sent % PARTITIONS)
                self.sent += 1
            producer.poll(0)
        producer.flush(LAST_WITHIN_S)


class Reader:
    """Reads what comes out, and notes of each record how long it took."""

    def __init__(self, bootstrap: str, topic: str, sender: Sender, process: Process | None) -> None:
        settings = {"bootstrap.servers": bootstrap, "group.id": f"read-{topic}", "isolation.level": "read_committed"}
        self._consumer = Consumer(settings | {"enable.auto.commit": False})
        self._consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(PARTITIONS)])
        self._sender = sender
        self._process = process
        self._delay_s: dict[int, float] = {}
        self._awaited: set[int] = set()

    def measure(self, settle_s: float, seconds: float) -> Delay:
        """Raises WrongOutputError where a record comes twice, or does not come out."""
        try:
            return self._measure(settle_s, seconds)
        finally:
            self._consumer.close()

    def _measure(self, settle_s: float, seconds: float) -> Delay:
        if not self._read(FIRST_WITHIN_S, lambda: bool(self._delay_s)):
            raise WrongOutputError(f"nothing came out within {FIRST_WITHIN_S:g} s")
        self._read(settle_s, lambda: False)
        cpu_s, begun_s, first = self._cpu_s(), time.monotonic(), self._sender.sent
        self._read(seconds, lambda: False)
        cores, last = (self._cpu_s() - cpu_s) / (time.monotonic() - begun_s), self._sender.sent
        self._awaited = {number for number in range(first, last) if kept(number)}
        measured = sorted(self._awaited)
        self._awaited -= self._delay_s.keys()
        if not self._read(LAST_WITHIN_S, lambda: not self._awaited):
            missing = f"{len(self._awaited):,} of {len(measured):,} records"
            raise WrongOutputError(f"{missing} had not come out {LAST_WITHIN_S:g} s after the last of them was sent")
        delays = sorted(self._delay_s[number] for number in measured)
        return Delay(statistics.median(delays), delays[int(len(delays) * 0.99)], delays[-1], cores)

    def _cpu_s(self) -> float:
        return sum(self._process.cpu_s().values()) if self._process else 0.0

    def _read(self, seconds: float, enough: Callable[[], bool]) -> bool:
        """Reads for so long, or until it is enough; True where it is."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            message = self._consumer.poll(0.05)
            if message is not None:
                self._take(message, time.time_ns())
            if enough():
                return True
            if self._process is not None:
                self._process.check_alive()
        return False

    def _take(self, message: Any, now_ns: int) -> None:
        if message.error() is not None:
            raise WrongOutputError(f"the output cannot be read: {message.error()}")
        row = orjson.loads(message.value())
        if row["id"] in self._delay_s:
            raise WrongOutputError(f"row {row['id']} came out twice")
        self._delay_s[row["id"]] = (now_ns - row["sent"]) / 1e9
        self._awaited.discard(row["id"])


def show(found: dict[str, Delay], rate: int) -> None:
    print(f"{rate:,} records/s")
    print(f"{'':<46}{'median s':>10}{'99 % s':>9}{'longest s':>11}{'added s':>9}{'cores':>7}")
    for name, delay in found.items():
        added = f"{delay.median_s - found[DIRECT].median_s:.3f}" if DIRECT in found and name != DIRECT else ""
        line = f"{name:<46}{delay.median_s:>10.3f}{delay.p99_s:>9.3f}{delay.longest_s:>11.3f}{added:>9}{delay.cores:>7.2f}"
        if BASELINE in found and name not in (BASELINE, DIRECT):
            line += f"   {delay.median_s / found[BASELINE].median_s:.2f} × the median of {BASELINE}"
        print(line)


if __name__ == "__main__":
    main()
