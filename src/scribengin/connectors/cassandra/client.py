"""The only module that uses the client library: a session, client errors as Scribengin errors, and quoted names."""

from __future__ import annotations

import re
import threading
import weakref
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from scribengin.core.errors import EnvironmentFault, SinkError, SourceError, Unreachable
from scribengin.core.process import within
from scribengin.core.secret import Secret

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from scribengin.core.errors import ScribenginError

_PORT, _MOST_PORT = 9042, 65_535
_PROTOCOL = 4
"""the protocol version that every maintained server supports (3.0 to 5.0), so that no version is negotiated"""
_CONNECT_S, _ANSWER_S = 10.0, 30.0
_AGAIN_S = 1.0
"""seconds between two attempts to reach an unavailable node"""
_NOTED_WITHIN_S = 1.0
_IN_FLIGHT = 16
"""maximum number of concurrent requests for one part"""
_KNOWN = frozenset({"user", "password", "ca", "datacenter"})
_NO_TABLE = re.compile(r"unconfigured table|table \S+ does not exist")
_MESSAGE = re.compile(r'message="(.*?)"(?: info=|>?$)')
_TABLE_GONE = ("unconfigured table", "does not exist", "Undefined column", "Unknown identifier", "maximum_timestamp")
_FOR_NOW = ("disk_usage", "disk usage")
"""texts in the answers of servers whose disk guardrails refuse writes for now"""
_TOO_LARGE = (
    "is too large for the maximum size",
    "Batch too large",
    "exceeds allowed maximum",
    "exceeds maximum allowed",
    "oversized mutation",
)

Verdict = Literal["again", "refused"]


def driver() -> Any:
    """The module `cassandra.cluster`. Raises EnvironmentFault if it is not installed."""
    try:
        import cassandra.cluster
    except ImportError as error:
        raise EnvironmentFault(
            f"type: cassandra needs the package cassandra-driver: {error}",
            remedy="install it: pip install 'scribengin[cassandra]'",
            code="cassandra-client",
        ) from error
    return cassandra.cluster


class NoTable(Exception):
    """The table does not exist."""


class CassandraCluster:
    """The nodes of one cluster. Thread-safe. Pickled with its secrets and without connections; `str` shows no secret.

    Sources get the cells of an answer as bytes, in the encoding of the protocol.
    """

    def __init__(self, node: str, options: Mapping[str, Any], role: Literal["source", "sink"] = "sink") -> None:
        self.node = node
        self.called = f'{role} "{node}"'
        self._kind: type[SourceError | SinkError] = SourceError if role == "source" else SinkError
        self._config: Mapping[str, Any] = options["config"]
        self._points = [self._point(text) for text in options["server"]]
        self._consistency: str = options["consistency"]
        if unknown := set(self._config) - _KNOWN:
            raise self.error(
                f'`config` has "{min(unknown)}", which is not a known setting',
                f"use one of {', '.join(sorted(_KNOWN))}",
                "cassandra-config",
            )
        self._lock = threading.RLock()
        self._session: Any = None

    def __str__(self) -> str:
        host, port = self._points[0]
        return f"{host}:{port}"

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_lock", "_session")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state
        self._lock, self._session = threading.RLock(), None

    @property
    def session(self) -> Any:
        """The connected session. Raises Unreachable if no node answers; SourceError or SinkError if a retry cannot succeed."""
        with self._lock:
            if self._session is None:
                self._session = self._connected()
            return self._session

    @property
    def metadata(self) -> Any:
        """The client's metadata of the cluster."""
        return self.session.cluster.metadata

    def close(self) -> None:
        """Close the connections; the next use opens new ones."""
        with self._lock:
            session, self._session = self._session, None
        if session is not None:
            session.cluster.shutdown()

    def ask(self, query: Any, values: Sequence[Any] = (), *, serial: bool = False) -> Any:
        """The rows of the answer, as tuples, fetched page by page. Raises as `session`, and NoTable if the table does not exist.

        Args:
            query: The statement, as text or prepared.
            values: The values of its parameters.
            serial: Read with serial consistency, which is never stale.
        """
        try:
            return self.session.execute(query, values or None, execution_profile="serial" if serial else "read")
        except Exception as error:
            if _NO_TABLE.search(_server_messages(error)):
                raise NoTable from error
            raise self.fault(error, "cannot be queried") from error

    def pages(self, query: Any, values: Sequence[Any]) -> Iterator[list[tuple[Any, ...]]]:
        """The rows of the answer, one page at a time. Raises as `ask`."""
        result = self.ask(query, values)
        while True:
            yield result.current_rows
            if not result.has_more_pages:
                return
            try:
                result.fetch_next_page()
            except Exception as error:
                raise self.fault(error, "cannot be queried") from error

    def refresh(self, keyspace: str, table: str = "") -> None:
        """Refresh `metadata` of a keyspace or a table."""
        cluster = self.session.cluster
        try:
            if table:
                cluster.refresh_table_metadata(keyspace, table, max_schema_agreement_wait=0)
            else:
                cluster.refresh_keyspace_metadata(keyspace, max_schema_agreement_wait=0)
        except Exception as error:
            raise self.fault(error, "did not return its schema") from error

    def keyspace(self, name: str) -> Any:
        """The client's metadata of a keyspace. Raises SourceError or SinkError if it does not exist."""
        space = self.metadata.keyspaces.get(name)
        if space is None:
            self.refresh(name)
            space = self.metadata.keyspaces.get(name)
        if space is None:
            remedy = "create it with the replicas that you need: CREATE KEYSPACE …; or correct `keyspace`"
            raise self.error(f"there is no keyspace {name} at {self}", remedy, "cassandra-keyspace")
        return space

    def table(self, keyspace: str, name: str) -> Any:
        """The current metadata of a table; None if the table does not exist. Raises as `keyspace`."""
        self.keyspace(keyspace)
        self.refresh(keyspace, name)
        return self.keyspace(keyspace).tables.get(name)

    def prepare(self, query: str) -> Any:
        """Prepare a statement, which may then be sent any number of times."""
        try:
            prepared = self.session.prepare(query)
        except Exception as error:
            raise self.fault(error, "rejected the statement") from error
        prepared.is_idempotent = True
        return prepared

    def all_of(self, statements: Iterable[Any]) -> list[Exception | None]:
        """Send statements, some of them concurrently. Returns the error of each in the same order; None for an accepted one."""
        from cassandra.concurrent import execute_concurrent

        asked = [(statement, None) for statement in statements]
        done = execute_concurrent(self.session, asked, concurrency=_IN_FLIGHT, raise_on_first_error=False)
        return [None if taken else result for taken, result in done]

    def judge(self, error: Exception) -> tuple[Verdict, str, str]:
        """The outcome for the rows of a failed write, as (outcome, reason, message). Raises ScribenginError if the rows did not cause the
        error."""
        import cassandra

        errors = getattr(error, "errors", None)
        if errors is not None and not errors:
            # the client reports a failure in one thread before another one has recorded the error of the last node
            within(_NOTED_WITHIN_S, lambda: bool(errors))
        said = _server_messages(error)
        if any(text in said for text in _TOO_LARGE):
            return "refused", "too-large", said
        if any(text in said for text in _FOR_NOW):
            return "again", "overloaded", said
        if isinstance(error, cassandra.InvalidRequest) and not any(text in said for text in _TABLE_GONE):
            return "refused", "refused", said
        if passes(error):
            return "again", "overloaded", said
        raise self.fault(error, "cannot be written")

    def fault(self, error: Exception, what: str) -> ScribenginError:
        """Convert an error of the client. `what` is the failed action, such as "cannot be written"."""
        import cassandra
        from cassandra import protocol

        text = f"{self} {what}: {_server_messages(error)}"
        if any(isinstance(each, cassandra.AuthenticationFailed) for each in _each(error)):
            return self.error(text, "correct `config`: user and password", "cassandra-login")
        if isinstance(error, cassandra.Unauthorized):
            wanted = (
                "SELECT on the table" if self._kind is SourceError else "CREATE, SELECT and MODIFY on the keyspace, or create the tables"
            )
            return self.error(text, f"grant the user {wanted}", "cassandra-rights")
        if "CERTIFICATE_VERIFY_FAILED" in text:
            return self.error(text, "name the CA file that signed its certificate: config: {ca: /path/to/ca.pem}", "cassandra-trust")
        if "WRONG_VERSION_NUMBER" in text:
            return self.error(f"{text}: it does not use TLS", "remove `ca` from `config`, or enable TLS on the server", "cassandra-trust")
        if isinstance(error, cassandra.RequestValidationException | protocol.RequestValidationException):
            return self.error(text, "correct the table or the flow", "cassandra-table")
        self.close()
        remedy = "check that the cluster is up and healthy; a running flow retries automatically"
        return Unreachable(f"{self.called}: {text}", remedy=remedy, code="cassandra-away", node=self.node)

    def error(self, said: str, remedy: str, code: str) -> SourceError | SinkError:
        """Create the error for a fault that a retry cannot solve: a SourceError or a SinkError.

        Args:
            said: The message after the name of the node.
            remedy: The remedy.
            code: The code of the problem.
        """
        return self._kind(f"{self.called}: {said}", remedy=remedy, code=code, node=self.node)

    def _connected(self) -> Any:
        module = driver()
        from cassandra import ConsistencyLevel
        from cassandra.auth import PlainTextAuthProvider
        from cassandra.policies import ConstantReconnectionPolicy, DCAwareRoundRobinPolicy, TokenAwarePolicy
        from cassandra.query import tuple_factory

        given = {name: value.reveal() if isinstance(value, Secret) else str(value) for name, value in self._config.items()}
        level = getattr(ConsistencyLevel, self._consistency)
        reads = ConsistencyLevel.QUORUM if self._consistency == "EACH_QUORUM" else level  # which applies only to writes
        near = TokenAwarePolicy(DCAwareRoundRobinPolicy(local_dc=given.get("datacenter", "")))

        def profile(consistency: int) -> Any:
            return module.ExecutionProfile(
                load_balancing_policy=near,
                consistency_level=consistency,
                serial_consistency_level=ConsistencyLevel.SERIAL,
                request_timeout=_ANSWER_S,
                row_factory=tuple_factory,
            )

        settings: dict[str, Any] = {
            "contact_points": self._points,
            "protocol_version": _PROTOCOL,
            "port": self._points[0][1],
            "auth_provider": PlainTextAuthProvider(given["user"], given.get("password", "")) if "user" in given else None,
            "ssl_context": self._trusting(given["ca"]) if "ca" in given else None,
            "reconnection_policy": ConstantReconnectionPolicy(_AGAIN_S, max_attempts=None),
            "execution_profiles": {
                module.EXEC_PROFILE_DEFAULT: profile(level),
                "read": profile(reads),
                "serial": profile(ConsistencyLevel.SERIAL),
            },
            "connect_timeout": _CONNECT_S,
            "control_connection_timeout": _CONNECT_S,
        }
        cluster = None
        try:
            cluster = module.Cluster(**settings)
            session = cluster.connect()
        except Exception as error:
            found: set[str] = set()
            if cluster is not None:
                found = {host.datacenter for host in cluster.metadata.all_hosts()} - {None}
                cluster.shutdown()
            if found and given.get("datacenter", min(found)) not in found:
                said = f'''no node of {self} is in datacenter "{given["datacenter"]}"; found {", ".join(sorted(found))}'''
                raise self.error(said, "correct `datacenter` in `config`", "cassandra-config") from error
            raise self.fault(error, "cannot be connected to") from error
        if self._kind is SourceError:
            session.client_protocol_handler = _bytes_handler()
        weakref.finalize(
            self, _shut_down_apart, cluster
        ).atexit = False  # a source or a sink is never closed; this runs at the end of the driver
        return session

    def _trusting(self, ca: str) -> Any:
        import ssl

        try:
            return ssl.create_default_context(cafile=str(Path(ca).expanduser()))
        except OSError as error:
            said = f"`config` has ca: {self._config['ca']}, which cannot be read: {error.strerror or error}"
            raise self.error(said, "name a PEM file of certificates", "cassandra-trust") from error

    def _point(self, text: str) -> tuple[str, int]:
        host, colon, port = text.rpartition(":")
        if not colon:
            host, port = text, str(_PORT)
        if not host or not port.isdigit() or not 0 < int(port) <= _MOST_PORT or "/" in host or "@" in host:
            raise self.error(
                f'''`server` has "{text.rpartition("@")[2]}", which is not an address''',
                "write HOST:PORT, and the login in `config`",
                "cassandra-address",
            )
        return host.strip("[]"), int(port)


def passes(error: Exception) -> bool:
    """True if too few replicas answered, or answered too late, or are overloaded: a retry may succeed."""
    import cassandra
    from cassandra import protocol

    passing = (
        cassandra.Unavailable,
        cassandra.Timeout,
        cassandra.CoordinationFailure,
        cassandra.OperationTimedOut,
        protocol.OverloadedErrorMessage,
        protocol.IsBootstrappingErrorMessage,
        protocol.ServerError,
    )
    return any(isinstance(each, passing) for each in _each(error))


def quoted(*names: str) -> str:
    """Quote names for the CQL parser, so that their case is kept.

    >>> quoted("shop", 'odd"one')
    '"shop"."odd""one"'
    """
    return ".".join('"' + name.replace('"', '""') + '"' for name in names)


def _bytes_handler() -> Any:
    """A client handler that returns each column as a blob, whatever its type."""
    from cassandra.cqltypes import BytesType
    from cassandra.protocol import ProtocolHandler, ResultMessage

    answers: Any = ProtocolHandler.message_types_by_opcode[ResultMessage.opcode]

    class BytesResult(answers):  # type: ignore[misc]
        column_metadata: Any

        def recv_results_metadata(self, data: Any, types: Any) -> None:
            super().recv_results_metadata(data, types)
            self.column_metadata = _as_bytes(self.column_metadata)

        def recv_results_rows(self, data: Any, version: int, types: Any, columns: Any, policy: Any) -> None:
            super().recv_results_rows(data, version, types, _as_bytes(columns), policy)

    def _as_bytes(columns: Any) -> Any:
        return columns and [(*column[:3], BytesType) for column in columns]

    messages = ProtocolHandler.message_types_by_opcode | {ResultMessage.opcode: BytesResult}
    return type("BytesHandler", (ProtocolHandler,), {"message_types_by_opcode": messages})


def _each(error: Exception) -> list[Exception]:
    """The error itself, followed by the errors of the nodes that it contains."""
    said = getattr(error, "errors", None)
    return [error, *(each for each in said.values() if isinstance(each, Exception))] if isinstance(said, dict) else [error]


def _server_messages(error: Exception) -> str:
    """The error messages of the servers, without duplicates; else the text or the type of the error."""
    texts = [" ".join(str(each).split()) for each in _each(error)]
    parts = [found[1] if (found := _MESSAGE.search(text)) else text for text in texts]
    said = "; ".join(dict.fromkeys(parts[1:] or parts))
    return said if said.strip("{}") else type(error).__name__


def _shut_down_apart(cluster: Any) -> None:
    """Shut the cluster down in a separate thread. Garbage may be collected in the client's only thread for all connections: a shutdown that
    waits there for pending requests would wait for itself, and stop all Cassandra work of the process until they time out."""
    with suppress(RuntimeError):  # the interpreter ends
        threading.Thread(target=cluster.shutdown, name="cassandra shutdown", daemon=True).start()
