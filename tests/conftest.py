"""What every test gets: none of the caller's Scribengin settings, one hypothesis profile, and on demand a Spark session and a flow folder.

Spark is imported by the fixtures that need it: most tests do without.
"""

from __future__ import annotations

import compileall
import gc
import json
import os
import sys
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpcore2
import pytest
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling

import harness
import scribengin
from harness.faults.java import java_settings
from scribengin.core.java import find_java
from scribengin.spark.class_archive import VARIABLE, archive_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import SparkSession

    from scribengin.local.contract import RunResult, RunView

_DONT_WRITE, sys.dont_write_bytecode = sys.dont_write_bytecode, False
"""while tests are collected: pytest rewrites the checks of each file, half a minute in all, and keeps that for the next process only so"""

pytest_plugins = (
    "tests.plugins.selection",
    "tests.plugins.order",
    "tests.plugins.progress",
    "tests.plugins.provision",
    "tests.plugins.remedies",
)

settings.register_profile("scribengin", deadline=None, derandomize="CI" in os.environ, print_blob=True)
settings.load_profile("scribengin")


_ONE_SERVER = frozenset({"cassandra", "hbase", "kafka", "objects", "opensearch"})
"""folders whose tests share a server that takes half a minute to start: one process has all of them, so that it starts once"""


def pytest_configure(config: pytest.Config) -> None:
    """Python leaves no compiled modules where PYTHONDONTWRITEBYTECODE says so, and each of a thousand processes compiles 300 anew."""
    gc.disable()
    if not hasattr(config, "workerinput"):
        for package in (scribengin, harness):
            compileall.compile_dir(Path(package.__file__ or "").parent, quiet=2)


def pytest_collection_finish() -> None:
    """What was collected stays until the end: Python need not look through it for cycles, now or later."""
    sys.dont_write_bytecode = _DONT_WRITE
    gc.freeze()
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling:
    """The tests of a file stay in one process, and those of a folder whose server is dear."""

    class ByServer(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            folder = Path(file).parent.name
            return folder if folder in _ONE_SERVER else file

    return ByServer(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where processes share the tests, file by file, the longest files come first: one that began last would run on alone.

    Those of Kafka come before all others, so that no process keeps its brokers for longer than they last.
    """
    from tests.plugins.selection import LONGEST  # a plugin of this file: pytest imports it first, to rewrite its checks

    if hasattr(config, "workerinput"):
        tests = Path(__file__).parent
        ranks = {tests / name: rank for rank, name in enumerate(LONGEST)}
        items.sort(key=lambda item: (item.path.parent != tests / "connectors" / "kafka", ranks.get(item.path, len(ranks))))


@pytest.fixture(autouse=True)
def _no_settings_of_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("SCRIBENGIN_") and name != VARIABLE:
            monkeypatch.delenv(name)


@pytest.fixture
def public_path(tmp_path: Path) -> Path:
    """The same, which every user may enter: pytest's folders are its user's alone, two of them, three where processes share the tests."""
    for folder in (tmp_path, *tmp_path.parents[:3]):
        mode = folder.stat().st_mode
        if mode & 0o055 != 0o055:
            folder.chmod(mode | 0o055)
    return tmp_path


@pytest.fixture(scope="session", autouse=True)
def _java_that_starts_fast() -> Iterator[None]:
    """For every Spark that a test starts, here or in other processes: most live for seconds, and a second compiler doubles their start.

    The archive of Spark's classes that `make setup` has made is used from where it is; no test makes one in the background.
    """
    with pytest.MonkeyPatch.context() as patch:
        archive = archive_path(find_java())
        for name, value in java_settings(archive if archive.exists() else None).items():
            patch.setenv(name, value)
        patch.setenv(VARIABLE, "use")
        yield


@pytest.fixture(scope="session", autouse=True)
def _trusted_certificates_are_read_once() -> Iterator[None]:
    """Each HTTP client of the library reads all that the machine trusts, 40 ms of a core; most of those that tests make speak no TLS."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(httpcore2, "default_ssl_context", cache(httpcore2.default_ssl_context))
        yield


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One for all tests of this process: it takes seconds to start."""
    from scribengin.spark.session import start_session

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
        text = "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)
        if place.exists():
            place.write_text(text)
        else:  # a flow that runs may see no part of it
            draft = place.with_name(f".{place.name}")
            draft.write_text(text)
            draft.rename(place)
        return self

    def run(self, watch: Callable[[RunView], None] = lambda view: None, **settings: Any) -> RunResult:
        from scribengin.local.contract import RunSettings
        from scribengin.local.run import run_flow

        result = run_flow(self.path / "flow.yaml", RunSettings(once=True, **settings), watch, spark=self.spark)
        self.results.append(result)
        return result

    def read(self, folder: str) -> list[dict[str, Any]]:
        """All rows of an output folder, in the order of batch, unit, row."""
        import pyarrow.parquet as pq

        rows: list[dict[str, Any]] = []
        for part in sorted((self.path / folder).glob("**/part-*")):
            if part.suffix == ".parquet":
                rows += pq.ParquetFile(part).read().to_pylist()
            else:
                rows += [json.loads(line) for line in part.read_text().splitlines()]
        return rows


@pytest.fixture(scope="session")
def flow_folder() -> type[FlowFolder]:
    """The class, for fixtures that keep a folder over several tests."""
    return FlowFolder


@pytest.fixture
def folder(tmp_path: Path, spark: SparkSession) -> FlowFolder:
    return FlowFolder(tmp_path, spark)
