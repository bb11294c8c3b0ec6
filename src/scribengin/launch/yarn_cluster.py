"""A YARN cluster: how its clients find it, and the REST API of its ResourceManagers, as far as launchers and `doctor` need it."""

from __future__ import annotations

import os
import re
import sys
import urllib.error
import urllib.request
from contextlib import suppress
from dataclasses import dataclass
from getpass import getuser
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote, urlsplit
from xml.etree import ElementTree

import msgspec

from scribengin.core.errors import EnvironmentFault, Unreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from scribengin.launch.yarn_python import PythonArchive

_Kind = TypeVar("_Kind")
_KEYTAB = b"\x05"
"""the first byte of every keytab"""
_ANSWER_S = 5.0
_ANSWER_BYTES = 2**26
_LIVE = frozenset({"NEW", "NEW_SAVING", "SUBMITTED", "ACCEPTED", "RUNNING"})


@dataclass(frozen=True, slots=True)
class KerberosLogin:
    """A login with a keytab. Its content is never read here: Spark's client logs in with it, and stages it for the driver."""

    principal: str
    keytab: Path

    @property
    def name(self) -> str:
        """The name of its user in Hadoop: the principal's first part, by Hadoop's default rule."""
        return re.split("[/@]", self.principal)[0]

    def check(self) -> None:
        """Raise EnvironmentFault unless the principal is one, and the keytab a file that this user, and no other, may read."""
        if not re.fullmatch(r"[^\s/@]+(/[^\s/@]+)?(@[^\s/@]+)?", self.principal):
            raise EnvironmentFault(
                f'"{self.principal}" is not a valid Kerberos principal', remedy="write NAME@REALM, or NAME/HOST@REALM", code="yarn-kerberos"
            )
        try:
            with self.keytab.open("rb") as file:
                mode = os.fstat(file.fileno()).st_mode
                is_one = file.read(1) == _KEYTAB
        except OSError as error:
            remedy = "name a keytab that the user of the node can read; it is needed at each start of a worker"
            raise EnvironmentFault(
                f"the keytab {self.keytab} cannot be read: {error.strerror}", remedy=remedy, code="yarn-kerberos"
            ) from error
        if mode & 0o077:
            raise EnvironmentFault(
                f"{self.keytab} holds a key, and other users of this machine can read it",
                remedy=f"chmod 600 {self.keytab}",
                code="file-open",
            )
        if not is_one:
            remedy = f"make one: ktutil, kadmin ktadd, or ktpass; read it with: klist -kt {self.keytab}"
            raise EnvironmentFault(f"{self.keytab} is not a keytab", remedy=remedy, code="yarn-kerberos")


@dataclass(frozen=True, slots=True)
class YarnCluster:
    """A YARN cluster, and how applications are submitted to it.

    Attributes:
        conf: the folder with the settings of its clients: `core-site.xml`, `hdfs-site.xml`, `yarn-site.xml`.
        web: the addresses of the ResourceManagers' web pages, `http://host:port`; more than one if another takes over when one fails.
        queue: the queue of the applications; empty: YARN's default.
        python: the Python of drivers and executors, on every host of the cluster; or in the containers, if it is in an archive.
        archive: the archive with that Python; None if the hosts have it.
        file_system: the URL of the cluster's file system, `fs.defaultFS`; empty if it is not set.
        login: the Kerberos login of applications; None if they use the ticket of this process, or the cluster is not secured.
        local: True if only this machine reaches the cluster.
        client: True for client mode.
    """

    conf: Path
    web: tuple[str, ...]
    queue: str = ""
    python: str = sys.executable
    local: bool = False
    client: bool = False
    archive: PythonArchive | None = None
    file_system: str = ""
    login: KerberosLogin | None = None

    @property
    def user(self) -> str:
        """The user of its applications: HADOOP_USER_NAME, the principal's name before the first `/` or `@`, or the user of this process.
        A cluster whose rules (`hadoop.security.auth_to_local`) give a principal another name needs HADOOP_USER_NAME."""
        return os.environ.get("HADOOP_USER_NAME") or (self.login.name if self.login is not None else getuser())

    @property
    def master(self) -> str:
        """The cluster in messages and records: `yarn at` the address of its first ResourceManager."""
        return f"yarn at {self.web[0]}"

    @classmethod
    def of(
        cls,
        conf: Path,
        *,
        queue: str = "",
        python: str = "",
        client: bool = False,
        archive: PythonArchive | None = None,
        login: KerberosLogin | None = None,
    ) -> YarnCluster:
        """The cluster of a folder with settings.

        Args:
            conf: the folder.
            queue: see `YarnCluster`.
            python: see `YarnCluster`; empty: the path of this Python, or that of the archive.
            client: see `YarnCluster`.
            archive: see `YarnCluster`.
            login: see `YarnCluster`.

        Raises:
            EnvironmentFault: the folder has no valid settings of a ResourceManager.
        """
        settings: dict[str, str] = {}
        for name in ("core-site.xml", "yarn-site.xml"):
            settings |= site_settings(conf / name)
        secure = settings.get("yarn.http.policy", "") == "HTTPS_ONLY"
        key, scheme, port = ("webapp.https.address", "https", 8090) if secure else ("webapp.address", "http", 8088)
        names = [f".{name.strip()}" for name in settings.get("yarn.resourcemanager.ha.rm-ids", "").split(",") if name.strip()] or [""]
        web = []
        for name in names:
            place = settings.get(f"yarn.resourcemanager.{key}{name}")
            if place is None and (host := settings.get(f"yarn.resourcemanager.hostname{name}")):
                place = f"{host}:{port}"
            if place is not None:
                web.append(f"{scheme}://{place}")
        if not web:
            raise EnvironmentFault(
                f"{conf / 'yarn-site.xml'} does not name a ResourceManager",
                remedy="use the folder with the cluster's client settings: yarn-site.xml with yarn.resourcemanager.hostname or "
                "yarn.resourcemanager.webapp.address",
                code="yarn-settings",
            )
        local = all(urlsplit(each).hostname in ("127.0.0.1", "localhost", "::1") for each in web)
        return cls(
            conf=conf.absolute(),
            web=tuple(web),
            queue=queue,
            python=archive.python if archive is not None else python or sys.executable,
            local=local,
            client=client,
            archive=archive,
            file_system=settings.get("fs.defaultFS", ""),
            login=login,
        )


class Application(msgspec.Struct, frozen=True, rename="camel"):
    """An application as YARN's REST API describes it; times are in milliseconds since the epoch."""

    id: str
    name: str
    state: str
    final_status: str = ""
    diagnostics: str = ""
    started_time: int = 0
    finished_time: int = 0
    application_tags: str = ""
    am_container_logs: str = ""
    user: str = ""

    @property
    def is_live(self) -> bool:
        """True if it runs, or may still run."""
        return self.state in _LIVE


class _Applications(msgspec.Struct, frozen=True):
    app: list[Application] = []


class _Found(msgspec.Struct, frozen=True):
    apps: _Applications | None = None


class ManagerState(msgspec.Struct, frozen=True, rename="camel"):
    """What a ResourceManager reports of itself."""

    state: str
    ha_state: str = ""
    resource_manager_version: str = ""

    @property
    def is_active(self) -> bool:
        """True if it serves. One that has just started answers before it has recovered its applications. Without high availability its
        state is ACTIVE too."""
        return self.state == "STARTED" and self.ha_state == "ACTIVE"


class NodeTotals(msgspec.Struct, frozen=True):
    """The nodes of a cluster, and the resources that no container has."""

    active: int = msgspec.field(name="activeNodes", default=0)
    unhealthy: int = msgspec.field(name="unhealthyNodes", default=0)
    lost: int = msgspec.field(name="lostNodes", default=0)
    available_mib: int = msgspec.field(name="availableMB", default=0)
    available_cores: int = msgspec.field(name="availableVirtualCores", default=0)


class _Allocation(msgspec.Struct, frozen=True):
    memory: int = 0


class _Queues(msgspec.Struct, frozen=True):
    queue: list[YarnQueue] = []


class YarnQueue(msgspec.Struct, frozen=True, rename="camel"):
    """A queue of the CapacityScheduler. Shares are in percent of the cluster.

    Attributes:
        path: its name with those of the queues above it, `root.etl`; empty if the scheduler does not report it.
        maximum_allocation: the largest container.
        queues: the queues below it; None if applications can be submitted to it.
    """

    queue_name: str = ""
    path: str = msgspec.field(name="queuePath", default="")
    state: str = "RUNNING"
    absolute_max_capacity: float = 100.0
    absolute_used_capacity: float = 0.0
    maximum_allocation: _Allocation | None = None
    queues: _Queues | None = None

    @property
    def leaves(self) -> list[YarnQueue]:
        """The queues below it, or itself, that applications can be submitted to."""
        return [self] if self.queues is None else [leaf for each in self.queues.queue for leaf in each.leaves]


class _SchedulerQueues(YarnQueue, frozen=True, rename="camel"):
    type: str = ""


class _Scheduler(msgspec.Struct, frozen=True, rename="camel"):
    scheduler_info: _SchedulerQueues


class _Wrapped(msgspec.Struct, frozen=True, rename="camel"):
    """The three answers of the REST API that wrap a value in an object."""

    cluster_info: ManagerState | None = None
    cluster_metrics: NodeTotals | None = None
    scheduler: _Scheduler | None = None


class ResourceManagers:
    """The REST API of a cluster's ResourceManagers, as far as launchers and `doctor` need it."""

    def __init__(self, web: Sequence[str], user: str = "") -> None:
        """`web`: their addresses. `user`: as whom they are asked, if they do not ask for more; empty: `yarn_user`."""
        self._web = list(web)
        self._user = user or yarn_user()

    @property
    def web(self) -> str:
        """The address of the ResourceManager that answered last."""
        return self._web[0]

    def state(self) -> ManagerState:
        """The state of the ResourceManager. Raises Unreachable, EnvironmentFault: this user may not."""
        return self._decoded("/ws/v1/cluster/info", _Wrapped).cluster_info or ManagerState("unknown")

    def nodes(self) -> NodeTotals:
        """The nodes of the cluster, counted. Raises as `state`."""
        return self._decoded("/ws/v1/cluster/metrics", _Wrapped).cluster_metrics or NodeTotals()

    def queues(self) -> list[YarnQueue] | None:
        """The queues that applications can be submitted to; None if the scheduler is not the CapacityScheduler. Raises as `state`."""
        found = self._decoded("/ws/v1/cluster/scheduler", _Wrapped).scheduler
        return found.scheduler_info.leaves if found is not None and found.scheduler_info.type == "capacityScheduler" else None

    def tagged(self, tag: str) -> list[Application]:
        """The applications of this user with a tag, also those that have ended, as long as YARN remembers them. Raises Unreachable."""
        # without the user's name a cluster with `yarn.acl.enable` leaves out times and logs
        path = f"/ws/v1/cluster/apps?applicationTags={quote(tag)}&deSelects=resourceRequests,appNodeLabelExpression&{self._as_user}"
        found = self._decoded(path, _Found)
        # anyone may tag an application
        return [each for each in found.apps.app if each.user == self._user] if found.apps is not None else []

    def check_active(self) -> None:
        """Raise Unreachable unless a ResourceManager is active. One that has just started answers before it has recovered its
        applications; its list is empty then."""
        self._call("/ws/v1/cluster/info", accepts=_is_active)

    def kill(self, application: str) -> None:
        """Kill an application. Raises Unreachable, EnvironmentFault: this user may not."""
        self._call(f"/ws/v1/cluster/apps/{application}/state?{self._as_user}", b'{"state":"KILLED"}')

    @property
    def _as_user(self) -> str:
        """The part of a query by which a cluster without Kerberos knows who sends it."""
        return f"user.name={quote(self._user)}"

    def _decoded(self, path: str, kind: type[_Kind]) -> _Kind:
        """The answer, as a value of that type."""
        answer = self._call(path)
        try:
            return msgspec.json.decode(answer, type=kind)
        except msgspec.DecodeError as error:
            raise Unreachable(
                f"the answer of YARN's ResourceManager at {self._web[0]} cannot be read: {error}",
                remedy="check that this is the address of its web page, without a login in front of it",
                code="cluster-silent",
            ) from error

    def _call(self, path: str, body: bytes | None = None, *, accepts: Callable[[bytes], bool] = lambda _: True) -> bytes:
        """The answer of the first ResourceManager that gives an accepted one; it is asked first from then on."""
        why: Exception | None = None
        for web in self._web:
            headers = {"Accept": "application/json", "Content-Type": "application/json"}
            request = urllib.request.Request(web + path, data=body, method="GET" if body is None else "PUT", headers=headers)
            try:
                with urllib.request.urlopen(request, timeout=_ANSWER_S) as answer:
                    said: bytes = answer.read(_ANSWER_BYTES)
            except urllib.error.HTTPError as error:
                error.close()
                if error.code == 401 and "negotiate" in error.headers.get("WWW-Authenticate", "").lower():
                    raise EnvironmentFault(
                        f"YARN's ResourceManager at {web} asks for a Kerberos ticket (SPNEGO) on its web page; Scribengin cannot give one",
                        remedy="let the cluster's web pages take users by name (hadoop.http.authentication.type=simple), or run a proxy on "
                        "this machine that gives the ticket, and name it in --yarn-conf (yarn.resourcemanager.webapp.address)",
                        code="yarn-kerberos",
                    ) from error
                if error.code in (401, 403):
                    raise EnvironmentFault(
                        f"YARN's ResourceManager at {web} refuses this user ({self._user}): {error.code} {error.reason}",
                        remedy="run the node as a user who may use and end applications of the queue",
                        code="yarn-refused",
                    ) from error
                why = error
            except (OSError, ValueError) as error:
                why = error
            else:
                if accepts(said):
                    self._web = [web, *(other for other in self._web if other != web)]
                    return said
                why = ValueError("it is not active yet")
        raise Unreachable(
            f"YARN's ResourceManager does not answer at {', '.join(self._web)}: {why}",
            remedy="check that it is running, and that yarn-site.xml has the address of its web page",
            code="cluster-silent",
        ) from why


def _is_active(info: bytes) -> bool:
    with suppress(msgspec.DecodeError):
        found = msgspec.json.decode(info, type=_Wrapped).cluster_info
        return found is not None and found.is_active
    return False


def yarn_user() -> str:
    """The user in YARN: HADOOP_USER_NAME, or that of this process."""
    return os.environ.get("HADOOP_USER_NAME") or getuser()


def site_settings(path: Path) -> dict[str, str]:
    """The settings of a file; empty if it does not exist. Raises EnvironmentFault: it is not valid."""
    if not path.exists():
        return {}
    try:
        root = ElementTree.parse(path).getroot()
    except (OSError, ElementTree.ParseError) as error:
        raise EnvironmentFault(f"{path} cannot be read: {error}", remedy="repair the file", code="yarn-settings") from error
    return {(each.findtext("name") or "").strip(): (each.findtext("value") or "").strip() for each in root.iter("property")}
