"""Two chained flows in a real YARN: from files through a topic into HDFS and a table. Any part of what they run on can be killed, and at
the end each record must be in both outputs once.

The servers run on this machine, from packages: HDFS, YARN with two NodeManagers, ZooKeeper, Kafka and PostgreSQL; beside them one master
and one node of Scribengin. Linux only: processes are found by `/proc`.
"""

from __future__ import annotations

import re
import threading
from contextlib import ExitStack, closing, suppress
from typing import TYPE_CHECKING, Any, Self

import msgspec

from harness import control_programs
from harness.control_programs import ControlPrograms, NotInTime
from harness.faults.table_flows import read_table
from harness.faults.topics import Topics
from scribengin.connectors.hdfs.path import HdfsPath
from scribengin.connectors.postgres import client
from scribengin.core.storage import make_folder, replace
from scribengin.embedded.kafka import KafkaCluster
from scribengin.embedded.postgres import Postgres
from scribengin.embedded.yarn import Yarn
from scribengin.embedded.zookeeper import ZooKeeper
from scribengin.launch.yarn_cluster import Application, ResourceManagers
from scribengin.testing.checker import Found, check_records
from scribengin.testing.records import SCHEMA, RecordKey, make_record

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from types import TracebackType

    from scribengin.embedded.yarn import NodeManager

ROWS = 20
"""records of a part"""
COLLECT, STORE = "collect", "store"
_PART_EVERY_S = 0.5
_WAIT = "8m"
_NODES, _CORES, _MEMORY_MIB = 2, 8, 6144
_PARTITIONS = 2
_CONTAINER = re.compile(r"container_\w+")
_RESOURCES = (
    "{{executors: 1, cores: 1, memory: 512MiB, spark: {{spark.driver.memory: 512m, spark.driver.memoryOverhead: 256m, "
    "spark.executor.memoryOverhead: 256m, spark.yarn.maxAppAttempts: {attempts}}}}}"
)
_FLOWS = {
    COLLECT: """\
version: 1
name: collect
sources: {{made: {{type: files, path: {data}, format: json, schema: "{schema}"}}}}
sinks: {{sent: {{from: made, type: kafka, bootstrap: "{bootstrap}", topic: raw, format: json, key: part, markers: raw-markers}}}}
tiers: {{all: {{steps: [sent], resources: {one_attempt}}}}}
""",
    # YARN starts its driver a second time by itself, so that a second attempt can exist beside a first one that sleeps
    STORE: """\
version: 1
name: store
sources: {{arrived: {{type: kafka, bootstrap: "{bootstrap}", topics: [raw], format: json, schema: "{schema}"}}}}
steps: {{known: {{from: arrived, filter: seq >= 0}}}}
sinks:
  files: {{from: known, type: hdfs, url: "{hdfs}/kept", format: json}}
  rows: {{from: known, type: postgres, server: "{postgres}", table: kept}}
tiers: {{all: {{steps: [known, files, rows], resources: {two_attempts}}}}}
""",
}


def numbers_flow(name: str, data: Path, out: str, *, attempts: int = 1) -> str:
    """The text of a flow that keeps the odd numbers of files in HDFS, on one executor.

    Args:
        name: its name.
        data: the folder of the files.
        out: the URL of the folder in HDFS.
        attempts: how often YARN may start its driver.
    """
    return control_programs.numbers_flow(name, data, f'type: hdfs, url: "{out}"', _RESOURCES.format(attempts=attempts))


def parts_in(url: str) -> list[HdfsPath]:
    """The visible data files of an output in HDFS; none if its folder does not exist yet. Raises OSError."""
    folder = HdfsPath.of(url)
    return [path for path in folder.iterdir() if path.name.startswith("part-")] if folder.exists() else []


class YarnControl(ControlPrograms):
    """A control plane whose node has its workers in a YARN cluster. What has been started in YARN does not end with it."""

    def __init__(
        self, folder: Path, yarn: Yarn, keeper: ZooKeeper, *, node: Sequence[str] = (), stop: threading.Event | None = None
    ) -> None:
        """Prepare it.

        Args:
            folder: a new folder for all files.
            yarn: the cluster, which has an HDFS for the state.
            keeper: the ZooKeeper of the registry.
            node: further options of the node.
            stop: when it is set, waiting raises KeyboardInterrupt.
        """
        super().__init__(folder, keeper, stop=stop)
        self.yarn = yarn
        self._node = node

    def program_options(self, name: str) -> tuple[str, ...]:
        """See `ControlPrograms`."""
        options = {
            "master": ("--state", f"{self.yarn.hdfs.uri}/state"),
            "node": ("--name", "yarn", "--launcher", "yarn", "--yarn-conf", str(self.yarn.conf), *self._node),
        }
        return options[name]

    # --- what runs in YARN ---

    def applications(self, flow: str) -> list[Application]:
        """The applications of a flow that YARN knows, newest first. Raises OSError: the ResourceManager does not answer."""
        found = (self.yarn.resource_manager.read("/ws/v1/cluster/apps")["apps"] or {}).get("app", [])
        mine = [each for each in msgspec.convert(found, list[Application]) if each.name.startswith(f"{flow}.")]
        return sorted(mine, key=lambda each: -each.started_time)

    def driver(self, flow: str) -> str:
        """The container of a flow's driver; empty if none runs."""
        with suppress(OSError):
            for each in self.applications(flow):
                if each.state == "RUNNING" and (found := _CONTAINER.search(each.am_container_logs)):
                    return found[0]
        return ""

    def executors(self, flow: str) -> list[str]:
        """The containers of a flow's executors."""
        driver = self.driver(flow)
        mine = driver.rpartition("_")[0]
        return [each for node in self.yarn.nodes for each in self._containers(node) if driver and each.startswith(mine) and each != driver]

    def host_of(self, container: str) -> NodeManager | None:
        """The NodeManager that runs a container."""
        return next((node for node in self.yarn.nodes if container in self._containers(node)), None)

    def kill_application(self, flow: str) -> str:
        """End the application of a flow as an administrator does; returns its id. Raises Unreachable, LookupError: none runs."""
        found = next((each.id for each in self.applications(flow) if each.is_live), None)
        if found is None:
            raise LookupError(f"no application of {flow} runs")
        ResourceManagers([self.yarn.uri]).kill(found)
        return found

    def _containers(self, node: NodeManager) -> list[str]:
        with suppress(OSError, ValueError):
            found = node.read("/ws/v1/node/containers")["containers"] or {}
            return [each["id"] for each in found.get("container", []) if each["state"] == "RUNNING"]
        return []


class YarnPlane(YarnControl):
    """The servers, the control plane and the two flows. A context manager: all run inside the block, and end after it.

    Attributes:
        parts: the number of parts of the input so far; each has `ROWS` records.
    """

    FLOWS = (COLLECT, STORE)

    def __init__(self, folder: Path, *, tell: Callable[[str], None] = lambda _: None, stop: threading.Event | None = None) -> None:
        """Prepare it.

        Args:
            folder: a new folder for all files.
            tell: called with a message before each step of the start.
            stop: when it is set, waiting raises KeyboardInterrupt.
        """
        folder = folder.absolute()
        yarn = Yarn(folder / "yarn", nodes=_NODES, cores=_CORES, memory_mib=_MEMORY_MIB)
        super().__init__(folder, yarn, ZooKeeper(folder / "zookeeper"), stop=stop)
        self.kafka = KafkaCluster(folder / "kafka")
        self.postgres = Postgres(folder / "postgres")
        self.parts = 0
        self._tell = tell
        self._rows: dict[str, list[dict[str, Any]]] = {}
        self._stack = ExitStack()
        self._feeding = threading.Event()
        self._feeder = threading.Thread(target=self._feed, name="feed", daemon=True)

    def start(self) -> None:
        """Start all servers, the control plane and the flows, and return when records have arrived. Raises NotInTime, EnvironmentFault."""
        make_folder(self.folder / "data")
        for server in (self.yarn, self.keeper, self.kafka, self.postgres):
            self._tell(f"starting {type(server).__name__}")
            self._stack.enter_context(server)
        Topics(self.kafka.bootstrap).make({"raw": _PARTITIONS}, replication=1)
        for name, text in _FLOWS.items():
            flow = text.format(
                data=self.folder / "data",
                schema=SCHEMA,
                bootstrap=self.kafka.bootstrap,
                hdfs=self.yarn.hdfs.uri,
                postgres=self.postgres.uri,
                one_attempt=_RESOURCES.format(attempts=1),
                two_attempts=_RESOURCES.format(attempts=2),
            )
            replace(self.folder / f"{name}.yaml", flow.encode())
        self._tell("starting a master and a node")
        self.start_control()
        for name in _FLOWS:
            self._tell(f"applying {name}")
            self.apply(f"{name}.yaml", "--wait", _WAIT)
        self._feeder.start()
        self.wait_for(lambda: self.has_arrived(0), "the first records")

    def has_arrived(self, part: int) -> bool:
        """True if all records of a part are in both outputs."""
        with suppress(OSError):
            self._read_new()
        files = sum(row["part"] == part for rows in self._rows.values() for row in rows)
        return files >= ROWS and self._table_count(part) >= ROWS

    def wait_arrival(self) -> None:
        """Wait until a record that is added from now on is in both outputs. Raises NotInTime."""
        part = self.parts + 1
        self.wait_for(lambda: self.has_arrived(part), f"part {part}")

    def drain(self) -> None:
        """Add no more records, wait until all have been processed, and end both flows. Raises NotInTime."""
        self._feeding.set()
        self._feeder.join()
        for flow in _FLOWS:
            if self.says("drain", flow, "--wait", _WAIT) is None:
                raise NotInTime(f"{flow} did not end; {self.last_words()}")

    def judge(self) -> list[str]:
        """What is wrong with the outputs and the accounts of both flows, after `drain`; empty if each record is in each output once."""
        expected = [RecordKey("run", part, seq) for part in range(self.parts) for seq in range(ROWS)]
        with closing(client.driver().connect(self.postgres.uri, autocommit=True)) as connection:
            table = [Found("table", row) for row in read_table(connection, "public", "kept")]
        self._read_new()
        outputs = {"HDFS": [Found("hdfs", row) for rows in self._rows.values() for row in rows], "the table": table}
        wrong = [f"{name}: {findings}" for name, found in outputs.items() if (findings := check_records(expected, found, ordered=False))]
        return wrong + [f"audit of {flow}: {self.last_words()}" for flow in _FLOWS if self.says("audit", flow) is None]

    def _read_new(self) -> None:
        """Read the new files in HDFS: a visible file does not change. Raises OSError."""
        for path in parts_in(f"{self.yarn.hdfs.uri}/kept"):
            if path.name not in self._rows:
                self._rows[path.name] = [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]

    def _table_count(self, part: int) -> int:
        driver = client.driver()
        with suppress(driver.Error), closing(driver.connect(self.postgres.uri, autocommit=True, connect_timeout=2)) as connection:
            return int(connection.execute("SELECT count(*) FROM kept WHERE part = %s", (part,)).fetchone()[0])
        return 0

    def _feed(self) -> None:
        folder = self.folder / "data"
        while not self._feeding.wait(_PART_EVERY_S):
            draft = folder / f".part-{self.parts:05}"
            rows = [make_record(RecordKey("run", self.parts, seq)) for seq in range(ROWS)]
            draft.write_bytes(msgspec.json.Encoder().encode_lines(rows))
            draft.rename(folder / f"part-{self.parts:05}.jsonl")
            self.parts += 1

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException as error:
            self.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._feeding.set()
        super().__exit__(kind, error, trace)
        self._stack.close()
