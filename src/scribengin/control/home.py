"""The folder of a control plane on one machine: `scribengin server dev` makes it, and the other commands find it.

up.json            addresses of the registry and the API, and the process that leads; exists while the control plane runs
registry.login     user:password of the registry, readable by this user only
zookeeper/         the embedded registry: its data, port, log
packages/          the packages of all versions
spark/             the Spark cluster of `server dev --spark-standalone`
yarn/              the YARN and the HDFS of `server dev --yarn`
workers/           the launcher's folder: records and logs of workers
tokens.json        tokens that were made while no control plane ran; the next start takes them into the registry
audit.log          who has changed what by the API
state/             the state of the flows
scratch/           logs of flows whose state is elsewhere
"""

from __future__ import annotations

import fcntl
import os
import secrets
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

import msgspec

from scribengin.core.errors import Refused
from scribengin.core.secret import Secret
from scribengin.core.storage import explained, make_folder, read_or_none, replace, shown_path
from scribengin.core.time_text import now_text
from scribengin.packages.store import PackageStore
from scribengin.registry.access import DigestLogin, RegistryAddress

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scribengin.registry.connection_settings import ConnectionSettings
    from scribengin.registry.zookeeper import ZooKeeperRegistry

DEFAULT = Path("~/.scribengin")
LOCAL = "local"
"""the name of the one master and the one node of `scribengin server dev`"""
_TRIES, _BETWEEN_S = 5, 0.05


class _Up(msgspec.Struct, frozen=True):
    registry: str
    pid: int
    since: str
    http: str = ""
    format: int = 1


@dataclass(frozen=True, slots=True)
class Home:
    """A folder of a control plane. Its parts are created when they are needed."""

    folder: Path
    entrance: ConnectionSettings | None = None
    """the connection settings of the registry that commands use, if it is not that of the control plane in this folder"""

    @property
    def zookeeper(self) -> Path:
        """The folder of the embedded registry."""
        return self.folder / "zookeeper"

    @property
    def packages(self) -> PackageStore:
        """The packages of this host."""
        return PackageStore(self.folder / "packages")

    @property
    def workers(self) -> Path:
        """The folder of the local launcher."""
        return self.folder / "workers"

    def master_log(self, name: str) -> Path:
        """The log of the master of that name; several masters may share the folder."""
        return self.folder / ("master.log" if name == LOCAL else f"master-{name}.log")

    def audit_log(self, name: str) -> Path:
        """The audit log of the API of the master of that name."""
        return self.folder / ("audit.log" if name == LOCAL else f"audit-{name}.log")

    @property
    def state(self) -> Path:
        """The folder of the states of flows that are submitted here."""
        return self.folder / "state"

    @property
    def scratch(self) -> Path:
        """The folder of logs of flows whose state is elsewhere, in the layout of a state: `<flow>/<tier>/tmp`."""
        return self.folder / "scratch"

    @property
    def tokens(self) -> Path:
        """Tokens that were made while no control plane ran."""
        return self.folder / "tokens.json"

    @property
    def peers(self) -> Path:
        """The folder with a token for each peer that requires one, `PEER.token`."""
        return self.folder / "peers"

    @contextmanager
    def held(self, name: str = "lock") -> Iterator[None]:
        """Hold a lock: `lock` for one `server dev` at a time, `node.lock` for one node process. Raises Refused if another process holds
        it."""
        make_folder(self.folder)
        path = self.folder / name
        with explained(f"{path} cannot be written"), path.open("a") as lock:
            if not _locked(lock, fcntl.LOCK_EX):
                up = self._read() if name == "lock" else None
                what = "a control plane" if name == "lock" else "a node process"
                who = "another process" if up is None else f"process {up.pid}, since {up.since}"
                raise Refused(
                    f"{what} already runs in {self.folder}: {who}",
                    remedy="use it, or choose another folder: --home DIR",
                    code="already-up",
                )
            yield

    def login(self) -> DigestLogin:
        """The login of the embedded registry; made at the first call, readable by this user only."""
        path = self.folder / "registry.login"
        if read_or_none(path) is None:
            make_folder(self.folder)
            with explained(f"{path} cannot be written"):
                handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                with os.fdopen(handle, "w") as file:
                    file.write(f"scribengin:{secrets.token_urlsafe(32)}")
        return DigestLogin(Secret((read_or_none(path) or b"").decode(), str(path)))

    def announce(self, address: RegistryAddress, http: str = "") -> None:
        """Record that the control plane runs, and the address of its API."""
        up = _Up(str(address), os.getpid(), now_text(), http)
        replace(self.folder / "up.json", msgspec.json.encode(up) + b"\n")

    def withdraw(self) -> None:
        """Delete the record of the running control plane."""
        (self.folder / "up.json").unlink(missing_ok=True)

    def master(self) -> str:
        """The address of the API; empty if no control plane runs here, or it has no API."""
        up = self._read()
        return up.http if up is not None and self._is_held() else ""

    @contextmanager
    def registry(self) -> Iterator[ZooKeeperRegistry]:
        """A client of the registry in `entrance`, or of the control plane in this folder. Raises Refused if none runs, Unreachable if it
        does not answer."""
        if self.entrance is not None:
            client = self.entrance.open()
            try:
                yield client
            finally:
                client.close()
            return
        up = self._read()
        if up is None or not self._is_held():
            raise self.not_up()
        from scribengin.registry.zookeeper import open_zookeeper  # kazoo is of an extra, which clients of the API do not need

        registry = open_zookeeper(RegistryAddress.parse(up.registry), login=self.login())
        try:
            yield registry
        finally:
            registry.close()

    def not_up(self) -> Refused:
        """The error if no control plane runs here."""
        up = self._read()
        gone = "" if up is None else f": process {up.pid} was killed or has crashed; its workers may still run"
        return Refused(f"no control plane runs in {shown_path(self.folder)}{gone}", remedy="start it: scribengin server dev", code="not-up")

    def _is_held(self) -> bool:
        try:
            with (self.folder / "lock").open() as lock:
                return not _locked(lock, fcntl.LOCK_SH)
        except FileNotFoundError:
            return False

    def _read(self) -> _Up | None:
        data = read_or_none(self.folder / "up.json")
        try:
            return None if data is None else msgspec.json.decode(data, type=_Up)
        except msgspec.DecodeError:
            return None


def _locked(file: IO[str], how: int) -> bool:
    """True if the lock was acquired. It is tried for a moment: a process that only checks the lock holds it too, as long as the check
    takes."""
    for _ in range(_TRIES):
        try:
            fcntl.flock(file, how | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_BETWEEN_S)
        else:
            return True
    return False
