"""`scribengin dev-services`: servers that keep running, one of each kind per project, under `<folder>/services/<name>/`."""

from __future__ import annotations

import fcntl
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import msgspec

from scribengin.core.storage import explained, make_folder, read_or_none, replace
from scribengin.core.time_text import now_text
from scribengin.embedded.cassandra import Cassandra
from scribengin.embedded.elasticsearch import Elasticsearch
from scribengin.embedded.hbase import HBase
from scribengin.embedded.hdfs import Hdfs
from scribengin.embedded.jars import fetch
from scribengin.embedded.kafka import JARS, KafkaCluster
from scribengin.embedded.objects import ObjectServer
from scribengin.embedded.opensearch import OpenSearch
from scribengin.embedded.postgres import Postgres
from scribengin.embedded.server import LoneServer
from scribengin.embedded.standalone import StandaloneCluster
from scribengin.embedded.yarn import Yarn
from scribengin.embedded.zookeeper import ZooKeeper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

_LONE: dict[str, Callable[[Path], LoneServer]] = {
    "zookeeper": ZooKeeper,
    "postgres": Postgres,
    "opensearch": OpenSearch,
    "elasticsearch": Elasticsearch,
    "cassandra": Cassandra,
    "objects": ObjectServer,
    "hbase": HBase,
}
NAMES = ("kafka", "zookeeper", "spark", *list(_LONE)[1:], "hdfs", "yarn")
BY_DEFAULT = ("kafka", "zookeeper")
"""the services that are started if no name is given"""

State = Literal["running", "silent", "dead", "stopped"]


@dataclass(frozen=True, slots=True)
class ServiceInfo:
    """The status of a service.

    `state`: running; silent (its process is running and does not answer); dead (it was started and not stopped, and is not running);
    stopped (also if it was never started: then it has no address and no log). `pid` is None if there is no process.
    """

    name: str
    state: State
    address: str
    pid: int | None
    log: str
    since: str


class _Record(msgspec.Struct, frozen=True):
    """The last request for a service, and its time."""

    wanted: Literal["up", "down"]
    since: str


def start(names: Sequence[str], folder: Path, tell: Callable[[str], None] = lambda _line: None) -> list[ServiceInfo]:
    """Start the services that are not running, and return when all answer. They keep running after this process.

    Args:
        names: the services.
        folder: the project's folder.
        tell: called with a message before jars are fetched, or a program is built, which takes minutes.

    Raises:
        EnvironmentFault: a service does not start; those before it are running.
    """
    with _alone(folder):
        for name in names:
            home = _home(folder, name)
            server = _open(name, home)
            _, pid, _ = _facts(server)
            if isinstance(server, LoneServer | Hdfs | Yarn):
                server.fetch(tell)
            elif isinstance(server, KafkaCluster):
                fetch(JARS, tell)
            server.start()
            if pid is None:
                # before it may keep running: if this process is killed now, the server ends too, and the record makes its state dead
                _write(home, "up")
            server.release()
        return [_info_of(name, folder) for name in names]


def stop(names: Sequence[str], folder: Path) -> list[ServiceInfo]:
    """Stop the services that are running; their data is kept. Does nothing for others."""
    with _alone(folder):
        for name in names:
            home = _home(folder, name)
            record = _read(home)
            if record is not None:
                _open(name, home).stop()
                if record.wanted == "up":
                    _write(home, "down")
        return [_info_of(name, folder) for name in names]


def known(folder: Path) -> list[str]:
    """The services that are checked, and stopped, if no name is given: the default ones, and all that were ever started."""
    return [name for name in NAMES if name in BY_DEFAULT or _read(_home(folder, name)) is not None]


def status(names: Sequence[str], folder: Path) -> list[ServiceInfo]:
    """The status of services; changes nothing."""
    return [_info_of(name, folder) for name in names]


def _info_of(name: str, folder: Path) -> ServiceInfo:
    home = _home(folder, name)
    record = _read(home)
    if record is None:
        return ServiceInfo(name, "stopped", "", None, "", "")
    server = _open(name, home)
    address, pid, log = _facts(server)
    state: State = "stopped" if record.wanted == "down" else "dead"
    if pid is not None:
        state = "running" if server.answers() else "silent"
    return ServiceInfo(name, state, address, pid, str(log), record.since)


def _open(name: str, home: Path) -> Hdfs | KafkaCluster | LoneServer | StandaloneCluster | Yarn:
    if name in _LONE:
        return _LONE[name](home)
    if name == "hdfs":
        return Hdfs(home)
    if name == "yarn":
        return Yarn(home)
    return StandaloneCluster(home) if name == "spark" else KafkaCluster(home)


def _facts(server: Hdfs | KafkaCluster | LoneServer | StandaloneCluster | Yarn) -> tuple[str, int | None, Path]:
    """(address, process id if it runs, log) of a server."""
    if isinstance(server, KafkaCluster):
        return server.bootstrap, server.brokers_up.get(1), server.log()
    return server.uri if isinstance(server, LoneServer | Hdfs | Yarn) else server.address, server.pid, server.log


def _home(folder: Path, name: str) -> Path:
    return folder.absolute() / "services" / name


def _read(home: Path) -> _Record | None:
    data = read_or_none(home / "service.json")
    try:
        return None if data is None else msgspec.json.decode(data, type=_Record)
    except msgspec.DecodeError:  # edited by hand: then only the process shows the state
        return _Record("down", "")


def _write(home: Path, wanted: Literal["up", "down"]) -> None:
    record = _Record(wanted, now_text())
    replace(home / "service.json", msgspec.json.encode(record) + b"\n")


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold a lock, so that concurrent starts and stops are serialised."""
    home = folder.absolute() / "services"
    make_folder(home)
    with explained(f"{home / 'lock'} cannot be written"), (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
