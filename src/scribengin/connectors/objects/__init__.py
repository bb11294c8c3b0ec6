"""Object stores: a prefix of a bucket as a source, and as a sink."""

from dataclasses import replace

from scribengin.connectors.contract import ConnectorContext, SinkConnector, SourceConnector
from scribengin.connectors.objects.options import SINK, SOURCE

__all__ = ["SINK", "SOURCE", "for_tasks", "make_sink", "make_source"]


def make_source(place: ConnectorContext) -> SourceConnector:
    """The configured source."""
    from scribengin.connectors.objects.source import ObjectsSource

    return ObjectsSource(place)


def for_tasks(place: ConnectorContext) -> ConnectorContext:
    """The context with the login that this process finds, because tasks may run where it cannot be found. A sink includes the login by
    itself."""
    from scribengin.connectors.objects.address import ObjectsAddress, as_config

    login = ObjectsAddress.of(place.node, place.options, place.folder).with_login().login
    return place if login is None else replace(place, options={**place.options, "config": as_config(login)})


def make_sink(place: ConnectorContext) -> SinkConnector:
    """The configured sink."""
    from scribengin.connectors.objects.sink import ObjectsSink

    return ObjectsSink(place)
