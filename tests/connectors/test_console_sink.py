from pathlib import Path

import pyarrow as pa
import pytest

from scribengin.connectors.console.sink import ConsoleSink
from scribengin.connectors.contract import BatchId, ConnectorContext, Decided
from scribengin.core.types import parse_schema

SCHEMA = parse_schema("id BIGINT")


def decided(sink: ConsoleSink, number: int, *units: range) -> Decided:
    batch = BatchId("f", "q", "l", number, 1)
    receipts = []
    for unit, ids in enumerate(units):
        stream = sink.stream(batch, unit, "a", SCHEMA)
        stream.write(pa.record_batch({"id": pa.array(ids, pa.int64())}))
        receipts.append(stream.close())
    return Decided(batch, "h", tuple(receipts))


def test_the_first_rows_of_a_batch_are_shown_once_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    sink = ConsoleSink(ConnectorContext("shown", Path(), {"rows": 3}))
    batch = decided(sink, 0, range(2), range(2, 10))
    sink.publish(batch)
    sink.publish(batch)
    out, err = capsys.readouterr()
    assert out == ""
    assert err == 'q · sink "shown" · batch 0\n  {"id":0}\n  {"id":1}\n  {"id":2}\n  … and 7 more\n'
    assert [published.rows for published in sink.audit(lineage="l", decided=[batch])] == [10]


def test_an_empty_batch_and_one_that_was_shown_before_a_crash_show_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    sink = ConsoleSink(ConnectorContext("shown", Path(), {"rows": 3}))
    sink.publish(decided(sink, 0, range(0)))
    old = decided(sink, 1, range(1))
    sink.recover(old, lineage="l", before=2)
    sink.publish(old)
    assert capsys.readouterr().err == ""


def test_receipts_stay_small_however_many_rows_there_are() -> None:
    sink = ConsoleSink(ConnectorContext("shown", Path(), {"rows": 20}))
    assert decided(sink, 0, range(100_000)).receipts[0].bytes < 1000
