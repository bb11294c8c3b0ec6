"""Where what lies in a sink's folder, lineage by lineage."""

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
"""beside the lineages: what readers hold; see `read_lease`"""


RESTORE = f"restore the file from a backup, or {start_over()}"
"""where a file is missing that was written"""


def missing_text(number: int, final: Path, staged: Path) -> str:
    """Of a file of a Batch that is neither published nor staged."""
    return f"batch {number} names {final}, which is missing, and its staged form {staged} is missing too"


@dataclass(frozen=True, slots=True)
class LineageFolder:
    """The folders of one lineage at the sink's place."""

    path: Path

    @property
    def staged(self) -> Path:
        """Of what is not published yet."""
        return self.path / "staged"

    @property
    def hidden(self) -> Path:
        """Of segments that are committed, and not merged yet."""
        return self.path / "hidden"

    def hidden_file(self, number: int, file: Mapping[str, Any]) -> Path:
        """Where a hidden segment of a Batch lies."""
        return self.hidden / f"{number:010d}-{file['staged']}"

    @property
    def drafts(self) -> Path:
        """Of merged files that have no name yet."""
        return self.path / "merged"

    @property
    def merges(self) -> NumberedLog:
        """What the roller has done, turn by turn; see `roll_state`."""
        return NumberedLog(self.path / "merges", "merge")

    @property
    def keeping(self) -> Path:
        """How the folder is to be kept; see `keeping`."""
        return self.path / "keeping.json"

    @property
    def _mark(self) -> Path:
        return self.path / "published"

    def files_of(self, number: int, record: Mapping[str, Any], top: Path) -> list[tuple[Path, Path]]:
        """(as staged, as committed) of each file of a Batch."""
        staged = self.staged / f"{number:010d}"
        return [
            (staged / file["staged"], self.hidden_file(number, file) if file.get("hidden") else top / file["name"])
            for file in record["files"]
        ]

    def read_mark(self) -> int:
        """The last Batch whose files were all renamed, durably; -1 where that is not known."""
        return read_mark(self._mark)

    def write_mark(self, number: int) -> None:
        """As `write_mark` does. Raises EnvironmentFault where the disk is full: the Batch is published again, which changes nothing."""
        with explained(f"{self.path} cannot say that batch {number} is through"):
            write_mark(self._mark, number)

    @property
    def _released(self) -> Path:
        return self.path / "released"

    def read_released(self) -> tuple[int, int]:
        """(up to which Batch files may be gone, up to which they are); -1 for none."""
        data = read_or_none(self._released)
        if data is None:
            return -1, -1
        body = unseal(data, "released", 1, self._released)
        return body["released"], body["swept"]

    def write_released(self, released: int, swept: int) -> None:
        """Durably."""
        replace(self._released, seal("released", 1, {"released": released, "swept": swept}))

    @property
    def commits(self) -> NumberedLog:
        """What each Batch has published."""
        return NumberedLog(self.path / "batches", "commit")


def lineages_in(path: Path) -> list[LineageFolder]:
    """Every lineage that has written to a sink's folder."""
    internal = path / INTERNAL
    return [LineageFolder(internal / name) for name in sorted(names_in(internal)) if name != READERS and (internal / name).is_dir()]


def read_mark(path: Path) -> int:
    """The number that stands there; -1 where none does. Raises OSError."""
    data = read_or_none(path) or b""
    return int(data) if data.isdigit() else -1


def write_mark(path: Path, number: int) -> None:
    """Not durable: a mark that is lost costs a look at some files. Raises OSError."""
    draft = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        draft.write_bytes(b"%d" % number)
        draft.replace(path)
    except OSError:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise


def remove_empty(folder: Path, top: Path) -> None:
    """Remove the folder and those above it, as far as `top`, which stays, and as they are empty."""
    while folder != top:
        try:
            folder.rmdir()
        except OSError:
            return  # somebody was faster, or has put something there
        folder = folder.parent
