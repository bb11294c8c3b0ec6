"""A session is warmed up without a trace: no Query is left, and none of its files."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING

from scribengin.spark import warm_up
from scribengin.spark.source_input import clock

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from pyspark.sql import DataFrame, SparkSession


def test_a_batch_goes_through_and_nothing_of_it_is_left(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    begun: list[str] = []

    def told(session: SparkSession) -> DataFrame:
        begun.append("a stream")
        return clock(session)

    monkeypatch.setattr(warm_up, "clock", told)
    assert warm_up.warm_up_streams(spark)
    assert begun == ["a stream"]
    assert [query.name for query in spark.streams.active] == []
    assert list(tmp_path.iterdir()) == []
