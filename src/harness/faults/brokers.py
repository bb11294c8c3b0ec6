"""The brokers that lives over Kafka share; they are started when the first life needs them."""

from __future__ import annotations

import shutil
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from scribengin.embedded.kafka import KafkaCluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import TracebackType

_PROPERTIES = {
    "auto.create.topics.enable": "false",
    # brokers look for expired transactions every 10 s by default; here a slow one is aborted as soon as its time is up
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}


class Brokers:
    """One broker or three; a context manager that stops them at its end, and those that it has lent. `folder` is replaced."""

    def __init__(self, folder: Path, *, count: int = 1) -> None:
        self.count = count
        self._folder = folder
        self._cluster: KafkaCluster | None = None
        self._one_at_a_time = threading.Lock()
        self._lent: list[Brokers] = []
        self._free: list[Brokers] = []

    def cluster(self) -> KafkaCluster:
        """The running cluster."""
        with self._one_at_a_time:
            if self._cluster is None:
                shutil.rmtree(self._folder, ignore_errors=True)
                self._cluster = KafkaCluster(self._folder, self.count, _PROPERTIES)
                self._cluster.start()
            return self._cluster

    @contextmanager
    def apart(self, count: int) -> Iterator[Brokers]:
        """Lend separate brokers to a life that strikes them: those that an earlier life has returned, or new ones."""
        with self._one_at_a_time:
            found = next((brokers for brokers in self._free if brokers.count == count), None)
            if found is None:
                found = Brokers(self._folder.with_name(f"{self._folder.name}-{len(self._lent) + 1}"), count=count)
                self._lent.append(found)
            else:
                self._free.remove(found)
        yield found
        # not returned after an error, or if the life was ended
        self._free.append(found)

    def mend(self) -> None:
        """Start the brokers again that a life has left dead."""
        cluster = self.cluster()
        for broker in set(range(1, self.count + 1)) - cluster.brokers_up.keys():
            cluster.restart(broker)

    def __enter__(self) -> Brokers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for lent in self._lent:
            lent.__exit__(kind, error, trace)
        if self._cluster is not None:
            self._cluster.stop()
