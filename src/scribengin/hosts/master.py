"""A master without a registry or workers of its own. Any number of them run, on any hosts; one leads. `scribengin server master` runs
it."""

from __future__ import annotations

import os
import socket
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

from scribengin.api.app import make_app
from scribengin.api.audit import AuditLog
from scribengin.api.flow_files import plan_file
from scribengin.api.node_pages import NodePages
from scribengin.api.plane import Plane
from scribengin.api.planner import Planner, from_others
from scribengin.api.serving import Listen, open_listener
from scribengin.api.state_routes import measured_backlogs
from scribengin.api.token_file import TokenFile
from scribengin.api.tokens import Tokens
from scribengin.control.agent_watch import AgentWatch
from scribengin.control.alerting import AlertDispatcher
from scribengin.control.backlog_measurement import Measuring
from scribengin.control.executor import ordering
from scribengin.control.flow_files import FlowFilePlanner, FlowFiles
from scribengin.control.master import Master
from scribengin.control.masters import certificates_of, others, token_of
from scribengin.control.peering import PeerClients, Peering
from scribengin.control.version_retention import KEPT_VERSIONS, prune_versions
from scribengin.control.worker_reports import WorkerWatch
from scribengin.control.workflows import Workflows
from scribengin.core.time_text import now_text
from scribengin.hosts.package_keeper import PackageKeeper
from scribengin.hosts.presence import Presence
from scribengin.local.run_log import open_run_log
from scribengin.registry.tree import FILE, MASTERS
from scribengin.watching.telemetry import Board

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from types import TracebackType

    from scribengin.control.home import Home
    from scribengin.hosts.package_keeper import Versions
    from scribengin.registry.connection_settings import ConnectionSettings
    from scribengin.registry.contract import Registry


class MasterHost:
    """A master that runs inside the `with` block: it contends for the lead, and its record `masters/<name>` shows that it runs, and the
    address of its API, `url`. `registry` is its client, `master` the part that leads or stands by."""

    registry: Registry
    master: Master
    url: str

    def __init__(
        self,
        home: Home,
        name: str,
        entrance: ConnectionSettings,
        *,
        listen: Listen | None = None,
        logs: Callable[[str], Sequence[str]] = lambda _worker: (),
        state: Path | None = None,
        session_s: float = 10.0,
        keep_versions: int = KEPT_VERSIONS,
    ) -> None:
        """Prepare a master; the block starts it.

        Args:
            home: its folder.
            name: its name.
            entrance: the connection settings of the registry.
            listen: the address of the API; by default a free port of the loopback.
            logs: see `Plane`.
            state: the root of the folders in which new flows keep their state, the same on every host; by default in the home.
            session_s: seconds without contact after which another master leads.
            keep_versions: the number of versions kept of each flow, besides those in use.
        """
        self.home = home
        self.name = name
        self._entrance = entrance
        self._listen = listen or Listen()
        self._logs = logs
        self._state = (state or home.state).absolute()
        self._session_s = session_s
        self._keep_versions = keep_versions
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        """Start the master. Raises as `ConnectionSettings.open` and `open_listener`."""
        self._entrance.check_workers()
        with ExitStack() as stack:
            self._listen.check_transport()
            log = stack.enter_context(open_run_log(self.home.master_log(self.name)))
            self.registry = self._entrance.open(session_s=self._session_s)
            stack.callback(self.registry.close)
            for moved in TokenFile(self.home.tokens).move_to(
                self.registry,
                lambda name, why: log.warning("token not moved to the registry: it is not valid; make another", name=name, why=why),
            ):
                log.info("token moved to the registry", name=moved)
            tokens = Tokens(self.registry)
            there = tokens.there()
            self._listen.check_tokens(there=there)
            listener = stack.enter_context(open_listener(self._listen))
            self.url = listener.url
            about = {
                "id": self.name,
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "since": now_text(),
                "http": self.url,
            }
            board = Board()
            agents = AgentWatch(self.registry, log, lambda: master.lead)
            stack.callback(agents.close)
            dispatcher = AlertDispatcher(self.registry, board, log, agents.away)
            stack.callback(dispatcher.close)
            measuring = Measuring(lambda flow: measured_backlogs(plane, flow), board, log, lambda: master.leads)
            stack.callback(measuring.close)
            watch = WorkerWatch(self.registry, board, dispatcher, lambda: master.leads, measuring)
            audit = AuditLog(self.home.audit_log(self.name), log)
            files = FlowFiles(
                self.registry,
                lambda flow, file: plan_file(plane, flow, file),
                str(self._state),
                note=lambda flow, outcome: audit.write(FILE(flow).path, "", "apply", flow, outcome),
            )
            taking = FlowFilePlanner(files, log)
            stack.callback(taking.close)
            peering = Peering(
                self.registry, PeerClients(self.home.peers, certificates_of(os.environ)), Workflows(self.registry), log, waits=watch.waits
            )
            stack.callback(peering.close)
            self.master = master = Master(
                self.registry,
                {},
                ordering(self.registry),
                about,
                log=log,
                watch=watch,
                worker_login=self._entrance.worker_login,
                takes=taking.want,
                asks=peering.want,
                agents=agents,
            )
            agents.start()
            stack.enter_context(Presence(self.registry, MASTERS(self.name).path, about))
            plane = Plane(
                self.registry,
                self.home.packages,
                Planner(self.home.packages.folder, fetch=self._fetch()),
                str(self._state),
                self._listen.gate(tokens, there=there),
                audit=audit,
                leads=lambda: master.leads,
                logs=self._logs,
                watch=watch,
                glance=lambda: {**about, "term": master.term, "cycle": master.last_cycle, "decided": master.decided()},
                asks_nodes=NodePages(
                    self.registry, self._entrance.host_key, token=token_of(os.environ), certificates=certificates_of(os.environ)
                ),
            )
            thread = threading.Thread(target=self.master.run, name="master")
            stack.callback(thread.join)
            stack.callback(self.master.stop)
            thread.start()
            stack.enter_context(listener.serve(make_app(plane)))
            stack.enter_context(PackageKeeper(self.registry, self.home.packages, self.url, os.environ, log=log, hear=self._prune))
            self._stack = stack.pop_all()
        return self

    def _prune(self, specs: Versions) -> None:
        """Remove the versions that are no longer needed, if this master leads."""
        if (term := self.master.lead) is not None:
            prune_versions(self.registry, specs, self._keep_versions, term)

    def _fetch(self) -> Callable[[str], None]:
        """Returns a function that fetches a package from another master."""
        return from_others(
            self.home.packages,
            lambda: others(self.registry, self.url),
            token=token_of(os.environ),
            certificates=certificates_of(os.environ),
        )

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()
