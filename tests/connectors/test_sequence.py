"""The sequence source: the same rows whoever asks, and no faster than its rate."""

from __future__ import annotations

import datetime as dt
import time
from pathlib import Path
from typing import Any

import pytest

from scribengin.connectors.catalog import open_source
from scribengin.connectors.contract import BatchLimits, ConnectorContext, SourceStream
from scribengin.core.errors import SourceError


def source_of(**options: Any) -> Any:
    return open_source("sequence", ConnectorContext("numbers", Path(), options))


def rows(source: Any, streams: list[SourceStream]) -> list[dict[str, Any]]:
    decoder = source.decoder()
    return [row for stream in streams for block in source.read(stream) for row in decoder.rows(block).rows]


def test_rows_have_their_id_and_its_time() -> None:
    source = source_of(rows=3, start="2026-01-01T01:00:00+01:00", step=0.5)
    at = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    found = rows(source, source.reader().split(BatchLimits(), final=True))
    assert found == [{"id": n, "ts": at + dt.timedelta(seconds=n / 2)} for n in range(3)]


def test_a_batch_is_cut_into_streams_and_the_next_goes_on() -> None:
    source = source_of(rows=200_000, max_rows=150_000, splits=4)
    reader = source.reader()
    batches = [reader.split(BatchLimits()) for _ in range(3)]
    assert [[stream.rows for stream in batch] for batch in batches] == [[37_500] * 4, [12_500] * 4, []]
    assert [row["id"] for batch in batches for row in rows(source, batch)] == list(range(200_000))
    assert reader.backlog().rows == 0


def test_a_restored_reader_goes_on_behind_the_last_row() -> None:
    source = source_of(rows=10, max_rows=4)
    entry = source.reader().split(BatchLimits())
    reader = source.reader()
    reader.restore([entry])
    assert [row["id"] for row in rows(source, reader.split(BatchLimits(max_rows=2)))] == [4, 5]


def test_a_rate_is_kept_and_what_is_due_is_not_lost() -> None:
    reader = source_of(rate=1000).reader()
    began = time.monotonic()
    assert reader.split(BatchLimits()) == []
    count = 0
    while (passed := time.monotonic() - began) < 0.3:
        count += sum(stream.rows or 0 for stream in reader.split(BatchLimits()))
        assert count <= (time.monotonic() - began) * 1000
    count += sum(stream.rows or 0 for stream in reader.split(BatchLimits()))
    assert count >= passed * 1000 - 200
    assert reader.backlog().more


@pytest.mark.parametrize("options", [{}, {"rate": 1000}])
def test_an_endless_sequence_ends_where_it_is_when_it_is_drained(options: dict[str, Any]) -> None:
    reader = source_of(**options).reader()
    reader.split(BatchLimits(max_rows=3))
    assert reader.split(BatchLimits(), final=True) == []
    assert not reader.backlog().rows, "else a drain waits for more"
    assert reader.split(BatchLimits()) == []


@pytest.mark.parametrize(
    ("options", "message"), [({"start": "soon"}, "is not a valid time"), ({"rows": 10**12, "step": 86400.0}, "after the year 9999")]
)
def test_options_that_cannot_be_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SourceError, match=message):
        source_of(**options)


def test_rows_know_their_number_and_their_json() -> None:
    source = source_of(rows=100_000, splits=1)
    block = list(source.read(source.reader().split(BatchLimits())[0]))[1]
    assert block.place(0).row == 65_536
    assert block.payload(0) == b'{"id":65536,"ts":"2026-01-01T18:12:16.000000Z"}'
