"""The first records of a source, for a preview: nothing is acknowledged, nothing remembered, no more is read than is looked at."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from scribengin.connectors import catalog
from scribengin.connectors.contract import BatchLimits
from scribengin.connectors.files.options import READ_AS
from scribengin.connectors.files.reader import FilesReader
from scribengin.core.errors import InputError, SourceError
from scribengin.core.problems import Place, Problem, did_you_mean
from scribengin.core.types import Schema, arrow_schema
from scribengin.local.learning import sentence, why_new_dropped
from scribengin.local.prepare import source_place
from scribengin.spark.at_hand import Root, RowSample, joined
from scribengin.spark.noticed import noticing
from scribengin.spark.program import SourceRef

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from scribengin.connectors.contract import ConnectorContext as SourcePlace
    from scribengin.connectors.contract import SourceConnector as OpenSource
    from scribengin.formats.contract import Bad, Block, DecodedColumns
    from scribengin.formats.notice import FormatNotice
    from scribengin.spec.model import Flow

STATIC_RECORDS = 10_000
"""of a static source at most: a sample joined with a sample would find nothing"""
_FORMATS = {
    "json": "json",
    "jsonl": "json",
    "ndjson": "json",
    "csv": "csv",
    "tsv": "csv",
    "txt": "text",
    "log": "text",
    "parquet": "parquet",
    "avro": "avro",
}
"""suffix → format of a file that stands for a source"""


@dataclass(frozen=True, slots=True)
class Unread:
    """A record that could not be decoded."""

    root: Root
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class SourcePreview:
    """What was found: `records` in all, the readable ones as rows, `skipped` empty lines. `schema` is what the source gives, which with
    `parse: spark` is not what `sample` holds: its lines."""

    sample: RowSample
    schema: Schema
    records: int
    unread: tuple[Unread, ...] = ()
    skipped: int = 0
    notes: tuple[str, ...] = ()


def preview_source(flow: Flow, id_: str, records: int, file: Path | None = None) -> SourcePreview:
    """The first records of the source, or of a file that stands for it. Raises SourceError, Unreachable or InputError."""
    node = flow.sources[id_]
    type_, place = node.type, source_place(flow, id_)
    notes: list[str] = []
    if file is not None:
        type_, place, said = _of_file(flow, id_, place, file)
        notes += said
    elif place.options.get("start") == "latest":
        place = replace(place, options={**place.options, "start": "earliest"})
        notes.append("a run starts after the newest record (start: latest); the preview uses the oldest existing records")
    limit = STATIC_RECORDS if node.static else records
    if ends_by := catalog.source_types()[type_].ends_by:  # which may be endless, and is as slow as its rate
        rows = place.options[ends_by]
        slow = {"rate": None} if "rate" in place.options else {}
        place = replace(place, options={**place.options, ends_by: limit if rows is None else min(rows, limit), **slow})
    source = catalog.open_source(type_, place)
    schema = source.resolve_schema()
    if place.options.get("parse") == "spark":
        place = replace(place, options={**place.options, "format": "text", "parse": "strict"}, schema=None)
        source = catalog.open_source(type_, place)
    evolve = node.schema.evolve if node.schema else "strict"
    found, noticed = _first(source, SourceRef(id_, type_, place, 0, evolve, node.schema.learned if node.schema else ()), limit)
    if node.static and found.records:
        all_of_it = found.records < limit
        notes.append("static: the whole table" if all_of_it else f"static: its first {limit:,} records, so that joins find matches")
    notes += [sentence(notice, evolve, why_new_dropped(flow, notice)) for notice in noticed]
    return replace(found, schema=schema, notes=tuple(notes))


def _first(source: OpenSource, ref: SourceRef, limit: int) -> tuple[SourcePreview, list[FormatNotice]]:
    schema = source.resolve_schema()
    noticer, decoder = noticing(ref, source, {})
    samples, unread, taken, skipped = list[RowSample](), list[Unread](), 0, 0
    for block in _blocks(source, limit):
        size = min(len(block), limit - taken)
        noticer.inspect(block)
        decoded = decoder.columns(block)
        noticer.decoded(decoded)
        roots = _Roots(ref.node, block)
        rows = [index for index, ordinal in enumerate(decoded.ordinals) if ordinal < size]
        bad = [each for each in decoded.bad if each.ordinal < size]
        samples.append(_sample(decoded, schema, rows, roots))
        unread += [Unread(roots.of(each.ordinal), each.reason, each.message) for each in _in_order(bad)]
        skipped += size - len(rows) - len(bad)
        taken += size
        if taken >= limit:
            break
    noticer.end()
    return SourcePreview(joined(samples, schema), schema, taken, tuple(unread), skipped), list(noticer.found.values())


def _in_order(bad: list[Bad]) -> list[Bad]:
    return sorted(bad, key=lambda each: each.ordinal)


class _Roots:
    def __init__(self, source: str, block: Block) -> None:
        self._source = source
        self._block = block

    def of(self, ordinal: int) -> Root:
        return Root(self._source, self._block.place(ordinal), self._block.payload(ordinal))


def _sample(decoded: DecodedColumns, schema: Schema, rows: list[int], roots: _Roots) -> RowSample:
    form = arrow_schema(schema)
    batch = decoded.batch.take(pa.array(rows, pa.int64()))
    return RowSample(batch.select(form.names).cast(form), schema, tuple(roots.of(decoded.ordinals[index]) for index in rows))


def _blocks(source: OpenSource, limit: int) -> Iterator[Block]:
    """Block by block, and stream by stream: no file is opened before the last one is through."""
    reader = source.reader()
    if isinstance(reader, FilesReader):
        reader.holds = False
    while streams := reader.split(BatchLimits(max_files=1, max_rows=limit), final=True):
        for stream in streams:
            if not stream.skipped:
                yield from source.read(stream)


# --- a file in place of a source ---


def stand_ins(flow: Flow, given: Mapping[str, Path]) -> dict[str, Path]:
    """Source → the file that stands for it; a file without a source stands for the only stream. Raises InputError."""
    found: dict[str, Path] = {}
    for source, file in given.items():
        if source and source not in flow.sources:
            remedy = did_you_mean(source, flow.sources) or f"its sources are {', '.join(flow.sources)}"
            raise InputError([Problem("preview-source", Place("--from"), f'flow "{flow.name}" has no source "{source}"', remedy)])
        name = source or _only_stream(flow, file)
        if not file.is_file():
            what = "it is a folder" if file.is_dir() else "the file does not exist"
            near = [str(other) for other in file.parent.glob("*") if other.is_file()] if file.parent.is_dir() else []
            raise InputError([Problem("preview-file", Place(str(file)), what, did_you_mean(str(file), near) or "name a file of records")])
        found[name] = file
    return found


def _only_stream(flow: Flow, file: Path) -> str:
    streams = [source.id for source in flow.sources.values() if not source.static] or list(flow.sources)
    if len(streams) != 1:
        remedy = f"name the source that it replaces: --from {streams[0]}={file}"
        message = f'flow "{flow.name}" reads {", ".join(streams)}, and --from does not name one of them'
        raise InputError([Problem("preview-source", Place(str(file)), message, remedy)])
    return streams[0]


def _of_file(flow: Flow, id_: str, place: SourcePlace, file: Path) -> tuple[str, SourcePlace, list[str]]:
    """The files source that reads it: as its suffix says, else as the source's own records."""
    own = str(place.options.get("format") or "json")
    suffixes = [suffix[1:].lower() for suffix in file.suffixes]
    format_ = next((_FORMATS[suffix] for suffix in reversed(suffixes) if suffix in _FORMATS), own)
    declared = catalog.source_types()["files"]
    option = declared.option("format")
    if option is None or format_ not in option.choices:
        remedy = f"give it a suffix of a known format: {', '.join(f'.{suffix}' for suffix in _FORMATS)}"
        raise InputError([Problem("preview-format", Place(str(file)), f'records of format "{format_}" cannot be read from a file', remedy)])
    kept = {name: place.options[name] for name in (*READ_AS, "max_record") if place.options.get(name) is not None}
    if suffixes[-1:] == ["tsv"]:
        kept["delimiter"] = "\t"
    options = declared.filled({**kept, "path": str(file.absolute()), "format": format_})
    if format_ != own:
        options |= {"parse": "strict"}
    schema = place.schema or _schema_there(flow, id_, place, format_)
    notes = [f"from {file}" + (f", read as {format_} by its suffix; the source is {own}" if format_ != own else "")]
    if place.options.get("metadata"):
        notes.append(f"a file has no record metadata: {', '.join(place.options['metadata'])} are read from the record itself")
    return "files", replace(place, options=options, schema=schema, members=()), notes


def _schema_there(flow: Flow, id_: str, place: SourcePlace, format_: str) -> Schema | None:
    """The columns of a source that declares none."""
    if format_ in ("parquet", "text") and place.options.get("format") == format_:
        return None
    try:
        return catalog.open_source(flow.sources[id_].type, place).resolve_schema()
    except SourceError as error:
        message = f'source "{id_}" declares no columns, and they cannot be read from its system: {error.message}'
        raise InputError([Problem("preview-schema", Place("--from"), message, "add `schema:` to the source")]) from error
