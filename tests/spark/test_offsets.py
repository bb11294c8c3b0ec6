from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from pyspark import cloudpickle

from scribengin.connectors.contract import BatchLimits, ConnectorContext
from scribengin.spark.program import SourceRef
from scribengin.spark.source_input import OffsetConfig, OffsetReader, _Descriptor

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


class Connected:
    """A source whose reader has a connection."""

    def reader(self) -> Connected:
        self._connection = threading.Lock()  # cannot be pickled either
        return self


def test_what_spark_sends_to_tasks_has_no_connection_of_the_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An HDFS source has one, and each Query with state over it ended before its first Batch."""
    monkeypatch.setattr("scribengin.spark.source_input.open_source", lambda *_: Connected())
    reader = OffsetReader(
        OffsetConfig(SourceRef("n", "sequence", ConnectorContext("n", tmp_path), 0), tmp_path, BatchLimits(None, None, None))
    )
    sent = cloudpickle.loads(cloudpickle.dumps(reader))
    assert list(sent.read(_Descriptor(("n", 0, "{}")))) == [("n", 0, "{}")]
