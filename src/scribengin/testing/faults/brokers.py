"""The brokers that lives over Kafka share: started when the first one asks for them."""

from __future__ import annotations

import shutil
import threading
from typing import TYPE_CHECKING

from scribengin.embedded.kafka import KafkaCluster

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

_PROPERTIES = {
    "auto.create.topics.enable": "false",
    # brokers look for transactions that are over their time every 10 s by default: here what is too slow is aborted when its time is up
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}


class Brokers:
    """One broker, or three; a context manager, after which they are gone. `folder` is made anew."""

    def __init__(self, folder: Path, *, count: int = 1) -> None:
        self.count = count
        self._folder = folder
        self._cluster: KafkaCluster | None = None
        self._one_at_a_time = threading.Lock()

    def cluster(self) -> KafkaCluster:
        """The cluster, up."""
        with self._one_at_a_time:
            if self._cluster is None:
                shutil.rmtree(self._folder, ignore_errors=True)
                self._cluster = KafkaCluster(self._folder, self.count, _PROPERTIES)
                self._cluster.start()
            return self._cluster

    def __enter__(self) -> Brokers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._cluster is not None:
            self._cluster.stop()
