"""The entrypoint of the image: its executors are started as Spark's own image starts them, all else is the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from scribengin.core.errors import EnvironmentFault
from scribengin.core.java import find_java, spark_home
from scribengin.worker.image_entry import executor_command

if TYPE_CHECKING:
    from pathlib import Path

_JAVA = """#!{python}
import json, os, sys
if "-version" in sys.argv:
    print("    java.home = {home}\\n    java.version = 21.0.8", file=sys.stderr)
else:
    print(json.dumps([sys.argv[1:], os.getpid()]))
"""
SET = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@10.1.2.3:7078",
    "SPARK_EXECUTOR_ID": "2",
    "SPARK_EXECUTOR_CORES": "4",
    "SPARK_EXECUTOR_MEMORY": "3072m",
    "SPARK_APPLICATION_ID": "spark-orders-all-7",
    "SPARK_EXECUTOR_POD_IP": "10.1.2.4",
    "SPARK_EXECUTOR_POD_NAME": "orders-all-7-exec-2",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_CONF_DIR": "/opt/spark/conf",
    "SPARK_USER": "scribengin",
}
OPTIONS = {f"SPARK_JAVA_OPT_{number}": f"-Doption={number} two words" for number in range(12)}
COMMAND = [
    *OPTIONS.values(),
    "-Xms3072m",
    "-Xmx3072m",
    "-cp",
    f"/opt/spark/conf:{spark_home()}/jars/*",
    "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
    *["--driver-url", "spark://CoarseGrainedScheduler@10.1.2.3:7078", "--executor-id", "2", "--cores", "4"],
    *["--app-id", "spark-orders-all-7", "--hostname", "10.1.2.4", "--resourceProfileId", "0", "--podName", "orders-all-7-exec-2"],
]


def run_entry(words: list[str], **environment: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "scribengin.worker.image_entry", *words]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A PATH whose `java` prints its command line and its process."""
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text(_JAVA.format(python=sys.executable, home=tmp_path))
    program.chmod(0o755)
    return f"{program.parent}:/usr/bin:/bin"


def test_the_process_becomes_the_executor_that_spark_describes(path: str) -> None:
    shuffled = dict(sorted(OPTIONS.items(), key=lambda option: option[1][::-1]))
    with run_entry(["executor"], PATH=path, PYTHONPATH=":".join(sys.path), **SET, **shuffled) as process:
        said, noted = process.communicate()
    assert (process.returncode, noted) == (0, "")
    assert json.loads(said) == [COMMAND, process.pid]


def test_other_folders_and_jars_are_on_the_class_path_in_spark_s_order(tmp_path: Path) -> None:
    more = {
        "HADOOP_CONF_DIR": "/opt/hadoop/conf",
        "SPARK_CLASSPATH": "/extra/*",
        "SPARK_EXTRA_CLASSPATH": "/more.jar",
        "SPARK_DIST_CLASSPATH": "/dist/*",
    }
    command = executor_command(SET | more, tmp_path / "java", tmp_path)
    assert command[command.index("-cp") + 1] == f"/opt/spark/conf:/opt/hadoop/conf:/extra/*:{tmp_path}/jars/*:/more.jar:/dist/*"
    alone = {name: value for name, value in SET.items() if name != "SPARK_CONF_DIR"}
    command = executor_command(alone | {"SPARK_CLASSPATH": ""}, tmp_path / "java", tmp_path)
    assert command[command.index("-cp") + 1] == f"{tmp_path}/conf:{tmp_path}/jars/*"


def test_a_container_that_spark_has_not_started_names_what_is_missing(tmp_path: Path) -> None:
    some = {name: value for name, value in SET.items() if name not in ("SPARK_DRIVER_URL", "SPARK_EXECUTOR_MEMORY")}
    with pytest.raises(EnvironmentFault, match="SPARK_DRIVER_URL, SPARK_EXECUTOR_MEMORY not set") as fault:
        executor_command(some, tmp_path / "java", tmp_path)
    assert "only Spark starts" in fault.value.remedy


def test_all_other_words_are_a_command_of_scribengin(path: str) -> None:
    for words, expected in ((["version"], "scribengin "), (["--help"], "Usage: "), (["execute"], "")):
        with run_entry(words, PATH=path, PYTHONPATH=":".join(sys.path), HOME="/nowhere") as process:
            said, _ = process.communicate()
        assert (process.returncode == 0) == bool(expected)
        assert expected in said


@pytest.mark.timeout(120)
def test_spark_s_own_program_takes_the_command_line_and_looks_for_its_driver() -> None:
    """With a real Java: it ends, because nothing listens at the address of the driver."""
    here = {"SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@127.0.0.1:1", "SPARK_EXECUTOR_POD_IP": "127.0.0.1"}
    options = {"SPARK_JAVA_OPT_0": "-Dspark.rpc.numRetries=1", "SPARK_JAVA_OPT_1": "-Dspark.rpc.lookupTimeout=5s"}
    settings = SET | here | options | {"SPARK_EXECUTOR_MEMORY": "256m", "JAVA_HOME": str(find_java().home)}
    with run_entry(["executor"], PATH="/usr/bin:/bin", PYTHONPATH=":".join(sys.path), **settings) as process:
        said, noted = process.communicate()
    assert process.returncode == 1
    assert "Failed to connect to /127.0.0.1:1" in said + noted, said + noted
