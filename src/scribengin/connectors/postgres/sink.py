"""The sink: the one for all databases with transactions, with PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.connectors.postgres.client import PostgresServer
from scribengin.connectors.postgres.database import PostgresDatabase
from scribengin.connectors.sql.contract import Target
from scribengin.connectors.sql.sink import SqlSink
from scribengin.connectors.sql.unit_sink import SqlUnitSink

if TYPE_CHECKING:
    from scribengin.connectors.contract import ConnectorContext


class PostgresSink(SqlSink):
    """One table, by the options."""

    def __init__(self, place: ConnectorContext) -> None:
        super().__init__(place, _database(place), _target(place), place.options["version"])


class PostgresUnitSink(SqlUnitSink):
    """One table, with `visible: unit`."""

    def __init__(self, place: ConnectorContext) -> None:
        super().__init__(place, _database(place), _target(place))


def _database(place: ConnectorContext) -> PostgresDatabase:
    return PostgresDatabase(PostgresServer(place.node, place.options), place.options["staging"])


def _target(place: ConnectorContext) -> Target:
    options = place.options
    schema, _, name = options["table"].rpartition(".")
    key = tuple(options["key"]) if options["mode"] != "append" else ()
    return Target((schema or "public", name), key, options["change"])
