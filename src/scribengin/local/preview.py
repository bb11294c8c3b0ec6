"""`preview`: passes a sample of each source through the flow's steps, one after the other, and shows the outcome of each row.

It writes only into a scratch folder of its own, which is deleted at the end: no state folder, no sink, no lease, no acknowledgement. So it
can be used beside a running flow. A flow with several tiers is treated as a whole.
"""

from __future__ import annotations

import importlib
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from scribengin.connectors import catalog
from scribengin.connectors.contract import BatchLimits
from scribengin.connectors.files.options import READ_AS
from scribengin.connectors.files.reader import FilesReader
from scribengin.core.errors import EnvironmentFault, Exit, InputError, ScribenginError, SourceError, StepError, Unreachable
from scribengin.core.problems import Place, Problem, did_you_mean
from scribengin.core.types import Schema, arrow_schema
from scribengin.formats.rows import batch_to_rows
from scribengin.local.prepare import source_place, state_root
from scribengin.local.preview_contract import NodePreview, Preview, PreviewedRow
from scribengin.local.schema_drift import sentence, why_new_dropped, with_learned
from scribengin.local.spark_analysis import column_differences, held_problems
from scribengin.plan.describe import describe
from scribengin.plan.graph import Graph, base, inputs_of
from scribengin.plan.resolve import resolve
from scribengin.plan.validate import validate_file
from scribengin.spark.counting import noticing
from scribengin.spark.dead_letter_writer import show_place
from scribengin.spark.native import union_schema
from scribengin.spark.preview_execution import LoneSteps, Root, RowSample, joined, outputs_by_input
from scribengin.spark.program import SourceRef
from scribengin.spark.user_code import deactivate_below, pack
from scribengin.spec.call_sites import CallPlaces
from scribengin.spec.load import load_flow
from scribengin.spec.model import Aggregate, Sink, Source, Sql

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import TracebackType
    from typing import Self

    from pyspark.sql import SparkSession

    from scribengin.connectors.contract import ConnectorContext as SourcePlace
    from scribengin.connectors.contract import SourceConnector as OpenSource
    from scribengin.formats.contract import Bad, Block, DecodedColumns
    from scribengin.formats.notice import FormatNotice
    from scribengin.local.preview_contract import PreviewSettings
    from scribengin.plan.resolve import Resolved
    from scribengin.spark.preview_execution import Died, StepOutcome
    from scribengin.spec.model import Flow, Node, Step
    from scribengin.spec.places import Places


# The first records of a source, for a preview: nothing is acknowledged or remembered, and no more is read than is shown.


STATIC_RECORDS = 10_000
"""the most records of a static source, which are more than a sample: a join of two samples would find no matches"""
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
"""suffix → format of a file that replaces a source"""


@dataclass(frozen=True, slots=True)
class Unread:
    """A record that could not be decoded."""

    root: Root
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class SourcePreview:
    """The first records of a source: `records` is their number, `sample` has the readable ones as rows, `skipped` is the number of empty
    lines. `schema` is that of the source; with `parse: spark`, `sample` has its lines instead."""

    sample: RowSample
    schema: Schema
    records: int
    unread: tuple[Unread, ...] = ()
    skipped: int = 0
    notes: tuple[str, ...] = ()


def preview_source(flow: Flow, id_: str, records: int, file: Path | None = None) -> SourcePreview:
    """Read the first records of a source.

    Args:
        flow: The flow.
        id_: The id of the source.
        records: The most records to read; a static source has a limit of its own.
        file: A file that replaces the source.

    Raises:
        SourceError: The source cannot be read.
        Unreachable: Its system does not answer.
        InputError: The file cannot replace the source.
    """
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
    if ends_by := catalog.source_types()[type_].ends_by:  # it may be endless, and is as slow as its rate
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
    """The blocks of one stream after the other: no file is opened before the last one was read."""
    reader = source.reader()
    if isinstance(reader, FilesReader):
        reader.holds = False
    while streams := reader.split(BatchLimits(max_files=1, max_rows=limit), final=True):
        for stream in streams:
            if not stream.skipped:
                yield from source.read(stream)


# --- a file in place of a source ---


def replaced_sources(flow: Flow, given: Mapping[str, Path]) -> dict[str, Path]:
    """Source → the file that replaces it; a file without a source replaces the only stream. Raises InputError."""
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
    """The type, context and notes of a files source that reads the file in the format of its suffix, or else of the source's records."""
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
    """The columns of a source that declares none; None if the format of the file gives them."""
    if format_ in ("parquet", "text") and place.options.get("format") == format_:
        return None
    try:
        return catalog.open_source(flow.sources[id_].type, place).resolve_schema()
    except SourceError as error:
        message = f'source "{id_}" declares no columns, and they cannot be read from its system: {error.message}'
        raise InputError([Problem("preview-schema", Place("--from"), message, "add `schema:` to the source")]) from error


_SHOWN_BYTES = 400
"""the most bytes that are shown of a record that could not be decoded"""


class Previews:
    """Previews of one flow file, one after the other. Spark is started once, when a step first needs it. A context manager."""

    def __init__(
        self, path: Path, settings: PreviewSettings, *, spark: SparkSession | None = None, tell: Callable[[str], None] = lambda _: None
    ) -> None:
        """Prepare previews.

        Args:
            path: The flow file.
            settings: The settings of each preview.
            spark: A session to use (for tests); otherwise one is started and stopped.
            tell: Receives a text about each thing that takes seconds.
        """
        self._tell = tell
        self._path = path
        self._settings = settings
        self._spark = spark
        self._lent = spark is not None
        self._folder: Path | None = None

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="scribengin-preview-"))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._spark is not None and not self._lent:
            from scribengin.spark.shared_session import close_session

            close_session(self._spark)
        if self._folder is not None:
            deactivate_below(self._folder)
            if self._spark is None or not self._lent:  # a session that continues fetches its code again
                shutil.rmtree(self._folder, ignore_errors=True)

    def session(self) -> SparkSession:
        """The Spark session, which takes some seconds to start the first time. Raises EnvironmentFault."""
        from scribengin.spark.shared_session import open_session

        assert self._folder is not None, "inside its context"
        if self._spark is None:
            # a Python worker that is reused would keep the modules of an earlier version
            conf = {"spark.sql.shuffle.partitions": "1", "spark.python.worker.reuse": "false", **self._settings.spark_conf}
            self._tell("starting Spark, for steps that it runs")
            self._spark = open_session(
                "preview", master="local[2,1]", memory=self._settings.memory, conf=conf, folder=self._folder, plans_only=True
            )
        return self._spark

    def preview_now(self) -> Preview:
        """Preview the flow as its file is now, with its modules loaded again. All other failures are part of the Preview.

        Raises:
            InputError: The file is wrong, with every Problem of it, or the settings name something that the flow does not have.
            EnvironmentFault: Spark is needed, and does not start.
        """
        assert self._folder is not None, "inside its context"
        forget(self._path.resolve().parent)
        flow, problems = validate_file(self._path, os.environ, execute=True, base=self._settings.base)
        if flow is None or any(problem.severity == "error" for problem in problems):
            raise InputError(problems)
        flow = with_learned(flow, state_root(self._path, self._settings.state))
        places = _places(self._path, flow)
        at = self._settings.at
        graph = Graph(flow)
        if at is not None and base(at) not in graph.nodes:
            remedy = did_you_mean(at, graph.nodes) or f"it has {', '.join(graph.nodes)}"
            raise InputError([Problem("preview-at", Place(str(self._path)), f'flow "{flow.name}" has no step "{at}"', remedy)])
        files = replaced_sources(flow, self._settings.files)
        code = pack(flow.code_folder, self._folder)
        walk = _Walk(flow, graph, places, self._settings, files, LoneSteps(code, _once(self.session)))
        return Preview(flow.name, tuple(walk.nodes()), (*problems, *walk.problems), walk.exit)


def forget(folder: Path) -> None:
    """Unload the modules of a flow's folder, so that they are read again. From now on this process writes no compiled modules."""
    sys.dont_write_bytecode = True
    inside = str(folder) + os.sep
    for name, module in list(sys.modules.items()):
        file = str(getattr(module, "__file__", None) or "")
        if file.startswith(inside) and "site-packages" not in file:
            del sys.modules[name]
    importlib.invalidate_caches()


def _once(session: Any) -> Any:
    """A function that returns one new session for a preview, without the views of an earlier one."""
    made: list[SparkSession] = []

    def ask() -> SparkSession:
        if not made:
            made.append(session().newSession())
        return made[0]

    return ask


def _places(path: Path, flow: Flow) -> Places:
    if path.suffix == ".py":
        return CallPlaces.of(flow, Place(str(path)))
    return load_flow(path, environment=os.environ, source_types=catalog.source_types(), sink_types=catalog.sink_types()).places


class _Walk:
    """One pass of the sample through the flow."""

    def __init__(
        self, flow: Flow, graph: Graph, places: Places, settings: PreviewSettings, files: Mapping[str, Path], steps: LoneSteps
    ) -> None:
        self._flow = flow
        self._graph = graph
        self._places = places
        self._settings = settings
        self._files = files
        self._steps = steps
        self._resolved: Resolved = resolve(graph)
        self._samples: dict[str, RowSample] = {}
        self._failed: dict[str, str] = {}
        """node → the node that failed: itself, or one upstream of it"""
        self.problems: list[Problem] = []
        self.exit = Exit.DONE

    def nodes(self) -> list[NodePreview]:
        """The requested nodes."""
        at = self._settings.at
        wanted = self._graph.upstream([base(at)]) if at is not None else frozenset(self._graph.nodes)
        shown = [self._node(self._graph.nodes[id_]) for id_ in self._graph.order if id_ in wanted]
        return [node for node in shown if at is None or node.node == base(at)]

    def _node(self, node: Node) -> NodePreview:
        above = next((self._failed[base(id_)] for id_ in inputs_of(node) if base(id_) in self._failed), None)
        if above is not None:
            self._failed[node.id] = above
            return self._blank(node, f'not reached: "{above}" failed')
        try:
            match node:
                case Source():
                    return self._source(node)
                case Sink():
                    return self._sink(node)
                case _:
                    return self._step(node)
        except ScribenginError as error:
            self._failed[node.id] = node.id
            self._tell(node, error)
            return self._blank(node, error.message)
        except Exception as error:  # an error of Spark or of user code: one step fails, the others are shown
            self._failed[node.id] = node.id
            said = StepError(f"{type(error).__name__}: {str(error).partition(chr(10))[0]}")
            self._tell(node, said)
            return self._blank(node, said.message)

    def _tell(self, node: Node, error: ScribenginError) -> None:
        if isinstance(error, InputError | EnvironmentFault):
            raise error
        self.exit = max(self.exit, Exit.ENVIRONMENT if isinstance(error, Unreachable) else Exit.INPUT)
        code = "source" if isinstance(error, SourceError) else error.code
        self.problems.append(Problem(code, error.place or self._place_of(node), error.message, error.remedy))

    def _place_of(self, node: Node) -> Place:
        section = "sources" if isinstance(node, Source) else "sinks" if isinstance(node, Sink) else "steps"
        return self._places.key((section, node.id))

    def _blank(self, node: Node, failure: str) -> NodePreview:
        return NodePreview(node.id, _kind(node), _about(node), inputs_of(node), failure=failure)

    # --- sources ---

    def _source(self, node: Source) -> NodePreview:
        try:
            found = preview_source(self._flow, node.id, self._settings.sample, self._files.get(node.id))
        except (SourceError, Unreachable) as error:
            error.place = error.place or self._place_of(node)
            raise
        sample, unread = found.sample, _unread(found)
        if node.options.get("parse") == "spark" and found.sample.schema != found.schema:
            outcome = self._steps.parsed_by_spark(node, found.sample, found.schema)
            sample = outcome.outs[""].sample
            unread += [_row_of_line(found.sample, died) for died in outcome.died]
        self._samples[node.id] = sample
        notes = list(found.notes)
        if not found.records:
            self._warn(node, "preview-empty", f'source "{node.id}" has no records', "add records, or pass a file: --from FILE")
        elif not len(sample):
            said = f'none of the {found.records} records of source "{node.id}" can be read; first error: {unread[0].message}'
            self._warn(node, "preview-unread", said, "check the format and the schema; the records may belong to another flow")
        rows = [PreviewedRow("kept", None, (("", row),)) for row in batch_to_rows(sample.rows.slice(0, self._settings.rows))]
        rows += unread[: self._settings.rows]
        return NodePreview(
            node.id,
            "source",
            _about(node),
            (),
            sample.schema,
            None,
            found.records,
            {"": len(sample)},
            found.records - len(sample) - len(unread),
            len(unread),
            self._flow.on_error(node),
            tuple(rows),
            tuple(notes),
        )

    def _warn(self, node: Node, code: str, message: str, remedy: str) -> None:
        self.problems.append(Problem(code, self._place_of(node), message, remedy, "warning"))

    # --- steps ---

    def _step(self, step: Step) -> NodePreview:
        inputs = [(id_, self._samples[id_]) for id_ in step.inputs]
        stateful = step.id in self._resolved.stateful
        outcome = self._steps.run(step, inputs, stateful=stateful)
        for branch, made in outcome.outs.items():
            self._samples[f"{step.id}.{branch}" if branch else step.id] = made.sample
        outs = {branch: made for branch, made in outcome.outs.items() if branch or len(made.sample) or len(outcome.outs) == 1}
        rows_in = sum(len(sample) for _, sample in inputs)
        before = _before(inputs)
        ways = outputs_by_input(outcome, rows_in)
        rows = _untraced(outcome) if ways is None else _traced(outcome, before, ways)
        return NodePreview(
            step.id,
            _kind(step),
            _about(step),
            step.inputs,
            next(iter(outcome.outs.values())).sample.schema,
            inputs[0][1].schema,
            rows_in,
            {branch: len(made.sample) for branch, made in outs.items()},
            None if ways is None else sum(row.fate == "dropped" for row in rows),
            len(outcome.died),
            self._flow.on_error(step),
            tuple(_chosen(rows, self._settings.rows)),
            (*_notes(step, stateful=stateful), *self._stops(step, outcome)),
            came=() if ways is not None else tuple(_input_rows(inputs, self._settings.rows)),
        )

    def _stops(self, step: Step, outcome: StepOutcome) -> list[str]:
        """A note if a run stops at a value that Spark cannot process, instead of making a dead letter."""
        below = self._graph.downstream([step.id])
        keeping = [id_ for id_ in self._graph.order if id_ in below and id_ in self._resolved.stateful]
        if not keeping or all(died.reason != "sql-error" for died in outcome.died):
            return []
        return [f"upstream of {', '.join(keeping)}, which keeps state, a run stops at a sql-error; elsewhere the row becomes a dead letter"]

    def _sink(self, node: Sink) -> NodePreview:
        samples = [(id_, self._samples[id_]) for id_ in node.inputs]
        schema = union_schema(node.id, [(id_, sample.schema) for id_, sample in samples])
        held = held_problems(node.id, column_differences(self._flow, node.id, schema), self._place_of(node))
        self.problems += [replace(problem, severity="warning") for problem in held]
        rows = [row for _, sample in samples for row in batch_to_rows(sample.rows.select(schema.names))]
        shown = tuple(PreviewedRow("kept", None, (("", row),)) for row in rows[: self._settings.rows])
        notes = (f"{len(rows):,} {'row' if len(rows) == 1 else 'rows'} would be written to {node.place}; preview writes nothing",)
        return NodePreview(
            node.id, "sink", _about(node), node.inputs, schema, schema, len(rows), {"": len(rows)}, 0, rows=shown, notes=notes
        )


def _kind(node: Node) -> str:
    return type(node).__name__.lower() if isinstance(node, Source | Sink) else type(node.action).__name__.lower()


def _about(node: Node) -> str:
    return describe(node, catalog.sink_types() if isinstance(node, Sink) else catalog.source_types())


def _notes(step: Step, *, stateful: bool) -> list[str]:
    if not stateful:
        return []
    said = "the sample is processed as one Batch"
    match step.action:
        case Aggregate() | Sql():
            return [f"{said} without a watermark: windows that a run would keep open are shown, and no row is late"]
    return [f"{said} without a watermark: no row is late"]


def _unread(found: SourcePreview) -> list[PreviewedRow]:
    return [
        PreviewedRow("dead", None, (), show_place(each.root.place), each.reason, each.message, "", _text(each.root.payload))
        for each in found.unread
    ]


def _row_of_line(lines: RowSample, died: Died) -> PreviewedRow:
    root = lines.roots[died.index]
    assert root is not None, "a line of a source has a place"
    return PreviewedRow("dead", None, (), show_place(root.place), died.reason, died.message, "", _text(root.payload))


def _text(payload: bytes) -> str:
    text = payload[:_SHOWN_BYTES].decode("utf-8", "replace")
    return text if len(payload) <= _SHOWN_BYTES else text + "…"


def _before(inputs: list[tuple[str, RowSample]]) -> list[tuple[dict[str, Any], str]]:
    """Each input row, with the place of its record."""
    return [
        (row, "" if root is None else show_place(root.place))
        for _, sample in inputs
        for row, root in zip(batch_to_rows(sample.rows), sample.roots, strict=True)
    ]


def _traced(
    outcome: StepOutcome, before: list[tuple[dict[str, Any], str]], ways: Mapping[int, list[tuple[str, int]]]
) -> list[PreviewedRow]:
    after = {branch: batch_to_rows(made.sample.rows) for branch, made in outcome.outs.items()}
    died = {each.index: each for each in outcome.died}
    rows = []
    for index, (row, place) in enumerate(before):
        made = tuple((branch, after[branch][at]) for branch, at in ways[index])
        if (dead := died.get(index)) is not None:
            rows.append(PreviewedRow("dead", row, made, place, dead.reason, dead.message, dead.code_line, utility=dead.utility))
        else:
            rows.append(PreviewedRow("kept" if made else "dropped", row, made, place))
    return rows


def _input_rows(inputs: list[tuple[str, RowSample]], count: int) -> list[tuple[str, dict[str, Any]]]:
    return [(id_, row) for id_, sample in inputs for row in batch_to_rows(sample.rows.slice(0, count))]


def _untraced(outcome: StepOutcome) -> list[PreviewedRow]:
    dead = [
        PreviewedRow("dead", None, (), "", each.reason, each.message, each.code_line, each.payload, each.utility) for each in outcome.died
    ]
    return [
        *(PreviewedRow("made", None, ((branch, row),)) for branch, made in outcome.outs.items() for row in batch_to_rows(made.sample.rows)),
        *dead,
    ]


def _chosen(rows: list[PreviewedRow], count: int) -> list[PreviewedRow]:
    """The rows that are shown, in their order: up to `count` dead ones, which users look for, and up to `count` others, half of them kept
    ones, if there are as many."""
    dead = [index for index, row in enumerate(rows) if row.fate == "dead"][:count]
    through = [index for index, row in enumerate(rows) if row.fate in ("kept", "made")]
    dropped = [index for index, row in enumerate(rows) if row.fate == "dropped"]
    stay = min(len(through), max(-(-count // 2), count - len(dropped)))
    return [rows[index] for index in sorted([*dead, *through[:stay], *dropped[: count - stay]])]
