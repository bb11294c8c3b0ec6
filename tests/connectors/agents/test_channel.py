"""What a channel of agents promises, whatever it is stored in: here a folder; tests/connectors/kafka runs the same over topics."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from scribengin.connectors.agents.channel import channel_of, report_committed
from scribengin.connectors.agents.contract import CommitReport
from scribengin.connectors.agents.options import SOURCE
from scribengin.connectors.contract import SourceStream
from scribengin.core.errors import SourceError
from scribengin.testing.conformance_sources import Bench, check_changing_source
from scribengin.wire.frames import FrameHead, FrameOrigin, encode_frame
from tests.connectors.agents.promises import PROMISES
from tests.connectors.agents.sending import READER, arrival, folder_place, frame, ids, lost, numbered, rows_of, take

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.connectors.agents.sending import AgentsPlace


@pytest.fixture
def place(tmp_path: Path) -> Iterator[AgentsPlace]:
    made = folder_place(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_a_channel_in_a_folder_promises(promise: Any, place: AgentsPlace) -> None:
    promise(place)


def test_it_keeps_the_contract_of_sources_while_runs_come(place: AgentsPlace) -> None:
    sent = 0

    def add(rows: int) -> None:
        nonlocal sent
        place.writer().append([numbered(sent, sent + rows)])
        sent += rows

    def add_part(rows: int) -> None:
        other = numbered(1000, 1000 + rows, agent="web2", incarnation="b", committed=1000)
        place.writer("g2").append([other])

    check_changing_source(Bench(place.source, add, SOURCE, place.options, add_part))


def test_records_with_line_feeds_in_them_are_one_record_each(tmp_path: Path) -> None:
    place = folder_place(tmp_path, format="text")
    place.schema = "text STRING"
    records = [b"Traceback:\n  line 1\n  line 2", b"one line"]
    place.writer().append([arrival(frame(0, records), 0, 2)])
    source = place.source()
    assert [row["text"] for row in rows_of(source, take(source.reader()))] == [record.decode() for record in records]
    place.close()


def test_json_over_several_lines_is_one_record(place: AgentsPlace) -> None:
    place.writer().append([arrival(frame(0, [b'{\n"id": 1}', b'{"id": 2}']), 0, 2)])
    source = place.source()
    assert ids(source, take(source.reader())) == [1, 2]


def test_metadata_says_where_a_record_was_read(place: AgentsPlace) -> None:
    named = {"agent": "agent", "host": "host", "file": "file", "at": "offset", "n": "line", "number": "number", "tags": "tags"}
    data = frame(7, [b'{"id": 1}', b'{"id": 2}'], host="h1", offset=100, line=12, tags={"site": "berlin"})
    place.writer().append([arrival(data, 7, 9, committed=7)])
    source = place.source(metadata=named)
    first, second = rows_of(source, take(source.reader()))
    assert first == {
        **{"id": 1, "agent": "web1", "host": "h1", "file": "/log", "at": 100, "n": 12, "number": 7, "tags": {"site": "berlin"}}
    }
    assert (second["at"], second["n"], second["number"]) == (110, 13, 8)


def test_a_record_that_was_too_long_is_a_dead_letter_with_its_place(place: AgentsPlace) -> None:
    head = FrameHead("too_long", "none", 0, 1, 0, 0, b"\n", FrameOrigin(file="/log", offset=10, end=50_000_010, line=3))
    place.writer().append([arrival(encode_frame(head, b"first bytes"), 0, 1)])
    source = place.source()
    (block,) = source.read(take(source.reader())[0])
    found = source.decoder().rows(block)
    assert [(bad.reason, found.rows) for bad in found.bad] == [("too-long", [])]
    assert "50,000,000 bytes" in found.bad[0].message
    assert (block.place(0).file, block.place(0).offset, block.payload(0)) == ("web1:/log", 10, b"first bytes")


def test_an_index_line_that_is_torn_was_never_answered_and_is_not_read(place: AgentsPlace, tmp_path: Path) -> None:
    place.writer().append([numbered(0, 3)])
    (index,) = (tmp_path / "channel/segments").glob("*.index")
    whole = index.read_bytes()
    source = place.source()
    for cut in range(len(whole)):
        index.write_bytes(whole[:cut])
        assert take(source.reader()) == []
    index.write_bytes(whole)
    assert ids(source, take(source.reader())) == [0, 1, 2]


def test_frames_that_are_shorter_than_their_index_stop_the_reader(place: AgentsPlace, tmp_path: Path) -> None:
    place.writer().append([numbered(0, 3)])
    source = place.source()
    streams = take(source.reader())
    (data,) = (tmp_path / "channel/segments").glob("*.frames")
    data.write_bytes(data.read_bytes()[:-1])
    with pytest.raises(SourceError, match="its index has records up to byte"):
        ids(source, streams)
    damaged = bytearray(numbered(0, 3).frames)
    damaged[-2] ^= 1
    data.write_bytes(damaged)
    with pytest.raises(SourceError, match="the checksum of a frame differs"):
        ids(source, streams)


_APPENDING = """
import sys
from pathlib import Path
from tests.connectors.agents.sending import folder_place, numbered
place = folder_place(Path(sys.argv[1]))
writer, first = place.writer(), int(sys.argv[2])
while True:
    writer.append([numbered(first, first + 3)])
    first += 3
    print(first, flush=True)
"""


def test_what_a_killed_gateway_has_answered_is_there_and_the_next_one_goes_on(place: AgentsPlace, tmp_path: Path) -> None:
    source, answered = place.source(), 0
    for _ in range(4):
        child = subprocess.Popen([sys.executable, "-c", _APPENDING, str(tmp_path), str(answered)], stdout=subprocess.PIPE, text=True)
        try:
            assert child.stdout is not None
            for _ in range(20):
                answered = int(child.stdout.readline())
            os.kill(child.pid, signal.SIGKILL)
            rest = child.stdout.read().split()
            answered = int(rest[-1]) if rest and child.wait() else answered
        finally:
            child.kill()
            child.wait()
            assert child.stdout is not None
            child.stdout.close()
        stored = place.writer("other").stored()["web1", "a"]
        # one append may be durable although the kill came before its answer
        assert answered <= stored <= answered + 3
        answered = stored
    assert ids(source, take(source.reader(), most=1 << 30)) == list(range(answered))


def test_two_gateways_that_write_at_once_lose_nothing(place: AgentsPlace) -> None:
    def write(name: str) -> None:
        writer = place.writer(name)
        for first in range(0, 200, 4):
            writer.append([numbered(first, first + 4, agent=name)])

    place.writer("g1"), place.writer("g2")
    threads = [threading.Thread(target=write, args=(name,)) for name in ("g1", "g2")]
    source = place.source()
    reader = source.reader()
    for thread in threads:
        thread.start()
    found: list[int] = []
    while any(thread.is_alive() for thread in threads) or len(found) < 400:
        found += ids(source, take(reader))
    assert sorted(found) == sorted([*range(200), *range(200)])


def test_segments_go_when_all_is_committed_and_the_retention_is_over(tmp_path: Path) -> None:
    place = folder_place(tmp_path, channel={"path": "channel", "retention": 0.0})
    old = place.writer("old")
    old.append([numbered(0, 3)])
    old.close()
    for path in (tmp_path / "channel/segments").iterdir():
        os.utime(path, (0, 0))
    writer = place.writer("new")
    writer.stored()
    writer.committed()
    assert len(list((tmp_path / "channel/segments").iterdir())) == 2
    channel = channel_of(SOURCE.filled(place.options), tmp_path, "access")
    report_committed(channel, "access", CommitReport(READER, {"web1": {"a": 3}}))
    writer.committed()
    assert not list((tmp_path / "channel/segments").iterdir())
    place.close()


def test_lost_records_are_told_and_leave_no_gap(place: AgentsPlace) -> None:
    data = numbered(0, 2).frames + lost(2, 5, "the log was damaged") + numbered(7, 8).frames
    place.writer().append([arrival(data, 0, 8)])
    source = place.source()
    streams = take(source.reader())
    assert ids(source, streams) == [0, 1, 7]
    assert [(stream.rows, stream.lost) for stream in streams if stream.lost] == [
        (5, "5 records of agent web1 do not exist any more: the log was damaged")
    ]
    assert [SourceStream.from_json(json.loads(json.dumps(stream.as_json()))) for stream in streams] == streams
