"""A real Cassandra on 127.0.0.1: one node from jars, open to all users of this machine."""

from __future__ import annotations

import json
import socket
import struct
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from scribengin.core.storage import make_folder, replace
from scribengin.embedded.jars import fetch
from scribengin.embedded.server import HOST, LoneServer, check_port, free_ports, java_command, load_or_create, start_server

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NAME = "Cassandra"
JARS = "cassandra"
_MAIN = "org.apache.cassandra.service.CassandraDaemon"
_HEAP_MIB = 512
_READY_WITHIN_S = 180.0
_EXPORTS = (
    *(f"java.base/{package}" for package in ("jdk.internal.misc", "jdk.internal.ref", "sun.nio.ch", "java.lang.ref")),
    *(f"java.rmi/sun.rmi.{package}" for package in ("registry", "server", "transport.tcp")),
    "java.management.rmi/com.sun.jmx.remote.internal.rmi",
    "java.sql/java.sql",
    "jdk.unsupported/sun.misc",
)
_OPENS = (
    *(
        f"java.base/{package}"
        for package in (
            "java.io",
            "java.lang",
            "java.lang.module",
            "java.lang.reflect",
            "java.nio",
            "java.util",
            "java.util.concurrent",
            "java.util.concurrent.atomic",
            "jdk.internal.loader",
            "jdk.internal.math",
            "jdk.internal.module",
            "jdk.internal.ref",
            "jdk.internal.reflect",
            "jdk.internal.util.jar",
            "sun.nio.ch",
        )
    ),
    "java.rmi/sun.rmi.transport.tcp",
    "jdk.management/com.sun.management.internal",
)
"""Java modules that Cassandra's own start script opens, for Java 17"""
_SETTINGS = {
    "ring_delay_ms": 100,
    "skip_wait_for_gossip_to_settle": 0,
    "superuser_setup_delay_ms": 0,
    "initial_token": 0,
    "auth_bcrypt_gensalt_log2_rounds": 4,
}
"""settings for a single node that waits for no others, and whose passwords are not secret: by default each new connection costs it 0.1 s of
a core"""
_STARTUP = b"\x04\x00\x00\x00\x01"
_QUERY = b"\x04\x00\x00\x00\x07"
_READY, _AUTHENTICATE, _RESULT = 2, 3, 8
_HEADER_BYTES = 9
"""length of a header of the native protocol, version 4: version, flags, stream, operation, length"""


class _Storage(msgspec.Struct, frozen=True):
    port: int


class Cassandra(LoneServer):
    """A Cassandra with one node. It keeps acknowledged writes when it is killed."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, NAME, files="cassandra")
        self._storage = load_or_create(self.folder / "storage.json", _Storage, lambda: _Storage(free_ports(1)[0])).port

    def fetch(self, tell: Callable[[str], None]) -> None:
        """Fetch the server's jars. `tell` is called with a message before."""
        fetch(JARS, tell)

    def start(self, **settings: str) -> None:
        """Start the server if it is not running, and return when it serves. Fetches the jars if the cache lacks them.

        Args:
            settings: settings that override the default ones (`authenticator="PasswordAuthenticator"`).

        Raises:
            EnvironmentFault: there is no Java, jars cannot be fetched, the port is taken, or the server does not start.
        """
        if self._server is not None and self._server.alive():
            return
        for port in (self._port, self._storage):
            check_port(port, NAME)
        run = self.folder / "run"
        make_folder(run)
        config = run / "cassandra.yaml"
        replace(config, json.dumps(self._config() | settings, indent=1).encode())  # JSON is YAML
        jars = fetch(JARS)
        agent = next(jar for jar in jars if jar.name.startswith("jamm-"))
        given = {"config": config.as_uri(), "storagedir": self.folder / "data", "foreground": "true"} | _SETTINGS
        flags = [
            *(f"--add-exports={each}=ALL-UNNAMED" for each in _EXPORTS),
            *(f"--add-opens={each}=ALL-UNNAMED" for each in _OPENS),
            *("-Xss512k", "-XX:MaxDirectMemorySize=256m", "-Djdk.attach.allowAttachSelf=true", f"-javaagent:{agent}"),
            "-Dio.netty.tryReflectionSetAccessible=true",
            *(f"-Dcassandra{'-' if name == 'foreground' else '.'}{name}={value}" for name, value in given.items()),
        ]
        command = java_command(_MAIN, jars, [], heap_mib=_HEAP_MIB, folder=run, flags=flags)
        self._server = start_server(NAME, command, pid_file=self._pid_file, log=self.log)
        try:
            self._server.wait_ready(self.answers, _READY_WITHIN_S)
        except BaseException:
            self.kill()
            raise

    def answers(self, *, timeout_s: float = 2.0) -> bool:
        """True if the server answers a query, or requests a login: its port is open before that."""
        with suppress(OSError), socket.create_connection((HOST, self._port), timeout=timeout_s) as connection:
            said = _asked(connection, _STARTUP, b"\x00\x01\x00\x0bCQL_VERSION\x00\x053.0.0")
            if said == _READY:
                query = b"SELECT key FROM system.local"
                said = _asked(connection, _QUERY, struct.pack(">i", len(query)) + query + b"\x00\x01\x00")
            return said in (_RESULT, _AUTHENTICATE)
        return False

    def _config(self) -> dict[str, object]:
        data = self.folder / "data"
        return {
            "cluster_name": "scribengin",
            "num_tokens": 1,
            "partitioner": "org.apache.cassandra.dht.Murmur3Partitioner",
            "endpoint_snitch": "SimpleSnitch",
            "listen_address": HOST,
            "rpc_address": HOST,
            "storage_port": self._storage,
            "native_transport_port": self._port,
            "seed_provider": [
                {"class_name": "org.apache.cassandra.locator.SimpleSeedProvider", "parameters": [{"seeds": f"{HOST}:{self._storage}"}]}
            ],
            # by default, writes are acknowledged before they are durable: a single node that is killed loses them
            "commitlog_sync": "batch",
            "commitlog_segment_size": "8MiB",
            "commitlog_total_space": "256MiB",
            "data_file_directories": [str(data / "data")],
            "commitlog_directory": str(data / "commitlog"),
            "saved_caches_directory": str(data / "saved_caches"),
            "hints_directory": str(data / "hints"),
            "cdc_raw_directory": str(data / "cdc_raw"),
            "memtable_heap_space": "64MiB",
            "memtable_offheap_space": "64MiB",
            "file_cache_size": "32MiB",
            "key_cache_size": "8MiB",
            "auto_snapshot": False,
        }


def _asked(connection: socket.socket, kind: bytes, body: bytes) -> int:
    """Send a request; returns the operation in the server's answer, 0 if the server disconnects."""
    connection.sendall(kind + struct.pack(">i", len(body)) + body)
    answer = b""
    wanted = _HEADER_BYTES
    while len(answer) < wanted:
        part = connection.recv(4096)
        if not part:
            return 0
        answer += part
        if len(answer) >= _HEADER_BYTES:
            wanted = _HEADER_BYTES + int(struct.unpack_from(">i", answer, 5)[0])
    return answer[4]
