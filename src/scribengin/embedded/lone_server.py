"""Common parts of servers with one process: a folder with their log, port and pid, and how they are stopped."""

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
    """One process. Data and port stay in `folder` over restarts; a released process is found again.

    As a context manager it runs inside the block, and ends after it, also if this process ends in any other way.
    """

    def __init__(self, folder: Path, name: str, *, files: str, ports: range = PORTS) -> None:
        """`name` is for messages, `files` is the beginning of the names of its log and its pid file; it listens on one of `ports`."""
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
        """The URL for clients."""
        return self.address

    @property
    def pid(self) -> int | None:
        """The server's process, if it is running."""
        return self._server.process.pid if self._server is not None and self._server.alive() else None

    def fetch(self, tell: Callable[[str], None]) -> None:  # noqa: B027 (most have it already)
        """Fetch its files, if they are missing; `tell` gets a line before, because it may take minutes. Raises EnvironmentFault."""

    @abstractmethod
    def start(self) -> None:
        """Start it if it is not up, and return when it serves. Raises EnvironmentFault."""

    @abstractmethod
    def answers(self) -> bool:
        """Whether it serves."""

    def release(self) -> None:
        """Keep it running after this process ends."""
        if self._server is not None:
            self._server.release()

    def stop(self) -> None:
        """Stop it cleanly; it is killed if it does not end in time. No error if it is not up."""
        server, self._server = self._server, None
        if server is not None:
            server.stop(_STOPPED_WITHIN_S)

    def kill(self) -> None:
        """Kill it, and return when it has ended. No error if it is not up."""
        server, self._server = self._server, None
        if server is not None:
            server.kill()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()
