"""A flow's twin for a test: the same steps between files in a scratch folder.

A files source keeps its format and reads what the test gives; so do Kafka's sources where the value alone makes the row. Other sources are
read as JSON lines with the same columns. A files sink writes as it does; others write Parquet, the rows as they reach them. The twin is
not cut: what a flow does and where it is cut are two things.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from scribengin.connectors import catalog
from scribengin.connectors.files.options import READ_AS
from scribengin.core.added_columns import added_fields
from scribengin.core.errors import InputError, ScribenginError
from scribengin.core.problems import Place, Problem
from scribengin.local.prepare import source_place
from scribengin.plan.columns import schema_of
from scribengin.plan.resolve import source_columns
from scribengin.spec.edge_model import EdgeProperties
from scribengin.spec.model import MaxDead, RecordBound, SchemaSpec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from scribengin.core.types import Schema
    from scribengin.spec.flow_tests import GivenRows
    from scribengin.spec.model import Flow, Sink, Source

_OF_FILES = ("metadata", "json", "multiline")
"""what a file that is given is read by, and rows are not: these give all columns themselves"""
_DECODED = ("format", "parse", "on_change", "max_record", *READ_AS)
"""options of a files source that say what its bytes mean"""
_WRITTEN = ("format", "compression", "partition_by", "header", "delimiter", "null", "evolve")
_NEVER_FULL = 2**50


@dataclass(frozen=True, slots=True)
class Scratch:
    """Where a test runs. Nothing outside it is written."""

    root: Path

    @property
    def state(self) -> Path:
        """The twin's state folder."""
        return self.root / "state"

    def given(self, source: str) -> Path:
        """The folder that the source reads."""
        return self.root / "given" / source

    def out(self, sink: str) -> Path:
        """The folder that the sink writes."""
        return self.root / "out" / sink


def make_twin(flow: Flow, given: Mapping[str, Any], scratch: Scratch) -> Flow:
    """The twin. A sequence to which the test gives nothing counts by itself. Raises InputError for a source whose columns nobody knows."""
    # what rows are given is plain; what files are given says its compression by its name
    sources = {source.id: _source(flow, source, scratch, given.get(source.id)) for source in flow.sources.values()}
    sinks = {sink.id: _sink(sink, scratch) for sink in flow.sinks.values()}
    defaults = replace(flow.defaults, edge=EdgeProperties(), standby="none", delivery="exactly_once", trigger_s=0.0, retain_s=None)
    return replace(
        flow,
        sources=sources,
        sinks=sinks,
        defaults=defaults,
        tiers={},
        edges={},
        groups={},
        max_delay_s=None,
        max_dead=MaxDead(run=RecordBound(percent=100.0)),  # the records of a test are meant to show what dies
        alerts={},
        tests=(),
        test_files=(),
        code=flow.code_folder.resolve(),
        folder=scratch.root,
    )


def _source(flow: Flow, source: Source, scratch: Scratch, given: Sequence[GivenRows] | None) -> Source:
    plain = replace(source, high_water=None, low_water=None, capacity=None)
    if source.type == "sequence" and given is None and source.options.get("rows") is not None:
        return plain
    options = {"path": str(scratch.given(source.id)), "settle": 0.0, "max_bytes": _NEVER_FULL}
    if source.type == "files" and source.options.get("format") != "avro":
        kept = {name: value for name, value in source.options.items() if name in _DECODED}
        if any(rows.files for rows in given or ()):
            kept |= {name: value for name, value in source.options.items() if name in _OF_FILES}
        elif kept["format"] == "text" and added_fields(source.options):
            kept["format"] = "json"  # a row gives the columns that the source would add
        schema = source.schema or (SchemaSpec(_columns(flow, source)) if kept["format"] == "parquet" else None)
        return replace(plain, options=options | kept | {"on_change": "ignore"}, schema=schema)
    format_ = source.options.get("format")
    if source.type == "kafka" and format_ in ("json", "csv", "text") and not source.options.get("metadata"):
        cells = {name: source.options[name] for name in READ_AS if name in source.options}
        more = cells | {"header": False} if format_ == "csv" else {}
        return replace(plain, type="files", options=options | {"format": format_} | more)
    return replace(plain, type="files", options=options | {"format": "json"}, schema=SchemaSpec(_columns(flow, source)))


def _columns(flow: Flow, source: Source) -> Schema:
    """Those that it declares, that all of its kind have, or that it finds in its place."""
    known = schema_of(source_columns(source))
    if known is not None:
        return known
    try:
        return catalog.open_source(source.type, source_place(flow, source.id)).resolve_schema()
    except ScribenginError as error:
        message = f'nobody knows the columns of source "{source.id}": {error.message}'
        place = Place(str(flow.folder))
        raise InputError([Problem("schema-missing", place, message, "declare them with `schema:`")]) from error


def _sink(sink: Sink, scratch: Scratch) -> Sink:
    options: dict[str, Any] = {"path": str(scratch.out(sink.id))}
    if sink.type == "files":
        options |= {name: value for name, value in sink.options.items() if name in _WRITTEN}
    else:
        options |= {"format": "parquet", "evolve": "any"}  # what such a sink's place takes, no folder can say
    return replace(sink, type="files", options=options, trigger_s=None, delivery=None, to=None)
