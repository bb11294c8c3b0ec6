"""The sink: that of every database with transactions, over PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.connectors.postgres.client import Server
from scribengin.connectors.postgres.database import PostgresDatabase
from scribengin.connectors.sql.contract import Target
from scribengin.connectors.sql.sink import SqlSink

if TYPE_CHECKING:
    from scribengin.connectors.contract import Place


class PostgresSink(SqlSink):
    """One table, as the options say."""

    def __init__(self, place: Place) -> None:
        options = place.options
        schema, _, name = options["table"].rpartition(".")
        key = tuple(options["key"]) if options["mode"] != "append" else ()
        target = Target((schema or "public", name), key, options["change"])
        super().__init__(place, PostgresDatabase(Server(place.node, options), options["staging"]), target, options["version"])
