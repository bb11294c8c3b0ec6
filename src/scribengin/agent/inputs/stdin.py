"""The input `stdin`: lines of the standard input of the agent, until it ends.

`finished` is then true: an agent with no other input ends once its records are acknowledged. A pipe cannot be read twice:
what was not durable in the write-ahead log when the agent or its host crashed is lost. While the lane does not take records, the writer
waits.
"""

from __future__ import annotations

import os
import select
import sys
import time
from typing import TYPE_CHECKING

from scribengin.agent.inputs import InputReport, RecordChunk
from scribengin.agent.inputs.line_streams import READ_BYTES, LineCutter, OriginJoiner, origin_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from scribengin.wire.frames import FrameOrigin
    from scribengin.wire.protocol import LaneConfig


class StdinInput:
    """Lines of a file descriptor; see `scribengin.agent.inputs.RecordInput`."""

    def __init__(self, lane: LaneConfig, file: int) -> None:
        """`file`: the descriptor; -1 if there is none."""
        self._file = file
        self._origin = origin_of(lane, "stdin")
        self._cutter = LineCutter(lane)
        self._joiner = OriginJoiner(lane)
        self.finished = file < 0
        """True if all was read, and the records were returned by `poll`"""
        self._message = "" if file >= 0 else "the agent has no standard input; to fix, start it behind a pipe"

    def poll(self, most_bytes: int) -> list[RecordChunk]:
        """Lines that have come."""
        left = most_bytes
        while left > 0 and not self.finished and self._ready(0):
            try:
                data = os.read(self._file, min(READ_BYTES, max(4096, left)))
            except BlockingIOError:
                break
            except OSError as error:  # a terminal that is gone
                self._message = f"the standard input ended: {error.strerror}"
                data = b""
            left -= len(data)
            for block in self._cutter.feed(data) if data else self._cutter.end():
                self._joiner.add(self._origin, block)
            self.finished = not data
        return self._joiner.take()

    def wait(self, timeout_s: float) -> None:
        """Until something has come, or the time is over."""
        if self.finished:
            time.sleep(timeout_s)
        else:
            self._ready(timeout_s)

    def report(self) -> InputReport:
        """Whether it is open, as `files`."""
        return InputReport(files=0 if self.finished else 1, message=self._message)

    def close(self) -> None:
        """The descriptor is not this input's, and stays open."""
        self.finished = True

    def _ready(self, timeout_s: float) -> bool:
        return bool(select.select([self._file], [], [], timeout_s)[0])


def open(lane: LaneConfig, positions: Mapping[str, FrameOrigin], folder: Path) -> StdinInput:  # noqa: ARG001
    """The input of a lane; its arguments are those of `scribengin.agent.inputs.open_input`."""
    return StdinInput(lane, sys.stdin.fileno() if sys.stdin is not None else -1)
