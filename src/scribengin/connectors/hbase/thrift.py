"""Thrift servers of HBase as a gateway: their calls, and their errors as Scribengin errors."""

from __future__ import annotations

import re
import socket
import ssl
import threading
import time
import weakref
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

import numpy as np
import pyarrow.compute as pc

from scribengin.connectors.addresses import split_url
from scribengin.connectors.hbase.cells import fixed, lengths
from scribengin.connectors.hbase.gateway_contract import (
    BUSY,
    CODES,
    FOREVER,
    NEVER,
    HBaseCell,
    HBaseRow,
    TableForm,
    Value,
    WriteOutcome,
    reason_of,
)
from scribengin.core.errors import EnvironmentFault, SinkError, SourceError, Unreachable
from scribengin.core.problems import did_you_mean
from scribengin.core.secret import Secret

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from scribengin.connectors.hbase.cells import Cells
    from scribengin.connectors.hbase.gateway_contract import AnyRow, ScanRequest
    from scribengin.core.errors import ScribenginError


# Rows as a `putMultiple` call of a Thrift server: the bytes of the binary protocol, built column by column.


METHOD = "putMultiple"
_STRING, _I64, _STRUCT, _LIST, _STOP = b"\x0b", b"\x0a", b"\x0c", b"\x0f", b"\x00"
_CALL = b"\x80\x01\x00\x01"


def put_message(table: str, cells: Cells) -> bytes:
    """The call with all rows: a struct TPut for each row, with a TColumnValue for each of its cells."""
    times = _be(cells.versions, 8)
    parts = [fixed(_STRING + b"\0\1", _be(lengths(cells.keys), 4)), cells.keys]
    # the end of a cell is joined with the beginning of the next one: a separate part would cost another copy of everything
    before: tuple[bytes | np.ndarray[Any, Any], ...] = (_LIST + b"\0\2" + _STRUCT + _number(len(cells.columns)),)
    ends = (_I64 + b"\0\4", times, _STOP)
    for name, values in cells.columns:
        family, _, qualifier = name.partition(b":")
        head = _STRING + b"\0\1" + _text(family) + _STRING + b"\0\2" + _text(qualifier) + _STRING + b"\0\3"
        parts += [fixed(*before, head, _be(lengths(values), 4)), values]
        before = ends
    parts.append(fixed(*ends, _STOP))
    joined = pc.binary_join_element_wise(*parts, b"")
    rows = len(cells.keys)
    offsets = np.frombuffer(joined.buffers()[1], np.int32)
    body = joined.buffers()[2][int(offsets[joined.offset]) : int(offsets[joined.offset + rows])]
    begin = _CALL + _text(METHOD.encode()) + _number(0)
    return b"".join([begin, _STRING, b"\0\1", _text(table.encode()), _LIST, b"\0\2", _STRUCT, _number(rows), body, _STOP])


def _be(numbers: np.ndarray[Any, Any], width: int) -> np.ndarray[Any, Any]:
    """Each number in `width` bytes, the highest first.

    >>> _be(np.array([258]), 4).tolist()
    [[0, 0, 1, 2]]
    """
    return np.ascontiguousarray(numbers.astype(f">i{width}")).view(np.uint8).reshape(-1, width)


def _number(number: int) -> bytes:
    return number.to_bytes(4)


def _text(text: bytes) -> bytes:
    return _number(len(text)) + text


# Connections to Thrift servers of HBase: version 2 of their interface, in the binary protocol, buffered.


_PORT = 9090
_CONNECT_S, _READ_S = 10.0, 120.0
_FRESH_S = 20.0
"""seconds for which an idle connection is used again: a server closes it after a minute (`hbase.thrift.server.socket.read.timeout`)"""


@cache
def api() -> Any:
    """The interface with its calls and structs. Raises EnvironmentFault if the client library is not installed."""
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
    """A connection to one server, used by one thread at a time."""

    def __init__(self, server: str, trusted: ssl.SSLContext | None) -> None:
        """Connect. `trusted` contains the certificates that a TLS client trusts. Raises OSError if no server answers, or TLS rejects it."""
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
        """Call a method and return the server's answer. Raises the server's error, and OSError or TException if there is no answer."""
        answer = getattr(self._client, method)(*given)
        self.used = time.monotonic()
        return answer

    def put(self, message: bytes) -> None:
        """Send a prepared message that writes rows. Raises as `call`."""
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
        """Close the connection."""
        self._socket.close()


class Pool:
    """Idle connections to servers; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[Connection] = []

    def take(self, server: str) -> Connection | None:
        """Take an idle connection to this server that is probably still open; None if there is none. Connections that were idle for too
        long are closed."""
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
        """Return a connection to the pool."""
        with self._lock:
            self._idle.append(connection)

    def close(self) -> None:
        """Close all idle connections."""
        with self._lock:
            idle, self._idle = self._idle, []
        for each in idle:
            each.close()


_PLAIN, _TLS = "thrift", "thrift+tls"
_MOST_MESSAGE_BYTES = 100 << 20
"""Thrift's limit of one message (`TConfiguration.DEFAULT_MAX_MESSAGE_SIZE`)"""
_CELL_BYTES = 10 << 20
"""the default of `hbase.client.keyvalue.maxsize`"""
_ABOUT_BYTES = 64 << 10
"""upper bound of the size of a key and a column name"""
_DELETE_FAMILY = 2
_DURABILITIES = ("USE_DEFAULT", "SKIP_WAL", "ASYNC_WAL", "SYNC_WAL", "FSYNC_WAL")
_FILTERS = {"names": b"KeyOnlyFilter()", "first": b"FirstKeyOnlyFilter() AND KeyOnlyFilter()"}
_DENIED = ("Insufficient permissions", "AccessDenied")
_GONE = ("TableNotFound", "TableNotEnabled", "NoSuchColumnFamily")
_ADDRESS = re.compile(r"(\[[^\]]+\]|[^:\]]+)(:\d{1,5})?")
_OF_A_TRY = re.compile(r"^\S+, RpcRetryingCaller\{[^}]*\}, ")


class _Unnamed(Exception):
    """The server's answer to an unexpected error, whose cause it does not name."""


class ThriftGateway:
    """The Thrift servers of one HBase; see Gateway. A scanner is known to its own server only."""

    def __init__(self, node: str, servers: Sequence[str], config: Mapping[str, Any], role: Literal["source", "sink"] = "sink") -> None:
        self.node = node
        self.called = f'{role} "{node}"'
        self._kind: type[SourceError | SinkError] = SourceError if role == "source" else SinkError
        self._config = config
        self._servers = [self._checked(server.rstrip("/")) for server in servers]
        if unknown := set(config) - {"ca"}:
            said = f'{self.called}: `config` has "{min(unknown)}", which a Thrift server does not support'
            raise self._error(said, "use ca; only a REST server supports user and password", CODES.config)
        self._pool: Pool | None = None
        self._trusted: ssl.SSLContext | None = None

    def __str__(self) -> str:
        return self._servers[0]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_pool": None, "_trusted": None}

    def schema(self, table: str) -> TableForm | None:
        """See Gateway."""
        if not self._exists(table):
            return None
        found = self._asked("getTableDescriptor", _named(table))
        families = {each.name.decode(): FOREVER if each.timeToLive is None else each.timeToLive for each in found.columns or ()}
        return TableForm(families, _DURABILITIES[found.durability or 0])

    def make(self, table: str, families: Sequence[str]) -> None:
        """See Gateway."""
        columns = [api().TColumnFamilyDescriptor(name=name.encode(), maxVersions=1) for name in families]
        try:
            self._asked("createTable", api().TTableDescriptor(tableName=_named(table), columns=columns))
        except (SinkError, SourceError):
            if not self._exists(table):
                raise

    def row(self, table: str, key: str) -> HBaseRow | None:
        """See Gateway."""
        if not self._exists(table):
            return None
        found = self._asked("get", table.encode(), api().TGet(row=key.encode()))
        return _row(found, HBaseRow) if found.columnValues else None

    def put_if(self, table: str, row: HBaseRow, expected: HBaseCell) -> bool:
        """See Gateway."""
        cells = [
            api().TColumnValue(family=family, qualifier=qualifier, value=cell.value)
            for cell in row.cells
            for family, _, qualifier in [cell.column.partition(b":")]
        ]
        family, _, qualifier = expected.column.partition(b":")
        put = api().TPut(row=row.key, columnValues=cells)
        # not repeated if the answer is lost: it would find what the first request wrote
        taken = self._asked("checkAndPut", table.encode(), row.key, family, qualifier, expected.value or None, put, again=False)
        return bool(taken)

    def put(self, table: str, cells: Cells, *, again: bool = False) -> WriteOutcome:
        """See Gateway. `again` is True for rows that are sent a second time."""
        message = put_message(table, cells)
        if len(message) > _MOST_MESSAGE_BYTES:
            return WriteOutcome("large")
        try:
            self._call(METHOD, lambda connection: connection.put(message))
        except _Unnamed as error:
            # the server itself may be at fault: a row is given up only after an available server has refused it twice
            if len(cells.keys) == 1 and not again:
                self._exists(table)
                return self.put(table, cells, again=True)
            return WriteOutcome("refused", f"{error}{_if_large(cells)}")
        except api().TIOError as error:
            said = _reason(error)
            if any(word in said for word in BUSY):
                return WriteOutcome("busy")
            if any(word in said for word in _GONE) or not self._exists(table):
                return WriteOutcome("gone", said)
            if any(word in said for word in NEVER):
                return WriteOutcome("refused", said)
            raise self._as_fault(error, METHOD) from error
        return WriteOutcome("taken")

    def delete(self, table: str, key: bytes, families: Sequence[bytes], until: int) -> None:
        """See Gateway."""
        columns = [api().TColumn(family=family, timestamp=until) for family in families]
        self._asked("deleteSingle", table.encode(), api().TDelete(row=key, columns=columns, deleteType=_DELETE_FAMILY))

    def tables(self) -> list[str]:
        """The names of the tables; empty if the server does not return them."""
        try:
            found = self._asked("getTableNamesByPattern", ".*", False)
        except (SinkError, SourceError, Unreachable):
            return []
        return [(each.qualifier if each.ns in (None, b"default") else each.ns + b":" + each.qualifier).decode() for each in found]

    def is_empty(self, table: str) -> bool:
        """See Gateway."""
        return not self._exists(table) or self.last_key(table) is None

    def last_key(self, table: str, columns: Sequence[bytes] = ()) -> bytes | None:
        """See Gateway."""
        scan = api().TScan(reversed=True, limit=1, filterString=_FILTERS["names"], columns=_columns(columns), cacheBlocks=False)
        rows = self._of_table(table, "getScannerResults", table.encode(), scan, 1)
        return rows[0].row if rows else None

    def open_scanner(self, table: str, asked: ScanRequest) -> tuple[str, int, str]:
        """See Gateway."""
        scan = api().TScan(
            startRow=asked.after + b"\0" if asked.after else None,
            columns=_columns(asked.columns),
            caching=asked.ahead,
            maxVersions=1,
            filterString=_FILTERS.get(asked.part),
            cacheBlocks=False,
        )
        server, number = self._of_table(table, "openScanner", table.encode(), scan, whose=True)
        return server, number, table

    def next_of(self, scanner: tuple[str, int, str], most: int, kind: type[AnyRow]) -> tuple[list[AnyRow], int] | None:
        """See Gateway."""
        server, number, table = scanner
        try:
            found = self._of_table(table, "getScannerRows", number, most, server=server)
        except api().TIllegalArgument:
            return None
        if not found:
            return None
        rows = [_row(each, kind) for each in found]
        return rows, sum(len(row.key) + sum(len(cell.column) + len(cell.value) for cell in row.cells) for row in rows)

    def close_scanner(self, scanner: tuple[str, int, str]) -> None:
        """See Gateway."""
        try:
            self._asked("closeScanner", scanner[1], server=scanner[0])
        except (SinkError, SourceError, Unreachable, api().TIllegalArgument):
            return

    def missing(self, table: str) -> SourceError | SinkError:
        """See Gateway."""
        said = f"{self.called}: there is no table {table} at {self}"
        return self._error(said, did_you_mean(table, self.tables()) or "correct `table`", "hbase-table")

    def close(self) -> None:
        """See Gateway."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    # --- pieces ---

    def _exists(self, table: str) -> bool:
        return bool(self._asked("tableExists", _named(table)))

    def _of_table(self, table: str, method: str, *given: Any, server: str | None = None, whose: bool = False) -> Any:
        """Call a method like `_asked`. Raises `missing` if it fails and the table does not exist."""
        try:
            return self._asked(method, *given, server=server, whose=whose)
        except (SinkError, SourceError):
            if not self._exists(table):
                raise self.missing(table) from None
            raise

    def _asked(self, method: str, *given: Any, server: str | None = None, again: bool = True, whose: bool = False) -> Any:
        try:
            return self._call(method, lambda connection: connection.call(method, *given), server=server, again=again, whose=whose)
        except api().TIOError as error:
            raise self._as_fault(error, method) from error
        except _Unnamed as error:
            said = f"{self.called}: {self} answered {method} with: {error}"
            remedy = "read the log of the Thrift server; a running flow retries automatically"
            raise Unreachable(said, remedy=remedy, code=CODES.away, node=self.node) from error

    def _call(
        self, method: str, do: Callable[[Connection], Any], *, server: str | None = None, again: bool = True, whose: bool = False
    ) -> Any:
        """Call `do` with a connection, and return its result. Raises TIOError and TIllegalArgument unchanged, and _Unnamed.

        Args:
            method: The name of the method, for messages.
            do: The call.
            server: The server to use; None for any.
            again: True if the call may be repeated.
            whose: True to return the server too.
        """
        from thriftpy2.thrift import TApplicationException, TException

        pool = self._opened()
        failed: Exception | None = None
        for _ in range(len(self._servers) + 1 if server is None else 2):  # one more attempt, because an idle connection may be closed
            asked = server or self._servers[0]
            connection = None
            try:
                connection = pool.take(asked) or Connection(asked, self._trusted if asked.startswith(_TLS) else None)
                answer = do(connection)
            except (api().TIOError, api().TIllegalArgument):
                assert connection is not None
                pool.give(connection)
                raise
            except TApplicationException as error:
                assert connection is not None
                pool.give(connection)
                if error.type == TApplicationException.UNKNOWN_METHOD:
                    said = f"{self.called}: {asked} does not know {method}: it speaks version 1 of HBase's Thrift interface"
                    raise self._error(said, "start one of version 2 (hbase thrift2 start), or name a REST server", CODES.address) from error
                raise _Unnamed(reason_of(error.message or "") or "an error without a name") from error
            except (OSError, EOFError, TException) as error:
                failed = error
                if connection is not None:
                    connection.close()
                    if not again:
                        break
                if isinstance(error, ssl.SSLCertVerificationError):
                    break
                if server is None:
                    self._servers = [*self._servers[1:], self._servers[0]]
                continue
            except BaseException:
                if connection is not None:
                    connection.close()
                raise
            pool.give(connection)
            return (asked, answer) if whose else answer
        assert failed is not None
        raise self._away(failed)

    def _opened(self) -> Pool:
        if self._pool is None:
            self._trusted = self._trusting() if any(server.startswith(_TLS) for server in self._servers) else None
            self._pool = Pool()
            weakref.finalize(self, self._pool.close)  # a sink is never closed
        return self._pool

    def _trusting(self) -> ssl.SSLContext:
        given = self._config.get("ca")
        ca = given.reveal() if isinstance(given, Secret) else given
        try:
            return ssl.create_default_context(cafile=str(Path(ca).expanduser()) if ca else None)
        except OSError as error:
            said = f"{self.called}: `config` has ca {ca}, from which no certificate can be read: {error}"
            raise self._error(said, "name a PEM file of the CA that signed the server's certificate", CODES.config) from error

    def _as_fault(self, error: Any, method: str) -> ScribenginError:
        """Convert the server's error. Older servers do not send `canRetry`."""
        reason = _reason(error)
        said = f"{self.called}: {self} answered {method} with: {reason}"
        if any(word in reason for word in _DENIED):
            return self._error(
                said,
                "grant the user of the Thrift server the rights to read the table, and for a sink also to create and write it",
                CODES.login,
            )
        if error.canRetry is False or any(word in reason for word in (*NEVER, *_GONE, "Namespace")):
            return self._error(said, "correct the table or the flow", CODES.other)
        remedy = "check that the cluster is healthy and has free space; a running flow retries automatically"
        return Unreachable(said, remedy=remedy, code=CODES.away, node=self.node)

    def _away(self, error: Exception) -> ScribenginError:
        what = getattr(error, "message", None) or str(error) or type(error).__name__
        said = f"{self.called}: {self} does not answer: {' '.join(str(what).split())}"
        if isinstance(error, ssl.SSLCertVerificationError):
            return self._error(said, "name the CA file that signed its certificate: config: {ca: /path/to/ca.pem}", CODES.trust)
        remedy = (
            "check that the Thrift server is up (hbase thrift2 start, neither framed nor compact); a running flow retries automatically"
        )
        return Unreachable(said, remedy=remedy, code=CODES.away, node=self.node)

    def _checked(self, server: str) -> str:
        parts = split_url(server)
        if parts is not None and (parts.password is not None or parts.username is not None):
            said = f"{self.called}: `server` contains a user or a password"
            raise self._error(said, "remove it: a Thrift server requires no login", "secret-in-plain")
        if parts is None or parts.scheme not in (_PLAIN, _TLS) or parts.path or not _ADDRESS.fullmatch(parts.netloc):
            said = f'{self.called}: `server` has "{server}", which is not an address of a Thrift server'
            raise self._error(said, "write thrift://HOST:PORT, or thrift+tls://HOST:PORT; or name REST servers alone", CODES.address)
        return server

    def _error(self, said: str, remedy: str, code: str) -> SourceError | SinkError:
        return self._kind(said, remedy=remedy, code=code, node=self.node)


def _named(table: str) -> Any:
    namespace, found, name = table.rpartition(":")
    return api().TTableName(ns=namespace.encode() if found else b"default", qualifier=name.encode())


def _columns(names: Sequence[bytes]) -> list[Any] | None:
    each = (name.partition(b":") for name in names)
    return [api().TColumn(family=family, qualifier=qualifier if found else None) for family, found, qualifier in each] or None


def _row(found: Any, kind: type[AnyRow]) -> AnyRow:
    make = _cell if kind is HBaseRow else _value
    return kind(found.row, [make(each) for each in found.columnValues])


def _cell(found: Any) -> Any:
    return HBaseCell(b"%b:%b" % (found.family, found.qualifier), found.timestamp, found.value)


def _value(found: Any) -> Any:
    return Value(b"%b:%b" % (found.family, found.qualifier), found.value)


def _if_large(cells: Cells) -> str:
    """Text for an unexpected error whose cause the server does not name: usually a cell is too large for it. Empty if none is."""
    largest = max(pc.max(pc.binary_length(values)).as_py() or 0 for _, values in cells.columns)
    return f"; KeyValue size too large? One has {largest} bytes" if largest > _CELL_BYTES - _ABOUT_BYTES else ""


def _reason(error: Any) -> str:
    return _OF_A_TRY.sub("", reason_of(error.message or ""))
