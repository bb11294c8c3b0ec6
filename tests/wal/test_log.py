"""What a log promises, one thing at a time, in a real folder; tests/wal/test_crashes.py has all of it at once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread

import pytest

from scribengin.core.errors import EnvironmentFault, Refused, StateError
from scribengin.wal.log import DROPPED, SyncPolicy, Wal, WalFull
from scribengin.wal.segments import WalSegment
from scribengin.wire.frames import FrameHead, FrameOrigin, find_frames, payload_of
from tests.wal.log_model import made_frame
from tests.wal.simulated_disk import Content, SimulatedDisk

MIB = 2**20


def opened(folder: Path, *, most_bytes: int = MIB, segment_bytes: int = 1000, sync: str = "each") -> Wal:
    return Wal(folder, most_bytes=most_bytes, segment_bytes=segment_bytes, sync=sync)


def append(wal: Wal, payload: bytes = b"one\ntwo\n", *, count: int = 2, file: str = "a") -> bytes:
    before = wal.positions.get(file, FrameOrigin()).end
    origin = FrameOrigin(identity=file, offset=before, end=before + len(payload))
    written = made_frame(wal.next, count, payload, origin)
    wal.append(written.frame, written.head)
    return written.frame


def fill(folder: Path, frames: int = 30) -> list[bytes]:
    """A log of several segments, closed."""
    wal = opened(folder)
    written = [append(wal, b"%04d" % at * 20, file="ab"[at % 2]) for at in range(frames)]
    wal.close()
    return written


def append_until_full(wal: Wal) -> None:
    with suppress(WalFull):
        while True:
            append(wal)


def everything(wal: Wal, start: int = 0) -> list[bytes]:
    """All frames, of contiguous numbers."""
    frames = []
    while (piece := wal.read(start, 500)) is not None:
        assert piece.sequence == start or not frames
        frames += [piece.bytes[found.start : found.end] for found in find_frames(piece.bytes)]
        start = piece.next
    return frames


def lost_in(frames: list[bytes]) -> list[tuple[int, int, str]]:
    found = [(each.head, payload_of(frame, each)) for frame in frames for each in find_frames(frame)]
    return [(head.sequence, head.next, reason.decode()) for head, reason in found if head is not None and head.kind == "lost"]


def test_a_log_gives_back_what_was_appended(tmp_path: Path) -> None:
    wal = opened(tmp_path / "log")
    frames = [append(wal, file=file) for file in "aabab"]
    assert (wal.next, wal.durable, wal.read(0, 1000)) == (10, 0, None)
    assert wal.sync(now_s=0.0) == 10
    assert everything(wal) == frames
    assert wal.size == sum(map(len, frames))
    wal.close()
    again = opened(tmp_path / "log")
    assert (again.incarnation, again.next, again.durable, again.faults) == (wal.incarnation, 10, 10, [])
    assert everything(again) == frames
    assert {file: origin.end for file, origin in again.positions.items()} == {"a": 24, "b": 16}
    again.close()


def test_incarnations_of_two_logs_differ(tmp_path: Path) -> None:
    one, two = opened(tmp_path / "one"), opened(tmp_path / "two")
    assert one.incarnation != two.incarnation
    one.close()
    two.close()


def test_a_read_begins_with_the_frame_that_has_the_number(tmp_path: Path) -> None:
    wal = opened(tmp_path)
    frames = [append(wal, count=5) for _ in range(20)]
    wal.sync(now_s=0.0)
    piece = wal.read(33, 1)
    assert piece is not None
    assert (piece.bytes, piece.sequence, piece.next) == (frames[6], 30, 35)
    assert wal.read(100, 1) is None
    wal.close()


def test_pieces_of_small_frames_are_near_to_the_size_that_was_named(tmp_path: Path) -> None:
    wal = opened(tmp_path, most_bytes=8 * MIB, segment_bytes=2 * MIB)
    for _ in range(10_000):
        append(wal)
    wal.sync(now_s=0.0)
    piece = wal.read(7, 200_000)
    assert piece is not None
    assert 200_000 - 65_536 - 200 <= len(piece.bytes) <= 200_000
    assert piece.sequence == 6
    wal.close()


def test_a_frame_with_another_number_is_an_error_of_the_program(tmp_path: Path) -> None:
    wal = opened(tmp_path)
    written = made_frame(1, 1, b"x", FrameOrigin())
    with pytest.raises(ValueError, match="a frame of the record 1; the next one is 0"):
        wal.append(written.frame, written.head)
    with pytest.raises(ValueError, match="not the frame of the records"):
        wal.append(written.frame, FrameHead("records", "none", 0, 1, 1, 0))
    with pytest.raises(ValueError, match="not the frame of the records"):
        wal.append(written.frame[:-1], written.head)
    assert (wal.next, wal.size) == (0, 0)
    wal.close()


HOLD = """
import sys
from contextlib import suppress
from pathlib import Path
from scribengin.wal.log import Wal
wal = Wal(Path(sys.argv[1]), most_bytes=2**20)
print("open", flush=True)
sys.stdin.read()
"""


def test_a_second_process_is_refused_until_the_first_one_is_gone(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "open\n"
            with pytest.raises(Refused, match=rf"in use by process {holder.pid}: two agents on one folder") as refusal:
                opened(tmp_path)
            assert refusal.value.remedy
        finally:
            holder.kill()
    opened(tmp_path).close()


def test_a_log_in_use_is_refused_within_one_process_too(tmp_path: Path) -> None:
    wal = opened(tmp_path)
    with pytest.raises(Refused, match=f"process {os.getpid()}"):
        opened(tmp_path)
    wal.close()
    opened(tmp_path).close()


WRITE = """
import os, sys
from pathlib import Path
from random import Random
from scribengin.wal.log import Wal
from scribengin.wire.frames import FrameHead, FrameOrigin, encode_frame
wal = Wal(Path(sys.argv[1]), most_bytes=2**30, segment_bytes=50_000, sync="1ms")
at = 0.0
while True:
    payload = Random(wal.next).randbytes(wal.next * 37 % 3000)
    head = FrameHead("records", "none", wal.next, 2, len(payload), 0, origin=FrameOrigin(identity="f", end=wal.next + 2))
    wal.append(encode_frame(head, payload), head)
    at += 0.0003
    durable = wal.sync(now_s=at)
    os.write(1, b"%d %d\\n" % (wal.next, durable))
"""


def test_a_log_whose_writer_is_killed_has_all_that_was_appended(tmp_path: Path) -> None:
    luck = random.Random(7)
    end = 0
    for _ in range(4):
        with subprocess.Popen([sys.executable, "-c", WRITE, str(tmp_path)], stdout=subprocess.PIPE) as writer:
            try:
                assert writer.stdout is not None
                first = [writer.stdout.readline() for _ in range(luck.randrange(1, 400))]
            finally:
                os.kill(writer.pid, signal.SIGKILL)
            rest = writer.stdout.read().split(b"\n")
        seen = [int(line.split()[0]) for line in [*first, *rest] if b" " in line]
        wal = Wal(tmp_path, most_bytes=2**30)
        assert wal.next >= max([end, *seen])
        assert wal.positions["f"].end == wal.next
        numbers = 0
        for frame in everything(wal):
            (found,) = find_frames(frame)
            assert found.head is not None
            assert found.head.sequence == numbers
            assert payload_of(frame, found) == random.Random(numbers).randbytes(numbers * 37 % 3000)
            numbers = found.head.next
        assert numbers == wal.next
        end = wal.next
        wal.close()
    assert end > 0


@pytest.mark.parametrize("part", range(4))
def test_a_changed_byte_anywhere_costs_one_frame_at_most(tmp_path: Path, part: int) -> None:
    """Also in a head, in a length, and in the last frame; what follows stays."""
    frames = fill(tmp_path)
    whole = {path.name: path.read_bytes() for path in tmp_path.glob("*.wal")}
    beside = {name: (tmp_path / name).read_bytes() for name in ("durable", "log.json")}
    starts = {name: [found.start for found in find_frames(data)] for name, data in whole.items()}
    assert len(whole) > 3
    luck = random.Random(part)
    for name, data in sorted(whole.items()):
        for at in luck.sample(range(len(data)), 5):
            for path in [*tmp_path.glob("*.wal"), *tmp_path.glob("damaged-*")]:
                path.unlink()
            for other, content in (whole | beside).items():
                (tmp_path / other).write_bytes(content)
            (tmp_path / name).write_bytes(data[:at] + bytes([data[at] ^ 1 << luck.randrange(8)]) + data[at + 1 :])
            wal = opened(tmp_path)
            assert wal.next == 60
            fault = "\n".join(wal.faults)
            start = max(each for each in starts[name] if each <= at)
            number = int(name[:20]) + 2 * starts[name].index(start)
            assert f"byte {start:,}" in fault
            assert f"the records {number} to {number + 1}" in fault
            (damaged,) = tmp_path.glob("damaged-*")
            assert damaged.name in fault
            assert damaged.read_bytes()[at - start] != data[at]
            there = everything(wal)
            assert len(there) == len(frames)
            assert [index for index in range(30) if there[index] != frames[index]] == [number // 2]
            assert lost_in(there) == [(number, number + 2, "the agent's write-ahead log was damaged")]
            wal.close()
            again = opened(tmp_path)
            assert again.faults == []
            assert everything(again) == there
            again.close()


@pytest.mark.parametrize("which", [0, 1, -1], ids=["first", "middle", "last"])
def test_a_segment_that_is_gone_is_told_as_lost(tmp_path: Path, which: int) -> None:
    frames = fill(tmp_path)
    path = sorted(tmp_path.glob("*.wal"))[which]
    first, count = int(path.stem), sum(1 for _ in find_frames(path.read_bytes()))
    path.unlink()
    wal = opened(tmp_path)
    assert [f"the records {first} to {first + 2 * count - 1} are missing" in fault for fault in wal.faults] == [True]
    there = everything(wal)
    assert lost_in(there) == [(first, first + 2 * count, "the agent's write-ahead log was damaged")]
    assert [frame for frame in there if frame in frames] == frames[: first // 2] + frames[first // 2 + count :]
    assert wal.next == 60
    append(wal)
    wal.close()


@pytest.mark.parametrize("number", [0, 3])
def test_a_jump_of_the_numbers_is_filled(tmp_path: Path, number: int) -> None:
    fill(tmp_path)
    path = sorted(tmp_path.glob("*.wal"))[1]
    data = path.read_bytes()
    found = list(find_frames(data))[number]
    assert found.head is not None
    path.write_bytes(data[: found.start] + data[found.end :])
    wal = opened(tmp_path)
    assert ["the numbers jump" in fault for fault in wal.faults] == [True]
    assert lost_in(everything(wal)) == [(found.head.sequence, found.head.next, "the agent's write-ahead log was damaged")]
    wal.close()


def test_a_frame_that_is_there_twice_is_set_aside(tmp_path: Path) -> None:
    frames = fill(tmp_path)
    path = sorted(tmp_path.glob("*.wal"))[1]
    data = path.read_bytes()
    first, second = list(find_frames(data))[:2]
    path.write_bytes(data[: second.end] + data[first.start : second.end] + data[second.end :])
    wal = opened(tmp_path)
    assert ["which are there already" in fault for fault in wal.faults] == [True, True]
    assert everything(wal) == frames
    wal.close()


def test_bytes_after_the_end_were_never_durable(tmp_path: Path) -> None:
    frames = fill(tmp_path)
    path = max(tmp_path.glob("*.wal"))
    path.write_bytes(path.read_bytes() + frames[0][:50])
    wal = opened(tmp_path)
    assert ["the torn tail of 50 bytes" in fault for fault in wal.faults] == [True]
    assert everything(wal) == frames
    wal.close()
    assert not list(tmp_path.glob("damaged-*"))


def test_a_log_without_its_checkpoint_keeps_frames_and_their_positions(tmp_path: Path) -> None:
    fill(tmp_path)
    wal = opened(tmp_path)
    wal.acknowledge(30)
    positions, oldest = dict(wal.positions), min(tmp_path.glob("*.wal"))
    assert int(oldest.stem) > 0
    wal.close()
    checkpoint = tmp_path / "checkpoint"
    checkpoint.write_bytes(checkpoint.read_bytes()[:-5])
    again = opened(tmp_path)
    assert ["checkpoint is damaged" in fault for fault in again.faults] == [True]
    assert (again.positions, again.acknowledged, again.next) == (positions, 30, 60)
    again.close()


def test_a_log_without_its_mark_takes_all_for_durable(tmp_path: Path) -> None:
    frames = fill(tmp_path)
    for content in (b"", b"x" * 9000):
        (tmp_path / "durable").write_bytes(content)
        wal = opened(tmp_path)
        assert ["durable is missing or damaged" in fault for fault in wal.faults] == [True]
        assert everything(wal) == frames
        wal.close()
        opened(tmp_path).close()


def test_a_log_without_mark_and_checkpoint_begins_with_its_oldest_segment(tmp_path: Path) -> None:
    frames = fill(tmp_path)
    wal = opened(tmp_path)
    wal.acknowledge(31)
    wal.close()
    (tmp_path / "durable").unlink()
    (tmp_path / "checkpoint").unlink()
    again = opened(tmp_path)
    first = int(min(tmp_path.glob("*.wal")).stem)
    assert 0 < first <= 30
    assert again.acknowledged == first
    assert everything(again, first) == frames[first // 2 :]
    again.close()


@pytest.mark.parametrize("content", [None, b"", b"{", b'{"format": 2, "incarnation": "x"}', b'{"format": 1, "incarnation": "\xff"}'])
def test_a_log_without_an_identity_is_not_opened(tmp_path: Path, content: bytes | None) -> None:
    fill(tmp_path)
    (tmp_path / "log.json").unlink()
    if content is not None:
        (tmp_path / "log.json").write_bytes(content)
    with pytest.raises(StateError, match=r"log\.json") as refusal:
        opened(tmp_path)
    assert "move the folder away" in refusal.value.remedy
    (tmp_path / "lock").unlink()


def test_a_file_in_place_of_the_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("")
    with pytest.raises(EnvironmentFault, match="log"):
        opened(tmp_path / "log")


def test_damage_under_a_running_log_is_repaired_when_it_is_read(tmp_path: Path) -> None:
    wal = opened(tmp_path)
    frames = [append(wal, b"%04d" % at * 20) for at in range(30)]
    wal.sync(now_s=0.0)
    append(wal)
    path = sorted(tmp_path.glob("*.wal"))[1]
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"????")
    number = int(path.stem)
    there = everything(wal)
    assert lost_in(there) == [(number, number + 2, "the agent's write-ahead log was damaged")]
    assert there[:30] == [*frames[: number // 2], there[number // 2], *frames[number // 2 + 1 :]]
    assert len(wal.faults) == 1
    append(wal)
    assert wal.positions["a"].end == 30 * 80 + 2 * 8
    wal.close()
    again = opened(tmp_path)
    assert everything(again)[:30] == there[:30]
    assert (again.next, again.positions, again.faults) == (64, wal.positions, [])
    again.close()


@pytest.mark.parametrize("opened_again", [True, False], ids=["opened", "read"])
def test_a_block_that_the_disk_cannot_read_is_like_damage(opened_again: bool) -> None:
    class BadBlock(SimulatedDisk):
        bad: Content | None = None

        def read(self, handle: int, count: int, offset: int) -> bytes:
            if self.handles[handle] is self.bad and offset <= 4500 < offset + count:
                raise OSError(5, "input/output error")
            return super().read(handle, count, offset)

    disk = BadBlock()
    wal = Wal(Path("/log"), most_bytes=MIB, segment_bytes=MIB, files=disk)
    frames = [append(wal, bytes(1000)) for _ in range(20)]
    wal.sync(now_s=0.0)
    disk.bad = disk.files["00000000000000000000.wal"]
    if opened_again:
        wal.close()
        wal = Wal(Path("/log"), most_bytes=MIB, segment_bytes=MIB, files=disk)
    there = everything(wal)
    assert there[:3] == frames[:3]
    assert there[-10:] == frames[-10:]
    assert len(wal.faults) == 1
    assert wal.next == 40


def test_a_record_that_is_not_durable_cannot_be_acknowledged(tmp_path: Path) -> None:
    wal = opened(tmp_path)
    append(wal)
    wal.sync(now_s=0.0)
    append(wal)
    with pytest.raises(StateError, match="records before 3 are acknowledged, but the log ends at 2") as refusal:
        wal.acknowledge(3)
    assert refusal.value.remedy
    assert wal.acknowledged == 0
    wal.close()


def test_acknowledged_segments_are_freed_and_their_positions_stay(tmp_path: Path) -> None:
    wal = opened(tmp_path)
    append(wal, file="old")
    for _ in range(40):
        append(wal)
    wal.sync(now_s=0.0)
    positions, size = dict(wal.positions), wal.size
    wal.acknowledge(80)
    assert wal.size < size / 3
    wal.acknowledge(10)
    assert wal.acknowledged == 80
    wal.close()
    again = opened(tmp_path)
    assert (again.positions, again.acknowledged, again.next) == (positions, 80, 82)
    again.forget("old")
    assert set(again.positions) == {"a"}
    piece = again.read(0, 1)
    assert piece is not None
    assert (piece.sequence, piece.next) == (80, 82)
    again.close()


def test_what_is_acknowledged_is_written_also_when_nothing_is_appended(tmp_path: Path) -> None:
    wal = opened(tmp_path)
    append(wal)
    wal.sync(now_s=0.0)
    wal.acknowledge(2)
    wal.sync(now_s=0.5)
    wal.sync(now_s=1.5)
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in tmp_path.glob("*[!k]"):
        if path.is_file():
            (copy / path.name).write_bytes(path.read_bytes())
    assert opened(copy).acknowledged == 2
    wal.close()


def test_a_full_log_takes_frames_again_when_some_are_acknowledged(tmp_path: Path) -> None:
    wal = opened(tmp_path, most_bytes=4000)
    append_until_full(wal)
    end = wal.next
    assert wal.size <= 4000
    wal.sync(now_s=0.0)
    with pytest.raises(WalFull, match="it would exceed 4,000"):
        append(wal)
    wal.acknowledge(end)
    append(wal, bytes(3000))
    assert sum(path.stat().st_size for path in tmp_path.glob("*.wal")) == wal.size <= 4000
    wal.close()


def test_one_acknowledged_segment_is_room_too(tmp_path: Path) -> None:
    wal = opened(tmp_path, most_bytes=4000)
    append(wal, bytes(3800))
    wal.sync(now_s=0.0)
    with pytest.raises(WalFull):
        append(wal, bytes(3800))
    wal.acknowledge(2)
    append(wal, bytes(3800))
    wal.close()


def test_dropped_records_are_counted_and_stay_as_a_lost_frame(tmp_path: Path) -> None:
    wal = opened(tmp_path, most_bytes=4000)
    append_until_full(wal)
    wal.sync(now_s=0.0)
    wal.acknowledge(3)
    end = wal.next
    dropped = wal.drop_oldest(1000)
    assert 0 < dropped < end
    append(wal)
    wal.sync(now_s=1.0)
    there = everything(wal, 3)
    assert lost_in(there) == [(3, 3 + dropped, DROPPED)]
    more = wal.drop_oldest(2000)
    assert lost_in(everything(wal, 3)) == [(3, 3 + dropped + more, DROPPED)]
    positions = dict(wal.positions)
    rest = wal.drop_oldest(10**6)
    assert lost_in(everything(wal, 3)) == [(3, end + 2, DROPPED)]
    assert dropped + more + rest == end + 2 - 3
    assert wal.drop_oldest(10**6) == 0
    wal.close()
    again = opened(tmp_path)
    assert again.faults == []
    assert lost_in(everything(again, 3)) == [(3, end + 2, DROPPED)]
    assert again.positions == positions
    again.close()


def test_policies() -> None:
    assert SyncPolicy.parse("each").is_due(1, 0.0)
    time = SyncPolicy.parse("100ms")
    assert [time.is_due(10**9, waited) for waited in (0.0, 0.099, 0.1, 5.0, -1.0, float("inf"))] == [False, False, True, True, True, True]
    size = SyncPolicy.parse("1MiB")
    assert [size.is_due(*each) for each in ((MIB - 1, 0.0), (MIB, 0.0), (1, 1.0))] == [False, True, True]
    with pytest.raises(ValueError, match='sync is "often"; write `each`, a time such as `100ms`, or a size such as `1MiB`'):
        SyncPolicy.parse("often")


def test_a_log_is_synced_by_its_policy(tmp_path: Path) -> None:
    wal = opened(tmp_path, sync="100ms")
    append(wal)
    assert wal.sync(now_s=10.0) == 2
    append(wal)
    assert [wal.sync(now_s=now) for now in (10.05, 10.11)] == [2, 4]
    append(wal)
    assert wal.sync(now_s=10.12) == 4
    assert wal.sync(now_s=10.12, force=True) == 6
    wal.close()


def simulated(disk: SimulatedDisk) -> Wal:
    return Wal(Path("/log"), most_bytes=MIB, segment_bytes=1000, sync="each", files=disk)


def test_after_a_failed_sync_the_frames_are_written_again() -> None:
    """A system that could not write counts the bytes as written: the next sync succeeds, and does nothing."""
    disk = SimulatedDisk()
    wal = simulated(disk)
    frames = [append(wal) for _ in range(20)]
    disk.failing_syncs = 1
    with pytest.raises(EnvironmentFault, match="cannot be made durable: input/output error") as fault:
        wal.sync(now_s=0.0)
    assert fault.value.remedy
    assert (wal.durable, wal.read(0, 1000)) == (0, None)
    frames.append(append(wal))
    assert wal.sync(now_s=1.0) == 42
    disk.crash(power=True, seed=1)
    assert everything(simulated(disk)) == frames


def test_frames_that_a_disk_has_lost_are_not_counted_as_durable() -> None:
    disk = SimulatedDisk()
    wal = simulated(disk)
    frames = [append(wal)]
    wal.sync(now_s=0.0)
    append(wal)
    disk.failing_syncs = 1
    with pytest.raises(EnvironmentFault):
        wal.sync(now_s=0.0)
    disk.evict()
    for _ in range(2):
        with pytest.raises(StateError, match="the disk has lost the records 2 to 3") as fault:
            wal.sync(now_s=1.0)
        assert fault.value.remedy
    with pytest.raises(StateError):
        append(wal)
    assert everything(wal) == frames
    wal.close()
    again = simulated(disk)
    assert (again.next, again.positions["a"].end) == (2, 8)


def test_frames_that_were_never_durable_are_written_again_when_the_log_is_opened() -> None:
    disk = SimulatedDisk()
    wal = simulated(disk)
    frames = [append(wal) for _ in range(3)]
    disk.failing_syncs = 1
    with pytest.raises(EnvironmentFault):
        wal.sync(now_s=0.0)
    disk.crash(power=False)
    again = simulated(disk)
    assert everything(again) == frames
    disk.crash(power=True)
    assert everything(simulated(disk)) == frames


def test_a_full_disk_leaves_the_log_as_it_was() -> None:
    disk = SimulatedDisk()
    wal = simulated(disk)
    frames = [append(wal) for _ in range(3)]
    for room in range(0, 120, 7):
        disk.capacity = disk.used() + room
        with pytest.raises(OSError, match="no space left"):
            append(wal, bytes(200))
        assert (wal.next, wal.size) == (2 * len(frames), sum(map(len, frames)))
        disk.capacity = None
        frames.append(append(wal))
    wal.sync(now_s=0.0)
    assert everything(wal) == frames
    disk.crash(power=False)
    again = simulated(disk)
    assert (everything(again), again.faults) == (frames, [])


@pytest.mark.parametrize("way", ["acknowledged", "dropped"])
def test_a_full_disk_is_freed_by_what_is(way: str) -> None:
    """To free a segment the positions in it are written first; the space for that is kept."""
    disk = SimulatedDisk()
    wal = simulated(disk)
    for at in range(40):
        append(wal, file=str(at))
    wal.sync(now_s=0.0)
    disk.capacity = disk.used()
    size = wal.size
    if way == "dropped":
        assert wal.drop_oldest(1000) > 0
    wal.acknowledge(60)
    assert wal.size < size
    positions = dict(wal.positions)
    disk.crash(power=True, seed=3)
    assert simulated(disk).positions == positions


def test_an_index_of_small_frames_is_small() -> None:
    segment = WalSegment(0, 0)
    for _ in range(200_000):
        segment.add(1, 100, 0)
    assert len(segment._offsets) * 16 < 10_000


def test_other_threads_may_acknowledge(tmp_path: Path) -> None:
    wal = opened(tmp_path, most_bytes=8000)
    stopped = Event()
    failures: list[BaseException] = []

    def acknowledge() -> None:
        try:
            while not stopped.wait(0.0001):
                wal.acknowledge(wal.durable)
        except BaseException as error:
            failures.append(error)

    thread = Thread(target=acknowledge)
    thread.start()
    try:
        at = 0
        for _ in range(500):
            with suppress(WalFull):
                append(wal)
            while (piece := wal.read(at, 1000)) is not None:
                assert all(found.head is not None for found in find_frames(piece.bytes))
                at = piece.next
            wal.sync(now_s=0.0, force=True)
    finally:
        stopped.set()
        thread.join()
    assert failures == []
    wal.close()
