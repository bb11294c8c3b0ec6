"""Chunks become frames, and a lane keeps to its limits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from scribengin.agent.inputs import RecordChunk
from scribengin.agent.joining import ChunkJoiner, LaneThrottle
from scribengin.wire.frames import FrameOrigin


def chunk(payload: bytes, at: int, *, file: str = "f", line: int = 0, **changes: object) -> RecordChunk:
    origin = FrameOrigin(file=file, identity=file, offset=at, end=at + len(payload), line=line)
    return RecordChunk(payload, payload.count(b"\n"), origin, at, **changes)  # type: ignore[arg-type]


def test_small_chunks_that_follow_each_other_are_joined_until_the_linger_is_over() -> None:
    joiner = ChunkJoiner(rows=100, bytes=1000, linger_s=0.2)
    called: list[int] = []
    assert joiner.add(chunk(b"a\n", 0, line=1, on_durable=lambda: called.append(1)), 10.0) == []
    assert joiner.add(chunk(b"b\nc\n", 2, line=2, on_durable=lambda: called.append(2)), 10.1) == []
    assert joiner.due(10.19) == []
    assert abs((joiner.due_in(10.1) or 0) - 0.1) < 1e-6
    (made,) = joiner.due(10.2)
    assert (made.chunk.payload, made.chunk.count) == (b"a\nb\nc\n", 3)
    assert (made.chunk.origin.offset, made.chunk.origin.end, made.chunk.origin.line, made.chunk.origin.lines) == (0, 6, 1, 0)
    assert made.chunk.time_ms == 2
    for call in made.done:
        call()
    assert called == [1, 2]
    assert joiner.due_in(10.2) is None


def test_a_chunk_that_does_not_follow_ends_the_one_before() -> None:
    for other in (chunk(b"b\n", 7), chunk(b"b\n", 2, mark=b"\x1e"), chunk(b"b\n", 2, kind="too_long"), chunk(b"b\n", 2, line=9)):
        joiner = ChunkJoiner(rows=100, bytes=1000, linger_s=1.0)
        joiner.add(chunk(b"a\n", 0), 0.0)
        made = joiner.add(other, 0.0) + joiner.take_all()
        assert [each.chunk.payload for each in made] == [b"a\n", b"b\n"]


def test_a_full_chunk_does_not_wait() -> None:
    joiner = ChunkJoiner(rows=4, bytes=1000, linger_s=1.0)
    assert len(joiner.add(chunk(b"a\nb\nc\n", 0), 0.0)) == 1
    joiner = ChunkJoiner(rows=1000, bytes=10, linger_s=1.0)
    assert len(joiner.add(chunk(b"aaaaaaa\n", 0), 0.0)) == 1


def test_what_a_file_gave_before_it_was_renamed_goes_before_what_it_gives_then() -> None:
    """Else the position of the file would be behind records that are not in the log yet."""
    joiner = ChunkJoiner(rows=1000, bytes=1000, linger_s=1.0)
    assert joiner.add(chunk(b"a\n", 0), 0.0) == []
    renamed = chunk(b"x" * 600 + b"\n", 2)
    renamed.origin.file = "f.1"
    made = joiner.add(renamed, 0.0)
    assert [(each.chunk.origin.file, each.chunk.origin.offset) for each in made] == [("f", 0), ("f.1", 2)]


def test_lines_of_records_of_several_lines_are_added_up() -> None:
    joiner = ChunkJoiner(rows=100, bytes=1000, linger_s=1.0)
    first, second = chunk(b"a\n", 0, line=1), chunk(b"b\n", 2, line=4)
    first.origin.lines, second.origin.lines = 3, 2
    assert joiner.add(first, 0.0) + joiner.add(second, 0.0) == []
    (made,) = joiner.take_all()
    assert (made.chunk.count, made.chunk.origin.line, made.chunk.origin.lines) == (2, 1, 5)


@given(st.lists(st.tuples(st.sampled_from("fgh"), st.binary(min_size=1, max_size=30), st.booleans()), max_size=60))
def test_no_record_is_lost_and_each_file_keeps_its_order(pieces: list[tuple[str, bytes, bool]]) -> None:
    joiner = ChunkJoiner(rows=5, bytes=40, linger_s=0.5)
    ends = {"f": 0, "g": 0, "h": 0}
    sent: dict[str, bytes] = {"f": b"", "g": b"", "h": b""}
    got = dict(sent)
    made = []
    for now, (file, raw, gap) in enumerate(pieces):
        payload = raw.replace(b"\n", b"") + b"\n"
        made += joiner.add(chunk(payload, ends[file] + 5 * gap, file=file), now / 10)
        ends[file] += len(payload) + 5 * gap
        sent[file] += payload
        made += joiner.due(now / 10)
    made += joiner.take_all()
    for each in made:
        assert each.chunk.count == each.chunk.payload.count(b"\n") <= 5
        got[each.chunk.origin.file] += each.chunk.payload
    assert got == sent


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_limit_holds_on_the_average_and_saves_nothing_up() -> None:
    clock = Clock()
    throttle = LaneThrottle(clock, rows=100.0)
    clock.now = 1000.0
    rows = 0
    while clock.now < 1010.0:
        if (wait := throttle.wait_s()) > 0:
            clock.now += wait
            continue
        throttle.read(30, 3000)
        rows += 30
    assert 950 <= rows <= 1050


def test_the_stricter_of_two_limits_holds() -> None:
    clock = Clock()
    throttle = LaneThrottle(clock, rows=1000.0, bytes=100.0)
    throttle.read(10, 200)
    assert throttle.wait_s() == 2.0


def test_a_limit_changes_at_once() -> None:
    clock = Clock()
    throttle = LaneThrottle(clock, rows=1.0)
    throttle.read(3600, 1)
    assert throttle.wait_s() == 3600.0
    throttle.change(rows=0.0, bytes=0.0)
    assert throttle.wait_s() == 0.0
    assert throttle.most_bytes(1000) == 1000
    throttle.change(rows=0.0, bytes=400.0)
    assert throttle.most_bytes(1000) == 100
