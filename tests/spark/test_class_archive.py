"""The archive of Spark's classes: made by a running JVM, taken by the next one, left alone where a person wants another or none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from scribengin.core.java import find_java
from scribengin.spark.class_archive import archive_options, archive_path, make_archive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TAKES_IT = """
import sys
from pathlib import Path
from scribengin.spark.session import start_session

spark = start_session("archive", master="local[1]", memory="", conf={}, folder=Path(sys.argv[1]))
process = spark.sparkContext._gateway.proc.pid
print("MAPS", sys.argv[2] in Path(f"/proc/{process}/maps").read_text())
spark.stop()
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "SCRIBENGIN_CLASS_ARCHIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SCRIBENGIN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_it_is_taken_where_it_is_there_and_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    java = find_java()
    path = archive_path(java)
    assert archive_options(java) == ""
    path.parent.mkdir(parents=True)
    path.touch()
    assert archive_options(java) == f"-XX:SharedArchiveFile={path} -Xshare:auto"
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-XX:SharedArchiveFile=/of/mine.jsa")
    assert archive_options(java) == ""
    monkeypatch.delenv("SPARK_SUBMIT_OPTS")
    monkeypatch.setenv("SCRIBENGIN_CLASS_ARCHIVE", "no")
    assert archive_options(java) == ""


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.skipif(sys.platform != "linux", reason="what a process has mapped is read from /proc")
def test_a_running_jvm_makes_it_once_and_the_next_one_starts_from_it(spark: SparkSession, cache: Path, tmp_path: Path) -> None:
    java, before = find_java(), set(Path.cwd().iterdir())
    assert make_archive(spark, java)
    assert set(Path.cwd().iterdir()) == before, "what the second JVM prints"
    made = archive_path(java)
    assert [path.name for path in made.parent.iterdir() if path.suffix != ".lock"] == [made.name], "nothing else is left"
    assert not make_archive(spark, java), "it is there"
    ended = subprocess.run(
        [sys.executable, "-c", _TAKES_IT, str(tmp_path / "scratch"), str(made)], capture_output=True, text=True, env=os.environ, check=False
    )
    assert "MAPS True" in ended.stdout, ended.stdout + ended.stderr
