"""The delivery guarantee from each source to each sink, with its reason: replayable source × plan × abilities of the sink."""

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
    """The guarantee of one path of a checked flow. A source or sink of an unknown type counts as without abilities."""
    gives = source_types[source.type].able(source.options) if source.type in source_types else frozenset[str]()
    takes = sink_types[sink.type].able(sink.options) if sink.type in sink_types else frozenset[str]()
    if "view" in takes:
        return PathGuarantee(source.id, sink.id, "view", f"{sink.type} shows rows and does not store them: no guarantee")
    if "exactly_once" not in takes:
        return PathGuarantee(source.id, sink.id, "at least once", f"{sink.type} may receive a Batch again after a failure")
    if "replayable" not in gives:
        told = source_types[source.type].without("replayable", source.options) if source.type in source_types else source.type
        return PathGuarantee(source.id, sink.id, "at least once", f"{told} cannot be re-read identically")
    if written_by_spark(flow, sink, sink_types):
        return PathGuarantee(source.id, sink.id, "at least once", "Spark's own sink writes; an interrupted Batch is written again")
    channel = sink.type in sink_types and sink_types[sink.type].internal  # `delivery` is asked of a flow's own sinks
    if not channel and (sink.delivery or flow.defaults.delivery) == "at_least_once":
        return PathGuarantee(source.id, sink.id, "at least once", "`delivery: at_least_once` is set")
    how = f"one decision per Batch; {sink.type} publishes each row once, from that decision"
    if "units" in takes:
        how = (
            f"{sink.type} commits each task output of a Batch once; if task outputs may differ from run to run, it commits the "
            "whole Batch by one decision"
        )
    reason = f"{source.type} can be re-read as logged; {how}"
    return PathGuarantee(source.id, sink.id, "exactly once", reason)


def written_by_spark(flow: Flow, sink: Sink, sink_types: Mapping[str, NodeType]) -> bool:
    """True if, with `delivery: at_least_once`, Spark's own sink writes the rows."""
    takes = sink_types[sink.type].abilities if sink.type in sink_types else frozenset[str]()
    return "spark_writes" in takes and (sink.delivery or flow.defaults.delivery) == "at_least_once"


def guarantees(
    flow: Flow, sources: Iterable[str], sinks: Iterable[str], feeds: Mapping[str, frozenset[str]], **types: Mapping[str, NodeType]
) -> tuple[PathGuarantee, ...]:
    """The guarantees of every path from one of `sources` to one of `sinks`; `feeds`: sink → everything upstream of it."""
    return tuple(
        path_guarantee(flow, flow.sources[source], flow.sinks[sink], source_types=types["source_types"], sink_types=types["sink_types"])
        for sink in sinks
        for source in sources
        if source in feeds[sink]
    )
