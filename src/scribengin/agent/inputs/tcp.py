"""The input `tcp`: lines that other hosts send over TCP or TLS, over any number of connections.

A record is a line; CR LF ends one as LF does, and so does the end of a connection. The sender's host is the origin. TCP has no answer for
single records: those that a sender has handed to its kernel, and that were not durable in the write-ahead log when the agent or its host
crashed, are lost. A sender that needs to know uses the input `http`. While the lane does not take records, no connection is read, and
senders wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.agent.inputs import InputReport, RecordChunk
from scribengin.agent.inputs.line_streams import LineCutter, OriginJoiner, origin_of
from scribengin.agent.inputs.sockets import ServerCertificate, StreamServer, listen_place, refuse_exposure

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from scribengin.wire.frames import FrameOrigin
    from scribengin.wire.protocol import LaneConfig


class TcpInput:
    """Lines of many connections; see `scribengin.agent.inputs.RecordInput`."""

    def __init__(self, lane: LaneConfig) -> None:
        options = lane.options
        self._lane = lane
        where = f"{lane.flow}.{lane.source}"
        place = listen_place(where, str(options.get("listen") or "127.0.0.1:5170"), scheme="tcp")
        certificate = ServerCertificate(options)
        refuse_exposure(
            where,
            place,
            secured=certificate.wanted and certificate.asks_clients,
            insecure=bool(options.get("insecure")),
            need="set `certificate`, `key` and `client_ca`, so that senders show a certificate; or ",
        )
        self.server = StreamServer(place, certificate)
        self._joiner = OriginJoiner(lane)

    def poll(self, most_bytes: int) -> list[RecordChunk]:
        """Lines that have come."""
        for connection, data in self.server.read(most_bytes):
            cutter = connection.decoder
            if cutter is None:
                connection.decoder = cutter = LineCutter(self._lane, carriage_returns=True)
            blocks = cutter.feed(data) if data else cutter.end()
            if blocks:
                origin = origin_of(self._lane, connection.sender)
                for block in blocks:
                    self._joiner.add(origin, block)
        return self._joiner.take()

    def wait(self, timeout_s: float) -> None:
        """Until a connection has something, or the time is over."""
        self.server.wait(timeout_s)

    def report(self) -> InputReport:
        """The number of connections as `files`, and what is wrong."""
        return InputReport(files=self.server.connections, message=self.server.message)

    def close(self) -> None:
        """Close the port and the connections."""
        self.server.close()


def open(lane: LaneConfig, positions: Mapping[str, FrameOrigin], folder: Path) -> TcpInput:  # noqa: ARG001
    """The input of a lane; its arguments and errors are those of `scribengin.agent.inputs.open_input`."""
    return TcpInput(lane)
