"""What holds from each source to each sink, and why: replayable source × plan × what the sink can do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.plan.model import PathGuarantee

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from scribengin.core.options import NodeType
    from scribengin.spec.model import Flow, Sink, Source


def path_guarantee(
    flow: Flow, source: Source, sink: Sink, *, source_types: Mapping[str, NodeType], sink_types: Mapping[str, NodeType]
) -> PathGuarantee:
    """The guarantee of one path of a checked flow. A source or sink of an unknown type is taken to be able to do nothing."""
    gives = source_types[source.type].able(source.options) if source.type in source_types else frozenset[str]()
    takes = sink_types[sink.type].able(sink.options) if sink.type in sink_types else frozenset[str]()
    if "view" in takes:
        return PathGuarantee(source.id, sink.id, "view", f"{sink.type} shows rows and keeps none: outside the guarantee")
    if "exactly_once" not in takes:
        return PathGuarantee(source.id, sink.id, "at least once", f"{sink.type} may be given a Batch again after a failure")
    if "replayable" not in gives:
        told = source_types[source.type].without("replayable", source.options) if source.type in source_types else source.type
        return PathGuarantee(source.id, sink.id, "at least once", f"{told} cannot hand out again what it handed out once")
    if written_by_spark(flow, sink, sink_types):
        return PathGuarantee(source.id, sink.id, "at least once", "Spark's own sink writes; a Batch cut short is written again")
    channel = sink.type in sink_types and sink_types[sink.type].internal  # `delivery` is asked of a flow's own sinks
    if not channel and (sink.delivery or flow.defaults.delivery) == "at_least_once":
        return PathGuarantee(source.id, sink.id, "at least once", "`delivery: at_least_once` asks for no more")
    how = f"one decision per Batch; {sink.type} publishes from it, each row once"
    if "units" in takes:
        how = f"{sink.type} takes each unit of a Batch once; where units may differ from run to run, a Batch as a whole, by one decision"
    reason = f"{source.type} hands out again what was logged; {how}"
    return PathGuarantee(source.id, sink.id, "exactly once", reason)


def written_by_spark(flow: Flow, sink: Sink, sink_types: Mapping[str, NodeType]) -> bool:
    """True where `delivery: at_least_once` makes a sink of Spark's own write the rows."""
    takes = sink_types[sink.type].abilities if sink.type in sink_types else frozenset[str]()
    return "spark_writes" in takes and (sink.delivery or flow.defaults.delivery) == "at_least_once"


def guarantees(
    flow: Flow, sources: Iterable[str], sinks: Iterable[str], feeds: Mapping[str, frozenset[str]], **types: Mapping[str, NodeType]
) -> tuple[PathGuarantee, ...]:
    """Of every path from one of `sources` to one of `sinks`; `feeds`: sink → everything upstream of it."""
    return tuple(
        path_guarantee(flow, flow.sources[source], flow.sinks[sink], source_types=types["source_types"], sink_types=types["sink_types"])
        for sink in sinks
        for source in sources
        if source in feeds[sink]
    )
