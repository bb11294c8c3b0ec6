"""An input for tests: it follows the lines of one file. As a script it is an agent that has this input."""

from __future__ import annotations

import importlib.machinery
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from scribengin.agent.inputs import InputReport, RecordChunk, RecordInput
from scribengin.wire.frames import FrameOrigin

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scribengin.wire.protocol import LaneConfig


class LineInput:
    """Follows one file, which only grows."""

    def __init__(self, path: Path, offset: int, most: int) -> None:
        self._path = path
        self._offset = offset
        self._most = most

    def poll(self, most_bytes: int) -> list[RecordChunk]:
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read(max(2048, min(most_bytes, self._most)))
        end = data.rfind(b"\n") + 1
        if not end:
            return []
        payload = data[:end]
        origin = FrameOrigin(host="h", file=str(self._path), identity=str(self._path), offset=self._offset, end=self._offset + end)
        self._offset += end
        return [RecordChunk(payload, payload.count(b"\n"), origin, time.time_ns() // 1_000_000)]

    def wait(self, timeout_s: float) -> None:
        time.sleep(min(timeout_s, 0.02))

    def report(self) -> InputReport:
        return InputReport(files=1)

    def close(self) -> None:
        pass


def install() -> None:
    """Make `input: own_lines` known to this process."""
    module = ModuleType("scribengin.agent.inputs.own_lines")
    module.__spec__ = importlib.machinery.ModuleSpec(module.__name__, None)

    def open_lines(lane: LaneConfig, positions: Mapping[str, FrameOrigin], folder: Path) -> RecordInput:
        path = Path(lane.options["path"])
        return LineInput(path, positions[str(path)].end if str(path) in positions else 0, lane.options.get("block", 2**20))

    module.open = open_lines  # type: ignore[attr-defined]
    sys.modules[module.__name__] = module


if __name__ == "__main__":
    install()
    from scribengin.agent.process import main

    sys.exit(main())
