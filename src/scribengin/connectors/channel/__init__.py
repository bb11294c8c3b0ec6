"""Channels: where a tier hands over to the next. The planner makes their sinks and sources; no flow file names them."""

from scribengin.connectors.channel.options import SINK, SOURCE
from scribengin.connectors.channel.outbox import OutboxSink
from scribengin.connectors.contract import ConnectorContext, SourceConnector, StagingSink

__all__ = ["SINK", "SOURCE", "make_sink", "make_source"]


def make_source(place: ConnectorContext) -> SourceConnector:
    """The end at which the channel is read."""
    if place.options["kind"] == "kafka":
        from scribengin.connectors.channel.kafka import KafkaChannelSource

        return KafkaChannelSource(place)
    from scribengin.connectors.channel.folder import FolderChannelSource

    return FolderChannelSource(place)


def make_sink(place: ConnectorContext) -> StagingSink:
    """The end at which the channel is written."""
    sink = _open_sink(place)
    match place.options["durability"]:
        case "store_on_failure":
            return OutboxSink(sink, place.node, place.work, place.options["spill"])
        case "best_effort":
            return OutboxSink(sink, place.node, place.work, None)
    return sink


def _open_sink(place: ConnectorContext) -> StagingSink:
    if place.options["kind"] == "kafka":
        from scribengin.connectors.channel.kafka import KafkaChannelSink

        return KafkaChannelSink(place)
    from scribengin.connectors.channel.folder import FolderChannelSink

    return FolderChannelSink(place)
