"""The script that Spark starts Python by: what it leaves off the path, and where there is none."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from scribengin.spark.session import python_command

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from pyspark.sql import SparkSession

_SAYS = "import os, sys; print(os.environ['PYTHONPATH'], *sys.argv[1:], sys.prefix, sep='|')"


def test_sparks_zips_are_left_off_and_all_else_stays(tmp_path: Path) -> None:
    folder = tmp_path / "it's a folder"
    folder.mkdir()
    path = "/a b:/spark/python/lib/pyspark.zip:/spark/python/lib/py4j-0.10-src.zip:/*:/jars/spark-core_2.13-4.jar:/code/mine.zip"
    said = subprocess.run(
        [python_command(folder, "local[2,3]"), "-c", _SAYS, "two words", "*"],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.strip().split("|") == ["/a b:/*:/code/mine.zip", "two words", "*", sys.prefix]


def test_executors_elsewhere_start_python_itself(tmp_path: Path) -> None:
    assert python_command(tmp_path, "spark://10.0.0.1:7077") == sys.executable
    assert list(tmp_path.iterdir()) == []


def test_python_itself_is_started_where_nothing_may_be_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # as it answers on a file system that is mounted so
    assert python_command(tmp_path, "local[2]") == sys.executable
    assert python_command(tmp_path / "missing", "local[2]") == sys.executable


def test_python_itself_is_started_where_only_the_zips_have_pyspark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pyspark", "py4j"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    assert python_command(tmp_path, "local[2]") == sys.executable
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert python_command(tmp_path, "local[2]") == str(tmp_path / "python"), "a process of its own finds it there"


def test_what_spark_starts_to_make_a_source_reads_no_zip(spark: SparkSession) -> None:
    from pyspark.sql.datasource import DataSource

    class Telling(DataSource):
        @classmethod
        def name(cls) -> str:
            return "telling"

        def schema(self) -> str:
            import sys
            from pathlib import Path

            # a test before may have given Spark a zip with code of its own
            names = [path.name for path in map(Path, sys.path) if path.suffix in (".zip", ".jar")]
            return f"zips_{sum(name.startswith(('pyspark', 'py4j', 'spark-')) for name in names)} INT"

    spark.dataSource.register(Telling)
    assert spark.read.format("telling").load().columns == ["zips_0"]
