"""SQLite tables as sinks, over the SQL layer: what the catalog reads, and how a sink is put together."""

from scribengin.connectors.contract import ConnectorContext, SinkConnector
from scribengin_sqlite_table.options import SINK

__all__ = ["SINK", "make_sink"]


def make_sink(place: ConnectorContext) -> SinkConnector:
    """The configured sink."""
    from scribengin.connectors.sql.contract import Target
    from scribengin.connectors.sql.sink import SqlSink
    from scribengin_sqlite_table.database import SqliteDatabase

    options = place.options
    key = tuple(options["key"]) if options["mode"] != "append" else ()
    target = Target((options["table"],), key, options["change"])
    return SqlSink(place, SqliteDatabase(place.node, place.folder / options["database"]), target, options["version"])
