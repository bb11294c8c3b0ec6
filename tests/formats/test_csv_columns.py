"""The quick way of CSV says what the long way says, of every file."""

from __future__ import annotations

from random import Random

import pytest
from csv_files import decoded, make_file

from scribengin.core.types import parse_schema
from scribengin.formats.csv import CsvDecoder
from scribengin.formats.csv_records import RFC_4180, CsvBlock, end_by_records, whole_records_end


def compare(seeds: range, *, others: bool = False) -> None:
    blocks = quick = 0
    for seed in seeds:
        made = make_file(Random(seed), others=others)
        by_quick, quickly = decoded(made, quick=True)
        by_long, _ = decoded(made, quick=False)
        assert by_quick == by_long, f"seed {seed}: {made}"
        blocks += len(by_long) // 3
        quick += quickly
    assert (blocks / 6 if others else blocks / 2) < quick < blocks, "both ways are to be taken"


def test_both_ways_say_the_same_of_made_up_files() -> None:
    compare(range(300))


def test_both_ways_say_the_same_in_any_dialect() -> None:
    compare(range(300), others=True)


def test_both_ways_take_a_null_that_is_escaped_in_quotes_for_one() -> None:
    for seed in (9915, 39024):
        made = make_file(Random(seed), others=True)
        assert decoded(made, quick=True)[0] == decoded(made, quick=False)[0]


@pytest.mark.long
@pytest.mark.parametrize("part", range(20))
def test_both_ways_say_the_same_of_fifty_thousand_dialects(part: int) -> None:
    compare(range(1000 + part * 2500, 1000 + (part + 1) * 2500), others=True)


@pytest.mark.long
@pytest.mark.parametrize("part", range(20))
def test_both_ways_say_the_same_of_a_hundred_thousand_files(part: int) -> None:
    compare(range(1000 + part * 5000, 1000 + (part + 1) * 5000))


def quickly(schema: str, data: bytes) -> bool:
    """Whether the block goes the quick way."""
    quick = CsvDecoder(parse_schema(schema)).quick
    assert quick is not None
    return quick.decode(CsvBlock("f", data)) is not None


@pytest.mark.parametrize(
    ("data", "is_quick"),
    [
        (b"1,a\n2,b\n", True), (b"1,a\r\n2,b", True), (b'1,"a,\n""b"""\n2,\n', True), ("1,é\n".encode(), True), (b"1.0,a\n2,b\n", True),
        (b'1,a"b\n', False), (b'1,"a"b\n', False), (b'1,"a\n', False), (b"1,a\r2,b\n", False), (b"1,a\r\r\n", False), (b"1\n", False),
        (b"1,a\n\n2,b\n", False), (b"\r\n1,a\r\n", False), (b"1,\xff\n", False), (b"\xef\xbb\xbf1,a\n", False), (b"", False),
        (b'"1",', False), (b'"1",\n', True),
    ],
)  # fmt: skip
def test_a_block_that_is_not_in_order_goes_the_long_way(data: bytes, is_quick: bool) -> None:
    assert quickly("n INT, t STRING", data) is is_quick


def test_digits_that_arrow_would_lose_are_a_dead_letter() -> None:
    found = CsvDecoder(parse_schema("d DECIMAL(38,10)")).columns(CsvBlock("f", b"1" * 30 + b"\n"))
    assert [bad.reason for bad in found.bad] == ["out-of-range"]


@pytest.mark.parametrize(
    "data", [b'1,"a\n2,b\n', b'"a\n""b\n",1\n2,"', b'1,"a"\r', b'1,"a"\rx\n2,3\n', b'a"b\n"c\n', b'"\n\n",""\n"\n', b'"a""']
)
def test_the_last_whole_record_ends_where_records_one_by_one_say(data: bytes) -> None:
    for size in range(len(data) + 1):
        assert whole_records_end(data[:size], RFC_4180) == end_by_records(data[:size], data.rfind(b"\n", 0, size) + 1, RFC_4180)
