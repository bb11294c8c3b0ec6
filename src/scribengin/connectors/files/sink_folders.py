"""The layout of a sink's folder, by lineage."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from scribengin.core.numbered_log import NumberedLog
from scribengin.core.records import seal, unseal
from scribengin.core.remedies import start_over
from scribengin.core.storage import explained, names_in, read_or_none, replace

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

INTERNAL = "_scribengin"
READERS = "readers"
"""name of the folder, beside those of the lineages, with the leases of readers; see `files.retention`"""


RESTORE = f"restore the file from a backup, or {start_over()}"
"""the remedy if a file that was written is missing"""


def missing_text(number: int, final: Path, staged: Path) -> str:
    """The error for a file of a Batch that is neither published nor staged.

    Args:
        number: The number of the Batch.
        final: The path of the published file.
        staged: The path of the staged file.
    """
    return f"batch {number} names {final}, which is missing, and its staged form {staged} is missing too"


@dataclass(frozen=True, slots=True)
class LineageFolder:
    """The folders of one lineage at the sink's place."""

    path: Path

    @property
    def staged(self) -> Path:
        """The folder of staged files that are not published."""
        return self.path / "staged"

    @property
    def hidden(self) -> Path:
        """The folder of segments that are committed, and not merged yet."""
        return self.path / "hidden"

    def hidden_file(self, number: int, file: Mapping[str, Any]) -> Path:
        """The path of a hidden segment of a Batch."""
        return self.hidden / f"{number:010d}-{file['staged']}"

    @property
    def drafts(self) -> Path:
        """The folder of merged files that are not renamed yet."""
        return self.path / "merged"

    @property
    def merges(self) -> NumberedLog:
        """The records of compaction runs; see `compaction_state`."""
        return NumberedLog(self.path / "merges", "merge")

    @property
    def keeping(self) -> Path:
        """The file with the maintenance settings of the folder; see `retention`."""
        return self.path / "keeping.json"

    @property
    def _mark(self) -> Path:
        return self.path / "published"

    def files_of(self, number: int, record: Mapping[str, Any], top: Path) -> list[tuple[Path, Path]]:
        """The paths of the files of a Batch.

        Args:
            number: The number of the Batch.
            record: The commit record of the Batch.
            top: The sink's folder.

        Returns:
            (staged path, committed path) of each file.
        """
        staged = self.staged / f"{number:010d}"
        return [
            (staged / file["staged"], self.hidden_file(number, file) if file.get("hidden") else top / file["name"])
            for file in record["files"]
        ]

    def read_mark(self) -> int:
        """The last Batch whose files were all renamed, durably; -1 if that is not known."""
        return read_mark(self._mark)

    def write_mark(self, number: int) -> None:
        """Store the number of the last Batch whose files were all renamed; a lost number only costs a check of some files. Raises
        EnvironmentFault if the disk is full: the Batch is published again, which changes nothing."""
        with explained(f"{self.path}: cannot record that batch {number} is complete"):
            write_mark(self._mark, number)

    @property
    def _released(self) -> Path:
        return self.path / "released"

    def read_released(self) -> tuple[int, int]:
        """(last Batch whose files may have been deleted, last Batch whose files have been); -1 for none."""
        data = read_or_none(self._released)
        if data is None:
            return -1, -1
        body = unseal(data, "released", 1, self._released)
        return body["released"], body["swept"]

    def write_released(self, released: int, swept: int) -> None:
        """Store the values of `read_released` durably."""
        replace(self._released, seal("released", 1, {"released": released, "swept": swept}))

    @property
    def commits(self) -> NumberedLog:
        """The records of published Batches."""
        return NumberedLog(self.path / "batches", "commit")


def lineages_in(path: Path) -> list[LineageFolder]:
    """The folders of all lineages that have written to a sink's folder."""
    internal = path / INTERNAL
    return [LineageFolder(internal / name) for name in sorted(names_in(internal)) if name != READERS and (internal / name).is_dir()]


def read_mark(path: Path) -> int:
    """The number in the file; -1 if there is no file. Raises OSError."""
    data = read_or_none(path) or b""
    return int(data) if data.isdigit() else -1


def write_mark(path: Path, number: int) -> None:
    """Store the number in the file. Not durable: a lost number only costs a check of some files. Raises OSError."""
    draft = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        draft.write_bytes(b"%d" % number)
        draft.replace(path)
    except OSError:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise


def remove_empty(folder: Path, top: Path) -> None:
    """Delete the folder and its parents below `top` that are empty; `top` is kept."""
    while folder != top:
        try:
            folder.rmdir()
        except OSError:
            return  # another process deleted it first, or has created a file in it
        folder = folder.parent
