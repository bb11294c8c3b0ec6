"""`make demo-kafka`: tweets go into a topic, the flow from topic to topic is killed in the middle and run again, and a reader that knows
nothing of Scribengin checks what came out.

The broker, its data and the flow's state lie in a folder of this run, which is gone at the end, however it ends.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from rich.console import Console

from harness.tweets import SEED, write_tweets
from scribengin.embedded.jars import fetch
from scribengin.embedded.kafka import JARS, KafkaCluster

HERE = Path(__file__).parent
FLOW = HERE / "flow.yaml"
PARTITIONS = 4
BATCHES = 8
"""so many at least, however few tweets there are: else there is no middle"""
USER = re.compile(rb'"user":"(\w+)"')
console = Console(highlight=False)


class Message(NamedTuple):
    """One of the topic `kept`."""

    partition: int
    offset: int
    key: str
    tweet: dict[str, Any]


def main() -> int:
    """0 where every tweet is there once; else 1, or the exit status of a command that failed."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--size", type=int, default=1_000_000, help="how many tweets")
    options.add_argument("--folder", type=Path, default=HERE, help="where the run's own folder is made")
    asked = options.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _frame: stop_asked.append(number))
    folder = Path(tempfile.mkdtemp(prefix=".demo-", dir=asked.folder)).absolute()
    try:
        return demo(folder, asked.size)
    except Stopped:
        console.print("\nStopped; nothing is left.")
        return 128 + stop_asked[0]
    finally:
        give_up_s = time.monotonic() + 30
        # workers of a run that was killed leave by themselves, in a moment
        while folder.exists() and time.monotonic() < give_up_s:
            shutil.rmtree(folder, ignore_errors=True)


def demo(folder: Path, size: int) -> int:
    """From nothing to the verdict."""
    begun_s = time.monotonic()
    fetch(JARS, lambda line: console.print(line, style="dim"))
    with ExitStack() as stack:
        with timed("A Kafka broker starts"):
            cluster = stack.enter_context(KafkaCluster(folder / "kafka"))
        with timed(f"{size:,} tweets go into the topic tweets"):
            expected = produce(folder / "tweets", cluster.bootstrap, size)
        settings = {
            "BOOTSTRAP": cluster.bootstrap,
            "SCRIBENGIN_STATE": str(folder / "state"),
            "BATCH_ROWS": str(max(1, min(100_000, size // BATCHES))),
        }
        os.environ.update(settings)
        console.print(" ".join(f"{name}={value}" for name, value in settings.items()), style="dim", soft_wrap=True)

        flow = shown(FLOW)
        kill_a_run(flow, cluster.bootstrap, len(expected))
        before = list(consume(cluster.bootstrap, "kept"))
        console.print(f"A reader with read_committed sees {len(before):,} of {len(expected):,} tweets in the topic kept.")
        status = scribengin("run", flow, "--once") or scribengin("audit", flow)
        if status:
            return status
        console.print()
        with timed("A plain consumer with isolation.level=read_committed reads the topic kept"):
            after = list(consume(cluster.bootstrap, "kept"))
    return tell(differences(expected, before, after), after, time.monotonic() - begun_s)


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Say what is done, and how long it took."""
    begun_s = time.monotonic()
    yield
    stop_if_asked()
    console.print(f"{what}: {time.monotonic() - begun_s:.1f} s", style="dim")


def produce(folder: Path, bootstrap: str, size: int) -> dict[int, dict[str, Any]]:
    """Make tweets and send them in their order, keyed by their user; returns those that the flow must keep, by id."""
    written = write_tweets(folder, rows=size, seed=SEED)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("tweets", PARTITIONS, 1)])["tweets"].result(30)
    # the partitioner of Java's clients, which the flow's sink has too
    producer = Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "partitioner": "murmur2_random", "linger.ms": 50, "log_level": 3}
    )
    kept, expected = set(written.kept_ids), {}
    lines = (line for path in sorted(folder.iterdir()) for line in path.read_bytes().splitlines())
    for id_, line in enumerate(lines):
        if id_ in kept:
            expected[id_] = json.loads(line)
        user = USER.search(line)
        while True:
            try:
                producer.produce("tweets", line, user and user[1])
                break
            except BufferError:
                producer.poll(0.1)
    if left := producer.flush(120):
        raise SystemExit(f"{left:,} tweets did not reach the broker")
    return expected


def kill_a_run(flow: str, bootstrap: str, most: int) -> None:
    """Run the flow, and end it without warning when a third of its messages can be seen."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    status = scribengin("run", flow, "--once", until=lambda: visible(admin, "kept") > most // 3)
    if status != -signal.SIGKILL:
        raise SystemExit(f"the run ended by itself, with status {status}, before it could be killed")
    console.print("\n[bold red]SIGKILL[/] to the driver and to all that it had started.")


def visible(admin: AdminClient, topic: str) -> int:
    """How far the partitions of a topic reach for readers of what is committed; the marks of transactions count too."""
    try:
        asked = {TopicPartition(topic, number): OffsetSpec.latest() for number in range(PARTITIONS)}
        answers = admin.list_offsets(asked, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=30)
        return sum(answer.result(30).offset for answer in answers.values())
    except KafkaException:
        return 0  # it is made by the run


def consume(bootstrap: str, topic: str) -> Iterator[Message]:
    """What any program with that isolation level sees, partition by partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "onlooker",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 10,
            "enable.partition.eof": True,
        }
    )
    try:
        for partition in range(PARTITIONS):
            consumer.assign([TopicPartition(topic, partition, 0)])
            ended = False
            while not ended:
                messages = consumer.consume(10_000, timeout=0.2)
                for message in messages:
                    error = message.error()
                    if error is None:
                        yield Message(partition, message.offset(), message.key().decode(), json.loads(message.value()))
                    elif error.code() == KafkaError._PARTITION_EOF:
                        ended = True
                    else:
                        raise KafkaException(error)
    finally:
        consumer.close()


def differences(expected: Mapping[int, Mapping[str, Any]], before: Sequence[Message], after: Sequence[Message]) -> list[str]:
    """What is not as it must be; nothing where all is well. `before` is what could be seen before the second run."""
    times = Counter(message.tweet["id"] for message in after)
    doubled = [id_ for id_, count in times.items() if count > 1]
    changed = [m.tweet["id"] for m in after if m.tweet["id"] in expected and comparable(m.tweet) != comparable(expected[m.tweet["id"]])]
    misplaced = [m.tweet["id"] for m in after if m.key != m.tweet["user"]]
    newest: dict[str, tuple[int, int]] = {}
    disordered = []
    for message in after:
        partition, id_ = newest.get(message.key, (message.partition, -1))
        if partition != message.partition or id_ >= message.tweet["id"]:
            disordered.append(message.tweet["id"])
        newest[message.key] = (message.partition, message.tweet["id"])
    places = {(message.partition, message.offset): message.tweet for message in after}
    found = {
        "are missing": [id_ for id_ in expected if id_ not in times],
        "were not to be kept": [id_ for id_ in times if id_ not in expected],
        "are there more than once": doubled,
        "have another content": changed,
        "have another key": misplaced,
        "are out of their user's order": disordered,
        "stood elsewhere before": [m.tweet["id"] for m in before if places.get((m.partition, m.offset)) != m.tweet],
    }
    return [f"{len(ids):,} tweets {what}, such as {ids[0]}" for what, ids in found.items() if ids]


def comparable(tweet: Mapping[str, Any]) -> dict[str, Any]:
    """With a moment for its time, which the flow writes with more digits."""
    return {**tweet, "ts": datetime.fromisoformat(tweet["ts"])}


def tell(wrong: Sequence[str], found: Sequence[Message], seconds: float) -> int:
    """The verdict, and the exit status that says the same."""
    console.print("\n[bold]kept[/]  the last messages: partition, offset, key, value")
    for message in found[-3:]:
        console.print(
            f"  {message.partition}:{message.offset}  {message.key}  {json.dumps(message.tweet, ensure_ascii=False)}", soft_wrap=True
        )
    if wrong:
        console.print(f"\n[bold red]NOT exactly once[/] ({seconds:.0f} s in all):")
        for sentence in wrong:
            console.print(f"  {sentence}")
        return 1
    users = len({message.key for message in found})
    console.print(
        f"\n[bold green]Exactly once:[/] {len(found):,} tweets, exactly those that were to be kept, each once and unchanged; "
        f"those of each of {users:,} users in their order ({seconds:.0f} s in all).",
        soft_wrap=True,
    )
    return 0


def scribengin(*arguments: str, until: Callable[[], bool] = lambda: False) -> int:
    """Run a command as a person would, saying so; it is killed when `until` is true. Its exit status."""
    console.print(f"\n[dim]$[/] [bold]scribengin {' '.join(arguments)}[/]")
    # a session of its own: a signal strikes its Python and its Java, and nothing else
    command = subprocess.Popen([sys.executable, "-m", "scribengin.cli", *arguments], start_new_session=True)
    while command.poll() is None:
        if stop_asked or until():
            os.killpg(command.pid, signal.SIGKILL)
            command.wait()
            console.show_cursor()
        time.sleep(0.02)
    stop_if_asked()
    return command.returncode


def shown(path: Path) -> str:
    """The path as one would type it here."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


class Stopped(Exception):
    """By Ctrl-C, or by whoever started this."""


def stop_if_asked() -> None:
    """Raises Stopped, at a moment at which no command runs."""
    if stop_asked:
        raise Stopped


stop_asked: list[int] = []
"""the signals that came"""

if __name__ == "__main__":
    sys.exit(main())
