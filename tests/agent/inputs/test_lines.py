"""Lines are cut from streams without a loss, wherever the stream is cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from scribengin.agent.inputs.line_streams import FIRST_BYTES, LineCutter, OriginJoiner, RecordBlock, origin_of
from tests.agent.inputs.lanes import lane_of, records_of, splits


def cut(parts: list[bytes], *, max_record: int = 1000, frame_bytes: int = 1000, carriage_returns: bool = False) -> list[RecordBlock]:
    cutter = LineCutter(lane_of("tcp", max_record=max_record, frame_bytes=frame_bytes), carriage_returns=carriage_returns)
    return [block for part in parts for block in cutter.feed(part)] + cutter.end()


def lines_of(blocks: list[RecordBlock]) -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []
    for block in blocks:
        lines = block.payload[:-1].split(b"\n") if block.kind == "records" else [block.payload]
        assert len(lines) == block.count
        found += [(block.kind, line) for line in lines]
    return found


_STREAM = st.lists(st.binary(max_size=10).map(lambda part: part.replace(b"a", b"\n")), max_size=10)


@given(_STREAM, st.integers(1, 12), st.integers(1, 20))
def test_every_line_is_found_in_its_order_with_its_kind(parts: list[bytes], max_record: int, frame_bytes: int) -> None:
    blocks = cut(parts, max_record=max_record, frame_bytes=frame_bytes)
    lines = b"".join(parts).split(b"\n")
    if not lines[-1]:
        lines.pop()
    assert lines_of(blocks) == [("records" if len(line) <= max_record else "too_long", line[:max_record]) for line in lines]
    for block in blocks:
        assert block.kind == "too_long" or len(block.payload) <= frame_bytes or block.count == 1


def test_a_line_may_be_cut_at_every_byte() -> None:
    for before, after in splits(b"one\r\n\nthree\r\nfour"):
        found = lines_of(cut([before, after], carriage_returns=True))
        assert found == [("records", line) for line in (b"one", b"", b"three", b"four")]


def test_of_a_huge_line_only_the_first_bytes_are_kept() -> None:
    cutter = LineCutter(lane_of("tcp", max_record=10_000))
    for _ in range(100):
        assert cutter.feed(b"x" * 1000) == []
        assert cutter.kept <= 10_000
    (huge, after) = cutter.feed(b"end\nafter\n")
    assert (huge.kind, huge.payload) == ("too_long", b"x" * FIRST_BYTES)
    assert after.payload == b"after\n"


@given(st.lists(st.tuples(st.sampled_from("ab"), st.lists(st.binary(max_size=5), min_size=1, max_size=4)), max_size=8), st.integers(1, 30))
def test_joined_records_keep_the_order_of_each_origin(added: list[tuple[str, list[bytes]]], frame_bytes: int) -> None:
    lane = lane_of("syslog", frame_bytes=frame_bytes)
    joiner = OriginJoiner(lane)
    expected: dict[str, list[bytes]] = {"a": [], "b": []}
    for name, records in added:
        joiner.add_records(origin_of(lane, name), records)
        expected[name] += records
    found: dict[str, list[bytes]] = {"a": [], "b": []}
    for chunk in joiner.take():
        found[chunk.origin.file] += records_of(chunk)
        assert chunk.count == 1 or len(chunk.payload) - chunk.count * (len(chunk.mark) - 1) <= frame_bytes
    assert found == expected
    assert joiner.take() == []
