"""The client library behind one door: connections, its errors in our words, names that are quoted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from scribengin.core.errors import EnvironmentFault, SinkError, Unreachable
from scribengin.core.secret import Secret

if TYPE_CHECKING:
    from collections.abc import Mapping

    from psycopg import Connection

    from scribengin.core.errors import ScribenginError

CONNECT_S = 10
ABANDONED_MS = 20_000
"""a session that is silent for so long within a transaction the server ends: a driver that sleeps there would hold up its successor"""
_PASSES = ("08", "53", "57", "58", "40", "25P03")
"""beginnings of SQLSTATEs that a later try may not see: connection, resources, operator, system, a transaction that met another or slept"""
_LOGIN = ("authentication failed", "no password supplied", "no pg_hba.conf entry", "is not permitted to log in")
_TRUST = ("certificate", "SSL", "sslmode")


def driver() -> Any:
    """The module `psycopg`. Raises EnvironmentFault where it is not installed."""
    try:
        import psycopg
    except ImportError as error:
        raise EnvironmentFault(
            f"type: postgres needs the package psycopg: {error}",
            remedy="install it: pip install 'scribengin[postgres]'",
            code="postgres-client",
        ) from error
    return psycopg


class Server:
    """Where to connect to, and as whom. Travels to executors with its secrets; `str` shows none."""

    def __init__(self, node: str, options: Mapping[str, Any]) -> None:
        self.node = node
        self._uri: str = options["server"]
        self._config: Mapping[str, Any] = options["config"]
        parts = urlsplit(self._uri)
        if parts.password is not None:
            raise SinkError(
                f'sink "{node}": `server` holds a password',
                remedy='take it out and write config: {password: "${secret:env/NAME}"}: what stands there is never shown',
                code="secret-in-plain",
                node=node,
            )
        self._shown = f"{parts.hostname or 'localhost'}:{parts.port or 5432}{parts.path}"

    def __str__(self) -> str:
        return self._shown

    def connect(self) -> Connection[Any]:
        """A fresh one, each statement a transaction of its own. Raises Unreachable, or SinkError where no later try will do."""
        given = {name: value.reveal() if isinstance(value, Secret) else value for name, value in self._config.items()}
        settings = {"application_name": "scribengin", "connect_timeout": CONNECT_S} | given
        psycopg = driver()
        try:
            # no prepared statements: what stands between may give each transaction another session of the server
            connection: Connection[Any] = psycopg.connect(self._uri, autocommit=True, prepare_threshold=None, **settings)
            connection.execute(f"SET idle_in_transaction_session_timeout = {ABANDONED_MS}")
        except psycopg.Error as error:
            raise self.fault(error, "cannot be connected to") from error
        return connection

    def fault(self, error: Exception, what: str) -> ScribenginError:
        """An error of the client, in our words. `what` was tried when it came: "cannot be written"."""
        text = " ".join(str(error).split())
        state: str = getattr(error, "sqlstate", None) or ""
        said = f'sink "{self.node}": {self} {what}: {text}'
        if state.startswith("28") or any(each in text for each in _LOGIN):
            return self._sink_error(said, "correct the user in `server` and the password in `config`", "postgres-login")
        if state == "3D000" or ("database" in text and "does not exist" in text):
            return self._sink_error(said, "make the database, or correct `server`", "postgres-database")
        if state == "42501":
            return self._sink_error(said, "grant the user CREATE on the schemas of `table` and `staging`, or make them", "postgres-rights")
        if not state and any(each in text for each in _TRUST):
            return self._sink_error(said, "say in `config` whom to trust: sslmode, sslrootcert", "postgres-trust")
        if state.startswith(_PASSES) or (not state and isinstance(error, driver().OperationalError)):
            return Unreachable(
                said,
                remedy="look whether the server is up and has room; a flow that runs tries again by itself",
                code="postgres-away",
                node=self.node,
            )
        if state.startswith("23"):
            remedy = "rows break a rule of the table that spans rows: correct the rule or the data, or write mode: upsert"
            return self._sink_error(said, remedy, "postgres-rule")
        return self._sink_error(said, "correct the table or the flow", "postgres")

    def _sink_error(self, said: str, remedy: str, code: str) -> SinkError:
        return SinkError(said, remedy=remedy, code=code, node=self.node)


def quoted(*names: str) -> str:
    """A name, with its schema before it, for PostgreSQL's parser.

    >>> quoted("sales", 'odd"one')
    '"sales"."odd""one"'
    """
    return ".".join('"' + name.replace('"', '""') + '"' for name in names)
