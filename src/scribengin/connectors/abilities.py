"""Whether a built source, reader, sink or stream supports an ability of `core.abilities`; each function narrows it to a Protocol.

What a type can do is declared (`NodeType.abilities`); what one object of it can do may depend on more: a group supports what its members
support, and a sink has a trash only at a store that allows one. So the object is asked, by the members that the table of abilities names.
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
    """Whether a source or a sink can check its place before a run."""
    return supports(built, "checks_place", "sink")


def checks_columns(source: SourceConnector) -> TypeGuard[ColumnCheckingSource]:
    """Whether a source can compare the columns of its data with those of the flow."""
    return supports(source, "checks_columns", "source")


def reader_checks_columns(reader: SourceReader) -> TypeGuard[ColumnCheckingReader]:
    """Whether a reader can compare the columns of the first data that it finds with those of the flow."""
    return supports(reader, "checks_columns", "reader")


def checks_keys(source: SourceConnector | ColumnCheckingSource) -> TypeGuard[KeyCheckingSource]:
    """Whether a source can check that its data have the columns that are read as keys."""
    return supports(source, "checks_keys", "source")


def traces_origin(source: SourceConnector) -> TypeIs[TracingSource]:
    """Whether a source finds where its records came from."""
    return supports(source, "traces_origin", "source")


def is_handed_over(source: SourceConnector) -> TypeGuard[HandedOverSource]:
    """Whether a source's records come from another tier."""
    return supports(source, "handed_over", "source")


def measures_backlog(reader: SourceReader) -> TypeGuard[MeasuringReader]:
    """Whether a reader can measure its backlog without reading it."""
    return supports(reader, "measures_backlog", "reader")


def reports_position(reader: SourceReader) -> TypeGuard[ReportingReader]:
    """Whether a reader tells its system how far the flow has committed."""
    return supports(reader, "reports_position", "reader")


def verifies(reader: SourceReader) -> TypeGuard[VerifyingReader]:
    """Whether a reader finds what was lost since it was logged."""
    return supports(reader, "verifies", "reader")


def holds_back(reader: SourceReader) -> TypeGuard[HoldingReader]:
    """Whether a reader keeps others from deleting data that is not committed yet."""
    return supports(reader, "holds_back", "reader")


def can_restore(sink: SinkConnector) -> TypeGuard[RestorableSink | TrashSink]:
    """Whether what `reset` removes can be restored for a while. A sink with a trash may read its place for the answer."""
    return supports(sink, "restores_files", "sink") or supports(sink, "has_trash", "sink")


def has_trash(sink: SinkConnector) -> TypeIs[TrashSink]:
    """Whether a sink's connector has a trash. Whether its store supports one `can_restore` says."""
    return has_members(sink, "has_trash", "sink")


def traces_rows(sink: SinkConnector) -> TypeIs[TracingSink]:
    """Whether a sink finds its rows by where they came from."""
    return supports(sink, "traces_rows", "sink")


def finds_unaccounted(sink: SinkConnector) -> TypeGuard[CountingSink]:
    """Whether a sink finds what others wrote at its place."""
    return supports(sink, "finds_unaccounted", "sink")


def is_audited_in_state(sink: SinkConnector) -> TypeGuard[StateAuditedSink]:
    """Whether an audit reads only the flow's state about a sink, and never the place."""
    return supports(sink, "audited_in_state", "sink")


def spark_writes(sink: SinkConnector) -> TypeGuard[SparkSink]:
    """Whether a sink of Spark's own writes the rows."""
    return supports(sink, "spark_writes", "sink")


def chains_batches(sink: SinkConnector) -> TypeGuard[ChainedSink]:
    """Whether each Batch of a sink records which commits it follows."""
    return supports(sink, "chains_batches", "sink")


def commits_units(sink: SinkConnector) -> TypeGuard[UnitSink]:
    """Whether a sink can commit the units of a Batch one by one."""
    return supports(sink, "commits_units", "sink")


def refuses_rows(sink: SinkConnector) -> TypeGuard[OfferingSink]:
    """Whether a sink's place accepts or refuses rows one by one, after the decision."""
    return supports(sink, "refuses_rows", "sink")


def compares_columns(sink: SinkConnector) -> TypeGuard[ComparingSink]:
    """Whether a sink's place has columns of its own, which can be compared before a start."""
    return supports(sink, "compares_columns", "sink")


def buffers_batches(sink: SinkConnector) -> TypeGuard[BufferingSink]:
    """Whether a sink may keep published Batches while its place is unavailable."""
    return supports(sink, "buffers_batches", "sink")


def masks(sink: SinkConnector) -> TypeGuard[MaskingSink]:
    """Whether a sink names options whose values Spark must not show."""
    return supports(sink, "masks", "sink")


def runs_code(sink: SinkConnector) -> TypeGuard[CodeSink]:
    """Whether a sink's streams run functions of the flow's code."""
    return supports(sink, "runs_code", "sink")


def passes_rows_to_spark(stream: SinkStream | OriginStream) -> TypeGuard[RowStream]:
    """Whether a stream only prepares rows that Spark writes."""
    return supports(stream, "spark_writes", "stream")


def takes_json(stream: SinkStream | OriginStream) -> TypeGuard[JsonStream]:
    """Whether a stream takes rows as JSON."""
    return supports(stream, "takes_json", "stream")


def takes_origins(stream: SinkStream | OriginStream) -> TypeIs[OriginStream]:
    """Whether a stream requires the origins of rows, as numbers."""
    return supports(stream, "takes_origins", "stream")
