"""Finds what a run would refuse before its first Batch, as far as it is known without Spark and without a connection: for `plan` and `run`.

These checks only read: they create, claim and change nothing, so that they can be used on a running flow.
"""

from __future__ import annotations

import json
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from scribengin.connectors import catalog
from scribengin.connectors.abilities import finds_unaccounted
from scribengin.connectors.contract import Claimant
from scribengin.connectors.files.discovery import Discovery
from scribengin.connectors.files.first_file import MAGIC_BYTES, kind_of
from scribengin.connectors.files.globs import WILDCARD
from scribengin.connectors.files.reader import FilesReader
from scribengin.core.errors import EnvironmentFault, Exit, InputError, Refused, ScribenginError, SinkError, SourceError
from scribengin.core.problems import Problem
from scribengin.core.remedies import put_state_back, put_state_back_over, rename_back, start_over, write_beside
from scribengin.core.storage import names_in, shown_path
from scribengin.local.move_queries import first_refusal
from scribengin.local.prepare import first_file_faults, open_sinks, sink_place, source_place, static_streams
from scribengin.local.schema_drift import rewritten_text
from scribengin.plan.fingerprint import renamed_source
from scribengin.plan.tier_flows import CHANNEL
from scribengin.spec.model import Join
from scribengin.state.decisions import Decisions
from scribengin.state.folder import known_owner
from scribengin.state.lineage import check_lineage, read_lineage
from scribengin.state.source_log import SourceLog
from scribengin.state.topology import known_lineages, tiers_with_state
from scribengin.state.trash import Trash, has_trash_in

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    import pyarrow as pa

    from scribengin.connectors.contract import SourceConnector as OpenSource
    from scribengin.local.prepare import Prepared, PreparedFlow
    from scribengin.plan.diff import PlanChanges
    from scribengin.plan.model import QueryPlan
    from scribengin.plan.query_moves import Moves
    from scribengin.spec.model import Flow, Source, Step
    from scribengin.state.lineage import Lineage

_WHERE = ("path", "url")
"""options with the place of a node's data: an error about that place points to them"""
_HEADER_BYTES = 2**16
"""a longer CSV file has a record, however long its header is"""
_LOOKUP_BYTES = 2**24
"""a larger lookup table is not checked"""
_SHOWN = 60
"""the most characters of a value in a message"""


@contextmanager
def placing_errors(tier: Prepared, node: str) -> Iterator[None]:
    """Add the place of the node in the flow file to errors of the block. An OSError about a path becomes a SourceError or a SinkError."""
    flow = tier.plan.flow
    try:
        yield
    except InputError:
        raise
    except ScribenginError as error:
        if error.place is None:
            where = isinstance(error, (SourceError, SinkError)) and not isinstance(error, Refused)
            error.place = tier.place_of(node, (error.option, *_WHERE) if where else ())
            if where:
                error.exit = Exit.INPUT  # nothing has begun: the error is in the flow file, as `plan` reports it
        raise
    except OSError as error:
        of_source = node in flow.sources
        role, code = ("source", "source-folder") if of_source else ("sink", "sink-folder")
        path = f" {error.filename}" if error.filename else ""
        fault = (SourceError if of_source else SinkError)(
            f'{role} "{node}": the operating system refuses access{path}: {error.strerror or error}',
            remedy="correct the path of the node, or the file or folder at that path",
            code=code,
            node=node,
        )
        fault.place = tier.place_of(node, _WHERE)
        fault.exit = Exit.INPUT
        raise fault from error


def unlike_files(prepared: PreparedFlow) -> Iterator[ScribenginError]:
    """The errors of sources on this machine whose first file has other columns than the flow declares. Finds none if Arrow is not
    installed."""
    with suppress(ModuleNotFoundError):
        yield from (error for error in first_file_faults(prepared, types=["files"]) if error.code == "source-columns")


def _changed_files(prepared: PreparedFlow, arriving: Collection[tuple[str, str]]) -> tuple[list[ScribenginError], list[Problem]]:
    """Files on this machine that changed after a query had taken them, each once: those that a run refuses, and those that it reads again.
    `arriving` as in `state_refusals`."""
    found: dict[str, ScribenginError] = {}
    again: dict[str, Problem] = {}
    for tier in prepared.tiers:
        for query in tier.plan.queries:
            files = [id_ for id_ in query.sources if tier.plan.flow.sources[id_].type == "files"]
            for id_ in files if (tier.plan.tier, query.name) not in arriving else ():
                try:
                    with placing_errors(tier, id_), suppress(ModuleNotFoundError):
                        reader = catalog.open_source("files", source_place(tier.plan.flow, id_)).reader()
                        if isinstance(reader, FilesReader):
                            reader.holds, reader.quiet = False, True
                            reader.restore(SourceLog(tier.folder.query(query.name).sources, id_).entries())
                            for file in reader.check_taken():
                                text = f'source "{id_}": {rewritten_text(file)}'
                                again[text] = Problem("source-again", tier.place_of(id_, _WHERE), text, "", "warning")
                except ScribenginError as error:
                    found.setdefault(error.message, error)
    return [*found.values()], [*again.values()]


def _open(open_: Callable[[], object]) -> None:
    """Open a connector, which connects to nothing. A flow may be planned without the clients of its connectors being installed."""
    with suppress(EnvironmentFault, ModuleNotFoundError):
        open_()


def planned_refusals(prepared: PreparedFlow, changes: PlanChanges, moves: Moves) -> tuple[list[Problem], list[Problem]]:
    """Everything that a run would refuse, each with its place, the state first, then sources and sinks; and warnings.

    Args:
        prepared: The flow.
        changes: What the plan changes in the state; see `changes_and_moves`.
        moves: The moves that belong to it.

    Returns:
        The problems, and the warnings.
    """
    arriving = {arrival.key for arrival in moves.arrivals}
    sources = [*source_refusals(prepared)]
    found = [*state_refusals(prepared, arriving), *sources, *sink_refusals(prepared, arriving)]
    changed, again = ([], []) if sources else _changed_files(prepared, arriving)
    found += [*unlike_files(prepared), *changed] if not sources else ()
    problems = [_problem(error, prepared) for error in found]
    return [*problems, *_of_changes(prepared, changes, known={error.code for error in found})], again


def outputs_without_state(prepared: PreparedFlow) -> list[Problem]:
    """A warning for each sink of a query without state whose place contains output that a run would refuse to write beside: the state may
    have been moved or deleted."""
    queries = {
        sink: query.name
        for tier in prepared.tiers
        for query in tier.plan.queries
        if read_lineage(tier.folder.query(query.name)) is None
        for sink in query.sinks
    }
    found = [error for error in sink_refusals(prepared) if error.code == "output-foreign" and error.node in queries] if queries else []
    return [
        replace(
            problem,
            message=f'query "{queries[error.node]}" has no state in {shown_path(prepared.root)}; {problem.message}',
            severity="warning",
        )
        for error, problem in ((error, _problem(error, prepared)) for error in found)
    ]


def empty_lookups(prepared: PreparedFlow) -> list[Problem]:
    """A warning for each lookup table of files that has no record yet."""
    found = []
    for tier in prepared.tiers:
        flow = tier.plan.flow
        for id_ in sorted({source for query in tier.plan.queries for source in query.static_sources}):
            if flow.sources[id_].type != "files":
                continue
            path = _files_of(flow.sources[id_], flow)
            with suppress(SourceError, OSError):
                files = Discovery(path)
                headed = flow.sources[id_].options.get("format") == "csv" and flow.sources[id_].options.get("header", True)
                if not any(_has_record(files.root / name, headed=headed) for name in files.changed() or ()):
                    message = f'lookup table "{id_}": {shown_path(path)} has no records, so no lookup finds a match'
                    remedy = "create the table before the flow starts"
                    found.append(Problem("lookup-empty", tier.place_of(id_, _WHERE), message, remedy, "warning"))
    return found


def repeated_keys(prepared: PreparedFlow) -> list[Problem]:
    """A warning for each join that finds a key in several rows of a small table of files, and so makes several rows of one record. Reads
    the table. Errors are left to other checks; finds nothing if Arrow is not installed."""
    found = []
    for tier in prepared.tiers:
        flow = tier.plan.flow
        for step in flow.steps.values():
            if not isinstance(step.action, Join) or step.action.how == "semi" or len(step.inputs) != 2:
                continue
            table = flow.sources.get(step.inputs[1])
            if table is None or not table.static or table.type != "files" or table.options.get("parse") == "spark":
                continue
            with suppress(ScribenginError, OSError, ModuleNotFoundError):
                found += [_repeated(tier, step, *keys) for keys in _keys_repeated(flow, table.id, step.action.key)]
    return found


def _repeated(tier: Prepared, step: Step, keys: int, value: Sequence[object], rows: int) -> Problem:
    assert isinstance(step.action, Join)
    left, right = step.inputs
    one, names = keys == 1, ", ".join(step.action.key)
    shown = ", ".join(json.dumps(each, default=str, ensure_ascii=False) for each in value)
    shown = shown if len(shown) <= _SHOWN else shown[: _SHOWN - 3] + "..."
    message = (
        f'lookup table "{right}": {keys:,} {"key" if one else "keys"} (column{"s" * (len(value) != 1)} {names}) '
        f'{"is" if one else "are"} in more than one row, such as {shown} in {rows:,} rows: step "{step.id}" makes {rows:,} rows of each '
        f'record of "{left}" with that key'
    )
    dedupe = f"once: {{from: {right}, dedupe: {{key: [{names}]}}}}"
    remedy = (
        "if one row per key is expected, remove the duplicates from the table; or keep any one of them with an extra step, "
        f'{dedupe}, and write from: [{left}, once] in step "{step.id}"'
    )
    return Problem("lookup-repeated", tier.place_of(step.id), message, remedy, "warning")


def _keys_repeated(flow: Flow, id_: str, key: Sequence[str]) -> Iterator[tuple[int, tuple[object, ...], int]]:
    """Yields (number of keys that are in several rows, the most frequent of them, its rows), if there are any and the table is small."""
    import pyarrow as pa
    import pyarrow.compute as pc

    source = catalog.open_source("files", source_place(flow, id_))
    columns = _key_columns(source, key)
    if columns is None:
        return
    numbered = [str(nth) for nth in range(len(key))]
    table = columns.rename_columns(numbered)
    for name in numbered:  # a null matches no row
        table = table.filter(pc.is_valid(table[name]))
    try:
        counts = table.group_by(numbered).aggregate([([], "count_all")])
    except pa.ArrowNotImplementedError:  # nested types
        return
    counts = counts.filter(pc.greater(counts["count_all"], 1))
    if counts.num_rows:
        first = counts.sort_by([("count_all", "descending"), *((name, "ascending") for name in numbered)]).slice(0, 1).to_pylist()[0]
        yield counts.num_rows, tuple(first[name] for name in numbered), first["count_all"]


def _key_columns(source: OpenSource, key: Sequence[str]) -> pa.Table | None:
    """These columns of all data that a files source has now; None if it is large, or does not have all of the columns."""
    import pyarrow as pa

    from scribengin.core.types import arrow_schema

    form = arrow_schema(source.resolve_schema())
    if any(name not in form.names for name in key):
        return None
    form = pa.schema([form.field(name) for name in key])
    streams = static_streams(source, looking=True)
    batches, left, decoder = [], _LOOKUP_BYTES, source.decoder()
    if sum(stream.bytes for stream in streams) > left:
        return None
    for stream in streams:
        for block in source.read(stream):
            batch = decoder.columns(block).batch.select(key).cast(form)
            left -= batch.nbytes  # a compressed file may contain many times its size
            if left < 0:
                return None
            batches.append(batch)
    return pa.Table.from_batches(batches, form)


def _files_of(source: Source, flow: Flow) -> Path:
    """The path of a files source."""
    return flow.folder.resolve() / Path(source.options["path"]).expanduser()


def _has_record(path: Path, *, headed: bool) -> bool:
    """True if the file may have a record. If `headed`, the first line of a file names its columns."""
    size = path.stat().st_size
    if not headed or size > _HEADER_BYTES:
        return size > 0
    data = path.read_bytes()
    return bool(kind_of(data[:MAGIC_BYTES])) or data.strip().replace(b"\r", b"\n").count(b"\n") > 0


def unmatched_patterns(prepared: PreparedFlow) -> dict[str, Problem]:
    """Source of files on this machine → a warning that its pattern matches none of the existing files."""
    found = {}
    for tier in prepared.tiers:
        flow = tier.plan.flow
        for id_, node in flow.sources.items():
            path = _files_of(node, flow) if node.type == "files" else None
            if path is None or not WILDCARD.search(str(path)):
                continue
            with suppress(SourceError, OSError):
                files = Discovery(path)
                if not files.changed() and (others := files.unwanted()):
                    shown = f"{len(others):,} other file{'s' * (len(others) != 1)}, such as {others[0]}"
                    message = f'source "{id_}": no file matches {shown_path(path)}; {shown_path(files.root)} has {shown}'
                    remedy = "if these files are the input, correct `path`"
                    found[id_] = Problem("pattern-unmatched", tier.place_of(id_, _WHERE), message, remedy, "warning")
    return found


def state_refusals(prepared: PreparedFlow, arriving: Collection[tuple[str, str]] = ()) -> Iterator[ScribenginError]:
    """The errors of a state that does not fit: a copy, another installation's, or made by other steps. `arriving`: (tier, query) of the
    queries that are going to replace others."""
    try:
        owner = known_owner(prepared.root)
    except Refused as error:
        error.place = prepared.tiers[0].place_of("")
        yield error
        return
    for tier in prepared.tiers:
        for query in tier.plan.queries:
            lineage = _lineage(tier, query.name)
            if lineage is None or (tier.plan.tier, query.name) in arriving:
                continue
            refusal = query_refusal(tier, query, lineage, owner)
            if refusal is not None:
                yield refusal


def query_refusal(tier: Prepared, query: QueryPlan, lineage: Lineage, owner: str) -> Refused | None:
    """Why the state of one query does not fit the present flow; None if it does.

    Args:
        tier: The tier of the query.
        query: The planned query.
        lineage: The query's lineage.
        owner: The id of the installation.
    """
    types = {sink: tier.plan.flow.sinks[sink].type for sink in query.sinks}
    try:
        check_lineage(tier.folder.query(query.name), lineage, owner=owner, state_fingerprint=query.state_fingerprint, types=types)
        _check_names(tier, query, lineage)
    except Refused as error:
        error.place = tier.place_of(error.node or query.name)
        return error
    return None


def _check_names(tier: Prepared, query: QueryPlan, lineage: Lineage) -> None:
    """Raise Refused if a source has another id than before and is otherwise unchanged: its records would be read a second time."""
    left = {id_: lineage.parts[id_] for id_ in lineage.sources if id_ not in query.sources and id_ in lineage.parts}
    fresh = [id_ for id_ in query.sources if id_ not in lineage.sources and tier.plan.flow.sources[id_].type != CHANNEL]
    if not (left and fresh) or Decisions(tier.folder.query(query.name).decisions).newest() is None:
        return
    for id_ in fresh:
        before = renamed_source(tier.plan.flow, id_, left, catalog.source_types(internal=True))
        if before:
            raise Refused(
                f'query "{query.name}": the source "{id_}" is "{before}" under another id and would be read again from its start',
                remedy=f"{rename_back('source', before)}; or {write_beside(query.sinks[0])}; or {start_over()}",
                code="source-renamed",
                node=id_,
            )


def source_refusals(prepared: PreparedFlow) -> Iterator[ScribenginError]:
    """The errors of sources: on this machine, of a missing or forbidden place; of others, of options that are not valid for their
    connector."""
    for tier in prepared.tiers:
        for node in tier.plan.flow.sources.values():
            try:
                with placing_errors(tier, node.id):
                    place = source_place(tier.plan.flow, node.id)
                    if node.type != CHANNEL and not catalog.check_source_place(node.type, place):
                        _open(partial(catalog.open_source, node.type, place))
            except ScribenginError as error:
                yield error


def sink_refusals(prepared: PreparedFlow, arriving: Collection[tuple[str, str]] = (), *, adopt: bool = False) -> Iterator[ScribenginError]:
    """The errors of sinks: on this machine, of a place that is not writable or belongs to another owner; of others, of options that are not
    valid for their connector.

    Args:
        prepared: The flow.
        arriving: As in `state_refusals`.
        adopt: As in `Sink.prepare`.
    """
    who = claimants(prepared, arriving, adopt=adopt)
    if who is None:
        return  # `state_refusals` reports it
    for tier in prepared.tiers:
        for query in tier.plan.queries:
            for id_ in query.sinks:
                node = tier.plan.flow.sinks[id_]
                if node.type == CHANNEL:
                    continue
                try:
                    with placing_errors(tier, id_), with_trash_remedy(prepared.root, prepared.name):
                        place = sink_place(tier.plan.flow, id_)
                        if not catalog.check_sink_place(node.type, place, who.get((tier.plan.tier, id_))):
                            _open(partial(catalog.open_sink, node.type, place))
                except ScribenginError as error:
                    error.node = error.node or id_
                    yield error


def claimants(
    prepared: PreparedFlow, arriving: Collection[tuple[str, str]] = (), *, adopt: bool = False
) -> dict[tuple[str, str], Claimant] | None:
    """The owners as which a run would claim the places of its sinks.

    Args:
        prepared: The flow.
        arriving: As in `state_refusals`; the sinks of these queries are left out.
        adopt: As in `Sink.prepare`.

    Returns:
        (tier, sink) → the owner; None if the state does not show to which installation it belongs.
    """
    try:
        owner = known_owner(prepared.root)
    except Refused:
        return None
    found: dict[tuple[str, str], Claimant] = {}
    for tier in prepared.tiers:
        for query in tier.plan.queries:
            if (tier.plan.tier, query.name) not in arriving:
                lineage = _lineage(tier, query.name)
                newest = None if lineage is None else Decisions(tier.folder.query(query.name).decisions).newest()
                for sink in query.sinks:
                    decided = None if newest is None else newest.of_sink(sink)
                    # without rows in the Batch, the sink may be a new one of this query; rows for a member are at the member's place
                    wrote = decided if decided is not None and decided.receipts and "member" not in decided.behind else None
                    found[tier.plan.tier, sink] = Claimant(owner, "" if lineage is None else lineage.id, adopt, wrote)
    return found


@contextmanager
def with_trash_remedy(root: Path, flow: str) -> Iterator[None]:
    """Improve the remedy of an error about a place that belongs to another owner. If a reset may have removed the state to which it
    belongs, the first remedy is to undo that. Otherwise, if the folder of the state is new and empty, it has to be removed before the old
    one is put back."""
    try:
        yield
    except ScribenginError as error:
        if error.code == "output-foreign":
            hint = Trash(root, flow).hint()
            ran = any(tier.queries() for tier in tiers_with_state(root, flow))
            if not hint and not ran and start_over() in error.remedy:
                hint = put_state_back()  # the place belongs to this flow, and so does the folder in which its state was
            elif not ran and root.exists() and not _holds_anything(root):
                error.remedy = put_state_back_over(error.remedy, str(root))
            error.remedy = "; or ".join(filter(None, [hint, error.remedy]))
        raise


def _holds_anything(root: Path) -> bool:
    """True if any flow has a query in the state folder, or something in its trash."""
    return has_trash_in(root) or any(
        tier.queries() for name in names_in(root) if (root / name).is_dir() for tier in tiers_with_state(root, name)
    )


def check_before_spark(prepared: PreparedFlow, *, adopt: bool) -> None:
    """Raise the first error that the claims of a run, or the first check of its files, would find. For a flow without state, or under the
    leases when moves are done."""
    for error in (*state_refusals(prepared), *sink_refusals(prepared, adopt=adopt), *_changed_files(prepared, ())[0]):
        raise error


def existing_output_notices(prepared: PreparedFlow) -> Iterator[str]:
    """Lines for a run that may write beside the output of others, one for each sink of a new query, on what its place contains. Rows that
    the run reads again are duplicated there."""
    known = known_lineages(prepared.root, prepared.name)
    again = "it is kept, and the rows that this run reads again are duplicated"
    for tier in prepared.tiers:
        flow = tier.plan.flow
        begun = [sink for query in tier.plan.queries if _lineage(tier, query.name) is None for sink in query.sinks]
        sinks = open_sinks(flow) if begun else {}
        for id_ in begun:
            if flow.sinks[id_].type == CHANNEL:
                continue
            place, sink = flow.sinks[id_].place, sinks[id_]
            try:
                held = [each for each in sink.unaccounted(known) if each.is_of_lineage] if finds_unaccounted(sink) else None
            except ScribenginError:  # the preparation of the sink reports it, or waits for an answer
                held = None
            if held is None:
                yield f'sink "{id_}": the contents of {place} were not counted; {again}'
            yield from (f'sink "{id_}": {place} holds {each}; {again}' for each in held or ())


def _lineage(tier: Prepared, query: str) -> Lineage | None:
    folder = tier.folder.query(query)
    return None if folder.rewind.exists() else read_lineage(folder)


def _problem(error: ScribenginError, prepared: PreparedFlow) -> Problem:
    return Problem(error.code, error.place or prepared.tiers[0].place_of(""), error.message, prepared.named(error.remedy))


def _of_changes(prepared: PreparedFlow, changes: PlanChanges, *, known: Iterable[str]) -> Iterator[Problem]:
    """The refusal of the compared plans, if no other check has reported its cause: the state does not fit the tier layout."""
    if changes.refused and not {"state-changed", "sink-type-changed", "state-copied", "state-foreign"}.intersection(known):
        error = first_refusal(prepared.name, changes)
        error.place = prepared.tiers[0].place_of(error.node)
        yield _problem(error, prepared)
