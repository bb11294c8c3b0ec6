"""What each durability keeps, drops and counts, where gateways take nothing, logs are full, and disks are full."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

from scribengin.agent import lane as lane_module
from scribengin.agent import sender as sender_module
from scribengin.agent.buffers import LogBuffer, MemoryBuffer, PositionFile, SpillBuffer
from scribengin.wal.log import Wal
from scribengin.wire.frames import FrameHead, FrameOrigin, encode_frame, find_frames
from tests.agent import own_input
from tests.agent.edge_gateway import LANE, EdgeGateway, expected, lines, log_of, one_lane, running_agent, wait_for

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

own_input.install()


def frame(sequence: int, count: int = 10, *, file: str = "f", end: int = 0) -> tuple[bytes, FrameHead]:
    payload = lines(sequence, count)
    origin = FrameOrigin(file=file, identity=file, end=end or sequence + count)
    head = FrameHead("records", "none", sequence, count, len(payload), 1000 + sequence, origin=origin)
    return encode_frame(head, payload), head


def heads(data: bytes) -> list[FrameHead]:
    return [found.head for found in find_frames(data) if found.head is not None]


def small_log(folder: Path, **changes: Any) -> Wal:
    return Wal(folder, **{"most_bytes": 2**20, "segment_bytes": 2**16, "sync": "each", **changes})


def test_a_memory_buffer_drops_what_does_not_fit_and_sends_its_numbers(tmp_path: Path) -> None:
    buffer = MemoryBuffer(PositionFile(tmp_path / "p.json"), most_bytes=2 * len(frame(0)[0]))
    called: list[int] = []
    for number in range(5):
        buffer.add(*frame(10 * number), [lambda number=number: called.append(number)])
    assert (buffer.next, buffer.dropped, called) == (50, 30, [2, 3, 4])
    piece = buffer.piece(0, 2**20)
    assert piece is not None
    assert [(head.kind, head.sequence, head.count) for head in heads(piece.data)] == [
        ("records", 0, 10),
        ("records", 10, 10),
        ("lost", 20, 30),
    ]
    again = buffer.piece(20, 2**20)
    buffer.add(*frame(50), [])
    assert buffer.dropped == 40
    assert buffer.piece(20, len(again.data) if again else 0) == again  # what was sent never changes
    buffer.stored(20)
    assert (buffer.first, called) == (20, [2, 3, 4, 0, 1])
    buffer.add(*frame(60), [])
    piece = buffer.piece(20, 2**20)
    assert piece is not None
    assert [(head.kind, head.sequence, head.count) for head in heads(piece.data)] == [
        ("lost", 20, 30),
        ("lost", 50, 10),
        ("records", 60, 10),
    ]
    buffer.stored(70)
    assert (buffer.first, buffer.waiting_bytes, buffer.oldest_ms) == (70, 0, 0)


def test_a_spill_buffer_writes_nothing_while_gateways_work(tmp_path: Path) -> None:
    log = small_log(tmp_path / "log")
    buffer = SpillBuffer(log, PositionFile(tmp_path / "p.json"), drop_oldest=False)
    for number in range(5):
        buffer.add(*frame(10 * number), [])
        buffer.sync(float(number))
        buffer.stored(10 * number + 5)
    assert (log.next, buffer.first, buffer.sendable) == (0, 45, 50)
    buffer.stored(50)
    assert buffer.waiting_bytes == 0
    buffer.close()


def test_a_spill_buffer_keeps_what_no_gateway_takes_across_a_crash_and_never_what_was_stored(tmp_path: Path) -> None:
    log = small_log(tmp_path / "log")
    buffer = SpillBuffer(log, PositionFile(tmp_path / "p.json"), drop_oldest=False)
    called: list[int] = []
    for number in range(3):
        buffer.add(*frame(10 * number), [lambda number=number: called.append(number)])
    buffer.stored(10)
    buffer.gateways_failed()
    buffer.sync(1.0, force=True)
    assert called == [0, 1, 2]
    buffer.add(*frame(30), [])
    buffer.sync(2.0, force=True)
    assert (buffer.first, buffer.next, buffer.sendable) == (10, 40, 40)
    piece = buffer.piece(10, 2**20)
    assert piece is not None
    assert [(head.kind, head.sequence) for head in heads(piece.data)] == [("records", 10), ("records", 20), ("records", 30)]
    assert PositionFile(tmp_path / "p.json").positions["f"].end == 40
    log.close()  # as after a kill: the log is what is left
    left = LogBuffer(small_log(tmp_path / "log"), free_at_stored=True)
    assert (left.incarnation, left.first, left.next) == (buffer.incarnation, 10, 40)
    left.stored(40)
    assert left.first == 40
    left.close()


def test_a_spill_buffer_goes_back_to_memory_and_spills_again(tmp_path: Path) -> None:
    log = small_log(tmp_path / "log")
    buffer = SpillBuffer(log, PositionFile(tmp_path / "p.json"), drop_oldest=False)
    sent: list[tuple[int, int]] = []
    position = 0
    for number in range(60):
        if number % 20 == 5:
            buffer.gateways_failed()
        buffer.add(*frame(10 * number), [])
        buffer.sync(float(number), force=number % 20 == 5)
        if number % 20 == 15 or number == 59:
            buffer.gateways_work()
            buffer.sync(float(number), force=True)
            while (piece := buffer.piece(position, 500)) is not None:
                sent += [(head.sequence, head.next) for head in heads(piece.data)]
                position = piece.next
                buffer.stored(position)
    assert sent == [(number, number + 10) for number in range(0, 600, 10)]
    assert buffer.first == buffer.next == 600
    buffer.close()


def test_a_position_file_that_is_damaged_is_set_aside(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_bytes(b'{"f": ')
    assert PositionFile(tmp_path / "p.json").positions == {}
    assert (tmp_path / "p.json.damaged").exists()


def test_best_effort_counts_exactly_what_it_drops(tmp_path: Path) -> None:
    file, count = tmp_path / "in.log", 20_000
    file.write_bytes(b"")
    config = one_lane(file, block=4096, durability="best_effort", spill_bytes=30_000, compression="none")
    with EdgeGateway(config) as gateway:
        gateway.script = lambda _, number: (503, {"Retry-After": "0.05"}, b"") if number % 3 else None
        with running_agent(tmp_path / "a", gateway.url) as agent:
            wait_for(lambda: LANE in agent.lanes)
            for first in range(0, count, 500):
                with file.open("ab") as more:
                    more.write(lines(first, 500))
            wait_for(lambda: agent.lanes[LANE].report().read == count, "reading")
            gateway.script = lambda _, number: None
            wait_for(lambda: sum(gateway.stored.values()) == count, "the numbers")
            report = agent.lanes[LANE].report()
            arrived = gateway.all_records()
            assert 0 < report.dropped < count
            assert report.read == len(arrived) + report.dropped
            assert gateway.lost == report.dropped
            assert set(arrived) <= set(expected(count))
            assert len(set(arrived)) == len(arrived)
            assert not any((tmp_path / "a" / "lanes" / LANE).glob("**/*.wal"))


def test_store_on_failure_keeps_all_while_no_gateway_takes_frames(tmp_path: Path) -> None:
    file, data = tmp_path / "in.log", tmp_path / "a"
    file.write_bytes(lines(0, 1000))
    with EdgeGateway(one_lane(file, block=2048, durability="store_on_failure")) as gateway:
        gateway.commit = False
        with running_agent(data, gateway.url) as agent:
            wait_for(lambda: len(gateway.all_records()) == 1000, "records")
            assert not list(data.glob("**/*.wal"))
            gateway.script = lambda _, number: (503, {}, b"")
            with file.open("ab") as more:
                more.write(lines(1000, 1000))
            wait_for(lambda: list(data.glob("**/*.wal")), "a log")
            wait_for(lambda: agent.lanes[LANE].report().read == 2000, "reading")
        file.unlink()  # what was read does not need it
        gateway.script = lambda _, number: None
        with running_agent(data, gateway.url):
            wait_for(lambda: len(gateway.all_records()) == 2000, "the rest")
            assert gateway.all_records() == expected(2000)
        with running_agent(data, gateway.url):
            wait_for(lambda: len(list((data / "lanes" / LANE).glob("spill-*"))) == 1, "folders of earlier runs to be removed")


def test_a_full_log_stops_reading_until_commits_come(tmp_path: Path) -> None:
    file, count = tmp_path / "in.log", 30_000
    file.write_bytes(lines(0, count))
    config = one_lane(file, block=4096, compression="none", spill_bytes=120_000)
    with EdgeGateway(config) as gateway:
        gateway.commit = False
        with running_agent(tmp_path / "a", gateway.url) as agent:
            wait_for(lambda: LANE in agent.lanes and agent.lanes[LANE].report().state == "full", "the full log")
            report = agent.lanes[LANE].report()
            assert "reading waits" in report.message
            assert report.read < count
            gateway.commit = True
            with gateway.lock:
                gateway.committed.update(gateway.stored)
            wait_for(lambda: len(gateway.all_records()) == count, "all records")
            assert gateway.all_records() == expected(count)
            wait_for(lambda: agent.lanes[LANE].report().message == "")
            assert agent.lanes[LANE].report().dropped == 0


def test_drop_oldest_counts_what_it_drops(tmp_path: Path) -> None:
    file, count = tmp_path / "in.log", 30_000
    file.write_bytes(lines(0, count))
    config = one_lane(file, block=4096, compression="none", spill_bytes=120_000, on_full="drop_oldest")
    with EdgeGateway(config) as gateway:
        gateway.script = lambda _, number: (503, {}, b"")
        with running_agent(tmp_path / "a", gateway.url) as agent:
            wait_for(lambda: LANE in agent.lanes and agent.lanes[LANE].report().read == count, "reading")
            gateway.script = lambda _, number: None
            wait_for(lambda: sum(gateway.stored.values()) == count, "the numbers")
            report, arrived = agent.lanes[LANE].report(), gateway.all_records()
            assert report.dropped > 0
            assert len(arrived) + report.dropped == count
            assert gateway.lost == report.dropped
            assert arrived == expected(count)[-len(arrived) :]


class FullDisk(Wal):
    """The disk takes nothing for as long as `full` is set."""

    full = False

    def append(self, frame: bytes, head: FrameHead) -> None:
        if FullDisk.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().append(frame, head)


def test_a_full_disk_is_reported_and_reading_goes_on_when_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane_module, "Wal", FullDisk)
    monkeypatch.setattr(FullDisk, "full", True)
    file = tmp_path / "in.log"
    file.write_bytes(lines(0, 300))
    with EdgeGateway(one_lane(file, block=2048)) as gateway, running_agent(tmp_path / "a", gateway.url) as agent:
        wait_for(lambda: log_of(agent).has("No space left on device in the folder of the agent: reading waits. Free some"), "the message")
        wait_for(lambda: gateway.reports[-1].lanes[LANE].state == "full", "the report")
        monkeypatch.setattr(FullDisk, "full", False)
        wait_for(lambda: len(gateway.all_records()) == 300, "the records")
        assert gateway.all_records() == expected(300)


class BrokenDisk(Wal):
    """One append fails for a reason that waiting does not mend."""

    failures = 1

    def append(self, frame: bytes, head: FrameHead) -> None:
        if BrokenDisk.failures:
            BrokenDisk.failures -= 1
            raise OSError(errno.EIO, "Input/output error")
        super().append(frame, head)


def test_a_lane_that_failed_is_opened_again_and_reads_from_its_last_position(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane_module, "Wal", BrokenDisk)
    monkeypatch.setattr(BrokenDisk, "failures", 2)
    file = tmp_path / "in.log"
    file.write_bytes(lines(0, 300))
    with EdgeGateway(one_lane(file, block=2048)) as gateway, running_agent(tmp_path / "a", gateway.url) as agent:
        wait_for(lambda: len(gateway.all_records()) == 300, "the records")
        assert gateway.all_records() == expected(300)
        assert log_of(agent).has("Input/output error")


def test_what_was_not_kept_at_a_stop_is_not_passed_over(tmp_path: Path) -> None:
    """The log is full when the agent stops: no later record may be kept in place of the one that waits."""
    file, data, count = tmp_path / "in.log", tmp_path / "a", 5000
    file.write_bytes(lines(0, count))
    config = one_lane(file, block=4096, compression="none", spill_bytes=40_000)
    with EdgeGateway(config) as gateway:
        gateway.commit = False
        for _ in range(3):
            with running_agent(data, gateway.url, stop_s=0.2) as agent:
                wait_for(lambda: LANE in agent.lanes and agent.lanes[LANE].report().state == "full", "the full log")
            with gateway.lock:
                gateway.committed.update(gateway.stored)
        gateway.commit = True
        with running_agent(data, gateway.url):
            wait_for(lambda: len(gateway.all_records()) == count, "all records")
        assert gateway.all_records() == expected(count)
        assert len(gateway.records) == 1


def test_what_a_gateway_stored_and_lost_is_sent_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing new comes, so only reports show that the channel knows of less than was sent."""
    monkeypatch.setattr(sender_module, "_RESEND_S", 0.3)
    file = tmp_path / "in.log"
    file.write_bytes(lines(0, 300))
    with EdgeGateway(one_lane(file)) as gateway:
        gateway.commit = False
        with running_agent(tmp_path / "a", gateway.url):
            wait_for(lambda: len(gateway.all_records()) == 300, "the records")
            with gateway.lock:
                gateway.stored.clear()
                gateway.records.clear()
            wait_for(lambda: len(gateway.all_records()) == 300, "the records again")
            assert gateway.all_records() == expected(300)


def test_another_durability_leaves_no_record_of_the_one_before_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane_module, "_PROBE_S", 0.3)
    file, data = tmp_path / "in.log", tmp_path / "a"
    file.write_bytes(lines(0, 300))
    with EdgeGateway(one_lane(file)) as gateway:
        gateway.commit = False
        with running_agent(data, gateway.url) as agent:
            wait_for(lambda: len(gateway.all_records()) == 300, "the records")
            gateway.config = one_lane(file, "r2", durability="best_effort")
            wait_for(lambda: agent.lanes[LANE].config.durability == "best_effort" and agent.lanes[LANE].leftovers, "the change")
            with file.open("ab") as more:
                more.write(lines(300, 100))
            wait_for(lambda: len(gateway.all_records()) == 400, "more records")
            assert len(gateway.records) == 2
            assert gateway.all_records() == expected(400)
            (left,) = agent.lanes[LANE].leftovers
            assert left.buffer.first == 0  # they were stored, and `end_to_end` keeps them until they are committed
            gateway.commit = True
            wait_for(lambda: left.buffer.first == 300, "commits")
