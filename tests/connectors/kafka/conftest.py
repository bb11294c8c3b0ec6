"""A real broker for all tests of this folder, and a hand for its topics."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec

from scribengin.connectors.contract import BatchLimits, ConnectorContext, SourceStream
from scribengin.connectors.kafka import schema_registry as registry_module
from scribengin.connectors.kafka.source import KafkaSource
from scribengin.core.types import parse_schema
from scribengin.embedded.kafka import KafkaCluster
from tests.connectors.kafka.guarded import start_guarded
from tests.connectors.kafka.processes import within
from tests.connectors.kafka.registry_server import RegistryServer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from scribengin.connectors.kafka.reader import KafkaReader
    from tests.connectors.kafka.guarded import Guarded

_numbers = count()


@dataclass
class Topics:
    """Makes topics and messages as any other program would."""

    bootstrap: str
    admin: Any

    def make(self, partitions: int = 1, *, name: str = "", **config: str) -> str:
        name = name or f"topic-{next(_numbers)}"
        for future in self.admin.create_topics([NewTopic(name, partitions, 1, config=config)]).values():
            future.result(60)
        within(120, lambda: self._leads(name, partitions))
        return name

    def delete(self, name: str) -> None:
        for future in self.admin.delete_topics([name]).values():
            future.result(60)
        within(120, lambda: name not in self.admin.list_topics(timeout=60).topics)

    def _leads(self, name: str, partitions: int) -> bool:
        """Whether each partition has a leader that knows it is one: brokers answer before all of their parts know of a topic."""
        found = self.admin.list_topics(timeout=60).topics.get(name)
        if found is None or len(found.partitions) != partitions:
            return False
        asked = {TopicPartition(name, partition): OffsetSpec.latest() for partition in range(partitions)}
        try:
            for future in self.admin.list_offsets(asked).values():
                future.result(60)
        except KafkaException:
            return False
        return True

    def make_anew(self, name: str) -> None:
        """Delete it, and make another one of one partition under its name."""
        self.delete(name)

        def made() -> bool:
            try:
                self.make(name=name)
            except KafkaException:  # it is not gone yet
                return False
            return True

        within(60, made)

    def widen(self, name: str, partitions: int) -> None:
        for future in self.admin.create_partitions([NewPartitions(name, partitions)]).values():
            future.result(60)
        within(120, lambda: self._leads(name, partitions))

    def forget(self, name: str, partition: int, before: int) -> None:
        """What retention does, at once."""
        for future in self.admin.delete_records([TopicPartition(name, partition, before)]).values():
            future.result(60)

    def write(self, name: str, ids: Iterable[int], partition: int = 0, **settings: Any) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, **settings})
        for id_ in ids:
            producer.produce(name, json.dumps({"id": id_}), key=f"k{id_}", partition=partition, headers={"n": str(id_)})
        assert producer.flush(60) == 0

    def write_texts(self, name: str, texts: Iterable[str]) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for text in texts:
            producer.produce(name, text, partition=0)
        assert producer.flush(60) == 0

    def transaction(self, name: str, ids: Iterable[int], partition: int = 0, *, by: str = "by") -> Any:
        """A producer with an open transaction that has sent these."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "transactional.id": by})
        producer.init_transactions(60)
        producer.begin_transaction()
        for id_ in ids:
            producer.produce(name, json.dumps({"id": id_}), partition=partition)
        assert producer.flush(60) == 0
        return producer


_clusters: list[KafkaCluster] = []
"""those that this process has started, each for the tests of a folder"""


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """A broker that nobody asks takes 3 % of a core, as long as it is there: it ends behind the last test of the folder.

    Where another one comes after all, it is started again, over its data.
    """
    if nextitem is None or nextitem.path.parent != item.path.parent:
        for cluster in _clusters:
            cluster.stop()


def _up(cluster: KafkaCluster) -> KafkaCluster:
    if not cluster.brokers_up:
        cluster.start()
    return cluster


@pytest.fixture(scope="session")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    properties = {
        "auto.create.topics.enable": "false",
        # transactions that have come to their time-out are looked for so often, not every ten seconds
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "50",
    }
    with KafkaCluster(tmp_path_factory.mktemp("kafka"), properties=properties) as started:
        _clusters.append(started)
        yield started


@pytest.fixture
def cluster(shared_cluster: KafkaCluster) -> KafkaCluster:
    return _up(shared_cluster)


@pytest.fixture(scope="session")
def shared_topics(shared_cluster: KafkaCluster) -> Topics:
    return Topics(shared_cluster.bootstrap, AdminClient({"bootstrap.servers": shared_cluster.bootstrap, "log_level": 0}))


@pytest.fixture
def topics(cluster: KafkaCluster, shared_topics: Topics) -> Topics:
    return shared_topics


@pytest.fixture(scope="session")
def shared_guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with start_guarded(tmp_path_factory.mktemp("guarded"), Topics) as started:
        _clusters.append(started.cluster)
        yield started


@pytest.fixture
def guarded(shared_guarded: Guarded) -> Guarded:
    _up(shared_guarded.cluster)
    return shared_guarded


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with RegistryServer() as started:
        yield started
    registry_module._schemas.clear()
    for client in registry_module._clients.values():
        client.close()
    registry_module._clients.clear()


@dataclass
class Reading:
    """A source over some topics, and what its reader hands out."""

    source: KafkaSource
    reader: KafkaReader

    def take(self, *, final: bool = True, max_rows: int | None = None) -> list[SourceStream]:
        return self.reader.split(BatchLimits(max_rows=max_rows), final=final)

    def ids(self, streams: list[SourceStream]) -> list[int]:
        return [row["id"] for row in self.rows(streams)]

    def rows(self, streams: list[SourceStream]) -> list[dict[str, Any]]:
        decoder = self.source.decoder()
        found: list[dict[str, Any]] = []
        for stream in (stream for stream in streams if not stream.skipped):
            for block in self.source.read(stream):
                decoded = decoder.rows(block)
                assert not decoded.bad
                found += decoded.rows
        return found


@pytest.fixture
def open_source(cluster: KafkaCluster, tmp_path: Path) -> Any:
    def opened(*names: str, schema: str = "id BIGINT", bootstrap: str = "", **options: Any) -> Reading:
        given = {"bootstrap": bootstrap or cluster.bootstrap, "topics": names, "format": "json", "timeout": 30.0, **options}
        source = KafkaSource(ConnectorContext("read", tmp_path, given, parse_schema(schema)))
        return Reading(source, source.reader())

    return opened
