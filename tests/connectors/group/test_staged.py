"""What is staged for a channel in Kafka keeps how many rows each message holds: an audit counts rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from scribengin.connectors.channel.kafka import PackMessages
from scribengin.connectors.kafka.outgoing import Outgoing
from scribengin.connectors.kafka.sink_stream import StagedMessages, staged_messages
from scribengin.connectors.kafka.topics import TargetTopic

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("sizes", [None, [3, 4]])
def test_messages_come_out_of_the_stage_as_they_went_in(tmp_path: Path, sizes: list[int] | None) -> None:
    messages = Outgoing(["t", "t"], np.array([0, 1], np.int32), [None, b"k"], [b"v", b"w"], [0, 5], None, {"h": [b"1", None]}, sizes)
    maker = PackMessages(None, TargetTopic("t", "", 2, 1000, compacted=False), (), 0)  # type: ignore[arg-type]
    stream = StagedMessages("kept", 0, "a", tmp_path, maker)
    stream.keep(messages)
    receipt = stream.close()
    (out,) = staged_messages(tmp_path, receipt.segments[0])
    assert (out.topics, out.keys, out.values, out.times_ms, out.headers) == (
        messages.topics, messages.keys, messages.values, messages.times_ms, messages.headers,
    )  # fmt: skip
    assert out.sizes == sizes
    assert out.rows_inside() == receipt.rows == (2 if sizes is None else 7)
