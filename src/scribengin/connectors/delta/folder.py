"""A table in a folder of this machine."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from scribengin.connectors.delta.places import TablePlace
from scribengin.connectors.files.audit import read_again
from scribengin.connectors.files.maintenance import OLD_S, orphans_of
from scribengin.connectors.files.sink_claim import last_lineage
from scribengin.connectors.files.sink_folders import INTERNAL, lineages_in, remove_empty
from scribengin.core.storage import put_if_absent, read_or_none, sync_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from scribengin.connectors.files.sink_folders import LineageFolder


class FolderPlace(TablePlace):
    """A table in a folder, see TablePlace. The client renames its log files into place without a sync; this class syncs them."""

    def __init__(self, node: str, path: Path) -> None:
        self.node = node
        self.path = path

    @property
    def uri(self) -> str:
        """See TablePlace."""
        return str(self.path)

    def lineages(self) -> Sequence[LineageFolder]:
        """See TablePlace."""
        return lineages_in(self.path)

    def read(self, name: str) -> bytes | None:
        """See TablePlace."""
        return read_or_none(self.path / name)

    def put(self, name: str, data: bytes) -> bool:
        """See TablePlace."""
        return put_if_absent(self.path / name, data)

    def made(self) -> None:
        """See TablePlace."""
        sync_folder(self.path)

    def committed(self, *, files: bool) -> None:
        """See TablePlace."""
        log = self.path / "_delta_log"
        newest = max((path for path in log.iterdir() if path.suffix == ".json" and path.stem.isdigit()), default=None)
        if newest is None:
            return
        with newest.open("rb") as file:
            os.fsync(file.fileno())
            lines = file.readlines() if files else []
        sync_folder(log)
        for name in (unquote(action["add"]["path"]) for line in lines if "add" in (action := json.loads(line))):
            with (self.path / name).open("rb") as file:
                os.fsync(file.fileno())
            sync_folder((self.path / name).parent)

    def log(self) -> Iterator[tuple[int, bytes]]:
        """See TablePlace."""
        names = (path for path in (self.path / "_delta_log").iterdir() if path.suffix == ".json" and path.stem.isdigit())
        yield from ((int(path.stem), path.read_bytes()) for path in sorted(names))

    def read_again(self, file: Mapping[str, Any]) -> tuple[int, list[str]]:
        """See TablePlace."""
        return read_again(self.path / file["name"], file, "parquet")

    def waiting(self) -> tuple[str, ...]:
        """Empty: staged files are in a folder that no vacuum reads."""
        return ()

    def strays(self) -> Iterator[str]:
        """See TablePlace."""
        newest = last_lineage(self.path / INTERNAL / "owner.json")
        for lineage in self.lineages():
            for orphan in orphans_of(lineage, current=lineage.path.name == newest, before_s=time.time() - OLD_S):
                yield str(orphan.relative_to(self.path))

    def delete(self, name: str) -> int | None:
        """See TablePlace."""
        file = self.path / name
        try:
            size = file.stat().st_size
        except FileNotFoundError:
            return None
        file.unlink(missing_ok=True)
        remove_empty(file.parent, self.path)
        return size
