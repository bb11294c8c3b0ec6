"""A master without a registry or workers of its own. Any number of them, on any hosts; one leads. What `scribengin master` runs."""

from __future__ import annotations

import os
import socket
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Self

from scribengin.api.app import make_app
from scribengin.api.audit import AuditLog
from scribengin.api.plane import Plane
from scribengin.api.planning import Planner, from_others
from scribengin.api.serving import Listen, open_door
from scribengin.api.tokens import TokenFile
from scribengin.control.bell import Bell
from scribengin.control.master import Master
from scribengin.control.masters import CERTIFICATES, addresses, token_of
from scribengin.control.orders import ordering
from scribengin.control.watch import Watch
from scribengin.core.moments import now_text
from scribengin.hosts.package_keeper import PackageKeeper
from scribengin.hosts.presence import Presence
from scribengin.local.run_log import open_run_log
from scribengin.registry.tree import MASTERS
from scribengin.watching.board import Board

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from scribengin.control.home import Home
    from scribengin.registry.contract import Registry
    from scribengin.registry.entrance import Entrance


class MasterHost:
    """Up inside the `with` block: it contends for the lead, and its record `masters/<name>` says that it is there, and where its API
    answers, `url`. `registry` is its client, `master` what leads or stands by."""

    registry: Registry
    master: Master
    url: str

    def __init__(
        self,
        home: Home,
        name: str,
        entrance: Entrance,
        *,
        listen: Listen | None = None,
        logs: Callable[[str], Sequence[str]] = lambda _worker: (),
        state: Path | None = None,
        session_s: float = 10.0,
    ) -> None:
        """`listen`: where the API answers, a free port of the loopback by default. `logs`: as `Plane` says. `state`: the root of the
        folders in which new flows keep their state, on every host the same; in the home by default. `session_s`: after so long without
        a sign another one leads."""
        self.home = home
        self.name = name
        self._entrance = entrance
        self._listen = listen or Listen()
        self._logs = logs
        self._state = (state or home.state).absolute()
        self._session_s = session_s
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        """Raises as `Entrance.open` and `open_door`."""
        self._entrance.check_workers()
        with ExitStack() as stack:
            tokens = TokenFile(self.home.tokens)
            self._listen.check(tokens)
            door = stack.enter_context(open_door(self._listen))
            self.url = door.url
            log = stack.enter_context(open_run_log(self.home.master_log(self.name)))
            self.registry = self._entrance.open(session_s=self._session_s)
            stack.callback(self.registry.close)
            about = {
                "id": self.name,
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "since": now_text(),
                "http": self.url,
            }
            board = Board()
            bell = Bell(self.registry, board, log)
            stack.callback(bell.close)
            watch = Watch(self.registry, board, bell, lambda: master.leads)
            self.master = master = Master(
                self.registry, {}, ordering(self.registry), about, log=log, watch=watch, worker_login=self._entrance.worker_login
            )
            stack.enter_context(Presence(self.registry, MASTERS(self.name).path, about))
            thread = threading.Thread(target=self.master.run, name="master")
            stack.callback(thread.join)
            stack.callback(self.master.stop)
            thread.start()
            plane = Plane(
                self.registry,
                self.home.packages,
                Planner(self.home.packages.folder, self._state, fetch=self._fetch()),
                str(self._state),
                self._listen.gate(tokens),
                audit=AuditLog(self.home.audit_log(self.name), log),
                leads=lambda: master.leads,
                logs=self._logs,
                watch=watch,
            )
            stack.enter_context(door.serve(make_app(plane)))
            stack.enter_context(PackageKeeper(self.registry, self.home.packages, self.url, os.environ, log=log))
            self._stack = stack.pop_all()
        return self

    def _fetch(self) -> Callable[[str], None]:
        """Brings packages here that other masters have."""
        certificates = os.environ.get(CERTIFICATES)
        return from_others(
            self.home.packages,
            lambda: [address for address in addresses(self.registry) if address != self.url],
            token=token_of(os.environ),
            certificates=Path(certificates) if certificates else None,
        )

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()
