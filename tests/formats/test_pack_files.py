"""Files of packs: whole frames are read, what is cut off or cannot be is one bad record at the end."""

from __future__ import annotations

import io
import struct
import tracemalloc

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scribengin.core.types import parse_schema
from scribengin.formats.contract import RecordPlace
from scribengin.formats.origins import Origins
from scribengin.formats.packs import FRAME_BYTES, PackDecoder, PackFileEncoder, PackMaker, damaged_block, pack_frames, read_pack

SCHEMA = parse_schema("id BIGINT")
BATCH = pa.record_batch({"id": pa.array(range(9), pa.int64())})
ZEROS = np.zeros(9, np.int32)
PACKS = PackMaker(SCHEMA, codec="none", keyring=None, rows=3, sign="e").make(BATCH, Origins(["t@"], ZEROS, np.arange(9), ZEROS, [()]))[0]


def written() -> bytes:
    file = io.BytesIO()
    encoder = PackFileEncoder(file)
    sizes = [encoder.write(packed.value) for packed in PACKS]
    encoder.close()
    assert sum(sizes) == len(file.getvalue())
    return file.getvalue()


WHOLE = written()
STARTS = [0, len(WHOLE) // 3, len(WHOLE) // 3 * 2]


def read(data: bytes, start: int = 0, end: int | None = None) -> tuple[list[int], list[tuple[str, RecordPlace]]]:
    """(ids of the rows, reason and place of what is bad); what is bad must come last."""
    ids: list[int] = []
    bad: list[tuple[str, RecordPlace]] = []
    for offset, value, fault in pack_frames(io.BytesIO(data), start, len(data) if end is None else end):
        place = RecordPlace("part-1.packs", offset=offset)
        block = read_pack(value, None, place) if fault is None else damaged_block(place, fault, value)
        found = PackDecoder(SCHEMA).rows(block)
        ids += [row["id"] for row in found.rows]
        bad += [(each.reason, block.place(each.ordinal)) for each in found.bad]
        assert len(block.payload(0)) <= 64 * 1024
    return ids, bad


def test_what_was_written_is_read() -> None:
    assert read(WHOLE) == (list(range(9)), [])
    assert [frame.offset for frame in pack_frames(io.BytesIO(WHOLE), 0, len(WHOLE))] == STARTS
    assert PackFileEncoder.suffix == ".packs"


def test_an_empty_file_has_no_rows_and_nothing_bad() -> None:
    assert read(b"") == ([], [])


def test_a_range_begins_and_ends_at_frames() -> None:
    assert read(WHOLE, STARTS[1], STARTS[2]) == ([3, 4, 5], [])


def test_every_cut_within_the_last_frame_is_one_bad_record() -> None:
    for end in range(STARTS[2] + 1, len(WHOLE)):
        expected = ([0, 1, 2, 3, 4, 5], [("truncated", RecordPlace("part-1.packs", offset=STARTS[2]))])
        assert read(WHOLE[:end]) == expected
        assert read(WHOLE, end=end) == expected


def test_a_file_that_is_shorter_than_it_was_is_one_bad_record() -> None:
    assert read(WHOLE[:-5], end=len(WHOLE))[1] == [("truncated", RecordPlace("part-1.packs", offset=STARTS[2]))]
    assert read(WHOLE, end=len(WHOLE) + 100) == (list(range(9)), [("truncated", RecordPlace("part-1.packs", offset=len(WHOLE)))])


def test_a_damaged_pack_costs_its_own_rows_only() -> None:
    changed = bytearray(WHOLE)
    changed[STARTS[2] - 1] ^= 1
    assert read(bytes(changed)) == ([0, 1, 2, 6, 7, 8], [("damaged", RecordPlace("part-1.packs", offset=STARTS[1]))])


@pytest.mark.parametrize("length", [0, 1, 15, FRAME_BYTES + 1, 2**32 - 1])
def test_a_length_that_cannot_be_ends_the_file_there(length: int) -> None:
    changed = WHOLE[: STARTS[1]] + struct.pack("<I", length) + WHOLE[STARTS[1] + 4 :]
    assert read(changed) == ([0, 1, 2], [("damaged", RecordPlace("part-1.packs", offset=STARTS[1]))])


def test_a_file_of_zeros_is_one_bad_record() -> None:
    assert read(bytes(100_000)) == ([], [("damaged", RecordPlace("part-1.packs", offset=0))])


def test_flipping_any_one_byte_of_a_file_is_noticed() -> None:
    for at in range(len(WHOLE)):
        changed = bytearray(WHOLE)
        changed[at] ^= 0x41
        ids, bad = read(bytes(changed))
        assert bad
        assert set(ids) <= set(range(9)) - {at // STARTS[1] * 3}
        assert len(ids) == len(set(ids))


@settings(max_examples=200)
@given(st.binary(max_size=200), st.integers(0, len(WHOLE)), st.integers(0, 50))
def test_random_changes_never_raise_and_never_double_a_row(piece: bytes, at: int, cut: int) -> None:
    changed = WHOLE[:at] + piece + WHOLE[at + cut :]
    ids, bad = read(changed)
    assert len(ids) == len(set(ids))
    assert bad or ids == list(range(9)) or changed in (WHOLE[:n] for n in [*STARTS, len(WHOLE)])


def test_a_length_takes_no_more_memory_than_the_file_has() -> None:
    data = WHOLE[: STARTS[1]] + struct.pack("<I", FRAME_BYTES) + b"SGP"
    tracemalloc.start()
    assert read(data)[1][0][0] == "truncated"
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000


def test_what_no_frame_can_hold_is_not_written() -> None:
    with pytest.raises(ValueError, match="found 0"):
        PackFileEncoder(io.BytesIO()).write(b"")
