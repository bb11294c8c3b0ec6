"""A disk in memory that does to a log what disks may do: it loses, reorders and tears writes that were not synced, forgets names that were
not synced, fails to sync, and gets full."""

from __future__ import annotations

import errno
from pathlib import Path
from random import Random

from scribengin.wal.files import LogFolder

BLOCK = 32
"""bytes that such a disk writes as a whole; small, as the frames of the tests are"""


class Stopped(BaseException):
    """The process ends here: no code of the log may catch it."""


class Content:
    """A file without a name: `cache` is what processes see, `disk` what is there after a power loss, if no `pending` write is."""

    def __init__(self) -> None:
        self.cache = bytearray()
        self.disk = bytearray()
        self.pending: list[tuple[int, bytes | None]] = []

    def lose_power(self, random: Random, luck: str) -> None:
        for offset, data in self.pending:
            if luck == "all" or (luck == "some" and random.random() < 0.6):
                apply(self.disk, offset, data if luck == "all" or data is None or random.random() < 0.5 else torn(data, random), random)
            elif luck == "first":
                if random.random() < 0.3:
                    apply(self.disk, offset, data and data[: random.randrange(len(data) + 1)], random)
                    break
                apply(self.disk, offset, data, random)
        self.pending = []
        self.cache = bytearray(self.disk)


def apply(content: bytearray, offset: int, data: bytes | list[tuple[int, bytes]] | None, random: Random | None = None) -> None:
    """Write there; None cuts the file there."""
    if data is None:
        del content[offset:]
        return
    for at, part in [(0, data)] if isinstance(data, bytes) else data:
        if missing := max(0, offset + at - len(content)):
            content += random.randbytes(missing) if random is not None and random.random() < 0.3 else bytes(missing)
        content[offset + at : offset + at + len(part)] = part


def torn(data: bytes, random: Random) -> bytes | list[tuple[int, bytes]]:
    """Its beginning up to any byte, or some of its blocks."""
    if random.random() < 0.5:
        return data[: random.randrange(len(data) + 1)]
    return [(at, data[at : at + BLOCK]) for at in range(0, len(data), BLOCK) if random.random() < 0.5]


class SimulatedDisk(LogFolder):
    """See above. `stop_after` primitive operations, `Stopped` is raised; `capacity` bytes, the disk is full."""

    def __init__(self) -> None:
        super().__init__(Path("/log"))
        self.files: dict[str, Content] = {}
        self.durable_files: dict[str, Content] = {}
        self.pending_names: list[tuple[str, str, Content | None]] = []
        self.handles: dict[int, Content] = {}
        self.newest_handle = 0
        self.steps = 0
        self.stop_after: int | None = None
        self.failing_syncs = 0
        self.capacity: int | None = None

    def crash(self, *, power: bool, seed: int = 0) -> None:
        """The process is gone, and with `power` everything that was not synced may be."""
        self.handles = {}
        self.stop_after = None
        if not power:
            return
        random = Random(seed)
        luck = random.choice(["none", "all", "some", "some", "first"])
        contents = {id(each): each for each in (*self.files.values(), *self.durable_files.values())}
        contents |= {id(each): each for _, _, each in self.pending_names if each is not None}
        for content in contents.values():
            content.lose_power(random, luck)
        luck = random.choice(["none", "all", "some", "some", "first"])
        for old, new, content in self.pending_names:
            if luck == "none" or (luck == "some" and random.random() < 0.4):
                continue
            if luck == "first" and random.random() < 0.3:
                break
            rename(self.durable_files, old, new, content)
        self.pending_names = []
        self.files = dict(self.durable_files)

    def evict(self) -> None:
        """The system forgets what it takes for written, and reads it from the disk when it is needed again."""
        for content in self.files.values():
            content.cache = bytearray(content.disk)
            for offset, data in content.pending:
                apply(content.cache, offset, data)

    def _step(self) -> None:
        self.steps += 1
        if self.stop_after is not None:
            self.stop_after -= 1
            if self.stop_after < 0:
                raise Stopped

    def _names_change(self, old: str, new: str, content: Content | None) -> None:
        rename(self.files, old, new, content)
        self.pending_names.append((old, new, content))

    def lock(self) -> None: ...

    def unlock(self) -> None: ...

    def names(self) -> list[str]:
        return sorted(self.files)

    def open(self, name: str, *, create: bool = False) -> int:
        if create:
            self._step()
            if name in self.files:
                apply(self.files[name].cache, 0, None)
                self.files[name].pending.append((0, None))
            else:
                self._names_change("", name, Content())
        if name not in self.files:
            raise FileNotFoundError(errno.ENOENT, "no such file", name)
        self.newest_handle += 1
        self.handles[self.newest_handle] = self.files[name]
        return self.newest_handle

    def size(self, handle: int) -> int:
        return len(self.handles[handle].cache)

    def read(self, handle: int, count: int, offset: int) -> bytes:
        return bytes(self.handles[handle].cache[offset : offset + count])

    def write(self, handle: int, data: bytes, offset: int) -> None:
        content = self.handles[handle]
        try:
            self._step()
        except Stopped:
            self._write(content, data[: self.steps * 7919 % (len(data) + 1)], offset)
            raise
        growth = max(0, offset + len(data) - len(content.cache))
        if self.capacity is not None and growth and (room := self.capacity - self.used()) < growth:
            self._write(content, data[: max(0, len(content.cache) + max(0, room) - offset)], offset)
            raise OSError(errno.ENOSPC, "no space left on device")
        self._write(content, data, offset)

    def used(self) -> int:
        return sum(len(content.cache) for content in self.files.values())

    def _write(self, content: Content, data: bytes, offset: int) -> None:
        if data:
            apply(content.cache, offset, bytes(data))
            content.pending.append((offset, bytes(data)))

    def truncate(self, handle: int, size: int) -> None:
        self._step()
        apply(self.handles[handle].cache, size, None)
        self.handles[handle].pending.append((size, None))

    def sync(self, handle: int) -> None:
        self._step()
        content = self.handles[handle]
        if self.failing_syncs > 0:
            self.failing_syncs -= 1
            content.pending = []  # the system takes them for written, and never writes them
            raise OSError(errno.EIO, "input/output error")
        for offset, data in content.pending:
            apply(content.disk, offset, data)
        content.pending = []

    def close(self, handle: int) -> None:
        del self.handles[handle]

    def remove(self, name: str) -> None:
        self._step()
        if name in self.files:
            self._names_change(name, "", None)

    def rename(self, old: str, new: str) -> None:
        self._step()
        self._names_change(old, new, self.files[old])

    def sync_names(self) -> None:
        self._step()
        self.pending_names = []
        self.durable_files = dict(self.files)


def rename(files: dict[str, Content], old: str, new: str, content: Content | None) -> None:
    files.pop(old, None)
    if new and content is not None:
        files[new] = content
