"""The inputs of an agent: what reads files, commands and sockets. Each has a module here, named as `input:` in a flow file, with a function
`open(lane, positions, folder)` that returns an `RecordInput`.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol

from scribengin.core.errors import EnvironmentFault

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from scribengin.wire.frames import FrameKind, FrameOrigin
    from scribengin.wire.protocol import LaneConfig


@dataclass(slots=True)
class RecordChunk:
    """Records of one origin that have no numbers yet.

    `payload` is the records, each followed by `mark`; `time_ms` when the last one was read. `on_durable` is called once: after the records
    are durable in the write-ahead log, or, without one, after a gateway has stored them. A sender that waits for an answer may then have
    it. Any thread of the agent may call it; it does not block.
    """

    payload: bytes
    count: int
    origin: FrameOrigin
    time_ms: int
    mark: bytes = b"\n"
    kind: FrameKind = "records"
    on_durable: Callable[[], None] | None = None


@dataclass(frozen=True, slots=True)
class InputReport:
    """The state of an input: open files, problems for people (what, found, remedy), and the bytes that are there and not read yet."""

    files: int = 0
    message: str = ""
    backlog_bytes: int | None = None


class RecordInput(Protocol):
    """Where the records of one lane come from. All methods are called by the thread of the lane only, except `report`."""

    def poll(self, most_bytes: int) -> list[RecordChunk]:
        """What is new, in the order in which it is to be numbered; an empty list if nothing is.

        Args:
            most_bytes: About as much is wanted at once; one chunk never has more than `frame_bytes` of the lane, unless one record has.
        """

    def wait(self, timeout_s: float) -> None:
        """Return when something may be there, or the time is over."""

    def report(self) -> InputReport:
        """The state now. Any thread may ask."""

    def close(self) -> None:
        """Give up files, sockets and processes; records that were not returned by `poll` are not lost if they can be read again."""


def open_input(lane: LaneConfig, positions: Mapping[str, FrameOrigin], folder: Path) -> RecordInput:
    """The input of a lane.

    Args:
        lane: Its configuration; the options are complete and checked.
        positions: Identity → the origin of the newest frame of it that is kept, to read on at its `end`.
        folder: The folder of the agent, which is never read as a source.

    Raises:
        EnvironmentFault: This release of the agent does not have the input.
        ScribenginError: The input cannot be opened: a port in use, a command that is missing, a certificate that cannot be read.
    """
    module = f"{__name__}.{lane.input}"
    if not lane.input.isidentifier() or find_spec(module) is None:
        raise EnvironmentFault(
            f"{lane.flow}.{lane.source}: this agent has no input {lane.input!r}", remedy="update the agent to the release of the gateway"
        )
    opened: RecordInput = import_module(module).open(lane, positions, folder)
    return opened
