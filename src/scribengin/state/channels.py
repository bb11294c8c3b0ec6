"""The stored columns of a flow's channels, as the upstream tier has found them. One small record each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scribengin.core.errors import ColumnsOutdated
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
    """The folder of one channel in the state folder."""

    path: Path

    @staticmethod
    def of(root: Path, flow: str, channel: str) -> ChannelFolder:
        """The folder, which need not exist."""
        return ChannelFolder(root / flow / FOLDER / channel)

    @property
    def data(self) -> Path:
        """The folder of its record batches, if the channel is a folder without a path in the flow."""
        return self.path / "packs"

    def read_schema(self) -> Schema | None:
        """The columns that its feeder gave when it was last started; None if it never was."""
        data = read_or_none(self._record)
        return None if data is None else parse_schema(unseal(data, _KIND, _FORMAT, self._record)["columns"])

    def write_schema(self, schema: Schema) -> None:
        """Store the columns of the channel's rows. Call it under the lease of the upstream tier."""
        if self.read_schema() != schema:
            make_folder(self.path)
            replace(self._record, seal(_KIND, _FORMAT, {"columns": str(schema)}))

    def check_columns(self, schema: Schema, node: str) -> None:
        """Before its reader, which takes `schema` from it, reads further: raise ColumnsOutdated where its feeder gives a column that is not
        in it, or is of another type. The feeder writes its columns before any row that has them."""
        given = self.read_schema()
        known = {field.name: field.type for field in schema.fields}
        new = [] if given is None else [field for field in given.fields if known.get(field.name) != field.type]
        if new:
            columns = ", ".join(f"{each.name} {each.type}" for each in new)
            raise ColumnsOutdated(
                f"channel {self.path.name} has other columns since its upstream restarted: {columns}",
                remedy="restart the flow, which adds the columns",
                node=node,
            )

    @property
    def _record(self) -> Path:
        return self.path / "channel.json"
