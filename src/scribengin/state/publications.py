"""Where the Batches of a lineage were put into a channel, as its writing end has noted it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scribengin.connectors.kafka.publications import published_log
from scribengin.state.ack_intake import ChannelPiece

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from scribengin.connectors.contract import Receipt
    from scribengin.core.numbered_log import NumberedLog


def file_pieces(receipts: Iterable[Receipt]) -> list[ChannelPiece]:
    """What a Batch's receipts say of a channel in a folder."""
    segments = [segment for receipt in receipts for segment in receipt.segments]
    return [ChannelPiece(segment["name"], 0, segment["rows"], segment["bytes"]) for segment in segments]


class Publications:
    """What the sink of a channel in a topic has noted of a lineage's Batches. To be kept by who asks for many: it remembers folded ones."""

    def __init__(self, work: Path, lineage: str) -> None:
        self._work = work
        self._lineage = lineage
        self._logs: dict[str, NumberedLog] = {}

    def messages(self, number: int, member: str) -> list[dict[str, Any]] | None:
        """The ranges of a Batch (`published_log`); `member` is where it went, empty without a group. None where it is not published yet."""
        if member not in self._logs:
            self._logs[member] = published_log(self._work / member, self._lineage)
        said = self._logs[member].read(number)
        return None if said is None else said["messages"]

    def pieces(self, number: int, member: str, rows: int, bytes: int) -> list[ChannelPiece] | None:
        """Of a Batch of so many rows and bytes; None where it is not published yet."""
        if not rows:
            return []
        messages = self.messages(number, member)
        if messages is None:
            return None
        at = f"{member}:" if member else ""
        return [
            ChannelPiece(f"{at}{each['topic']}-{each['partition']}", each["last"], each["rows"], bytes * each["rows"] // rows)
            for each in messages
        ]
