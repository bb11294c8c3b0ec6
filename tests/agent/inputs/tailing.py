"""An input `tail` under test: what it delivers, and what it delivers again after it was killed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from scribengin.agent.inputs.tail import TailInput
from scribengin.wire.protocol import LaneConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from scribengin.agent.inputs import RecordChunk
    from scribengin.wire.frames import FrameOrigin

LIMIT_S = 60.0


class QuickTail(TailInput):
    """Leaves files soon, so that tests need not wait."""

    leave_s = 0.05
    grace_s = 0.3


def lane_config(*patterns: Path | str, max_record: int = 2**20, frame_bytes: int = 2**20, **options: Any) -> LaneConfig:
    complete = {
        "path": [str(pattern) for pattern in patterns],
        "exclude": [],
        "from": "beginning",
        "encoding": "utf-8",
        "multiline": "",
        "poll": 0.01,
        "follow_links": True,
        **{name.rstrip("_"): value for name, value in options.items()},
    }
    return LaneConfig("shop", "access", "tail", options=complete, max_record=max_record, frame_bytes=frame_bytes, tags={"place": "here"})


def records_of(chunk: RecordChunk) -> list[bytes]:
    if chunk.kind == "too_long":
        return [chunk.payload]
    records = chunk.payload.split(chunk.mark)
    assert records.pop() == b""
    assert len(records) == chunk.count
    return records


class Tailing:
    """A tail whose chunks all become durable, but those that `crash` takes back."""

    def __init__(self, lane: LaneConfig, folder: Path, positions: Mapping[str, FrameOrigin] | None = None) -> None:
        self.lane = lane
        self.folder = folder
        self.folder.mkdir(exist_ok=True)
        self.chunks: list[RecordChunk] = []
        self.messages: list[str] = []
        self._records: list[bytes] = []
        self._divided = 0
        self.input = QuickTail(lane, positions or {}, folder)

    @property
    def records(self) -> list[bytes]:
        for chunk in self.chunks[self._divided :]:
            self._records += records_of(chunk)
        self._divided = len(self.chunks)
        return self._records

    @property
    def texts(self) -> list[str]:
        return [record.decode() for record in self.records]

    @property
    def positions(self) -> dict[str, FrameOrigin]:
        return {chunk.origin.identity: chunk.origin for chunk in self.chunks}

    @property
    def message(self) -> str:
        return self.input.report().message

    def poll(self, most_bytes: int = 2**22) -> None:
        self.chunks += self.input.poll(most_bytes)
        message = self.message
        if message and message not in self.messages[-1:]:
            self.messages.append(message)

    def until(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + LIMIT_S
        while not condition():
            assert time.monotonic() < end, (self.records[-5:], self.message)
            self.poll()
            self.input.wait(0.05)

    def until_texts(self, *texts: str) -> None:
        self.until(lambda: len(self.records) >= len(texts))
        assert self.texts == list(texts)

    def rest(self, seconds: float = 0.2) -> None:
        """Poll on, for the sake of what should not come."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.poll()
            self.input.wait(0.01)

    def crash(self, durable: int | None = None) -> None:
        """Forget all but the first chunks, and start again from their positions."""
        self.input.close()
        self.chunks = self.chunks[:durable]
        self._records, self._divided = [], 0
        self.input = QuickTail(self.lane, self.positions, self.folder)

    def close(self) -> None:
        self.input.close()
