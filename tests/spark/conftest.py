"""One Spark session for all tests of this folder; each test has a flow folder of its own."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from scribengin.local.contract import RunResult, RunSettings
from scribengin.local.run import run_flow
from scribengin.spark.session import start_session

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("spark")
    session = start_session("tests", master="local[2,2]", memory="", conf={}, folder=folder)
    yield session
    session.stop()


@dataclass
class FlowFolder:
    """A flow in a folder: write its parts, run it, read what came of it."""

    path: Path
    spark: SparkSession
    results: list[RunResult] = field(default_factory=list)

    def flow(self, text: str) -> FlowFolder:
        (self.path / "flow.yaml").write_text(text)
        return self

    def steps(self, text: str) -> FlowFolder:
        (self.path / "steps.py").write_text(text)
        return self

    def data(self, name: str, rows: Iterable[dict[str, Any] | str]) -> FlowFolder:
        place = self.path / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
        return self

    def run(self, **settings: Any) -> RunResult:
        result = run_flow(self.path / "flow.yaml", RunSettings(once=True, **settings), lambda view: None, spark=self.spark)
        self.results.append(result)
        return result

    def read(self, folder: str) -> list[dict[str, Any]]:
        """All rows of an output folder, in the order of batch, unit, row."""
        rows: list[dict[str, Any]] = []
        for part in sorted((self.path / folder).glob("**/part-*")):
            if part.suffix == ".parquet":
                rows += pq.ParquetFile(part).read().to_pylist()
            else:
                rows += [json.loads(line) for line in part.read_text().splitlines()]
        return rows


@pytest.fixture
def folder(tmp_path: Path, spark: SparkSession) -> FlowFolder:
    return FlowFolder(tmp_path, spark)
