"""Connections to Thrift servers of HBase: version 2 of their interface, in the binary protocol, buffered."""

from __future__ import annotations

import socket
import threading
import time
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from scribengin.connectors.hbase.thrift_message import METHOD
from scribengin.core.errors import EnvironmentFault

if TYPE_CHECKING:
    import ssl

_PORT = 9090
_CONNECT_S, _READ_S = 10.0, 120.0
_FRESH_S = 20.0
"""a server closes a connection that was idle for a minute (`hbase.thrift.server.socket.read.timeout`)"""


@cache
def api() -> Any:
    """The calls and their structs. Raises EnvironmentFault if the client is not installed."""
    try:
        import thriftpy2
    except ImportError as error:
        raise EnvironmentFault(
            f"a Thrift server of HBase needs the package thriftpy2: {error}",
            remedy="install it: pip install 'scribengin[hbase-thrift]'; or name a REST server",
            code="hbase-client",
        ) from error
    return thriftpy2.load(str(files(__package__).joinpath("hbase.thrift")), module_name="scribengin_hbase_thrift")


class Connection:
    """To one server, used by one thread at a time."""

    def __init__(self, server: str, trusted: ssl.SSLContext | None) -> None:
        """`trusted`: the certificates that a TLS client trusts. Raises OSError if no server answers, or it is another one."""
        from thriftpy2.protocol import TBinaryProtocol
        from thriftpy2.thrift import TClient
        from thriftpy2.transport import TBufferedTransport, TSocket

        parts = urlsplit(server)
        assert parts.hostname is not None
        plain = socket.create_connection((parts.hostname, parts.port or _PORT), _CONNECT_S)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket = plain if trusted is None else trusted.wrap_socket(plain, server_hostname=parts.hostname)
            self._socket.settimeout(_READ_S)
        except BaseException:
            plain.close()
            raise
        self._transport = TBufferedTransport(TSocket(sock=self._socket))
        self._protocol = TBinaryProtocol(self._transport)
        self._client = TClient(api().THBaseService, self._protocol)
        self.server = server
        self.used = time.monotonic()

    def call(self, method: str, *given: Any) -> Any:
        """The answer of the server. Raises the server's error, and OSError or TException if there is no answer."""
        answer = getattr(self._client, method)(*given)
        self.used = time.monotonic()
        return answer

    def put(self, message: bytes) -> None:
        """The same for a prepared message that writes rows."""
        from thriftpy2.thrift import TApplicationException, TMessageType

        self._transport.write(message)
        self._transport.flush()
        _, kind, _ = self._protocol.read_message_begin()
        answer = TApplicationException() if kind == TMessageType.EXCEPTION else getattr(api().THBaseService, f"{METHOD}_result")()
        answer.read(self._protocol)
        self._protocol.read_message_end()
        self.used = time.monotonic()
        if isinstance(answer, TApplicationException):
            raise answer
        if answer.io is not None:
            raise answer.io

    def close(self) -> None:
        """Close it."""
        self._socket.close()


class Pool:
    """Idle connections."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[Connection] = []

    def take(self, server: str) -> Connection | None:
        """An idle connection to this server that is probably open; those that were idle for long are closed."""
        with self._lock:
            old = [each for each in self._idle if time.monotonic() - each.used > _FRESH_S]
            self._idle = [each for each in self._idle if each not in old]
            found = next((each for each in self._idle if each.server == server), None)
            if found is not None:
                self._idle.remove(found)
        for each in old:
            each.close()
        return found

    def give(self, connection: Connection) -> None:
        """Return an idle connection."""
        with self._lock:
            self._idle.append(connection)

    def close(self) -> None:
        """Close all idle connections."""
        with self._lock:
            idle, self._idle = self._idle, []
        for each in idle:
            each.close()
