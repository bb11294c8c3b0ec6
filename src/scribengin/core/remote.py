"""Paths of another file system than this machine's. `core.storage` takes them as it takes others; whoever opens one as a file of this
machine is reported so."""

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
    """What a look tells of a file or folder. `modified_s` is by the other system's clock."""

    is_folder: bool
    size: int
    modified_s: float


class RemoteWriter(Protocol):
    """A new file; readers may see how long it is only when it is closed."""

    def write(self, data: Any) -> int:
        """Append the bytes."""

    def flush(self) -> None:
        """Hand on what is gathered."""

    def sync(self) -> None:
        """Make the bytes durable."""

    def close(self) -> None:
        """Close the file."""


class RemotePath(PosixPath):
    """What is done with paths of the state, for one that is elsewhere. Picklable: it is its text.

    Every method that asks the other system raises a ScribenginError that says what it does not do; Unreachable where it is away.
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
        """All of a file; None if there is none."""

    @abstractmethod
    def probe(self) -> RemoteStat | None:
        """What is there; None if nothing is."""

    @abstractmethod
    def entries(self) -> dict[str, RemoteStat]:
        """Name → what lies right in the folder; empty if there is none."""

    @abstractmethod
    def make(self) -> None:
        """A folder, with those above it; no error where it is there."""

    @abstractmethod
    def touch_over(self) -> None:
        """Make an empty file that is new, also where one was: what it tells is when."""

    @abstractmethod
    def remove(self, *, all_in_it: bool) -> bool:
        """A file, or a folder: an empty one, or with `all_in_it`. Whether anything was there."""

    @abstractmethod
    def move(self, target: Path, *, over: bool) -> None:
        """Move a file or a folder atomically. The target must not exist; with `over` a file may replace an existing file."""

    @abstractmethod
    def new(self) -> RemoteWriter:
        """Begin a file. Raises FileExistsError."""

    @abstractmethod
    def guard(self, drafts: Path | None, why: str = "") -> None:
        """From now on this process writes below this path with `put` and `put_over` only as long as the folder `drafts` is there: who
        deletes it, and then calls `settle`, has ended that, for all that this process still does. It gets FencedError then, with `why`.
        None: no more."""

    def settle(self) -> None:
        """Under a lease that was just taken, the folders of earlier drivers' drafts deleted: end for good what those have begun to write
        below this path, and complete moves that were cut short. Nothing of that is left where drafts are files."""

    @property
    def jars(self) -> tuple[str, ...]:
        """The sets of jars by which Spark reaches the other system; none where it knows it by itself."""
        return ()

    def hadoop_settings(self) -> dict[str, str]:
        """What Hadoop's client, which writes Spark's checkpoints, needs to reach the other system. Holds secrets."""
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
        """Nothing in it stands for a user."""
        return self

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:  # noqa: ARG002
        """Its kind, size and time of change. Raises FileNotFoundError."""
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
        """Whether it is the same path."""
        return self == other_path

    def iterdir(self) -> Iterator[Self]:  # type: ignore[override, unused-ignore]  # a generator in some versions
        """What lies right in the folder."""
        if not (found := self.entries()) and not self.is_dir():
            raise FileNotFoundError(f"{self} does not exist")
        return (self / name for name in found)

    def read_bytes(self) -> bytes:
        """The whole contents of the file."""
        data = self.get()
        if data is None:
            raise FileNotFoundError(f"{self} does not exist")
        return data

    def read_text(self, encoding: str | None = None, errors: str | None = None, newline: str | None = None) -> str:  # noqa: ARG002
        """All of a text in UTF-8."""
        return self.read_bytes().decode()

    def open(self, mode: str = "r", *_: Any, **__: Any) -> IO[Any]:  # type: ignore[override]
        """To read its bytes, all of them at once."""
        if mode != "rb":
            self.__fspath__()
        return cast("IO[Any]", io.BytesIO(self.read_bytes()))

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:  # noqa: ARG002
        """Create the folder; see `make`."""
        self.make()

    def unlink(self, missing_ok: bool = False) -> None:
        """Delete a file."""
        if not self.remove(all_in_it=False) and not missing_ok:
            raise FileNotFoundError(f"{self} does not exist")

    def rmdir(self) -> None:
        """Delete an empty folder. Raises OSError if it is none."""
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
