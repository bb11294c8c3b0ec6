"""A real OpenSearch on 127.0.0.1: one node, without security, from jars."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import TYPE_CHECKING

from scribengin.core.storage import make_folder, replace
from scribengin.embedded.jars import fetch
from scribengin.embedded.server import HOST, LoneServer, check_port, java_command, start_server

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NAME = "OpenSearch"
JARS = "opensearch"
_MAIN = "org.codelibs.opensearch.runner.OpenSearchRunner"
_MODULES = "org.opensearch.transport.Netty4Plugin"
"""only the HTTP module of a distribution: each further module makes the start longer"""
_PORTS = range(9201, 9299)
"""the runner uses no HTTP port above this range"""
_SETTINGS = b"cluster.routing.allocation.disk.threshold_enabled: false\n"
"""without disk limits: a laptop's disk is often more than nine tenths full, and no index could be created there"""
_HEAP_MIB = 512
_READY_WITHIN_S = 120.0


class OpenSearch(LoneServer):
    """An OpenSearch with one node, open to all users of this machine."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, NAME, files="opensearch", ports=_PORTS)

    @property
    def uri(self) -> str:
        """The URL for clients."""
        return f"http://{self.address}"

    def fetch(self, tell: Callable[[str], None]) -> None:
        """Fetch the server's jars. `tell` is called with a message before."""
        fetch(JARS, tell)

    def start(self) -> None:
        """Start the server if it is not running, and return when it serves. Fetches the jars if the cache lacks them. Raises
        EnvironmentFault: there is no Java, jars cannot be fetched, the port is taken, or the server does not start."""
        if self._server is not None and self._server.alive():
            return
        check_port(self._port, NAME)
        config = self.folder / "data" / "node_1" / "config"  # the runner keeps an existing file
        for folder in (self.folder / "run", config):
            make_folder(folder)
        replace(config / "opensearch.yml", _SETTINGS)
        # nodes of one machine that have the same cluster name find each other, and join
        arguments: list[str | Path] = ["-basePath", self.folder / "data", "-clusterName", f"scribengin-{self._port}", "-numOfNode", "1"]
        # the runner adds the node's number, 1
        arguments += ["-baseHttpPort", str(self._port - 1), "-moduleTypes", _MODULES]
        command = java_command(_MAIN, fetch(JARS), arguments, heap_mib=_HEAP_MIB, folder=self.folder / "run")
        self._server = start_server(NAME, command, pid_file=self._pid_file, log=self.log)
        try:
            self._server.wait_ready(self.answers, _READY_WITHIN_S)
        except BaseException:
            self.kill()
            raise

    def answers(self, *, timeout_s: float = 2.0) -> bool:
        """True if the server accepts documents: its state has been recovered."""
        return takes_documents(self._port, timeout_s)


def takes_documents(port: int, timeout_s: float) -> bool:
    """True if the node on that port has loaded its state, so that it has its indexes."""
    with suppress(OSError), socket.create_connection((HOST, port), timeout=timeout_s) as connection:
        connection.sendall(b"GET /_cluster/health?filter_path=status HTTP/1.0\r\n\r\n")
        said = b""
        while part := connection.recv(4096):
            said += part
        return b'"yellow"' in said or b'"green"' in said
    return False
