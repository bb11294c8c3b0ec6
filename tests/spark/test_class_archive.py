"""The archive of Spark's classes: made by a running JVM, taken by the next one, left alone where a person wants another or none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from scribengin.core.java import find_java
from scribengin.spark import class_archive
from scribengin.spark.class_archive import archive_options, archive_path, claim, dump_archive, start_training

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


def test_one_process_at_a_time_may_make_it_and_none_where_it_is_there_or_not_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    java = find_java()
    with claim(java) as first, claim(java) as second:
        assert (first, second) == (True, False)
    with claim(java) as again:
        assert again
    monkeypatch.setenv("SCRIBENGIN_CLASS_ARCHIVE", "use")
    with claim(java) as taken:
        assert not taken
    monkeypatch.delenv("SCRIBENGIN_CLASS_ARCHIVE")
    archive_path(java).touch()
    with claim(java) as there:
        assert not there


def test_a_cache_that_cannot_be_written_is_no_fault(cache: Path) -> None:
    cache.write_text("a file where the folder would be")
    with claim(find_java()) as claimed:
        assert not claimed
    assert not start_training()


def test_a_full_disk_is_no_fault_and_is_tried_again_a_day_later(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    java = find_java()
    started: list[list[str]] = []
    monkeypatch.setattr("scribengin.core.java.find_java", lambda: java)  # asks a Java by a process
    monkeypatch.setattr(class_archive.subprocess, "Popen", lambda command, **_: started.append(command))
    monkeypatch.setattr(class_archive, "_ROOM_BYTES", 2**62)
    with claim(java) as claimed:
        assert claimed
        assert not dump_archive(None, java)  # type: ignore[arg-type]
    assert not archive_path(java).exists()
    assert not start_training()
    failed = archive_path(java).with_suffix(".failed")
    os.utime(failed, (0, 0))
    assert start_training()
    assert started[0][1:] == ["-m", "scribengin.local.training_run", "--background"]


def test_archives_of_a_spark_that_is_gone_go_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java = find_java()
    monkeypatch.setattr(class_archive, "_dump", lambda _spark, file: file.touch())
    monkeypatch.setattr(class_archive, "_ROOM_BYTES", 0)
    place = archive_path(java)
    place.parent.mkdir(parents=True)
    for name, home in (("spark-gone", tmp_path / "gone"), ("spark-other", tmp_path)):
        (place.parent / f"{name}.jsa").touch()
        (place.parent / f"{name}.spark").write_text(str(home))
    with claim(java):
        assert dump_archive(None, java)  # type: ignore[arg-type]
    assert {path.name for path in place.parent.glob("*.jsa")} == {place.name, "spark-other.jsa"}


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.skipif(sys.platform != "linux", reason="what a process has mapped is read from /proc")
def test_a_running_jvm_makes_it_once_and_the_next_one_starts_from_it(spark: SparkSession, cache: Path, tmp_path: Path) -> None:
    java, before = find_java(), set(Path.cwd().iterdir())
    with claim(java) as claimed:
        assert claimed
        assert dump_archive(spark, java)
    assert set(Path.cwd().iterdir()) == before, "what the second JVM prints"
    made = archive_path(java)
    assert {path.suffix for path in made.parent.iterdir()} == {".jsa", ".lock", ".spark"}, "nothing else is left"
    with claim(java) as claimed:
        assert not claimed, "it is there"
    ended = subprocess.run(
        [sys.executable, "-c", _TAKES_IT, str(tmp_path / "scratch"), str(made)], capture_output=True, text=True, env=os.environ, check=False
    )
    assert "MAPS True" in ended.stdout, ended.stdout + ended.stderr
