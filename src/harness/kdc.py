"""A real Kerberos KDC on 127.0.0.1, for tests: Apache Kerby, from the jars of Hadoop's own tests. Its realm is EXAMPLE.COM."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import TYPE_CHECKING

from scribengin.core.storage import replace
from scribengin.embedded.jars import fetch
from scribengin.embedded.server import HOST, LoneServer, check_port, java_command, start_server

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

REALM = "EXAMPLE.COM"
_HEAP_MIB = 64
_READY_WITHIN_S = 180.0
_ANSWER_S = 5.0


class Kdc(LoneServer):
    """A KDC with some principals, whose keys are in one keytab. A context manager: it ends after its block."""

    def __init__(self, folder: Path, principals: Sequence[str]) -> None:
        """Prepare it. `folder`: its folder. `principals`: their names, without the realm."""
        super().__init__(folder, "KDC", files="kdc")
        self._principals = list(principals)

    @property
    def keytab(self) -> Path:
        """The keys of all principals."""
        return self.folder / "all.keytab"

    @property
    def krb5_conf(self) -> Path:
        """The settings of its clients."""
        return self.folder / "krb5.conf"

    def start(self) -> None:
        """Start it, and return when it answers. Raises EnvironmentFault."""
        check_port(self._port, "KDC")
        settings = {"kdc.bind.address": HOST, "kdc.port": self._port, "org.name": "EXAMPLE", "org.domain": "COM", "transport": "TCP"}
        replace(self.folder / "kdc.properties", "".join(f"{name}={value}\n" for name, value in settings.items()).encode())
        words: list[str | Path] = [self.folder, self.folder / "kdc.properties", self.keytab, *self._principals]
        command = java_command("org.apache.hadoop.minikdc.MiniKdc", fetch("kdc"), words, heap_mib=_HEAP_MIB, folder=self.folder / "run")
        self._server = start_server("KDC", command, pid_file=self._pid_file, log=self.log)
        self._server.wait_ready(self.answers, _READY_WITHIN_S)
        self.keytab.chmod(0o600)

    def answers(self) -> bool:
        """True if it takes connections, and has written its files."""
        with suppress(OSError), socket.create_connection((HOST, self._port), timeout=_ANSWER_S):
            return self.krb5_conf.exists() and self.keytab.exists()
        return False
