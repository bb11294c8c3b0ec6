"""The only module that uses the client library: connections, errors as Scribengin errors, quoted names."""

from __future__ import annotations

from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, Literal

from scribengin.connectors.addresses import split_url
from scribengin.core.errors import EnvironmentFault, SinkError, SourceError, Unreachable
from scribengin.core.remedies import start_over
from scribengin.core.secret import Secret

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from psycopg import Connection

    from scribengin.core.errors import ScribenginError

CONNECT_S = 10
ABANDONED_MS = 20_000
"""the server ends a session that is silent for this long within a transaction: a suspended driver would block its successor"""
_PASSES = ("08", "53", "57", "58", "40", "25P03")
"""beginnings of SQLSTATEs that a retry may solve: connection, resources, operator, system, a transaction that conflicted with another or
was suspended"""
_AS_TEXT = "SET TimeZone = 'UTC'; SET DateStyle = 'ISO, YMD'; SET extra_float_digits = 1; SET client_encoding = 'UTF8'"
"""the format in which the server writes values: the same in every session, whatever its own settings are, so that parsed values and stored
positions have one meaning"""
_LOGIN = ("authentication failed", "no password supplied", "no pg_hba.conf entry", "is not permitted to log in")
_TRUST = ("certificate", "SSL", "sslmode")


def driver() -> Any:
    """The module `psycopg`. Raises EnvironmentFault if it is not installed."""
    try:
        import psycopg
    except ImportError as error:
        raise EnvironmentFault(
            f"type: postgres needs the package psycopg: {error}",
            remedy="install it: pip install 'scribengin[postgres]'",
            code="postgres-client",
        ) from error
    return psycopg


class PostgresServer:
    """The server's address and login. Sent to executors with its secrets; `str` shows no secret."""

    def __init__(self, node: str, options: Mapping[str, Any], role: Literal["source", "sink"] = "sink") -> None:
        self.node = node
        self.called = f'{role} "{node}"'
        self._kind: type[SourceError | SinkError] = SourceError if role == "source" else SinkError
        self._uri: str = options["server"]
        self._config: Mapping[str, Any] = options["config"]
        parts = split_url(self._uri)
        if parts is None:
            raise self.error(f"{self.called}: `server` is not an address", "write postgresql://USER@HOST:PORT/DATABASE", "postgres")
        if parts.password is not None:
            raise self.error(
                f"{self.called}: `server` contains a password",
                'remove it and write config: {password: "${secret:env/NAME}"}: a secret is never shown',
                "secret-in-plain",
            )
        several = "," in parts.netloc
        self._shown = (parts.netloc.rpartition("@")[2] if several else f"{parts.hostname or 'localhost'}:{parts.port or 5432}") + parts.path

    def __str__(self) -> str:
        return self._shown

    def connect(self) -> Connection[Any]:
        """A new connection, with each statement in its own transaction. Raises Unreachable; raises SourceError or SinkError if a retry
        cannot succeed."""
        given = {name: value.reveal() if isinstance(value, Secret) else value for name, value in self._config.items()}
        settings = {"application_name": "scribengin", "connect_timeout": CONNECT_S} | given
        psycopg = driver()
        try:
            # no prepared statements: a pooler may give each transaction another session of the server
            connection: Connection[Any] = psycopg.connect(self._uri, autocommit=True, prepare_threshold=None, **settings)
            connection.execute(f"SET idle_in_transaction_session_timeout = {ABANDONED_MS}")
            if self._kind is SourceError:
                connection.execute(_AS_TEXT)
        except psycopg.Error as error:
            raise self.fault(error, "cannot be connected to") from error
        return connection

    @contextmanager
    def connected(self, what: str) -> Iterator[Connection[Any]]:
        """A new connection; client errors become Scribengin errors, with the failed action `what`."""
        with closing(self.connect()) as connection, self.explained(what):
            yield connection

    @contextmanager
    def explained(self, what: str) -> Iterator[None]:
        """Converts client errors to Scribengin errors, with the failed action `what`."""
        try:
            yield
        except driver().Error as error:
            raise self.fault(error, what) from error

    def fault(self, error: Exception, what: str) -> ScribenginError:
        """A client error as a Scribengin error. `what`: the action that failed, such as "cannot be written"."""
        text = " ".join(str(error).split())
        state: str = getattr(error, "sqlstate", None) or ""
        said = f"{self.called}: {self} {what}: {text}"
        if state.startswith("28") or any(each in text for each in _LOGIN):
            return self.error(said, "correct the user in `server` and the password in `config`", "postgres-login")
        if state == "3D000" or ("database" in text and "does not exist" in text):
            return self.error(said, "create the database, or correct `server`", "postgres-database")
        if state == "42501":
            reads = "grant the user SELECT on the table and USAGE on its schema"
            writes = "grant the user CREATE on the schemas of `table` and `staging`, or create them"
            return self.error(said, reads if self._kind is SourceError else writes, "postgres-rights")
        if not state and any(each in text for each in _TRUST):
            return self.error(said, "set in `config` which certificates to trust: sslmode, sslrootcert", "postgres-trust")
        if state.startswith(_PASSES) or (not state and isinstance(error, driver().OperationalError)):
            return Unreachable(
                said,
                remedy="check that the server is up and has free space; a running flow retries automatically",
                code="postgres-away",
                node=self.node,
            )
        if state == "42P01":
            reads, writes = "restore it, or correct `table`", f"restore it, with its rows; or {start_over()}"
            return self.error(said, reads if self._kind is SourceError else writes, "postgres-table")
        if state.startswith("23"):
            remedy = "rows violate a constraint across rows of the table: correct the constraint or the data, or write mode: upsert"
            return self.error(said, remedy, "postgres-rule")
        if state.startswith("54"):
            remedy = "a row, or its value in an index, is too large for the table: shorten it, or remove it with a `filter` before the sink"
            return self.error(said, remedy, "postgres-large")
        return self.error(said, "correct the table or the flow", "postgres")

    def error(self, said: str, remedy: str, code: str) -> SourceError | SinkError:
        """An error that a retry cannot solve."""
        return self._kind(said, remedy=remedy, code=code, node=self.node)


def quoted(*names: str) -> str:
    """A name, with its schema before it, quoted for the PostgreSQL parser.

    >>> quoted("sales", 'odd"one')
    '"sales"."odd""one"'
    """
    return ".".join('"' + name.replace('"', '""') + '"' for name in names)


def escaped(*names: str) -> str:
    """A quoted name in a statement with parameters, whose `%` are doubled."""
    return quoted(*names).replace("%", "%%")
