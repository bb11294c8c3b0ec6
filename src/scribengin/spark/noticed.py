"""Passes what tasks noticed about the columns of their data to the decision."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from scribengin.connectors.catalog import source_types
from scribengin.formats.added_columns import AddedColumns, own_decoder
from scribengin.formats.lenient import LearnedAvro, LenientDecoder
from scribengin.formats.notice import FormatNotice
from scribengin.formats.noticing import MOST, Noticer

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from scribengin.connectors.contract import SourceConnector
    from scribengin.formats.contract import Decoder
    from scribengin.spark.program import SourceRef
    from scribengin.spark.task_report import TaskReport


_ENOUGH = 10
"""records of a Batch: of fewer a column that is often null may well be null in all"""


def noticing(ref: SourceRef, source: SourceConnector, there: dict[str, Noticer]) -> tuple[Noticer, Decoder]:
    """Who looks at the blocks of a source (one for all its streams in a task, kept in `there`), and the decoder that `evolve` asks for."""
    whole = source.decoder()
    decoder = own_decoder(whole)
    noticer, decoder = _noticing(ref, decoder, there)
    return noticer, whole.over(decoder) if isinstance(whole, AddedColumns) else decoder


def _noticing(ref: SourceRef, decoder: Decoder, there: dict[str, Noticer]) -> tuple[Noticer, Decoder]:
    if ref.node not in there:
        there[ref.node] = Noticer(ref.node, decoder.schema, ref.place.options.get("format") or "", ref.learned)
    noticer = there[ref.node]
    if ref.evolve == "lenient":
        return noticer, LenientDecoder(decoder, noticer, ref.place.options)
    if (
        ref.learned and "lenient" in source_types(internal=True)[ref.type].abilities
    ):  # nobody has said what they are: a record that is good without them stays good
        match ref.place.options.get("format"):
            case "json":
                return noticer, LenientDecoder(decoder, noticer, ref.place.options, only=ref.learned)
            case "avro":
                return noticer, LearnedAvro(decoder.schema, noticer, ref.learned, truncate=ref.place.options.get("time") == "truncate")
    return noticer, decoder


def together(
    reports: Iterable[TaskReport], known: Collection[tuple[str, str, str]], more: Iterable[FormatNotice] = ()
) -> tuple[FormatNotice, ...]:
    """Of all units of a Batch, and `more`: what is not yet known, and what is counted each time.

    Of each kind of a source a Query keeps 100 at most: names that never end must not fill the ledger.
    """
    found: dict[tuple[str, str, str], FormatNotice] = {}
    kept = Counter((source, kind) for source, _, kind in known)
    reports = list(reports)
    for notice in chain(*(report.noticed for report in reports), more):
        if notice.key in found:
            found[notice.key] = replace(notice, records=found[notice.key].records + notice.records)
        elif notice.key in known:
            if notice.kind == "nulled":
                found[notice.key] = notice
        elif kept[notice.source, notice.kind] < MOST:
            kept[notice.source, notice.kind] += 1
            found[notice.key] = notice
    for notice in _always_null(reports):
        explained = any((notice.source, notice.column, kind) in {*known, *found} for kind in ("null", "renamed", "missing"))
        if not explained and kept[notice.source, "null"] < MOST:
            kept[notice.source, "null"] += 1
            found[notice.key] = notice
    return tuple(found[key] for key in sorted(found))


def _always_null(reports: Iterable[TaskReport]) -> Iterator[FormatNotice]:
    """The columns that are null in all records of a Batch, where these are enough to say so."""
    records = Counter[str]()
    columns: dict[str, dict[str, str]] = {}
    for report in reports:
        for source, each in report.nulls.items():
            records[source] += each.records
            before = columns.get(source, each.columns)
            columns[source] = {name: type_ for name, type_ in each.columns.items() if name in before}
    for source, names in columns.items():
        if records[source] >= _ENOUGH:
            yield from (FormatNotice(source, name, "null", type_, "", records=records[source]) for name, type_ in names.items())
