"""How Spark's Java is started: the command is that of Spark's own launcher, no secret is in it, and what a person has set stays."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from scribengin.core.java import find_java, spark_home
from scribengin.spark.java_process import JavaProcess, java_command, java_options

if TYPE_CHECKING:
    from pathlib import Path

_SETTINGS = {"spark.master": "local[2,3]", "spark.driver.extraJavaOptions": "-Da=b -Dc=d", "spark.driver.memory": "700m"}
_VARIABLES = ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "SPARK_HOME", "PYSPARK_SUBMIT_ARGS")
_ODD = """
import sys
from pathlib import Path
from scribengin.spark.session import start_session

odd = {"spark.odd": "a=b: c\\\\d #x !é", "spark.my.secret": "hush"}
spark = start_session("odd", master="local[1]", memory="", conf=odd, folder=Path(sys.argv[1]))
print("ODD", repr(spark.conf.get("spark.odd")))
process = spark.sparkContext._gateway.proc.pid
print("HUSH", b"hush" in Path(f"/proc/{process}/cmdline").read_bytes())
print("LEFT", list(Path(sys.argv[1]).glob("scribengin-java-*")))
spark.stop()
"""


@pytest.fixture(autouse=True)
def _no_options_of_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in _VARIABLES:
        monkeypatch.delenv(name, raising=False)


def test_the_command_is_the_one_of_sparks_launcher_but_for_the_vector_module(tmp_path: Path) -> None:
    java = find_java()
    ours = java_command(_SETTINGS, java, tmp_path / "file")
    assert ours is not None
    home = spark_home()
    conf = [word for key, value in _SETTINGS.items() for word in ("--conf", f"{key}={value}")]
    launcher = [java.home / "bin" / "java", "-cp", f"{home}/jars/*", "org.apache.spark.launcher.Main"]
    ended = subprocess.run(
        [*launcher, "org.apache.spark.deploy.SparkSubmit", *conf, "pyspark-shell"],
        capture_output=True,
        check=True,
        env=os.environ | {"SPARK_HOME": str(home), "JAVA_HOME": str(java.home), "SPARK_SCALA_VERSION": "2.13"},
    )
    theirs = [word.strip("\n") for word in ended.stdout.decode().split("\0") if word.strip("\n")]
    assert ours[: ours.index("org.apache.spark.deploy.SparkSubmit")] == [
        word for word in theirs[: theirs.index("org.apache.spark.deploy.SparkSubmit")] if word != "--add-modules=jdk.incubator.vector"
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="the arguments of a process are read from /proc")
def test_odd_values_arrive_and_no_value_is_in_the_list_of_processes(tmp_path: Path) -> None:
    folder = tmp_path / "My Shop"  # a blank in the name of a flow's folder
    folder.mkdir()
    ended = subprocess.run(
        [sys.executable, "-c", _ODD, str(folder)], capture_output=True, text=True, env=os.environ | {"TMPDIR": str(folder)}, check=False
    )
    assert "ODD 'a=b: c\\\\d #x !é'" in ended.stdout, ended.stdout + ended.stderr
    assert "HUSH False" in ended.stdout
    assert "LEFT []" in ended.stdout


@pytest.mark.parametrize("name", ["SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "HADOOP_CONF_DIR", "PYSPARK_GATEWAY_PORT"])
def test_where_a_person_has_configured_spark_its_own_launcher_starts_it(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(name, "something")
    assert java_command(_SETTINGS, find_java(), tmp_path) is None


@pytest.mark.parametrize(
    "more", [{"spark.driver.extraClassPath": "/a.jar"}, {"spark.driver.extraLibraryPath": "/a"}, {"spark.master": "yarn"}]
)
def test_what_only_the_launcher_knows_is_left_to_it(more: dict[str, str], tmp_path: Path) -> None:
    assert java_command(_SETTINGS | more, find_java(), tmp_path) is None


def test_java_boots_before_pyspark_and_arrow_are_imported_and_no_mistake_in_a_flow_needs_them() -> None:
    loaded = "import sys, scribengin.local.run; print(*sorted({'pyspark', 'py4j', 'pyarrow', 'pandas'} & sys.modules.keys()))"
    ended = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == []


def test_a_java_that_is_not_needed_any_more_is_ended_at_once_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with (tmp_path / "log").open("wb") as log:
        java = JavaProcess(_SETTINGS, find_java(), log)
        assert java._process is not None
        java.end()
    assert java._process.poll() is not None
    assert list(tmp_path.glob("scribengin-java-*")) == []


def test_one_compiler_where_the_jvm_only_plans_and_a_second_one_later_where_it_works_on_rows() -> None:
    assert "-XX:TieredStopAtLevel=1" in java_options(plans_only=True, cores=2)
    works = java_options(plans_only=False, cores=2)
    assert "-XX:TieredStopAtLevel=1" not in works
    assert "-XX:Tier4InvocationThreshold=20000" in works


@pytest.mark.parametrize("plans_only", [True, False])
def test_a_java_that_lives_long_has_room_for_all_that_it_compiles(plans_only: bool) -> None:
    """Spark ends the process where that is full, after minutes or days: with the first compiler alone Java's default is 48 MiB."""
    shown = [find_java().home / "bin" / "java", *java_options(plans_only=plans_only, cores=2), "-XX:+PrintFlagsFinal", "-version"]
    flags = subprocess.run(shown, capture_output=True, text=True, check=True).stdout
    (size,) = (int(line.split()[3]) for line in flags.splitlines() if " ReservedCodeCacheSize " in line)
    assert size >= 240 * 2**20


def test_many_cores_share_the_collection_of_garbage_and_a_persons_collector_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "-XX:+UseSerialGC" in java_options(plans_only=False, cores=2)
    assert "-XX:+UseSerialGC" not in java_options(plans_only=False, cores=16)
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", shlex.join(["-Dx=y", "-XX:+UseG1GC"]))
    assert "-XX:+UseSerialGC" not in java_options(plans_only=True, cores=2), "two collectors are refused by Java"
