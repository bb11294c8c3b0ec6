"""The journal: a recorded sample, a `journalctl` that prints what the test says, and the real one with a real journal."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from scribengin.agent.inputs import open_input
from scribengin.agent.inputs.journal import CURSOR_TAG, IDENTITY, JournalInput, cursor_of, plain_entry
from scribengin.agent.joining import ChunkJoiner
from tests.agent.inputs.lanes import lane_of, poll_records, poll_until, records_of, until

if TYPE_CHECKING:
    from scribengin.agent.inputs import RecordChunk
    from scribengin.wire.frames import FrameOrigin

# recorded from systemd 219 (etcd), and 252 (an entry of PulseAudio with a carriage return, from a public report)
SAMPLE = [
    b'{ "__CURSOR" : "s=78fdc2bf435b4aa6b7df9f50ff1e9c9f;i=662c5390;b=f3260b93a64641889bbf8fed67f4365a;m=2f4d3ea8e9fc;t=5ee329ba40462;'
    b'x=82eb53b68142dca7", "__REALTIME_TIMESTAMP" : "1669276010546274", "__MONOTONIC_TIMESTAMP" : "52008810244604", "PRIORITY" : "7", '
    b'"SYSLOG_IDENTIFIER" : "etcd", "_TRANSPORT" : "journal", "_PID" : "840", "_SYSTEMD_UNIT" : "etcd.service", "MESSAGE" : "start time" }',
    b'{"CODE_FILE":"../pulseaudio/src/modules/bluetooth/backend-native.c","CODE_LINE":"658","MESSAGE":[85,110,97,98,108,101,32,65,84,43,'
    b'66,73,65,13,65,84,43,66,67,83,61,50],"PRIORITY":"4","__CURSOR":"s=e1;i=2a;b=62c460d8931346bf85d24dfe22d2d2fb;m=1;t=61d;x=9",'
    b'"_UDEV_DEVLINK":["/dev/disk/by-id/a",[98,255]],"__REALTIME_TIMESTAMP":"1720000000000000"}',
]


def entry(number: int, **fields: Any) -> bytes:
    fields = {"MESSAGE": f"entry {number}", "__CURSOR": f"s=abc;i={number:x};b=def;m=1;t=2;x=3", "PRIORITY": "6", **fields}
    return json.dumps(fields, separators=(",", ":")).encode()


FAKE = """#!{python}
import json, os, re, sys, time
folder = {folder!r}
arguments = sys.argv[1:]
with open(folder + "/calls", "a") as calls:
    calls.write(json.dumps(arguments) + "\\n")
cursor = next((each.partition("=")[2] for each in arguments if each.startswith("--cursor=")), "")
tail = "--lines=0" in arguments
def entries():
    with open(folder + "/entries", "rb") as file:
        return file.read().split(b"\\n")[:-1]
at = len(entries()) if tail else 0
if cursor:
    at = next((at for at, each in enumerate(entries()) if cursor.encode() in each), 0)
if not tail and not cursor:
    print("-- Logs begin at Mon 2026-01-05 --", flush=True)
while True:
    for each in entries()[at:]:
        sys.stdout.buffer.write(each + b"\\n")
        at += 1
    sys.stdout.buffer.flush()
    if os.path.exists(folder + "/die"):
        os.remove(folder + "/die")
        sys.stdout.buffer.write(b'{{"MESSAGE":"cut o')
        sys.stdout.buffer.flush()
        print("Failed to iterate: Bad message", file=sys.stderr, flush=True)
        sys.exit(1)
    time.sleep(0.02)
"""


class FakeJournal:
    """A `journalctl` on the PATH, and its journal."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._entries = folder / "entries"
        self._entries.touch()
        program = folder / "journalctl"
        program.write_text(FAKE.format(python=sys.executable, folder=str(folder)))
        program.chmod(0o755)

    def write(self, *entries: bytes) -> None:
        with self._entries.open("ab") as file:
            file.write(b"".join(each + b"\n" for each in entries))

    def vacuum(self, count: int) -> None:
        """The first entries are gone."""
        left = self._entries.read_bytes().split(b"\n")[count:]
        (self.folder / "new").write_bytes(b"\n".join(left))
        (self.folder / "new").rename(self._entries)

    def calls(self) -> list[list[str]]:
        return [json.loads(line) for line in (self.folder / "calls").read_text().splitlines()]


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeJournal:
    folder = tmp_path / "fake"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return FakeJournal(folder)


def opened(
    tmp_path: Path, positions: dict[str, FrameOrigin] | None = None, options: dict[str, Any] | None = None, **config: Any
) -> JournalInput:
    found = open_input(lane_of("journal", {"units": [], "matches": [], **(options or {})}, **config), positions or {}, tmp_path)
    assert isinstance(found, JournalInput)
    return found


def messages(records: list[bytes]) -> list[str]:
    return [json.loads(record)["MESSAGE"] for record in records]


def test_entries_are_records_and_new_ones_follow(fake: FakeJournal, tmp_path: Path) -> None:
    fake.write(*[entry(number) for number in range(1000)])
    with closing(opened(tmp_path, tags={"site": "x"})) as found:
        chunks = poll_until(found, lambda chunks: sum(chunk.count for chunk in chunks) >= 1000)
        assert messages([record for chunk in chunks for record in records_of(chunk)]) == [f"entry {number}" for number in range(1000)]
        assert chunks[-1].origin.identity == IDENTITY
        assert chunks[-1].origin.tags == {"site": "x", CURSOR_TAG: "s=abc;i=3e7;b=def;m=1;t=2;x=3"}
        assert {chunk.origin.file for chunk in chunks} == {"journal"}
        fake.write(entry(1000))
        assert messages(poll_records(found, 1)) == ["entry 1000"]
        assert found.report().message == ""


def test_reading_goes_on_behind_any_frame_that_is_durable(fake: FakeJournal, tmp_path: Path) -> None:
    fake.write(*[entry(number) for number in range(50)])
    with closing(opened(tmp_path, frame_bytes=400)) as found:
        chunks = poll_until(found, lambda chunks: sum(chunk.count for chunk in chunks) >= 50)
    assert len(chunks) > 5
    read = 0
    for chunk in chunks[:-1:3]:
        read = sum(each.count for each in chunks[: chunks.index(chunk) + 1])
        with closing(opened(tmp_path, {IDENTITY: chunk.origin})) as found:
            assert messages(poll_records(found, 50 - read)) == [f"entry {number}" for number in range(read, 50)]
    assert any(argument.startswith("--cursor=s=abc;i=") for argument in fake.calls()[-1])


def test_entries_that_trickle_in_wait_for_each_other_and_the_position_is_that_of_the_last(fake: FakeJournal, tmp_path: Path) -> None:
    with closing(opened(tmp_path, linger_s=3600.0, frame_bytes=4000)) as found:
        until(lambda: not found.poll(2**20) and (fake.folder / "calls").exists())
        chunks: list[RecordChunk] = []
        for number in range(100):
            fake.write(entry(number))
            chunks += found.poll(2**20)
            found.wait(0.01)
        chunks += poll_until(found, lambda more: sum(chunk.count for chunk in (*chunks, *more)) >= 70)
    assert len(chunks) < 20
    for chunk in chunks:
        assert chunk.origin.tags[CURSOR_TAG] == cursor_of(chunk.payload)
    kept = sum(chunk.count for chunk in chunks)
    with closing(opened(tmp_path, {IDENTITY: chunks[-1].origin})) as found:
        assert messages(poll_records(found, 100 - kept)) == [f"entry {number}" for number in range(kept, 100)]


def test_an_entry_that_is_gone_costs_no_other(fake: FakeJournal, tmp_path: Path) -> None:
    fake.write(*[entry(number) for number in range(10)])
    with closing(opened(tmp_path)) as found:
        (chunk, *_) = poll_until(found, lambda chunks: sum(chunk.count for chunk in chunks) >= 10)
    fake.write(*[entry(number) for number in range(10, 20)])
    fake.vacuum(10)
    with closing(opened(tmp_path, {IDENTITY: chunk.origin})) as found:
        assert messages(poll_records(found, 10)) == [f"entry {number}" for number in range(10, 20)]


def test_a_journalctl_that_dies_is_started_again_and_no_entry_is_lost_or_doubled(fake: FakeJournal, tmp_path: Path) -> None:
    fake.write(*[entry(number) for number in range(10)])
    with closing(opened(tmp_path)) as found:
        records = poll_records(found, 10)
        (fake.folder / "die").touch()
        chunks: list[RecordChunk] = []
        until(lambda: chunks.extend(found.poll(2**20)) or "ended with status 1" in found.report().message)
        assert "Failed to iterate: Bad message" in found.report().message
        assert chunks == []
        fake.write(*[entry(number) for number in range(10, 20)])
        records += poll_records(found, 10)
        assert found.poll(2**20) == []
    assert messages(records) == [f"entry {number}" for number in range(20)]


def test_an_entry_that_was_cut_off_does_not_spoil_the_next(fake: FakeJournal, tmp_path: Path) -> None:
    (fake.folder / "die").touch()
    with closing(opened(tmp_path)) as found:
        until(lambda: not found.poll(2**20) and "ended with status 1" in found.report().message)
        fake.write(entry(1))
        assert messages(poll_records(found, 1)) == ["entry 1"]


def test_a_first_start_may_be_at_the_end(fake: FakeJournal, tmp_path: Path) -> None:
    fake.write(entry(1))
    with closing(opened(tmp_path, options={"from": "end"})) as found:
        until(lambda: not found.poll(2**20) and (fake.folder / "calls").exists())
        until(fake.calls)
        fake.write(entry(2))
        assert messages(poll_records(found, 1))[-1] == "entry 2"


def test_a_frame_of_small_entries_never_passes_one_of_earlier_entries(fake: FakeJournal, tmp_path: Path) -> None:
    """The lane joins chunks, and lets those of other origins pass: the position must not pass over what is not kept."""
    lane = lane_of("journal", linger_s=0.0, frame_bytes=4000)
    joiner = ChunkJoiner(rows=1000, bytes=lane.frame_bytes, linger_s=3600.0)
    fake.write(entry(0))
    kept: list[RecordChunk] = []
    with closing(opened(tmp_path, linger_s=0.0, frame_bytes=4000)) as found:
        for chunk in poll_until(found, bool):
            kept += [joined.chunk for joined in joiner.add(chunk, 0.0)]
        fake.write(*[entry(number, MESSAGE="x" * 500) for number in range(1, 50)])
        for chunk in poll_until(found, lambda chunks: sum(chunk.count for chunk in chunks) >= 49):
            kept += [joined.chunk for joined in joiner.add(chunk, 0.0)]
    kept += [joined.chunk for joined in joiner.take_all()]
    assert [json.loads(record)["__CURSOR"] for chunk in kept for record in records_of(chunk)] == [
        json.loads(entry(number))["__CURSOR"] for number in range(50)
    ]
    assert all(chunk.origin.tags[CURSOR_TAG] == cursor_of(chunk.payload) for chunk in kept)


def test_units_and_matches_are_passed(fake: FakeJournal, tmp_path: Path) -> None:
    with closing(opened(tmp_path, options={"units": ["ssh.service", "cron"], "matches": ["_UID=0", "+", "PRIORITY=3"]})) as found:
        until(lambda: not found.poll(2**20) and (fake.folder / "calls").exists() and fake.calls())
    assert fake.calls()[0] == [
        "--output=json", "--follow", "--all", "--no-pager", "--no-tail", "--unit=ssh.service", "--unit=cron", "_UID=0", "+", "PRIORITY=3",
    ]  # fmt: skip


def test_a_recorded_sample_is_decoded(fake: FakeJournal, tmp_path: Path) -> None:
    fake.write(*SAMPLE)
    with closing(opened(tmp_path)) as found:
        chunks = poll_until(found, lambda chunks: sum(chunk.count for chunk in chunks) >= 2)
    first, second = (json.loads(record) for chunk in chunks for record in records_of(chunk))
    assert first == json.loads(SAMPLE[0])
    assert second["MESSAGE"] == "Unable AT+BIA\rAT+BCS=2"
    assert second["_UDEV_DEVLINK"] == ["/dev/disk/by-id/a", "b\\xff"]
    assert chunks[-1].origin.tags[CURSOR_TAG] == "s=e1;i=2a;b=62c460d8931346bf85d24dfe22d2d2fb;m=1;t=61d;x=9"


def test_an_entry_longer_than_max_record_is_one_too_long_and_the_position_goes_on(fake: FakeJournal, tmp_path: Path) -> None:
    huge = json.dumps({"__CURSOR": "s=huge", "MESSAGE": "x" * 5000}).encode()
    fake.write(entry(1), huge, entry(2))
    with closing(opened(tmp_path, max_record=1000)) as found:
        chunks = poll_until(found, lambda chunks: sum(chunk.count for chunk in chunks) >= 3)
    assert [(chunk.kind, chunk.origin.tags[CURSOR_TAG]) for chunk in chunks] == [
        ("records", "s=abc;i=1;b=def;m=1;t=2;x=3"),
        ("too_long", "s=huge"),
        ("records", "s=abc;i=2;b=def;m=1;t=2;x=3"),
    ]
    with closing(opened(tmp_path, {IDENTITY: chunks[1].origin}, max_record=1000)) as found:
        assert messages(poll_records(found, 1)) == ["entry 2"]


def test_a_machine_without_a_journal_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with closing(opened(tmp_path)) as found:
        assert found.poll(2**20) == []
        message = found.report().message
    assert "the command journalctl cannot be started: not found" in message
    assert "this host may have no systemd: then use another input" in message


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b'{"A":[]}', b'{"A":[]}'),
        (b'{"A":[300]}', b'{"A":[300]}'),
        (b'{"A":[-1]}', b'{"A":[-1]}'),
        (b'{"A":[true]}', b'{"A":"\\u0001"}'),
        (b"[1]", b"[1]"),
        (b'{"A":', b'{"A":'),
        (b'{"A":"\\ud800"}', b'{"A":"\\ud800"}'),
        (b'{"A":[195,182,10]}', b'{"A":"\xc3\xb6\\n"}'),
    ],
)
def test_what_is_not_an_entry_stays_as_it_is(line: bytes, expected: bytes) -> None:
    assert plain_entry(line) == expected


def test_a_message_that_quotes_a_cursor_is_not_one() -> None:
    assert cursor_of(entry(1) + b"\n" + entry(2, MESSAGE='{"__CURSOR":"s=no"}') + b"\n") == "s=abc;i=2;b=def;m=1;t=2;x=3"
    assert cursor_of(b"") == ""


REMOTE = "/lib/systemd/systemd-journal-remote"
EXPORT = """__REALTIME_TIMESTAMP={time}
__MONOTONIC_TIMESTAMP={time}
_BOOT_ID=6c7c6013a26343b29e964691ff25d04c
_MACHINE_ID=a91663387a90b89f185d4e860000001a
_SYSTEMD_UNIT={unit}
PRIORITY=6
MESSAGE={message}

"""
BINARY = "MESSAGE\n\x05\0\0\0\0\0\0\0\xffa\nbc"
"""a name, the length in 8 bytes, the value"""


@pytest.mark.skipif(not Path(REMOTE).exists() or shutil.which("journalctl") is None, reason="no systemd-journal-remote")
def test_the_real_journalctl_reads_a_real_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its journal is made of the export format; a script of its name only adds where it is."""
    journal, folder = tmp_path / "journal", tmp_path / "bin"
    journal.mkdir()
    folder.mkdir()

    def write(numbers: range) -> None:
        text = "".join(
            EXPORT.format(
                time=1_700_000_000_000_000 + number, unit=f"{'even' if number % 2 == 0 else 'odd'}.service", message=f"entry {number}"
            )
            for number in numbers
        )
        command = [REMOTE, f"--output={journal / f'{numbers.start}.journal'}", "-"]
        text = text.replace("MESSAGE=entry 299", BINARY)
        subprocess.run(command, input=text.encode("latin-1"), check=True, capture_output=True)

    write(range(200))
    program = folder / "journalctl"
    program.write_text(f'#!/bin/sh\nexec {shutil.which("journalctl")} --directory={journal} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    with closing(opened(tmp_path, frame_bytes=20_000)) as found:
        chunks = poll_until(found, lambda chunks: sum(chunk.count for chunk in chunks) >= 200)
    assert messages([record for chunk in chunks for record in records_of(chunk)]) == [f"entry {number}" for number in range(200)]
    assert len(chunks) > 2
    read = chunks[0].count
    with closing(opened(tmp_path, {IDENTITY: chunks[0].origin})) as found:
        assert messages(poll_records(found, 200 - read)) == [f"entry {number}" for number in range(read, 200)]
        write(range(200, 300))
        assert messages(poll_records(found, 100)) == [*(f"entry {number}" for number in range(200, 299)), "\\xffa\nbc"]
    with closing(opened(tmp_path, options={"units": ["odd.service"]})) as found:
        assert messages(poll_records(found, 150))[:-1] == [f"entry {number}" for number in range(1, 299, 2)]
