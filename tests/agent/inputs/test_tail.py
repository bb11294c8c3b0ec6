from __future__ import annotations

import gzip
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from scribengin.agent.inputs import open_input
from scribengin.core.errors import EnvironmentFault
from tests.agent.inputs.tailing import QuickTail, Tailing, lane_config

if TYPE_CHECKING:
    from collections.abc import Callable

    StartTail = Callable[..., Tailing]


def append(path: Path, text: str | bytes) -> None:
    with path.open("ab") as file:
        file.write(text.encode() if isinstance(text, str) else text)


def open_files() -> list[str]:
    links = Path("/proc/self/fd").iterdir()
    return [str(link.readlink()) for link in links if link.is_symlink()]


def numbered(first: int, last: int) -> list[str]:
    return [f"line {number:06} of this file" for number in range(first, last)]


def lines(texts: list[str]) -> str:
    return "".join(f"{text}\n" for text in texts)


def test_records_have_their_place(start_tail: StartTail, logs: Path) -> None:
    log = logs / "app.log"
    append(log, "one\ntwo\n")
    tail = start_tail(log)
    tail.until_texts("one", "two")
    append(log, "three\r\n")
    tail.until_texts("one", "two", "three\r")
    first, second = (chunk.origin for chunk in tail.chunks)
    assert (first.file, first.offset, first.end, first.line, first.lines, first.tags) == (str(log), 0, 8, 1, 2, {"place": "here"})
    assert (second.offset, second.end, second.line, second.host) == (8, 15, 3, os.uname().nodename)
    assert tail.input.report().files == 1
    assert tail.input.report().backlog_bytes == 0


def test_it_is_opened_by_its_name(tmp_path: Path) -> None:
    opened = open_input(lane_config(tmp_path / "*.log"), {}, tmp_path / "agent")
    assert opened.poll(1000) == []
    opened.close()


def test_a_restart_continues_where_frames_end(start_tail: StartTail, logs: Path) -> None:
    log = logs / "app.log"
    append(log, lines(numbered(0, 100)))
    tail = start_tail(log)
    tail.until(lambda: len(tail.records) == 100)
    append(log, lines(numbered(100, 200)))
    tail.until(lambda: len(tail.records) == 200)
    tail.crash(durable=1)
    tail.until(lambda: len(tail.records) == 200)
    tail.rest()
    assert tail.texts == numbered(0, 200)
    assert tail.chunks[-1].origin.line == 101


def test_a_file_of_many_sizes_has_few_identities(start_tail: StartTail, logs: Path) -> None:
    log = logs / "app.log"
    tail = start_tail(log)
    for number in range(200):
        append(log, f"{number}\n")
        tail.until(lambda: len(tail.records) == number + 1)  # noqa: B023 - it is called at once
    assert len(tail.positions) < 12
    tail.crash()
    append(log, "last\n")
    tail.until(lambda: len(tail.records) == 201)
    tail.rest()
    assert tail.texts == [*map(str, range(200)), "last"]


def test_a_line_in_two_parts_is_one_record(start_tail: StartTail, logs: Path) -> None:
    log = logs / "app.log"
    append(log, "whole\nfirst part")
    tail = start_tail(log)
    tail.until_texts("whole")
    tail.rest(0.5)
    assert tail.texts == ["whole"]
    append(log, ", second part\n")
    tail.until_texts("whole", "first part, second part")


@pytest.mark.parametrize("matched", [True, False])
def test_a_renamed_file_is_read_to_its_end_before_the_new_one(start_tail: StartTail, logs: Path, matched: bool) -> None:
    log = logs / "app.log"
    append(log, "1\n")
    tail = start_tail(logs / ("app.log*" if matched else "app.log"))
    tail.until_texts("1")
    with log.open("ab") as writer:
        log.rename(logs / "app.log.1")
        writer.write(b"2\n")
        append(log, "4\n")
        writer.write(b"3")
        writer.flush()
        tail.until(lambda: len(tail.records) == 4)
    tail.rest()
    assert sorted(tail.texts) == ["1", "2", "3", "4"]
    assert tail.texts.index("2") < tail.texts.index("4")
    tail.crash()
    tail.rest()
    assert len(tail.records) == 4


def test_a_renamed_file_is_read_while_its_program_writes_to_it(start_tail: StartTail, logs: Path) -> None:
    log = logs / "app.log"
    append(log, "1\n")
    tail = start_tail(log)
    tail.input.leave_s = 30.0
    tail.until_texts("1")
    with log.open("ab") as writer:
        log.rename(logs / "app.log.1")
        append(log, "new\n")
        tail.until_texts("1", "new")
        tail.rest()
        writer.write(b"late\n")
    tail.until_texts("1", "new", "late")


def test_a_deleted_file_is_read_to_its_end_and_left(start_tail: StartTail, logs: Path) -> None:
    log = logs / "app.log"
    append(log, "1\n")
    tail = start_tail(log)
    tail.until_texts("1")
    append(log, "2\nlast part")
    log.unlink()
    tail.until_texts("1", "2", "last part")
    tail.until(lambda: tail.input.report().files == 0)
    assert not [path for path in open_files() if str(logs) in path]


def test_a_used_inode_is_another_file(start_tail: StartTail, logs: Path) -> None:
    log = logs / "app.log"
    append(log, lines(numbered(0, 50)))
    tail = start_tail(log)
    tail.until(lambda: len(tail.records) == 50)
    tail.input.close()
    # the same inode with other bytes, and more of them, as it is when an inode is used again
    log.write_text(lines(numbered(1000, 1100)))
    tail.crash()
    tail.until(lambda: len(tail.records) == 150)
    assert tail.texts == numbered(0, 50) + numbered(1000, 1100)


@pytest.mark.parametrize("size", ["smaller", "equal", "larger", "empty first"])
def test_a_truncated_file_is_read_from_its_beginning(start_tail: StartTail, logs: Path, size: str) -> None:
    log = logs / "app.log"
    append(log, lines(numbered(0, 50)))
    tail = start_tail(log)
    tail.until(lambda: len(tail.records) == 50)
    count = {"smaller": 10, "equal": 50, "larger": 90, "empty first": 60}[size]
    if size == "empty first":
        log.write_bytes(b"")
        tail.rest(0.05)
    log.write_text(lines(numbered(1000, 1000 + count)))
    tail.until(lambda: len(tail.records) == 50 + count)
    tail.rest()
    assert tail.texts == numbered(0, 50) + numbered(1000, 1000 + count)


def test_a_file_that_is_written_again_with_the_same_long_beginning_is_another(start_tail: StartTail, logs: Path) -> None:
    log = logs / "table.csv"
    header = "name," * 500
    log.write_text(lines([header, *numbered(0, 50)]))
    tail = start_tail(log)
    tail.until(lambda: len(tail.records) == 51)
    log.write_text(lines([header, *numbered(1000, 1090)]))
    tail.until(lambda: len(tail.records) == 51 + 91)
    assert tail.texts == [header, *numbered(0, 50), header, *numbered(1000, 1090)]


def test_what_a_truncated_file_had_is_read_from_its_copy(start_tail: StartTail, logs: Path) -> None:
    log = logs / "app.log"
    append(log, lines(numbered(0, 50)))
    tail = start_tail(logs / "app.log")
    tail.until(lambda: len(tail.records) == 50)
    append(log, lines(numbered(50, 80)))
    (logs / "app.log.1").write_bytes(log.read_bytes())
    log.write_text(lines(numbered(1000, 1010)))
    tail.until(lambda: len(tail.records) == 90)
    tail.rest(0.5)
    assert tail.texts == numbered(0, 80) + numbered(1000, 1010)
    assert tail.messages == []
    tail.crash()
    tail.rest()
    assert len(tail.records) == 90


def test_a_loss_by_truncation_is_counted_and_reported(start_tail: StartTail, logs: Path) -> None:
    log = logs / "app.log"
    append(log, lines(numbered(0, 50)))
    tail = start_tail(log)
    tail.until(lambda: len(tail.records) == 50)
    append(log, lines(numbered(50, 60)))
    tail.input._ask_files(time.monotonic())  # it is seen, and not read
    log.write_text("new\n")
    tail.until(lambda: tail.input.lost_bytes > 0)
    assert tail.input.lost_bytes == len(lines(numbered(50, 60)))
    assert "was truncated before 250 bytes of it were read, and no copy has them" in tail.message
    assert "create, not copytruncate" in tail.message
    assert tail.texts == [*numbered(0, 50), "new"]


def test_a_copy_is_not_read_again_whenever_it_is_made(start_tail: StartTail, logs: Path) -> None:
    log = logs / "app.log"
    append(log, lines(numbered(0, 50)))
    tail = start_tail(logs / "*")
    tail.until(lambda: len(tail.records) == 50)
    (logs / "app.log.1").write_bytes(log.read_bytes())
    tail.rest()
    log.write_text(lines(numbered(1000, 1010)))
    tail.until(lambda: len(tail.records) == 60)
    (logs / "app.log.1.gz").write_bytes(gzip.compress((logs / "app.log.1").read_bytes()))
    (logs / "app.log.1").unlink()
    tail.rest(0.5)
    tail.crash()
    tail.rest(0.5)
    assert tail.texts == numbered(0, 50) + numbered(1000, 1010)


def test_files_that_begin_alike_are_read_all(start_tail: StartTail, logs: Path) -> None:
    banner = lines([f"# this is what each program writes at its start {number}" for number in range(40)])
    tail = start_tail(logs / "*.log*")
    for name in ("a.log", "b.log", "c.log", "a.log.1"):
        append(logs / name, banner)
    tail.rest(0.1)
    for name in ("a.log", "b.log", "c.log", "a.log.1"):
        append(logs / name, f"{name}\n")
    tail.until(lambda: len(tail.records) >= 164)
    tail.rest()
    assert len(tail.records) == 164
    assert {text for text in tail.texts if not text.startswith("#")} == {"a.log", "b.log", "c.log", "a.log.1"}


def test_a_compressed_rotation_is_continued_inside(start_tail: StartTail, logs: Path) -> None:
    log = logs / "app.log"
    append(log, lines(numbered(0, 1000)))
    tail = start_tail(logs / "app.log*")
    tail.until(lambda: len(tail.records) == 1000)
    tail.input.close()
    # all of this while the agent is not running
    append(log, lines(numbered(1000, 3000)))
    (logs / "app.log.1.gz").write_bytes(gzip.compress(log.read_bytes()))
    log.unlink()
    append(log, lines(numbered(5000, 5100)))
    tail.crash()
    tail.until(lambda: len(tail.records) == 3100)
    tail.rest()
    assert sorted(tail.texts) == numbered(0, 3000) + numbered(5000, 5100)
    gz = [chunk.origin for chunk in tail.chunks if chunk.origin.file.endswith(".gz")]
    assert (gz[0].offset, gz[0].line, gz[-1].end) == (25_000, 1001, 75_000)
    tail.crash()
    tail.rest()
    assert len(tail.records) == 3100


def test_a_compressed_file_that_is_being_written_is_read_when_it_is_whole(start_tail: StartTail, logs: Path) -> None:
    packed = gzip.compress(lines(numbered(0, 5000)).encode())
    tail = start_tail(logs / "*.gz")
    for start in range(0, len(packed), len(packed) // 7):
        append(logs / "old.gz", packed[start : start + len(packed) // 7])
        tail.rest(0.03)
    tail.until(lambda: len(tail.records) == 5000)
    assert tail.texts == numbered(0, 5000)


def test_a_damaged_compressed_file_is_reported(start_tail: StartTail, logs: Path) -> None:
    packed = bytearray(gzip.compress(lines(numbered(0, 20000)).encode()))
    packed[len(packed) // 2 : len(packed) // 2 + 40] = bytes(40)
    (logs / "old.gz").write_bytes(packed)
    tail = start_tail(logs / "*.gz")
    tail.until(lambda: "cannot be decompressed beyond" in tail.message)


def test_links_are_followed_and_read_once(start_tail: StartTail, logs: Path) -> None:
    (logs / "real").mkdir()
    append(logs / "real" / "0.log", "1\n")
    (logs / "a.log").symlink_to(logs / "real" / "0.log")
    os.link(logs / "real" / "0.log", logs / "b.log")
    tail = start_tail(logs / "*.log", logs / "real" / "*.log")
    tail.rest()
    assert tail.texts == ["1"]
    append(logs / "real" / "1.log", "2\n")
    (logs / "next").symlink_to(logs / "real" / "1.log")
    (logs / "next").rename(logs / "a.log")
    tail.until_texts("1", "2")
    tail.rest()
    assert tail.texts == ["1", "2"]


def test_links_are_left_alone_without_follow_links(start_tail: StartTail, logs: Path) -> None:
    append(logs / "real", "1\n")
    append(logs / "plain.log", "2\n")
    (logs / "a.log").symlink_to(logs / "real")
    tail = start_tail(logs / "*.log", follow_links=False)
    tail.until_texts("2")
    tail.rest()
    assert tail.texts == ["2"]


def test_files_may_come_and_go_between_two_looks(start_tail: StartTail, logs: Path) -> None:
    tail = start_tail(logs / "*.log")
    for number in range(50):
        append(logs / f"{number}.log", "x\n")
        if number % 3 == 0:
            (logs / f"{number}.log").unlink()
        tail.poll()
    tail.until(lambda: len(tail.records) >= 33)
    tail.rest()
    assert 33 <= len(tail.records) <= 50


def test_a_pattern_without_files_is_reported_until_there_is_one(start_tail: StartTail, logs: Path) -> None:
    tail = start_tail(logs / "**" / "*.log")
    tail.rest(0.1)
    assert tail.message == f"{logs}/**/*.log matches no file"
    (logs / "a" / "b").mkdir(parents=True)
    append(logs / "a" / "b" / "c.log", "1\n")
    tail.until_texts("1")
    assert tail.message == ""


def test_files_of_the_agent_are_refused(start_tail: StartTail, logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (logs / "agent.log").open("w") as own:
        own.write("mine\n")
        own.flush()
        monkeypatch.setattr(sys, "stderr", own)
        (tmp_path / "agent").mkdir()
        append(tmp_path / "agent" / "wal.log", "mine\n")
        append(logs / "app.log", "1\n")
        tail = start_tail(tmp_path / "**" / "*.log")
        tail.rest()
    assert tail.texts == ["1"]
    assert f"{logs}/agent.log belongs to the agent itself and is not read: exclude it" in tail.message
    assert f"{tmp_path}/agent/wal.log belongs to the agent itself" in tail.message


def test_excluded_files_are_not_read(start_tail: StartTail, logs: Path) -> None:
    for name in ("a.log", "b.log", "c.tmp"):
        append(logs / name, f"{name}\n")
    tail = start_tail(logs / "*", exclude=["*.tmp", str(logs / "b.*")])
    tail.until_texts("a.log")
    tail.rest()
    assert tail.texts == ["a.log"]


def test_what_cannot_be_read_is_reported_and_tried_again(start_tail: StartTail, logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (logs / "closed").mkdir()
    append(logs / "closed" / "a.log", "1\n")
    append(logs / "b.log", "2\n")
    scandir, opened, denied = os.scandir, os.open, [True]

    def scan(path: str) -> object:
        if denied and str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    def open_file(path: str, flags: int) -> int:
        if denied and str(path).endswith("b.log"):
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, flags)

    monkeypatch.setattr(os, "scandir", scan)
    monkeypatch.setattr(os, "open", open_file)
    tail = start_tail(logs / "closed" / "*.log", logs / "*.log")
    tail.rest(0.1)
    assert f"{logs}/closed cannot be listed: allow it to the user of the agent (chmod o+rx, or a group)" in tail.message
    assert f"{logs}/b.log cannot be read: allow it to the user of the agent (chmod o+r, or a group)" in tail.message
    denied.clear()
    tail.until(lambda: sorted(tail.texts) == ["1", "2"])
    tail.rest(0.1)
    assert tail.message == ""


def test_from_end_skips_only_what_is_there_at_the_first_start(start_tail: StartTail, logs: Path) -> None:
    old, new = logs / "old.log", logs / "new.log"
    append(old, "skipped\npart")
    tail = start_tail(logs / "*.log", from_="end")
    tail.rest(0.1)
    assert tail.texts == []
    tail.crash()  # nothing is durable yet: the position of the start is kept all the same
    append(new, "1\n")
    append(old, " and rest\n")
    tail.until(lambda: sorted(tail.texts) == ["1", "part and rest"])
    tail.input.close()
    append(logs / "third.log", "3\n")
    tail.crash()
    tail.until(lambda: len(tail.records) == 3)
    tail.rest()
    assert sorted(tail.texts) == ["1", "3", "part and rest"]
    assert next(chunk.origin.line for chunk in tail.chunks if chunk.origin.file == str(old)) == 0


def test_a_rename_while_the_agent_is_not_running_loses_nothing(start_tail: StartTail, logs: Path) -> None:
    log = logs / "app.log"
    append(log, lines(numbered(0, 10)))
    tail = start_tail(log)
    tail.until(lambda: len(tail.records) == 10)
    tail.input.close()
    append(log, lines(numbered(10, 20)))
    log.rename(logs / "app.log.1")
    append(log, lines(numbered(50, 60)))
    tail.crash()
    tail.until(lambda: len(tail.records) == 30)
    tail.rest()
    assert sorted(tail.texts) == numbered(0, 20) + numbered(50, 60)


# lines


def test_a_record_that_is_too_long_has_its_place_and_its_beginning(start_tail: StartTail, logs: Path) -> None:
    log = logs / "app.log"
    huge = 50 * 10**6
    with log.open("wb") as file:
        file.write(b"before\n")
        for _ in range(50):
            file.write(b"x" * 10**6)
        file.write(b"\nbehind\n")
    tail = start_tail(log)
    tail.until(lambda: len(tail.records) == 3)
    before, long, behind = tail.chunks
    assert (before.payload, behind.payload) == (b"before\n", b"behind\n")
    assert (long.kind, long.count, len(long.payload)) == ("too_long", 1, 65536)
    assert (long.origin.offset, long.origin.end, long.origin.line) == (7, 7 + huge + 1, 2)
    assert (behind.origin.offset, behind.origin.line) == (8 + huge, 3)
    assert f"a record of {huge + 1:,} bytes" in tail.message


def test_memory_is_bounded_while_a_huge_line_is_read(tmp_path: Path) -> None:
    log = tmp_path / "huge.log"
    with log.open("wb") as file:
        file.truncate(200 * 2**20)
        file.seek(0)
        file.write(b"x")
        file.seek(200 * 2**20)
        file.write(b"\nend\n")
    code = f"""
import resource, sys
from pathlib import Path
from tests.agent.inputs.tailing import QuickTail, Tailing, lane_config
tail = Tailing(lane_config({str(log)!r}), Path({str(tmp_path / "agent")!r}))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
tail.until(lambda: len(tail.records) == 2)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    grown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[3]).stdout
    assert int(grown) < 30_000


def test_short_limits_of_records_hold_inside_a_block(start_tail: StartTail, logs: Path) -> None:
    texts = ["a" * 100, "b" * 101, "c", "d" * 300, "e" * 100]
    append(logs / "app.log", lines(texts) + "f" * 200)
    tail = start_tail(logs / "app.log", max_record=100)
    tail.until(lambda: len(tail.records) == 5)
    (logs / "app.log").unlink()
    tail.until(lambda: len(tail.records) == 6)
    assert [(chunk.kind, chunk.count, chunk.origin.line) for chunk in tail.chunks] == [
        ("records", 1, 1),
        ("too_long", 1, 2),
        ("records", 1, 3),
        ("too_long", 1, 4),
        ("records", 1, 5),
        ("too_long", 1, 6),
    ]
    assert tail.records == [text.encode() for text in [*texts, "f" * 200]]


def test_records_larger_than_a_block_are_whole(start_tail: StartTail, logs: Path) -> None:
    texts = ["a" * 10_000, "b" * 100_000, "c", "d" * 70_000, "e" * 3]
    append(logs / "app.log", lines(texts))
    tail = start_tail(logs / "app.log", max_record=2**20, frame_bytes=4096)
    tail.until_texts(*texts)
    assert all(chunk.count == 1 or len(chunk.payload) <= 65536 for chunk in tail.chunks)


@pytest.mark.parametrize("encoding", ["utf-16le", "utf-16be", "utf-16", "latin-1", "utf-32", "shift_jis", "cp037"])
def test_character_sets_become_utf_8(start_tail: StartTail, logs: Path, encoding: str) -> None:
    log = logs / "app.log"
    texts = [f"Gr\xfc\xdfe {number} \u0a0a\u0a00\u000b" if encoding.startswith("utf") else f"line {number}" for number in range(5000)]
    if encoding == "latin-1":
        texts = [f"Gr\xfc\xdfe {number}" for number in range(5000)]
    data = "".join(f"{text}\n" for text in texts).encode(encoding)
    append(log, data[:30_001])
    tail = start_tail(log, encoding=encoding, frame_bytes=8192)
    tail.rest(0.1)
    append(log, data[30_001:])
    tail.until(lambda: len(tail.records) == 5000)
    assert tail.texts == texts
    assert tail.chunks[-1].origin.end == len(data)
    tail.crash(durable=2)
    tail.until(lambda: len(tail.records) == 5000)
    assert tail.texts == texts


def test_a_byte_order_mark_is_no_part_of_the_first_record(start_tail: StartTail, logs: Path) -> None:
    append(logs / "a.log", b"\xef\xbb\xbffirst\n\xef\xbb\xbfsecond\n")
    append(logs / "b.log", b"\xfe\xff" + "big\n".encode("utf-16-be"))
    tail = start_tail(logs / "a.log")
    tail.until_texts("first", "\ufeffsecond")
    assert (tail.chunks[0].origin.offset, tail.chunks[0].origin.end) == (3, 19)
    other = start_tail(logs / "b.log", encoding="utf-16")
    other.until_texts("big")


def test_bytes_that_are_not_utf_8_pass_unchanged(start_tail: StartTail, logs: Path) -> None:
    append(logs / "a.log", b"a\xff\xfe\n\x80\x00\n")
    tail = start_tail(logs / "a.log")
    tail.until(lambda: tail.records == [b"a\xff\xfe", b"\x80\x00"])


@pytest.mark.parametrize("options", [{"encoding": "klingon"}, {"multiline": {"start": "("}}, {"multiline": {"timeout": 1.0}}])
def test_options_that_are_not_valid_are_refused(tmp_path: Path, options: dict[str, object]) -> None:
    with pytest.raises(EnvironmentFault) as raised:
        Tailing(lane_config(tmp_path / "a.log", **options), tmp_path / "agent")
    assert raised.value.remedy


def test_zero_bytes_at_the_beginning_are_skipped_after_a_truncation(start_tail: StartTail, logs: Path) -> None:
    log = logs / "app.log"
    with log.open("wb", buffering=0) as writer:  # it does not append: it continues at its own position
        writer.write(lines(numbered(0, 100)).encode())
        tail = start_tail(log)
        tail.until(lambda: len(tail.records) == 100)
        os.truncate(log, 0)
        writer.write(lines(numbered(100, 200)).encode())
        tail.until(lambda: len(tail.records) == 200)
    tail.rest()
    assert tail.texts == numbered(0, 200)
    assert tail.chunks[-1].origin.offset == 2500
    assert "2,500 zero bytes at its beginning were skipped" in tail.message
    tail.crash()
    append(log, "last\n")
    tail.until(lambda: len(tail.records) == 201)


# records of several lines

TRACE = "ERROR one\n  at a\n  at b\nINFO two\nERROR three\n  at c\n"
TRACED = ["ERROR one\n  at a\n  at b", "INFO two", "ERROR three\n  at c"]


@pytest.mark.parametrize("multiline", [{"start": "^[A-Z]"}, {"continue": r"^\s"}])
def test_lines_that_belong_together_are_one_record(start_tail: StartTail, logs: Path, multiline: dict[str, str]) -> None:
    log = logs / "app.log"
    append(log, TRACE)
    tail = start_tail(log, multiline={**multiline, "timeout": 30.0, "lines": 500})
    tail.until_texts(*TRACED[:2])
    tail.rest()
    assert tail.texts == TRACED[:2]
    append(log, "  at d\nINFO four\n")
    tail.until_texts(*TRACED[:2], TRACED[2] + "\n  at d")
    first, last = tail.chunks[0].origin, tail.chunks[-1].origin
    assert (first.line, first.lines, first.end, last.line, last.lines) == (1, 4, 33, 5, 3)


def test_the_last_record_of_several_lines_waits_for_a_time(start_tail: StartTail, logs: Path) -> None:
    append(logs / "app.log", TRACE)
    tail = start_tail(logs / "app.log", multiline={"start": "^[A-Z]", "timeout": 0.1, "lines": 500})
    tail.until_texts(*TRACED)
    tail.crash()
    append(logs / "app.log", "INFO last\n")
    tail.until_texts(*TRACED, "INFO last")
    assert tail.chunks[-1].origin.line == 7


def test_a_record_of_too_many_lines_is_divided(start_tail: StartTail, logs: Path) -> None:
    append(logs / "app.log", "A\n" + "  b\n" * 25)
    tail = start_tail(logs / "app.log", multiline={"start": "^[A-Z]", "timeout": 0.1, "lines": 10}, frame_bytes=4096)
    tail.until(lambda: len(tail.records) == 3)
    assert [text.count("\n") + 1 for text in tail.texts] == [10, 10, 6]


def test_records_of_several_lines_may_be_larger_than_a_block(start_tail: StartTail, logs: Path) -> None:
    texts = ["A" + f"\n  {'b' * 50}" * 400, "B", "C" + f"\n  {'d' * 50}" * 400]
    append(logs / "app.log", lines(texts))
    tail = start_tail(logs / "app.log", multiline={"start": "^[A-Z]", "timeout": 0.1, "lines": 500}, frame_bytes=4096)
    tail.until_texts(*texts)


def test_a_record_is_not_joined_with_the_next_file(start_tail: StartTail, logs: Path) -> None:
    log = logs / "app.log"
    append(log, "ERROR one\n  at a\n")
    tail = start_tail(log, multiline={"start": "^[A-Z]", "timeout": 0.3, "lines": 500})
    tail.rest(0.1)
    log.rename(logs / "app.log.1")
    append(log, "  at b\nINFO two\nINFO three\n")
    tail.until(lambda: len(tail.records) == 4)
    assert sorted(tail.texts) == ["  at b", "ERROR one\n  at a", "INFO three", "INFO two"]


def test_a_record_that_waits_is_delivered_when_its_file_is_truncated(start_tail: StartTail, logs: Path) -> None:
    log = logs / "app.log"
    append(log, "ERROR one\n  at a\n")
    tail = start_tail(log, multiline={"start": "^[A-Z]", "timeout": 30.0, "lines": 500})
    tail.rest(0.1)
    log.write_text("INFO two\nINFO three\n")
    tail.until_texts("ERROR one\n  at a", "INFO two")


# many files


def test_a_large_file_does_not_keep_others_waiting(start_tail: StartTail, logs: Path) -> None:
    append(logs / "a.log", lines(numbered(0, 400_000)))
    for number in range(5):
        append(logs / f"b{number}.log", "small\n")
    tail = start_tail(logs / "*.log")
    tail.poll(2**21)
    tail.poll(2**21)
    assert tail.texts.count("small") == 5
    tail.until(lambda: len(tail.records) == 400_005)
    assert [text for text in tail.texts if text != "small"] == numbered(0, 400_000)


def test_more_files_than_may_be_open_are_all_read(start_tail: StartTail, logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(QuickTail, "open_files", 20)
    for number in range(2000):
        append(logs / f"{number}.log", f"{number} first\n")
    before = len(open_files())
    tail = start_tail(logs / "*.log")
    most = 0
    while len(tail.records) < 2000:
        tail.poll()
        most = max(most, len(open_files()) - before)
    for number in range(0, 2000, 7):
        append(logs / f"{number}.log", f"{number} second\n")
    (logs / "3.log").rename(logs / "3.old")
    append(logs / "3.old", "3 renamed\n")
    tail.until(lambda: len(tail.records) == 2000 + 286 + 1)
    tail.rest()
    assert len(set(tail.texts)) == len(tail.texts) == 2287
    assert most <= 25


def test_idle_files_cost_little(tmp_path: Path) -> None:
    """The bar is 1 % of a core; a machine with others at work is given ten times as much here."""
    for number in range(200):
        append(tmp_path / f"{number}.log", "x\n")
    code = f"""
import time
from pathlib import Path
from scribengin.agent.inputs.tail import TailInput
from tests.agent.inputs.tailing import lane_config
tail = TailInput(lane_config({str(tmp_path / "*.log")!r}, poll=0.25), {{}}, Path({str(tmp_path / "agent")!r}))
end = time.monotonic() + 1
while time.monotonic() < end:
    tail.poll(2**20); tail.wait(1.0)
begin, cpu = time.monotonic(), time.process_time()
while time.monotonic() < begin + 3:
    tail.poll(2**20); tail.wait(1.0)
print((time.process_time() - cpu) / (time.monotonic() - begin))
"""
    share = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[3]).stdout
    assert float(share) < 0.1


def test_too_few_descriptors_are_reported(start_tail: StartTail, logs: Path) -> None:
    for number in range(30):
        append(logs / f"{number}.log", f"{number}\n")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    tail = start_tail(logs / "none*")
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(open_files()) + 12, hard))
    try:
        tail = start_tail(logs / "*.log")
        tail.rest(0.2)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    tail.until(lambda: len(tail.records) == 30)
    assert sorted(tail.texts) == sorted(map(str, range(30)))
