"""Tests whether a built source, reader, sink or stream supports an ability of `core.abilities`; each function narrows it to a Protocol.

A type declares what it supports (`NodeType.abilities`). What one object of the type supports may depend on more: a group supports what its
members support, and a sink has a trash only if its store allows one. The functions therefore check the object for the members that the
table of abilities names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.core.abilities import has_members, supports

if TYPE_CHECKING:
    from typing import TypeGuard

    from typing_extensions import TypeIs

    from scribengin.connectors.contract import (
        BufferingSink,
        ChainedSink,
        CodeSink,
        ColumnCheckingReader,
        ColumnCheckingSource,
        ComparingSink,
        CountingSink,
        HandedOverSource,
        HoldingReader,
        JsonStream,
        KeyCheckingSource,
        LocatingSource,
        MaskingSink,
        MeasuringReader,
        OfferingSink,
        OriginStream,
        PlaceChecking,
        ReportingReader,
        RestorableSink,
        RowStream,
        SinkConnector,
        SinkStream,
        SourceConnector,
        SourceReader,
        SparkSink,
        StateAuditedSink,
        TracingSink,
        TracingSource,
        TrashSink,
        UnitSink,
        VerifyingReader,
    )


def checks_place(built: SourceConnector | SinkConnector) -> TypeGuard[PlaceChecking]:
    """True if a source or a sink can check its place before a run."""
    return supports(built, "checks_place", "sink")


def checks_columns(source: SourceConnector) -> TypeGuard[ColumnCheckingSource]:
    """True if a source can compare the columns of its data with those of the flow."""
    return supports(source, "checks_columns", "source")


def reader_checks_columns(reader: SourceReader) -> TypeGuard[ColumnCheckingReader]:
    """True if a reader can compare the columns of the first data that it finds with those of the flow."""
    return supports(reader, "checks_columns", "reader")


def checks_keys(source: SourceConnector | ColumnCheckingSource) -> TypeGuard[KeyCheckingSource]:
    """True if a source can check that its data have the columns that are read as keys."""
    return supports(source, "checks_keys", "source")


def locates_records(source: SourceConnector) -> TypeIs[LocatingSource]:
    """True if the source is a LocatingSource."""
    return supports(source, "locates_records", "source")


def traces_origin(source: SourceConnector) -> TypeIs[TracingSource]:
    """True if a source can find the origin of its records."""
    return supports(source, "traces_origin", "source")


def is_handed_over(source: SourceConnector) -> TypeGuard[HandedOverSource]:
    """True if a source's records come from another tier."""
    return supports(source, "handed_over", "source")


def measures_backlog(reader: SourceReader) -> TypeGuard[MeasuringReader]:
    """True if a reader can measure its backlog without reading it."""
    return supports(reader, "measures_backlog", "reader")


def reports_position(reader: SourceReader) -> TypeGuard[ReportingReader]:
    """True if a reader reports to its external system how far the flow has committed."""
    return supports(reader, "reports_position", "reader")


def verifies(reader: SourceReader) -> TypeGuard[VerifyingReader]:
    """True if a reader finds data that was lost after it was logged."""
    return supports(reader, "verifies", "reader")


def holds_back(reader: SourceReader) -> TypeGuard[HoldingReader]:
    """True if a reader prevents others from deleting data that is not committed yet."""
    return supports(reader, "holds_back", "reader")


def can_restore(sink: SinkConnector) -> TypeGuard[RestorableSink | TrashSink]:
    """True if data that `reset` removes can be restored for a while. For a sink with a trash this may read the sink's place."""
    return supports(sink, "restores_files", "sink") or supports(sink, "has_trash", "sink")


def has_trash(sink: SinkConnector) -> TypeIs[TrashSink]:
    """True if a sink's connector has a trash. `can_restore` returns whether the sink's store supports it."""
    return has_members(sink, "has_trash", "sink")


def traces_rows(sink: SinkConnector) -> TypeIs[TracingSink]:
    """True if a sink can find its rows by their origin."""
    return supports(sink, "traces_rows", "sink")


def finds_unaccounted(sink: SinkConnector) -> TypeGuard[CountingSink]:
    """True if a sink finds data that others wrote at its place."""
    return supports(sink, "finds_unaccounted", "sink")


def is_audited_in_state(sink: SinkConnector) -> TypeGuard[StateAuditedSink]:
    """True if an audit of a sink reads only the flow's state, and never the sink's place."""
    return supports(sink, "audited_in_state", "sink")


def spark_writes(sink: SinkConnector) -> TypeGuard[SparkSink]:
    """True if one of Spark's own sinks writes the rows."""
    return supports(sink, "spark_writes", "sink")


def chains_batches(sink: SinkConnector) -> TypeGuard[ChainedSink]:
    """True if each Batch of a sink records which commits it follows."""
    return supports(sink, "chains_batches", "sink")


def commits_units(sink: SinkConnector) -> TypeGuard[UnitSink]:
    """True if a sink can commit the task outputs of a Batch one by one."""
    return supports(sink, "commits_units", "sink")


def refuses_rows(sink: SinkConnector) -> TypeGuard[OfferingSink]:
    """True if a sink's place accepts or refuses rows one by one, after the Batch is decided."""
    return supports(sink, "refuses_rows", "sink")


def compares_columns(sink: SinkConnector) -> TypeGuard[ComparingSink]:
    """True if a sink's place has columns of its own, which can be compared before a start."""
    return supports(sink, "compares_columns", "sink")


def buffers_batches(sink: SinkConnector) -> TypeGuard[BufferingSink]:
    """True if a sink may keep published Batches while its place is unavailable."""
    return supports(sink, "buffers_batches", "sink")


def masks(sink: SinkConnector) -> TypeGuard[MaskingSink]:
    """True if a sink names options whose values Spark must not show."""
    return supports(sink, "masks", "sink")


def runs_code(sink: SinkConnector) -> TypeGuard[CodeSink]:
    """True if a sink's streams run functions of the flow's code."""
    return supports(sink, "runs_code", "sink")


def passes_rows_to_spark(stream: SinkStream | OriginStream) -> TypeGuard[RowStream]:
    """True if a stream only prepares rows that Spark writes."""
    return supports(stream, "spark_writes", "stream")


def takes_json(stream: SinkStream | OriginStream) -> TypeGuard[JsonStream]:
    """True if a stream accepts rows as JSON."""
    return supports(stream, "takes_json", "stream")


def takes_origins(stream: SinkStream | OriginStream) -> TypeIs[OriginStream]:
    """True if a stream requires the origins of rows, as numbers."""
    return supports(stream, "takes_origins", "stream")
