"""A thousand rotations of every kind under a writer, with kills of the input between them: each line once."""

from __future__ import annotations

import contextlib
import gzip
import os
import random
import shutil
import threading
import time
import zlib
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from tests.agent.inputs.tailing import Tailing, lane_config, records_of

if TYPE_CHECKING:
    from pathlib import Path

LIMIT_S = 60.0
"""for so long, nothing new may become durable: a busy machine makes a storm slow, and does not stop it"""
MOST_AHEAD = 2000
"""lines that the writer is ahead of the input: without a limit its storm is over before the input is killed once"""

RENAMES = ("rename", "compress", "delete", "used inode")
COPIES = ("copytruncate", "compressed copy", "copytruncate without append")


def storm_line(run: str, number: int) -> bytes:
    text = f"{run} {number} {'x' * (number * 7919 % 90)}"
    return f"{text} {zlib.crc32(text.encode()):08x}\n".encode()


def number_of(run: str, record: bytes) -> int:
    """The number of a record, which is whole."""
    text, _, crc = record.decode().rpartition(" ")
    assert f"{zlib.crc32(text.encode()):08x}" == crc, record
    assert text.startswith(f"{run} ")
    return int(text.split(" ")[1])


@dataclass
class Storm:
    """Writes numbered lines to a file and rotates it."""

    folder: Path
    kinds: tuple[str, ...]
    seed: int
    seen_first: bool
    """rotate only what the input has begun to read: its patterns do not match rotated files"""
    run: str = "storm"
    numbers: int = 0
    durable: set[int] = field(default_factory=set)
    no_crash: threading.Lock = field(default_factory=threading.Lock)
    tail: Tailing | None = None
    rotated: list[tuple[Path, int]] = field(default_factory=list)
    failed: BaseException | None = None
    rotations: int = 0
    progress_at: float = field(default_factory=time.monotonic)
    """when something new became durable"""

    def write(self, rotations: int) -> None:
        try:
            self._write(rotations)
        except BaseException as error:
            self.failed = error
            raise

    def _write(self, rotations: int) -> None:
        dice = random.Random(self.seed)
        log = self.folder / "app.log"
        for number in range(rotations):
            kind = dice.choice(self.kinds)
            mode = "wb" if kind == "copytruncate without append" and not log.exists() else "ab"
            first = self.numbers
            with log.open(mode, buffering=0) as file:
                for _ in range(dice.randrange(1, 4)):
                    file.write(self._lines(dice.randrange(1, 40)))
                if self.seen_first:
                    self._await(lambda: first in self.durable)  # noqa: B023 - it is called at once
                self._rotate(kind, log, file, number, dice)
            self.rotations += 1
            self._remove_old()
            self._await(lambda: self.numbers - len(self.durable) < MOST_AHEAD)

    def keep(self, numbers: set[int]) -> None:
        """Know lines that are durable."""
        if not numbers <= self.durable:
            self.durable |= numbers
            self.progress_at = time.monotonic()

    def is_stuck(self, since: float = 0.0) -> bool:
        """Whether nothing new became durable for a time, from when something was awaited."""
        return time.monotonic() - max(since, self.progress_at) > LIMIT_S

    def _lines(self, count: int) -> bytes:
        first = self.numbers
        self.numbers += count
        return b"".join(storm_line(self.run, number) for number in range(first, first + count))

    def _rotate(self, kind: str, log: Path, file: object, number: int, dice: random.Random) -> None:
        old = self.folder / f"app.log.{number}"
        packed = self.folder / f"app.log.{number}.gz"
        match kind:
            case "rename" | "compress":
                log.rename(old)
                file.write(self._lines(dice.randrange(5)))  # type: ignore[attr-defined]
                if kind == "compress":
                    packed.write_bytes(gzip.compress(old.read_bytes()))
                    old.unlink()
            case "delete" | "used inode":
                with self.no_crash:  # what is deleted and not read is gone with the process that has it open
                    self._await_opened(log)
                    if kind == "used inode":
                        self._await_durable()
                    log.unlink()
                    if kind == "delete":
                        file.write(self._lines(dice.randrange(5)))  # type: ignore[attr-defined]
                        self._await_durable()
            case _:
                shutil.copyfile(log, old)
                os.truncate(log, 0)
                if kind == "compressed copy":
                    packed.write_bytes(gzip.compress(old.read_bytes()))
                    old.unlink()
                if kind == "copytruncate without append":
                    file.write(self._lines(dice.randrange(1, 5)))  # type: ignore[attr-defined]
        self.rotated += [(path, self.numbers) for path in (old, packed)]

    def _await_opened(self, log: Path) -> None:
        status = log.stat()
        key = (status.st_dev, status.st_ino)

        def is_opened() -> bool:
            file = self.tail.input._files.get(key) if self.tail is not None else None
            return file is not None and file.reader is not None

        self._await(is_opened)

    def _await_durable(self) -> None:
        last = self.numbers - 1
        self._await(lambda: last in self.durable)

    def _await(self, condition: object) -> None:
        since = time.monotonic()
        while not condition():  # type: ignore[operator]
            assert not self.is_stuck(since)
            time.sleep(0.001)

    def _remove_old(self) -> None:
        """As logrotate does, but only what was read."""
        while len(self.rotated) > 40 and all(number in self.durable for number in range(self.rotated[0][1])[-2000:]):
            with contextlib.suppress(FileNotFoundError):
                self.rotated.pop(0)[0].unlink()


def weather(storm: Storm, tail: Tailing, rotations: int, seed: int) -> int:
    """Let it storm, and kill the input after some rotations; returns how often."""
    storm.tail = tail
    dice = random.Random(seed)
    writer = threading.Thread(target=storm.write, args=(rotations,), daemon=True)
    writer.start()
    crashes = kept = 0
    next_crash = dice.randrange(5, 50)

    def make_durable() -> None:
        nonlocal kept
        for chunk in tail.chunks[kept:]:
            storm.keep({number_of(storm.run, record) for record in records_of(chunk)})
        kept = len(tail.chunks)

    while writer.is_alive() or len(storm.durable) < storm.numbers:
        assert storm.failed is None
        if storm.is_stuck():
            missing = sorted(set(range(storm.numbers)) - storm.durable)
            pytest.fail(f"{len(missing)} lines do not come: {missing[:20]}; {tail.message!r}; {tail.input._files.keys()}")
        tail.poll(dice.choice([10_000, 100_000, 2**22]))
        if dice.random() < 0.5:
            make_durable()
        if writer.is_alive() and storm.rotations >= next_crash and storm.no_crash.acquire(blocking=False):
            tail.crash(durable=kept)
            crashes += 1
            storm.no_crash.release()
            next_crash = storm.rotations + dice.randrange(5, 50)
        tail.input.wait(0.01)
    writer.join()
    tail.rest(0.5)
    return crashes


@pytest.mark.parametrize(
    ("kinds", "pattern", "rotations"),
    [(RENAMES + COPIES, "app.log*", 1000), (RENAMES, "app.log", 200), (COPIES, "app.log*", 200)],
    ids=["all kinds", "only the live name", "copies"],
)
def test_each_line_of_a_storm_of_rotations_is_read_once(
    tmp_path: Path, kinds: tuple[str, ...], pattern: str, rotations: int, pytestconfig: pytest.Config
) -> None:
    seed = int(os.environ.get("STORM_SEED", "7"))
    folder = tmp_path / "logs"
    folder.mkdir()
    storm = Storm(folder, kinds, seed, seen_first=pattern == "app.log")
    tail = Tailing(lane_config(folder / pattern), tmp_path / "agent")
    try:
        crashes = weather(storm, tail, rotations, seed)
    finally:
        tail.close()
    counts = Counter(number_of(storm.run, record) for record in tail.records)
    lost = storm.numbers - len(counts)
    doubled = {number for number, count in counts.items() if count > 1}
    assert not [chunk.origin for chunk in tail.chunks if not doubled.isdisjoint(number_of(storm.run, each) for each in records_of(chunk))]
    assert lost == 0
    assert tail.input.lost_bytes == 0, tail.messages
    assert crashes >= 1
