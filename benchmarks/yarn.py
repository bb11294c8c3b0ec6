"""Flows in YARN beside a hand-written job that `spark-submit --deploy-mode cluster` submits (make bench-yarn).

Start: seconds from the command (`scribengin apply`, or `spark-submit`) to the first visible file of the output in HDFS. Recovery: seconds
from the kill of a driver's container to the next visible file of the flow, and from the kill of an empty job's application master to the
moment at which YARN runs its second attempt. Writes in HDFS for each Batch of the flow besides its data file: files that are created
(without the heartbeat of the lease, an empty file each five seconds), those of them that have content (a block), and those that are
durable on the disks of the DataNodes before the next step (`hsync`); HDFS itself does not sync a file that is closed.
Contenders take turns in one YARN with two NodeManagers; medians. All checkpoints and outputs are in HDFS, and each contender has one
executor.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from harness.yarn_plane import YarnControl, numbers_flow, parts_in
from scribengin.core.java import find_java, spark_home
from scribengin.embedded.yarn import Yarn
from scribengin.embedded.zookeeper import ZooKeeper
from scribengin.launch.yarn_cluster import ResourceManagers
from scribengin.state.lease import BEAT_S

if TYPE_CHECKING:
    from collections.abc import Callable

WITHIN_S = 400.0
JOB = """\
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
rows = spark.readStream.schema("id BIGINT").json(sys.argv[1]).where("id % 2 = 1")
rows.writeStream.format("json").option("checkpointLocation", sys.argv[3]).start(sys.argv[2]).awaitTermination()
"""
EMPTY = """\
import time
from pyspark.sql import SparkSession
SparkSession.builder.getOrCreate()
time.sleep(3600)
"""


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--runs", type=int, default=3)
    asked = options.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="scribengin-bench-") as name:
        folder = Path(name)
        with (
            Yarn(folder / "yarn", nodes=2, memory_mib=6144) as yarn,
            ZooKeeper(folder / "zookeeper") as keeper,
            YarnControl(folder / "control", yarn, keeper) as control,
        ):
            control.start_control()
            measure(folder, control, asked.runs)


def measure(folder: Path, control: YarnControl, runs: int) -> None:
    data = folder / "data"
    data.mkdir()
    for name, text in {"job.py": JOB, "empty.py": EMPTY}.items():
        (folder / name).write_text(text)
    found: dict[str, list[float]] = {"flow": [], "job": [], "recovery": [], "attempt": [], "created": [], "filled": [], "synced": []}
    with Feed(data):
        for turn in range(runs):
            contenders = [lambda turn=turn: of_flow(folder, control, turn, found), lambda turn=turn: of_job(folder, control, turn, found)]
            for contender in contenders if turn % 2 else reversed(contenders):
                contender()
            found["attempt"].append(of_attempt(folder, control))
            print({name: [round(each, 1) for each in values] for name, values in found.items()}, flush=True)
    flow, job, recovery, attempt, created, filled, synced = (statistics.median(values) for values in found.values())
    print(f"start to the first output: a flow {flow:.1f} s, spark-submit of a job {job:.1f} s: {flow / job:.2f} x")
    bound_s = 1.5 * (attempt + 10)
    print(f"driver killed to the next output: a flow {recovery:.1f} s (bound {bound_s:.1f} s)")
    print(f"application master of an empty job killed to its second attempt: {attempt:.1f} s")
    print(f"in HDFS for each Batch, besides its data: {created:.1f} files, {filled:.1f} with content, {synced:.1f} of them with hsync")


def of_flow(folder: Path, control: YarnControl, turn: int, found: dict[str, list[float]]) -> None:
    """Start a flow, kill its driver, count what its Batches create, and stop it."""
    name, hdfs = f"flow{turn}", control.yarn.hdfs
    out = f"{hdfs.uri}/{name}"
    (control.folder / f"{name}.yaml").write_text(numbers_flow(name, folder / "data", out, attempts=2))
    begun_s = time.monotonic()
    control.apply(f"{name}.yaml")
    control.wait_for(lambda: bool(files(out)), "the first output of the flow")
    found["flow"].append(time.monotonic() - begun_s)
    time.sleep(10)
    before, begun_s, begun = next_output(control, out), time.monotonic(), writes(control)
    time.sleep(20)
    batches = len(next_output(control, out)) - len(before)  # one executor with one core writes one file for each Batch
    beats = (time.monotonic() - begun_s) / BEAT_S
    for kind, count in writes(control).items():
        found[kind].append((count - begun[kind] - (beats if kind == "created" else 0)) / batches - 1)
    killed_s = time.monotonic()
    control.yarn.kill_containers(control.driver(name))
    before = files(out)
    control.wait_for(lambda: files(out) > before, "output after the kill")
    found["recovery"].append(time.monotonic() - killed_s)
    if control.says("stop", name, "--wait", "5m") is None:
        raise SystemExit(control.last_words())


def of_job(folder: Path, control: YarnControl, turn: int, found: dict[str, list[float]]) -> None:
    """Start the hand-written job, and kill it."""
    out = f"{control.yarn.hdfs.uri}/job{turn}"
    begun_s = time.monotonic()
    submit(control, "job", str(folder / "job.py"), (folder / "data").as_uri(), out, f"{out}-checkpoint")
    control.wait_for(lambda: bool(files(out)), "the first output of the job")
    found["job"].append(time.monotonic() - begun_s)
    end(control, "job")


def of_attempt(folder: Path, control: YarnControl) -> float:
    """Seconds in which YARN starts the second attempt of a job that does nothing."""
    submit(control, "empty", str(folder / "empty.py"))
    first = ""

    def runs_beside(other: str) -> Callable[[], bool]:
        return lambda: control.driver("empty") not in ("", other)

    control.wait_for(runs_beside(""), "the first attempt")
    first = control.driver("empty")
    time.sleep(5)
    killed_s = time.monotonic()
    control.yarn.kill_containers(first)
    control.wait_for(runs_beside(first), "the second attempt")
    took_s = time.monotonic() - killed_s
    end(control, "empty")
    return took_s


def submit(control: YarnControl, name: str, *program: str) -> None:
    """Submit a program in cluster mode, as a person would; returns when YARN has accepted it."""
    settings = {
        "spark.yarn.jars": f"local:{spark_home()}/jars/*",
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.driver.memoryOverhead": "256m",
        "spark.executor.memoryOverhead": "256m",
        "spark.executor.instances": "1",
        "spark.executor.cores": "1",
        "spark.yarn.maxAppAttempts": "2",
        "spark.yarn.submit.waitAppCompletion": "false",
        "spark.yarn.appMasterEnv.SPARK_LOCAL_IP": "127.0.0.1",
        "spark.executorEnv.SPARK_LOCAL_IP": "127.0.0.1",
        "spark.yarn.appMasterEnv.PYSPARK_PYTHON": sys.executable,
        "spark.executorEnv.PYSPARK_PYTHON": sys.executable,
    }
    command = [str(spark_home() / "bin" / "spark-submit"), "--master", "yarn", "--deploy-mode", "cluster", "--name", f"{name}."]
    command += [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    environment = os.environ | {
        "HADOOP_CONF_DIR": str(control.yarn.conf),
        "SPARK_HOME": str(spark_home()),
        "JAVA_HOME": str(find_java().home),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    subprocess.run([*command, *program], env=environment, check=True, capture_output=True, cwd=control.folder)


def end(control: YarnControl, name: str) -> None:
    """Kill the applications of a program, and wait until they have ended."""
    managers = ResourceManagers([control.yarn.uri])

    def over() -> bool:
        live = [each.id for each in control.applications(name) if each.is_live]
        for each in live:
            managers.kill(each)
        return not live

    control.wait_for(over, f"the end of {name}")
    time.sleep(3)  # its processes end a little later


def files(out: str) -> set[str]:
    """The visible data files of an output."""
    with suppress(OSError):
        return {path.name for path in parts_in(out)}
    return set()


def next_output(control: YarnControl, out: str) -> set[str]:
    """The visible data files of an output, at the moment when a Batch becomes visible."""
    before = files(out)
    control.wait_for(lambda: files(out) > before, "the next output of the flow")
    return files(out)


def writes(control: YarnControl) -> dict[str, float]:
    """What HDFS has done so far: files created (its own figure `FilesCreated` has folders too), blocks written, and calls of hsync."""
    hdfs = control.yarn.hdfs
    name = hdfs.name_node.asked("service=NameNode,name=NameNodeActivity", 10.0)
    data = hdfs.data_node.asked("service=DataNode,name=DataNodeActivity-*", 10.0)
    # each hsync syncs the data and the checksums of its block
    return {"created": name["CreateFileOps"], "filled": data["BlocksWritten"], "synced": data["FsyncCount"] / 2}


class Feed:
    """Adds a file of 100 numbers each half second. A context manager."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        number = 0
        while not self._ended.wait(0.5):
            draft = self._folder / f".{number}"
            draft.write_text("".join(f'{{"id": {number * 100 + nth}}}\n' for nth in range(100)))
            draft.rename(self._folder / f"{number}.jsonl")
            number += 1

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()


if __name__ == "__main__":
    main()
