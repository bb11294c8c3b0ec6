"""Public reports about tools that tail files, each reproduced against `tail`."""

from __future__ import annotations

import errno
import gzip
import os
import shutil
from typing import TYPE_CHECKING

import pytest

from scribengin.agent.inputs.files import PlainReader
from tests.agent.inputs.tailing import QuickTail, Tailing

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    StartTail = Callable[..., Tailing]

REPORTS = (
    (
        "elastic/beats#36541",
        "Filebeat's filestream sends whole log files again after a restart, once several of them were rotated",
        "test_nothing_is_sent_again_after_a_restart_that_follows_several_rotations",
    ),
    (
        "fluent/fluent-bit#1108",
        "Fluent Bit does not notice a rotation under heavy load: the last record is the last one before it",
        "test_a_file_that_is_rotated_under_load_is_read_to_its_end_and_so_is_the_next",
    ),
    (
        "hpcloud/tail#127",
        "tail opens the new file before the renamed one is read to its end (Promtail builds on it)",
        "test_a_renamed_file_is_read_to_its_end_before_the_new_one_begins",
    ),
    (
        "fluent/fluent-bit#4895",
        "Fluent Bit begins a new file at the offset of a deleted one whose inode it has",
        "test_a_new_file_with_the_inode_of_a_deleted_one_is_read_from_its_beginning",
    ),
    (
        "fluent/fluent-bit#3491",
        "Fluent Bit drops a line whose end is not written yet, and delivers the end of one that is too long",
        "test_a_line_without_its_end_waits_for_it",
    ),
    (
        "logstash-plugins/logstash-input-file#222",
        "Logstash loses what it has not read of a file that is copied and truncated",
        "test_what_was_not_read_before_a_copytruncate_is_read_from_the_copy",
    ),
    (
        "elastic/beats#39731",
        "Filebeat sends a whole file again after each rotation by copytruncate",
        "test_the_copy_of_a_copytruncate_is_not_sent_again",
    ),
    (
        "fluent/fluent-bit#1118",
        "Fluent Bit keeps reading the old target of a symbolic link (so Kubernetes and releases lay out their logs)",
        "test_a_symbolic_link_with_another_target_is_followed_to_it",
    ),
    (
        "elastic/beats#47336",
        "Filebeat cannot put a multi-line record together that a rotation has divided, and loses a part",
        "test_a_stack_trace_that_a_rotation_divides_loses_no_line_and_joins_no_other",
    ),
    (
        "fluent/fluent-bit#370",
        "Fluent Bit stops reading a whole file at a line that is longer than its buffer",
        "test_a_huge_line_is_left_out_and_the_file_is_read_on",
    ),
    (
        "elastic/beats#1349",
        "Filebeat delivers the byte order mark of UTF-8 as a part of the first record",
        "test_a_byte_order_mark_is_not_in_the_first_record",
    ),
    (
        "elastic/filebeat#205",
        "Filebeat stops at the second record of a UTF-16 file, as it expects a byte order mark again where it reads on",
        "test_a_file_in_utf_16_is_read_on_where_it_grows",
    ),
    (
        "grafana/loki#3651",
        "Promtail stops following a file on NFS after a stale file handle",
        "test_a_stale_handle_of_a_network_file_system_is_opened_again",
    ),
    (
        "elastic/beats#5465",
        "Filebeat reads files on a network share again, as an outdated size makes them look truncated",
        "test_an_outdated_size_of_a_network_file_system_is_no_truncation",
    ),
    (
        "vectordotdev/vector#7990",
        "Vector reads a rotated file again once it is compressed",
        "test_a_rotated_file_is_not_read_again_when_it_is_compressed",
    ),
    (
        "fluent/fluent-bit#10319",
        "Fluent Bit does not read the rest of a file that is deleted while it is open",
        "test_the_rest_of_a_deleted_file_is_read_through_its_handle",
    ),
    (
        "grafana/loki#3914",
        "Promtail keeps deleted files open, and their disk space is not freed",
        "test_a_deleted_file_is_closed_when_it_is_read",
    ),
    (
        "fluent/fluent-bit#9580",
        "Fluent Bit misses lines of a file that is overwritten in place again and again",
        "test_each_content_of_a_file_that_is_overwritten_is_read_from_its_beginning",
    ),
    (
        "fluent/fluent-bit#2474",
        "Fluent Bit fails with too many open files where old files pile up in a folder",
        "test_thousands_of_old_files_need_few_open_ones",
    ),
    (
        "fluent/fluent-bit#3124",
        "Fluent Bit stops at the zero bytes that copytruncate leaves at the beginning of a file",
        "test_zero_bytes_at_the_beginning_of_a_truncated_file_are_skipped",
    ),
    (
        "apache/logging-flume#291",
        "Flume's Taildir source reads a file again when it is renamed (FLUME-3342)",
        "test_a_file_is_not_read_again_under_its_new_name",
    ),
    (
        "vectordotdev/vector#643",
        "Vector takes all empty files for one",
        "test_empty_files_are_different_files",
    ),
    (
        "fluent/fluent-bit#11406",
        "Fluent Bit misses the first lines of a new file if the old one had long been idle when it was rotated",
        "test_the_rotation_of_a_file_that_was_idle_is_noticed",
    ),
)
"""(reference, what happened there, the test here); the pages of the manual list it"""


def write(path: Path, first: int, last: int) -> None:
    with path.open("a") as file:
        file.writelines(f"{number:05} is the number of this line\n" for number in range(first, last))


def numbers(tail: Tailing) -> list[int]:
    return [int(text[:5]) for text in tail.texts]


def test_each_report_has_its_test() -> None:
    assert len({reference for reference, _, _ in REPORTS}) == len(REPORTS) >= 15
    for reference, _, name in REPORTS:
        assert reference in (globals()[name].__doc__ or ""), name


def test_nothing_is_sent_again_after_a_restart_that_follows_several_rotations(start_tail: StartTail, logs: Path) -> None:
    """elastic/beats#36541."""
    tail = start_tail(logs / "app.log*")
    for rotation in range(5):
        write(logs / "app.log", rotation * 10, rotation * 10 + 10)
        tail.until(lambda: len(tail.records) == rotation * 10 + 10)  # noqa: B023 - it is called at once
        for number in range(rotation, 0, -1):
            (logs / f"app.log.{number}").rename(logs / f"app.log.{number + 1}")
        (logs / "app.log").rename(logs / "app.log.1")
    tail.rest()
    tail.crash()
    tail.rest(0.5)
    assert numbers(tail) == [*range(50)]


def test_a_file_that_is_rotated_under_load_is_read_to_its_end_and_so_is_the_next(start_tail: StartTail, logs: Path) -> None:
    """fluent/fluent-bit#1108."""
    log = logs / "app.log"
    write(log, 0, 60_000)
    tail = start_tail(log)
    tail.poll(100_000)  # far behind
    log.rename(logs / "app.log.1")
    write(log, 60_000, 70_000)
    tail.until(lambda: len(tail.records) == 70_000)
    assert numbers(tail) == [*range(70_000)]


def test_a_renamed_file_is_read_to_its_end_before_the_new_one_begins(start_tail: StartTail, logs: Path) -> None:
    """hpcloud/tail#127."""
    log = logs / "app.log"
    write(log, 0, 10)
    tail = start_tail(log)
    tail.until(lambda: len(tail.records) == 10)
    with log.open("a") as writer:
        log.rename(logs / "app.log.1")
        write(log, 20, 30)
        writer.writelines(f"{number:05} late\n" for number in range(10, 20))
    tail.until(lambda: len(tail.records) == 30)
    assert numbers(tail) == [*range(30)]


def test_a_new_file_with_the_inode_of_a_deleted_one_is_read_from_its_beginning(start_tail: StartTail, logs: Path) -> None:
    """fluent/fluent-bit#4895, vectordotdev/vector#17240."""
    tail = start_tail(logs / "*.log")
    used = set[int]()
    for number in range(0, 100, 10):
        log = logs / f"{number}.log"
        write(log, number, number + 10)
        used.add(log.stat().st_ino)
        tail.until(lambda: len(tail.records) == number + 10)  # noqa: B023 - it is called at once
        log.unlink()
        tail.until(lambda: tail.input.report().files == 0)
        if number == 50:
            tail.crash()
    assert numbers(tail) == [*range(100)]
    if len(used) == 10:
        pytest.skip("this file system does not use inodes again")


def test_a_line_without_its_end_waits_for_it(start_tail: StartTail, logs: Path) -> None:
    """fluent/fluent-bit#3491."""
    log = logs / "app.log"
    log.write_text("hel")
    tail = start_tail(log)
    tail.rest(0.5)
    assert tail.records == []
    tail.crash()
    with log.open("a") as file:
        file.write("lo\nx" + "y" * 32_000)
    tail.rest()
    with log.open("a") as file:
        file.write("z\n")
    tail.until_texts("hello", "x" + "y" * 32_000 + "z")


def test_what_was_not_read_before_a_copytruncate_is_read_from_the_copy(start_tail: StartTail, logs: Path) -> None:
    """logstash-plugins/logstash-input-file#222."""
    log = logs / "app.log"
    write(log, 0, 30_000)
    tail = start_tail(log)
    tail.poll(100_000)
    assert 0 < len(tail.records) < 30_000
    shutil.copyfile(log, logs / "app.log-20270101")
    os.truncate(log, 0)
    write(log, 30_000, 30_010)
    tail.until(lambda: len(tail.records) == 30_010)
    tail.rest(0.5)
    assert numbers(tail) == [*range(30_010)]
    assert tail.input.lost_bytes == 0


def test_the_copy_of_a_copytruncate_is_not_sent_again(start_tail: StartTail, logs: Path) -> None:
    """elastic/beats#39731."""
    log = logs / "app.log"
    tail = start_tail(logs / "*")
    for rotation in range(4):
        write(log, rotation * 10, rotation * 10 + 10)
        tail.until(lambda: len(tail.records) == rotation * 10 + 10)  # noqa: B023 - it is called at once
        for number in range(rotation, 0, -1):
            (logs / f"app.log.{number}").rename(logs / f"app.log.{number + 1}")
        shutil.copyfile(log, logs / "app.log.1")
        os.truncate(log, 0)
        tail.rest(0.05)
    tail.rest(0.5)
    tail.crash()
    tail.rest(0.5)
    assert numbers(tail) == [*range(40)]


def test_a_symbolic_link_with_another_target_is_followed_to_it(start_tail: StartTail, logs: Path) -> None:
    """fluent/fluent-bit#1118."""
    for version in ("v1", "v2"):
        (logs / version / "log").mkdir(parents=True)
    current = logs / "current"
    current.symlink_to(logs / "v1")
    write(logs / "v1" / "log" / "app.log", 0, 10)
    tail = start_tail(current / "log" / "*.log")
    tail.until(lambda: len(tail.records) == 10)
    write(logs / "v1" / "log" / "app.log", 10, 20)
    write(logs / "v2" / "log" / "app.log", 20, 30)
    (logs / "next").symlink_to(logs / "v2")
    (logs / "next").rename(current)
    tail.until(lambda: len(tail.records) == 30)
    tail.rest()
    assert numbers(tail) == [*range(30)]


def test_a_stack_trace_that_a_rotation_divides_loses_no_line_and_joins_no_other(start_tail: StartTail, logs: Path) -> None:
    """elastic/beats#47336, fluent/fluent-bit#3538."""
    log = logs / "app.log"
    log.write_text("INFO a\nERROR b\n  at x\n")
    tail = start_tail(logs / "app.log*", multiline={"start": "^[A-Z]", "timeout": 0.2, "lines": 500})
    tail.rest(0.1)
    log.rename(logs / "app.log.1")
    log.write_text("  at y\nINFO c\nINFO d\n")
    tail.until(lambda: len(tail.records) == 5)
    assert tail.texts.index("ERROR b\n  at x") < tail.texts.index("INFO d")
    assert sorted(tail.texts) == ["  at y", "ERROR b\n  at x", "INFO a", "INFO c", "INFO d"]
    assert sum(chunk.origin.lines for chunk in tail.chunks) == 6


def test_a_huge_line_is_left_out_and_the_file_is_read_on(start_tail: StartTail, logs: Path) -> None:
    """fluent/fluent-bit#370."""
    log = logs / "app.log"
    write(log, 0, 10)
    with log.open("a") as file:
        file.write("00010" + "x" * 3_000_000 + "\n")
    write(log, 11, 20)
    tail = start_tail(log)
    tail.until(lambda: len(tail.records) == 20)
    assert numbers(tail) == [*range(20)]
    assert [len(chunk.payload) for chunk in tail.chunks if chunk.kind == "too_long"] == [65536]
    assert "raise max_record" in tail.message


def test_a_byte_order_mark_is_not_in_the_first_record(start_tail: StartTail, logs: Path) -> None:
    """elastic/beats#1349."""
    (logs / "MSGTRK1.LOG").write_bytes(b"\xef\xbb\xbf#Software: Microsoft Exchange Server\r\n")
    tail = start_tail(logs / "MSGTRK*.LOG")
    tail.until_texts("#Software: Microsoft Exchange Server\r")


def test_a_file_in_utf_16_is_read_on_where_it_grows(start_tail: StartTail, logs: Path) -> None:
    """elastic/filebeat#205, logstash-plugins/logstash-input-file#226."""
    log = logs / "test.log"
    log.write_bytes(b"\xfe\xff" + "hello1\n".encode("utf-16-be"))
    tail = start_tail(log, encoding="utf-16be-bom")
    tail.until_texts("hello1")
    with log.open("ab") as file:
        file.write("hello2\nhel".encode("utf-16-be") + b"\x00")
    tail.until_texts("hello1", "hello2")
    tail.crash()
    with log.open("ab") as file:
        file.write(b"l" + "o3\n".encode("utf-16-be"))
    tail.until_texts("hello1", "hello2", "hello3")


def test_a_stale_handle_of_a_network_file_system_is_opened_again(
    start_tail: StartTail, logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """grafana/loki#3651."""
    log = logs / "app.log"
    write(log, 0, 10)
    tail = start_tail(log)
    tail.until(lambda: len(tail.records) == 10)
    read, stale = PlainReader.read, [True] * 3

    def fail_first(self: PlainReader, size: int, at: int) -> bytes:
        if stale:
            stale.pop()
            raise OSError(errno.ESTALE, "Stale file handle")
        return read(self, size, at)

    monkeypatch.setattr(PlainReader, "read", fail_first)
    write(log, 10, 20)
    tail.until(lambda: len(tail.records) == 20)
    tail.rest(0.1)
    assert not stale
    assert numbers(tail) == [*range(20)]
    assert tail.message == ""


def test_an_outdated_size_of_a_network_file_system_is_no_truncation(
    start_tail: StartTail, logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """elastic/beats#5465, fluent/fluent-bit#10280."""
    log = logs / "app.log"
    write(log, 0, 10)
    tail = start_tail(log)
    tail.until(lambda: len(tail.records) == 10)
    stat, old = os.stat, log.stat()
    write(log, 10, 20)
    tail.until(lambda: len(tail.records) == 20)
    outdated = [20]

    def stat_of_before(path: str, **options: bool) -> os.stat_result:
        if str(path) == str(log) and outdated[0]:
            outdated[0] -= 1
            return old
        return stat(path, **options)

    monkeypatch.setattr(os, "stat", stat_of_before)
    tail.until(lambda: not outdated[0])
    write(log, 20, 30)
    tail.until(lambda: len(tail.records) == 30)
    assert numbers(tail) == [*range(30)]


def test_a_rotated_file_is_not_read_again_when_it_is_compressed(start_tail: StartTail, logs: Path) -> None:
    """vectordotdev/vector#7990, open-telemetry/opentelemetry-collector-contrib#40523."""
    log, old = logs / "app.log", logs / "app.log.1"
    write(log, 0, 1000)
    tail = start_tail(logs / "*")
    tail.until(lambda: len(tail.records) == 1000)
    log.rename(old)
    write(log, 1000, 1010)
    tail.until(lambda: len(tail.records) == 1010)
    (logs / "app.log.1.gz").write_bytes(gzip.compress(old.read_bytes()))
    tail.rest(0.1)
    old.unlink()
    tail.rest(0.3)
    (logs / "app.log.1.gz").rename(logs / "app.log.2.gz")
    tail.rest()
    tail.crash()
    tail.rest(0.5)
    assert numbers(tail) == [*range(1010)]


def test_the_rest_of_a_deleted_file_is_read_through_its_handle(start_tail: StartTail, logs: Path) -> None:
    """fluent/fluent-bit#10319."""
    log = logs / "app.log"
    write(log, 0, 30_000)
    tail = start_tail(log)
    tail.poll(100_000)
    assert len(tail.records) < 30_000
    log.unlink()
    tail.until(lambda: len(tail.records) == 30_000)
    assert numbers(tail) == [*range(30_000)]


def test_a_deleted_file_is_closed_when_it_is_read(start_tail: StartTail, logs: Path) -> None:
    """grafana/loki#3914."""
    for number in range(10):
        write(logs / f"app-{number}.log", number * 10, number * 10 + 10)
    tail = start_tail(logs / "*.log")
    tail.until(lambda: len(tail.records) == 100)
    for number in range(10):
        (logs / f"app-{number}.log").unlink()
    tail.until(lambda: tail.input.report().files == 0)
    assert not tail.input._opened


def test_each_content_of_a_file_that_is_overwritten_is_read_from_its_beginning(start_tail: StartTail, logs: Path) -> None:
    """fluent/fluent-bit#9580."""
    log = logs / "test"
    tail = start_tail(log)
    for number in range(1, 51):
        if number % 10 == 0:
            log.write_text(f"Overwrite: {number}\n")
        else:
            with log.open("a") as file:
                file.write(f"Append: {number}\n")
        tail.until(lambda: len(tail.records) == number)  # noqa: B023 - it is called at once
    assert tail.texts == [f"{'Append' if number % 10 else 'Overwrite'}: {number}" for number in range(1, 51)]


def test_thousands_of_old_files_need_few_open_ones(start_tail: StartTail, logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """fluent/fluent-bit#2474, fluent/fluent-bit#12432."""
    monkeypatch.setattr(QuickTail, "open_files", 50)
    for number in range(3000):
        (logs / f"audit-{number}.json").write_text(f"{number:05} in file {number}\n")
    tail = start_tail(logs / "*.json")
    tail.until(lambda: len(tail.records) == 3000)
    assert len(tail.input._opened) <= 50
    write(logs / "audit-2999.json", 3000, 3001)
    write(logs / "audit-3000.json", 3001, 3002)
    tail.until(lambda: len(tail.records) == 3002)
    assert sorted(numbers(tail)) == [*range(3002)]
    assert tail.message == ""


def test_zero_bytes_at_the_beginning_of_a_truncated_file_are_skipped(start_tail: StartTail, logs: Path) -> None:
    """fluent/fluent-bit#3124, logrotate/logrotate#286."""
    log = logs / "app.log"
    with log.open("w") as writer:
        tail = start_tail(log)
        for first in range(0, 400, 100):
            writer.writelines(f"{number:05} is the number of this line\n" for number in range(first, first + 100))
            writer.flush()
            tail.until(lambda: len(tail.records) == first + 100)  # noqa: B023 - it is called at once
            os.truncate(log, 0)
    assert numbers(tail) == [*range(400)]
    assert "zero bytes at its beginning were skipped" in tail.message


def test_a_file_is_not_read_again_under_its_new_name(start_tail: StartTail, logs: Path) -> None:
    """apache/logging-flume#291, fluent/fluentd#3532."""
    (logs / "old").mkdir()
    tail = start_tail(logs / "**" / "*")
    log = logs / "a.log"
    write(log, 0, 10)
    tail.until(lambda: len(tail.records) == 10)
    log.rename(logs / "a.log.1")
    tail.rest(0.3)
    (logs / "a.log.1").rename(logs / "old" / "a.log")
    tail.rest(0.3)
    tail.crash()
    (logs / "old" / "a.log").rename(logs / "b.log")
    tail.rest(0.3)
    write(logs / "b.log", 10, 20)
    tail.until(lambda: len(tail.records) == 20)
    assert numbers(tail) == [*range(20)]


def test_empty_files_are_different_files(start_tail: StartTail, logs: Path) -> None:
    """vectordotdev/vector#643."""
    for number in range(10):
        (logs / f"{number}.log").touch()
    tail = start_tail(logs / "*.log")
    tail.rest(0.1)
    for number in range(10):
        write(logs / f"{number}.log", number, number + 1)
    tail.until(lambda: len(tail.records) == 10)
    assert sorted(numbers(tail)) == [*range(10)]
    assert len({chunk.origin.identity for chunk in tail.chunks}) == 10


def test_the_rotation_of_a_file_that_was_idle_is_noticed(start_tail: StartTail, logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """fluent/fluent-bit#11406."""
    monkeypatch.setattr("scribengin.agent.inputs.tail.COLD_S", 0.0)
    monkeypatch.setattr("scribengin.agent.inputs.tail.COLD_FILES", 1)
    for name in ("a.log", "b.log", "input.log"):
        write(logs / name, 0, 2)
    tail = start_tail(logs / "*.log")
    tail.until(lambda: len(tail.records) == 6)
    tail.rest(0.1)
    (logs / "input.log").rename(logs / "input.log.1")
    write(logs / "input.log", 2, 5)
    tail.until(lambda: len(tail.records) == 9)
    assert numbers(tail)[6:] == [2, 3, 4]
