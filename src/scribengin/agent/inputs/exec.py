"""The input `exec`: lines that a command writes, which is started again as `restart` says.

A record is a line of stdout; the end of the command ends the last one. What stderr gets is written to the agent's log (`log`), goes among
the records (`merge`), or becomes records of its own with the tag `stream: stderr` (`separate`; those of stdout have `stream: stdout`).

A pipe cannot be read twice: what the command has written, and was not durable in the write-ahead log when the agent or its host crashed,
is lost, and so is what it writes while it is ended with the agent. While the lane does not take records the pipe is full, and the command
waits.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from scribengin.agent.inputs import InputReport, RecordChunk
from scribengin.agent.inputs.children import LOG, ChildRuns
from scribengin.agent.inputs.line_streams import LineCutter, OriginJoiner, origin_of
from scribengin.core.errors import EnvironmentFault

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from scribengin.agent.inputs.line_streams import RecordBlock
    from scribengin.wire.frames import FrameOrigin
    from scribengin.wire.protocol import LaneConfig

_NAME_LENGTH = 200
_LOGGED_LENGTH = 2000


class ExecInput:
    """Lines of a command; see `scribengin.agent.inputs.RecordInput`."""

    def __init__(self, lane: LaneConfig) -> None:
        options = lane.options
        command = [str(each) for each in options.get("command") or ()]
        if not command or not command[0]:
            raise EnvironmentFault(
                f"{lane.flow}.{lane.source}: command is empty; expected a list such as [vmstat, '1']", remedy="set the option `command`"
            )
        self._stderr = str(options.get("stderr") or "log")
        self.runs = ChildRuns(
            command,
            environment={str(name): str(value) for name, value in (options.get("environment") or {}).items()},
            restart=str(options.get("restart") or "always"),
            delay_s=float(options.get("restart_delay") or 1.0),
            merge=self._stderr == "merge",
        )
        name = shlex.join(command)[:_NAME_LENGTH]
        separate = self._stderr == "separate"
        self._origins = {
            "stdout": origin_of(lane, name, tags={"stream": "stdout"} if separate else None),
            "stderr": origin_of(lane, f"{name} 2>", tags={"stream": "stderr"}),
        }
        self._cutters = {"stdout": LineCutter(lane), "stderr": LineCutter(lane)}
        self._joiner = OriginJoiner(lane)

    def poll(self, most_bytes: int) -> list[RecordChunk]:
        """Lines that the command has written."""
        for name, data in self.runs.read(most_bytes):
            cutter = self._cutters[name]
            blocks = cutter.feed(data) if data else cutter.end()
            if name == "stderr":
                self._note(blocks)
            if name == "stdout" or self._stderr == "separate":
                for block in blocks:
                    self._joiner.add(self._origins[name], block)
        return self._joiner.take()

    def wait(self, timeout_s: float) -> None:
        """Until the command has written something or has ended, or the time is over."""
        self.runs.wait(timeout_s)

    def report(self) -> InputReport:
        """How the command ended, or why it does not start."""
        return InputReport(files=1 if self.runs.pid else 0, message=self.runs.message)

    def close(self) -> None:
        """End the command and what it has started."""
        self.runs.close()

    def _note(self, blocks: list[RecordBlock]) -> None:
        for block in blocks:
            for line in block.payload.splitlines():
                text = line[:_LOGGED_LENGTH].decode("utf-8", "backslashreplace").strip()
                self.runs.last_words = text[:_NAME_LENGTH] or self.runs.last_words
                if self._stderr == "log":
                    LOG.info("%s: %s", self._origins["stdout"].file, text)


def open(lane: LaneConfig, positions: Mapping[str, FrameOrigin], folder: Path) -> ExecInput:  # noqa: ARG001
    """The input of a lane; its arguments and errors are those of `scribengin.agent.inputs.open_input`."""
    return ExecInput(lane)
