"""Paths of another file system than this machine's. `core.storage` accepts them like others; code that opens one as a local file gets the
error Refused."""

from __future__ import annotations

import io
import os
import stat
from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path, PosixPath
from typing import IO, TYPE_CHECKING, Any, Protocol, Self, cast

from scribengin.core.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Iterator
    from os import PathLike


@dataclass(frozen=True, slots=True)
class RemoteStat:
    """The properties of a file or folder. `modified_s` is in seconds since 1970, by the other system's clock."""

    is_folder: bool
    size: int
    modified_s: float


class RemoteWriter(Protocol):
    """A new file. Readers may not see its size before it is closed."""

    def write(self, data: Any) -> int:
        """Append the bytes."""

    def flush(self) -> None:
        """Send the buffered bytes."""

    def sync(self) -> None:
        """Make the bytes durable."""

    def close(self) -> None:
        """Close the file."""


class RemotePath(PosixPath):
    """A path of another file system, with the operations that the state uses. Picklable, as its text.

    Every method that calls the other system raises a ScribenginError that says what failed; Unreachable if the system is unavailable.
    """

    # --- what a file system gives ---

    @abstractmethod
    def put(self, data: bytes) -> bool:
        """Create the object if it does not exist; see `storage.put_if_absent`."""

    @abstractmethod
    def put_over(self, data: bytes, *, private: bool = False) -> None:
        """Replace the object's contents; see `storage.replace`."""

    @abstractmethod
    def get(self) -> bytes | None:
        """The contents of a file; None if there is none."""

    @abstractmethod
    def probe(self) -> RemoteStat | None:
        """The properties of the file or folder; None if there is none."""

    @abstractmethod
    def entries(self) -> dict[str, RemoteStat]:
        """Name → properties of what is directly in the folder; empty if there is no folder."""

    @abstractmethod
    def make(self) -> None:
        """Create a folder and those above it; no error if it exists."""

    @abstractmethod
    def touch_over(self) -> None:
        """Create an empty file, also in place of an existing one: its modification time shows when that was."""

    @abstractmethod
    def remove(self, *, all_in_it: bool) -> bool:
        """Delete a file or an empty folder, or, with `all_in_it`, a folder and its contents. True if there was anything."""

    @abstractmethod
    def move(self, target: Path, *, over: bool) -> None:
        """Move a file or a folder atomically. The target must not exist; with `over` a file may replace an existing file."""

    @abstractmethod
    def new(self) -> RemoteWriter:
        """Begin a new file. Raises FileExistsError."""

    @abstractmethod
    def guard(self, drafts: Path | None, why: str = "") -> None:
        """Allow this process to write below this path with `put` and `put_over` only while the folder `drafts` exists.

        A process that deletes that folder, and then calls `settle`, stops all further writes of this process, which get FencedError with
        the text `why`. None ends the condition.
        """

    def settle(self) -> None:
        """Discard for good what earlier drivers have begun to write below this path, and complete moves that were interrupted. The caller
        has just taken the lease and deleted the folders of their drafts. Does nothing in file systems where drafts are files: then nothing
        is left."""

    @property
    def jars(self) -> tuple[str, ...]:
        """The sets of jars with which Spark reaches the other system; empty if Spark supports it without."""
        return ()

    def hadoop_settings(self) -> dict[str, str]:
        """The settings with which Hadoop's client, which writes Spark's checkpoints, reaches the other system. They contain secrets."""
        return {}

    # --- what pathlib gives ---

    def __fspath__(self) -> str:
        raise Refused(
            f"{self} is not on a local disk, which this operation requires",
            remedy="omit --state, so that the state is on a local disk",
            code="state-remote",
        )

    def __str__(self) -> str:
        scheme, _, rest = super().__str__().partition("/")
        return f"{scheme}//{rest}"

    def is_absolute(self) -> bool:
        """Always True: a remote path is absolute."""
        return True

    def resolve(self, strict: bool = False) -> Self:  # noqa: ARG002 (the base class's)
        """The path itself: there are no links."""
        return self

    def absolute(self) -> Self:
        """The path itself."""
        return self

    def expanduser(self) -> Self:
        """The path itself: no part of it stands for a user."""
        return self

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:  # noqa: ARG002
        """Its kind, size and modification time. Raises FileNotFoundError."""
        seen = self.probe()
        if seen is None:
            raise FileNotFoundError(f"{self} does not exist")
        kind = stat.S_IFDIR if seen.is_folder else stat.S_IFREG
        return os.stat_result((kind, 0, 0, 1, 0, 0, seen.size, *(int(seen.modified_s),) * 3))

    def exists(self, *, follow_symlinks: bool = True) -> bool:  # noqa: ARG002
        """True if there is a file or a folder."""
        return self.probe() is not None

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:  # noqa: ARG002
        """True if it is a folder."""
        seen = self.probe()
        return seen is not None and seen.is_folder

    def is_file(self, *, follow_symlinks: bool = True) -> bool:  # noqa: ARG002
        """True if it is a file."""
        seen = self.probe()
        return seen is not None and not seen.is_folder

    def is_symlink(self) -> bool:
        """Always False: there are no links."""
        return False

    def samefile(self, other_path: str | PathLike[str]) -> bool:
        """True if it is the same path."""
        return self == other_path

    def iterdir(self) -> Iterator[Self]:  # type: ignore[override, unused-ignore]  # a generator in some versions
        """The paths directly in the folder. Raises FileNotFoundError."""
        if not (found := self.entries()) and not self.is_dir():
            raise FileNotFoundError(f"{self} does not exist")
        return (self / name for name in found)

    def read_bytes(self) -> bytes:
        """The whole contents of the file. Raises FileNotFoundError."""
        data = self.get()
        if data is None:
            raise FileNotFoundError(f"{self} does not exist")
        return data

    def read_text(self, encoding: str | None = None, errors: str | None = None, newline: str | None = None) -> str:  # noqa: ARG002
        """The whole contents of the file as a text in UTF-8."""
        return self.read_bytes().decode()

    def open(self, mode: str = "r", *_: Any, **__: Any) -> IO[Any]:  # type: ignore[override]
        """Open the file to read its bytes (`rb`), which are fetched all at once. Every other mode is refused."""
        if mode != "rb":
            self.__fspath__()
        return cast("IO[Any]", io.BytesIO(self.read_bytes()))

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:  # noqa: ARG002
        """Create the folder; see `make`."""
        self.make()

    def unlink(self, missing_ok: bool = False) -> None:
        """Delete a file. Raises FileNotFoundError, unless `missing_ok`."""
        if not self.remove(all_in_it=False) and not missing_ok:
            raise FileNotFoundError(f"{self} does not exist")

    def rmdir(self) -> None:
        """Delete an empty folder. Raises OSError if it is not empty."""
        if self.entries():
            raise OSError(f"{self} is not empty")
        self.remove(all_in_it=False)

    def touch(self, mode: int = 0o666, exist_ok: bool = True) -> None:  # noqa: ARG002
        """Create an empty file; see `touch_over`."""
        self.touch_over()

    def write_bytes(self, data: Any) -> int:
        """Replace the file's contents; see `put_over`."""
        self.put_over(bytes(data))
        return memoryview(data).nbytes

    def rename(self, target: str | PathLike[str]) -> Self:
        """Move it to a name that does not exist yet; see `move`."""
        self.move(cast("Path", target), over=False)
        return cast("Self", target)

    def replace(self, target: str | PathLike[str]) -> Self:
        """Move it, also over an existing file; see `move`."""
        self.move(cast("Path", target), over=True)
        return cast("Self", target)
