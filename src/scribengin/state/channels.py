"""What is known of a flow's channels: the columns of their rows, as the feeding tier has found them. One small record each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scribengin.core.records import seal, unseal
from scribengin.core.storage import make_folder, read_or_none, replace
from scribengin.core.types import parse_schema

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.core.types import Schema

FOLDER = "channels"
"""beside the folders of a flow's tiers"""
_KIND, _FORMAT = "channel", 1


@dataclass(frozen=True, slots=True)
class ChannelFolder:
    """What one channel has in the state folder."""

    path: Path

    @staticmethod
    def of(root: Path, flow: str, channel: str) -> ChannelFolder:
        """The folder, which need not be there."""
        return ChannelFolder(root / flow / FOLDER / channel)

    @property
    def data(self) -> Path:
        """Where its packs lie, where it is a folder that the flow gives no path."""
        return self.path / "packs"

    def read_schema(self) -> Schema | None:
        """The columns that its feeder gave when it was last started; None where it never was."""
        data = read_or_none(self._record)
        return None if data is None else parse_schema(unseal(data, _KIND, _FORMAT, self._record)["columns"])

    def write_schema(self, schema: Schema) -> None:
        """Under the feeding tier's lease."""
        if self.read_schema() != schema:
            make_folder(self.path)
            replace(self._record, seal(_KIND, _FORMAT, {"columns": str(schema)}))

    @property
    def _record(self) -> Path:
        return self.path / "channel.json"
