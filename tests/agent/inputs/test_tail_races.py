"""A tail whose files are truncated, copied or replaced between two of its system calls."""

from __future__ import annotations

import gzip
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.agent.inputs.tailing import QuickTail

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.agent.inputs.tailing import Tailing

    StartTail = Callable[..., Tailing]


def numbered(first: int, last: int) -> list[str]:
    return [f"line {number:06} of this file" for number in range(first, last)]


def lines(texts: list[str]) -> str:
    return "".join(f"{text}\n" for text in texts)


def before_first_call(monkeypatch: pytest.MonkeyPatch, method: str, event: Callable[[], object]) -> None:
    """Let something happen just before a method of the input is called for the first time."""
    plain, events = getattr(QuickTail, method), [event]

    def call(*given: Any, **named: Any) -> Any:
        if events:
            events.pop()()
        return plain(*given, **named)

    monkeypatch.setattr(QuickTail, method, call)


def test_a_short_file_is_no_copy_because_another_is_truncated_meanwhile(
    start_tail: StartTail, logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, packed = logs / "app.log", tmp_path / "packed"
    log.write_text(lines(numbered(100, 200)))
    tail = start_tail(logs / "app.log*", poll=0.1)
    # it knows how the file begins, and has read nothing of it

    def rotate() -> None:
        packed.write_bytes(gzip.compress(log.read_bytes()))
        os.truncate(log, 0)

    monkeypatch.setattr(QuickTail, "grace_s", 10.0)
    before_first_call(monkeypatch, "_begins_like", rotate)
    (logs / "app.log.1").write_text(lines(numbered(0, 5)))
    while not packed.exists():
        tail.input.wait(1)
        assert tail.input.poll(0) == []
    packed.rename(logs / "app.log.2.gz")
    tail.until(lambda: len(tail.records) >= 105)
    tail.rest()
    assert sorted(tail.texts) == numbered(0, 5) + numbered(100, 200)
    assert tail.input.lost_bytes == 0


def test_a_copy_that_goes_on_in_another_way_is_a_file_of_its_own(start_tail: StartTail, logs: Path) -> None:
    log, banner = logs / "app.log", numbered(0, 100)
    log.write_text(lines(banner))
    tail = start_tail(logs / "app.log*")
    # nothing of it is read when it is gone; of the files that begin as it did, the first one is taken for its copy
    (logs / "app.log.1").write_text(lines(banner + numbered(200, 300)))
    (logs / "app.log.2.gz").write_bytes(gzip.compress(lines(banner + numbered(300, 310)).encode()))
    os.truncate(log, 0)
    tail.until(lambda: len(tail.records) >= 200)
    tail.rest()
    assert tail.texts == banner + numbered(200, 300)
    (logs / "app.log.1").unlink()
    tail.until(lambda: len(tail.records) >= 310)
    tail.rest()
    assert tail.texts == banner + numbered(200, 300) + banner + numbered(300, 310)


@pytest.mark.parametrize("name", ["app.log.9", "app.log.9.gz"])
def test_the_inode_of_a_compressed_file_is_used_again(start_tail: StartTail, logs: Path, tmp_path: Path, name: str) -> None:
    old, new = logs / "app.log.1.gz", logs / name
    old.write_bytes(gzip.compress(lines(numbered(0, 2)).encode()))
    tail = start_tail(logs / "app.log*", poll=0.5)
    tail.until(lambda: len(tail.records) == 2)  # it is read to its end and closed
    old.rename(tmp_path / "kept")  # for the input it is deleted
    tail.input.wait(1)
    assert tail.input.poll(0) == []
    text = lines(numbered(10, 90)).encode()
    (tmp_path / "kept").write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    (tmp_path / "kept").rename(new)  # the same inode, as when it was free and is used again
    tail.until(lambda: len(tail.records) == 82)
    assert tail.chunks[-1].origin.file == str(new)
    if not name.endswith(".gz"):
        Path(f"{new}.gz").write_bytes(gzip.compress(text))
        new.unlink()
    tail.crash()
    tail.rest(1)
    assert tail.texts == numbered(0, 2) + numbered(10, 90)
    assert tail.input.lost_bytes == 0
    assert "no copy" not in tail.message


def test_a_deleted_compressed_file_is_not_lost(start_tail: StartTail, logs: Path) -> None:
    packed = logs / "app.log.1.gz"
    packed.write_bytes(gzip.compress(b"short\n"))  # it is longer than what is in it
    tail = start_tail(logs / "app.log*")
    tail.until_texts("short")
    packed.unlink()
    tail.rest(0.6)
    assert tail.input.lost_bytes == 0
    assert "no copy" not in tail.message


def test_the_size_of_what_follows_a_truncation_is_not_that_of_what_was_before(start_tail: StartTail, logs: Path) -> None:
    log = logs / "app.log"
    log.write_text(lines(numbered(0, 2)))
    tail = start_tail(logs / "app.log*")
    tail.until(lambda: len(tail.records) == 2)
    shutil.copyfile(log, logs / "app.log.1")
    log.write_text(lines(numbered(10, 90)))  # truncated, and longer than it was, before it is looked at
    tail.until(lambda: len(tail.records) == 82)
    tail.rest(0.5)
    assert tail.texts == numbered(0, 2) + numbered(10, 90)
    assert tail.input.lost_bytes == 0


def test_a_file_is_truncated_and_written_again_just_before_it_is_read(
    start_tail: StartTail, logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = logs / "app.log"
    log.write_text(lines(numbered(0, 50)))
    tail = start_tail(logs / "app.log*")

    def rotate() -> None:
        shutil.copyfile(log, logs / "app.log.1")
        log.write_text(lines(numbered(100, 200)))

    before_first_call(monkeypatch, "_read_block", rotate)
    tail.until(lambda: len(tail.records) >= 150)
    tail.rest()
    assert sorted(tail.texts) == numbered(0, 50) + numbered(100, 200)
    assert tail.input.lost_bytes == 0
