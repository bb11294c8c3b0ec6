"""What servers of one process have in common: a folder with their log, their port and their pid, and how they end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Self

from scribengin.embedded.java_server import HOST, PORTS
from scribengin.embedded.place import port_of
from scribengin.embedded.process import find_server

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType

    from scribengin.embedded.process import ServerProcess

_STOPPED_WITHIN_S = 20.0


class LoneServer(ABC):
    """One process. Data and port stay in `folder` over restarts; one that was released is found again.

    As a context manager it is up inside the block, gone after it, and gone too when this process ends in any other way.
    """

    def __init__(self, folder: Path, name: str, *, files: str, ports: range = PORTS) -> None:
        """`name` is for messages, `files` begins the names of its log and of the file with its pid; it listens on one of `ports`."""
        self.folder = folder.absolute()
        self.log = self.folder / "log" / f"{files}.log"
        self._pid_file = self.folder / "run" / f"{files}.pid.json"
        self._port = port_of(self.folder, ports)
        self._server: ServerProcess | None = find_server(name, pid_file=self._pid_file, log=self.log)

    @property
    def address(self) -> str:
        """`127.0.0.1:port`."""
        return f"{HOST}:{self._port}"

    @property
    def uri(self) -> str:
        """What a client connects to."""
        return self.address

    @property
    def pid(self) -> int | None:
        """The server's process, where it is there."""
        return self._server.process.pid if self._server is not None and self._server.alive() else None

    def fetch(self, tell: Callable[[str], None]) -> None:  # noqa: B027 (most have it already)
        """Fetch what it is made of, where that lacks; `tell` gets a line before, for it may take minutes. Raises EnvironmentFault."""

    @abstractmethod
    def start(self) -> None:
        """Start it where it is not up, and return when it serves. Raises EnvironmentFault."""

    @abstractmethod
    def answers(self) -> bool:
        """Whether it serves."""

    def release(self) -> None:
        """Let it live on when this process ends."""
        if self._server is not None:
            self._server.release()

    def stop(self) -> None:
        """End it in order; it is killed where it does not end in time. No error where it is not up."""
        server, self._server = self._server, None
        if server is not None:
            server.stop(_STOPPED_WITHIN_S)

    def kill(self) -> None:
        """End it as a crash does, and return when it is gone. No error where it is not up."""
        server, self._server = self._server, None
        if server is not None:
            server.kill()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()
