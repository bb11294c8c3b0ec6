"""SQLite tables as sources and sinks. What the catalog reads at once: declarations; the code is loaded when a node is built."""

from scribengin.connectors.contract import Place, Sink, Source
from scribengin_sqlite.options import SINK, SOURCE

__all__ = ["SINK", "SOURCE", "make_sink", "make_source"]


def make_source(place: Place) -> Source:
    """The configured source."""
    from scribengin_sqlite.source import SqliteSource

    return SqliteSource(place)


def make_sink(place: Place) -> Sink:
    """The configured sink."""
    from scribengin_sqlite.sink import SqliteSink

    return SqliteSink(place)
