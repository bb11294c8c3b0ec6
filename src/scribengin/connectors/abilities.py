"""What a built source, reader, sink or stream supports beyond the contract that all implement: each function narrows its argument to that
Protocol.

The check is by attribute, not by `isinstance` of a runtime Protocol: it takes some hundred nanoseconds, and a connector need not import a
name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, Protocol, TypeGuard

    from typing_extensions import TypeIs

    from scribengin.connectors.contract import (
        ChainedSink,
        ComparingSink,
        CountingSink,
        HoldingReader,
        JsonStream,
        KeptSink,
        KeyedSource,
        LookedAtSink,
        LookedAtSource,
        LookingReader,
        LookingSource,
        MeasuringReader,
        OfferingSink,
        OriginStream,
        RecheckingReader,
        RestorableSink,
        RowStream,
        SinkConnector,
        SinkStream,
        SourceConnector,
        SourceReader,
        SparkSink,
        StagingSink,
        TellingReader,
        TracingSink,
        TracingSource,
        TrashSink,
        UnitSink,
    )

    class CodeSink(SinkConnector, Protocol):
        """A sink whose streams run user code."""

        load: Callable[[str], Any] | None
        """the object that `module:name` refers to; set in the executor's copy before a stream is requested"""

    class RedactedSink(SinkConnector, Protocol):
        """A sink that passes secrets to Spark in options."""

        redacted: Sequence[str]
        """the names of the options that hold secrets"""


def can_restore(sink: SinkConnector) -> TypeGuard[RestorableSink | TrashSink]:
    """True for a RestorableSink or a TrashSink whose place supports it."""
    return getattr(sink, "restorable", False)


def tells_origin(source: SourceConnector) -> TypeIs[TracingSource]:
    """True for a TracingSource."""
    return hasattr(source, "made_of")


def finds_rows(sink: SinkConnector) -> TypeIs[TracingSink]:
    """True for a TracingSink."""
    return hasattr(sink, "places_of")


def has_trash(sink: SinkConnector) -> TypeIs[TrashSink]:
    """True for a TrashSink."""
    return hasattr(sink, "move_to_trash")


def counts_others(sink: SinkConnector) -> TypeGuard[CountingSink]:
    """True for a CountingSink."""
    return hasattr(sink, "unaccounted")


def is_audited_in_state(sink: SinkConnector) -> bool:
    """True if an audit reads only the flow's state about this sink, and never the place."""
    return getattr(sink, "audited_in_state", False)


def is_written_by_spark(sink: SinkConnector) -> TypeGuard[SparkSink]:
    """True for a SparkSink."""
    return hasattr(sink, "spark_options")


def stages(sink: SinkConnector) -> TypeGuard[StagingSink]:
    """True for a StagingSink."""
    return hasattr(sink, "stream")


def looks_ahead(source: SourceConnector) -> TypeGuard[LookingSource]:
    """True for a LookingSource."""
    return hasattr(source, "check_first")


def looks_for_keys(source: SourceConnector | LookingSource) -> TypeGuard[KeyedSource]:
    """True for a KeyedSource."""
    return hasattr(source, "check_keys")


def can_measure(reader: SourceReader) -> TypeGuard[MeasuringReader]:
    """True for a MeasuringReader."""
    return hasattr(reader, "measure")


def may_look_first(reader: SourceReader) -> TypeGuard[LookingReader]:
    """True for a LookingReader."""
    return hasattr(reader, "looks_first")


def gives_rows(stream: SinkStream | OriginStream) -> TypeGuard[RowStream]:
    """True for a RowStream."""
    return hasattr(stream, "take")


def takes_json(stream: SinkStream | OriginStream) -> TypeGuard[JsonStream]:
    """True for a JsonStream."""
    return getattr(stream, "json_needs", None) is not None


def wants_origins(stream: SinkStream | OriginStream) -> TypeIs[OriginStream]:
    """True for an OriginStream that requires origins."""
    return getattr(stream, "wants_origins", False)


def runs_code(sink: SinkConnector) -> TypeGuard[CodeSink]:
    """True for a CodeSink."""
    return hasattr(sink, "load")


def redacts(sink: SinkConnector) -> TypeGuard[RedactedSink]:
    """True for a RedactedSink."""
    return hasattr(sink, "redacted")


def compares_columns(sink: SinkConnector) -> TypeGuard[ComparingSink]:
    """True for a ComparingSink."""
    return hasattr(sink, "unlike")


def can_be_looked_at(sink: SinkConnector) -> TypeGuard[LookedAtSink]:
    """True for a LookedAtSink."""
    return hasattr(sink, "look_at_place")


def is_looked_at(source: SourceConnector) -> TypeGuard[LookedAtSource]:
    """True for a LookedAtSource."""
    return hasattr(source, "look_at_place")


def offers(sink: SinkConnector) -> TypeGuard[OfferingSink]:
    """True for an OfferingSink."""
    return hasattr(sink, "offer")


def keeps_batches(sink: SinkConnector) -> TypeGuard[KeptSink]:
    """True for a KeptSink."""
    return hasattr(sink, "upkeep")


def is_handed_over(source: SourceConnector) -> bool:
    """True if a source's records come from another tier: all of its blocks are TracedBlocks."""
    return getattr(source, "handed_over", False)


def tells(reader: SourceReader) -> TypeGuard[TellingReader]:
    """True for a TellingReader."""
    return hasattr(reader, "committed")


def rechecks(reader: SourceReader) -> TypeGuard[RecheckingReader]:
    """True for a RecheckingReader."""
    return hasattr(reader, "recheck")


def holds(reader: SourceReader) -> TypeGuard[HoldingReader]:
    """True for a HoldingReader."""
    return hasattr(reader, "let_go")


def is_chained(sink: SinkConnector) -> TypeGuard[ChainedSink]:
    """True for a ChainedSink."""
    return hasattr(sink, "behind")


def commits_units(sink: SinkConnector) -> TypeGuard[UnitSink]:
    """True for a UnitSink."""
    return hasattr(sink, "unit_stream")
