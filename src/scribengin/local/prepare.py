"""Prepares a flow file for a run: checks and plans the flow, finds the folder of its state, and opens its connectors."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from scribengin.connectors import catalog
from scribengin.connectors.abilities import checks_columns, checks_keys, is_handed_over
from scribengin.connectors.contract import BatchLimits, ConnectorContext, SinkConnector, SourceStream
from scribengin.connectors.contract import SourceConnector as OpenSource
from scribengin.connectors.files.reader import FilesReader
from scribengin.core.errors import Exit, InputError, Refused, SourceError, Unreachable
from scribengin.core.problems import Place as TextPlace
from scribengin.core.problems import did_you_mean
from scribengin.core.remedies import for_flow
from scribengin.core.remote import RemotePath
from scribengin.local.schema_drift import with_learned
from scribengin.plan.graph import base
from scribengin.plan.groups import placed
from scribengin.plan.key_columns import key_columns
from scribengin.plan.tier_flows import plan_flow, source_id
from scribengin.plan.validate import validate_file
from scribengin.spec.call_sites import CallPlaces
from scribengin.spec.parse import parse_flow
from scribengin.state.columns import ChannelFolder
from scribengin.state.folder import StateFolder
from scribengin.state.lineage import read_lineage
from scribengin.state.source_log import SourceLog
from scribengin.state.topology import works_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from scribengin.core.problems import Problem
    from scribengin.core.types import Schema
    from scribengin.plan.model import Plan
    from scribengin.plan.tier_flows import FlowPlan
    from scribengin.spec.model import Flow
    from scribengin.spec.places import Places

DEFAULT_STATE = ".scribengin"
DEFAULT_BATCH_BYTES = 2**30
"""The most bytes that one Batch takes from a source that sets no limits: an interruption costs one Batch, so that it must not be
all data."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A tier of a flow that may run (all of the flow, if it has a single tier), and the folder of its state."""

    path: Path
    whole: FlowPlan
    plan: Plan
    folder: StateFolder
    warnings: tuple[Problem, ...]
    here: Path
    """see `PreparedFlow.here`"""

    def place_of(self, node: str, options: Sequence[str] = ()) -> TextPlace:
        """The place of a node, or of a query's first sink, in the flow file; of the call that made it in a flow written in Python. For a
        channel it is the place of the node that writes it.

        Args:
            node: The id of a node or of a channel, or the name of a query.
            options: The result is the place of the value of the first of these options that the node has.
        """
        flow = self.whole.flow
        node = next((query.sinks[0] for query in self.plan.queries if query.name == node), node)
        node = next((base(channel.reference) for channel in self.whole.channels if node in (channel.id, source_id(channel))), node)
        sections = {"sources": flow.sources, "steps": flow.steps, "sinks": flow.sinks}
        section = next((name for name, nodes in sections.items() if node in nodes), None)
        if section is None:
            return TextPlace(str(self.path))
        places, given = self._places(), flow.sources.get(node) or flow.sinks.get(node)
        option = None if given is None else next((name for name in options if name in given.options), None)
        return places.key((section, node)) if option is None else places.value((section, node, option))

    @property
    def scratch(self) -> Path:
        """A folder on this machine for logs and temporary files of Spark."""
        return self.here / self.folder.flow / self.folder.tier / "tmp"

    def _places(self) -> Places:
        if self.path.suffix == ".py":
            return CallPlaces.of(self.whole.flow, TextPlace(str(self.path)))
        return parse_flow(
            self.path.read_text(),
            str(self.path),
            folder=self.whole.flow.folder,
            environment=os.environ,
            source_types=catalog.source_types(),
            sink_types=catalog.sink_types(),
        ).places


@dataclass(frozen=True, slots=True)
class PreparedFlow:
    """A flow that may run, with its tiers, upstream ones first."""

    path: Path
    plan: FlowPlan
    root: Path
    tiers: tuple[Prepared, ...]
    warnings: tuple[Problem, ...]
    here: Path
    """`root`; if that is in another file system, a folder on this machine for logs and temporary files of Spark"""

    @property
    def name(self) -> str:
        """The name of the flow."""
        return self.plan.flow.name

    @property
    def folder(self) -> Path:
        """The folder of its state: that of its tier, if there is only one."""
        return self.tiers[0].folder.path if len(self.plan.tiers) == 1 else self.root / self.name

    def named(self, remedy: str) -> str:
        """The remedy, with commands that name this flow and its state folder."""
        settings = () if self.root == state_root(self.path, None) else ("--state", str(self.root))
        return for_flow(remedy, str(self.path), *settings)

    def again(self, columns: Mapping[str, Schema]) -> PreparedFlow:
        """Plan the flow again. `columns`: channel → its columns, for those that are known better than from the state."""
        plan = _planned(self.plan.flow, self.root, self.here, columns)
        chosen = {tier.plan.tier for tier in self.tiers}
        return replace(self, plan=plan, tiers=_tiers(self.path, plan, self.root, self.here, self.warnings, chosen))


def prepare(path: Path, *, state: Path | None, tier: str | None = None, base: Path | None = None, here: Path | None = None) -> PreparedFlow:
    """Check and plan a flow; a flow in Python is executed.

    Args:
        path: The flow file.
        state: The state folder; None for `.scribengin` in `base`.
        tier: The only tier to prepare; None for all.
        base: The folder to which the paths of its data are relative; None for the folder of the file, which always has the code.
        here: Where this machine keeps logs if the state is in another file system; None for a folder beside the code.

    Raises:
        InputError: The file is wrong; the error has every Problem.
        Refused: The flow has no such tier.
    """
    return prepare_valid(path, *validate_file(path, os.environ, execute=True, base=base), state=state, tier=tier, base=base, here=here)


def prepare_valid(
    path: Path,
    flow: Flow | None,
    problems: Sequence[Problem],
    *,
    state: Path | None,
    tier: str | None = None,
    base: Path | None = None,
    here: Path | None = None,
) -> PreparedFlow:
    """Prepare a flow that `validate_file` has checked.

    Args:
        path: The flow file.
        flow: The flow; None if it is not valid.
        problems: All problems of the file, with warnings.
        state: See `prepare`, like the other arguments.

    Raises:
        InputError: The flow is None, or one of the problems is an error.
        Refused: The flow has no such tier.
    """
    if flow is None or any(problem.severity == "error" for problem in problems):
        raise InputError(problems)
    root = state_root(path, state, base)
    here = (here or flow.folder.resolve() / DEFAULT_STATE) if isinstance(root, RemotePath) else root
    plan = _planned(flow, root, here, {})
    names = [each.tier for each in plan.tiers]
    if tier is not None and tier not in names:
        have = did_you_mean(tier, names) or f"its tiers are {', '.join(names)}"
        raise Refused(f'flow "{flow.name}" has no tier "{tier}"', remedy=have, code="tier-unknown")
    tiers = _tiers(path, plan, root, here, tuple(problems), set(names) if tier is None else {tier})
    return PreparedFlow(path, plan, root, tiers, tuple(problems), here)


def _planned(flow: Flow, root: Path, here: Path, columns: Mapping[str, Schema]) -> FlowPlan:
    def folder(channel: str) -> ChannelFolder:
        return ChannelFolder.of(root, flow.name, channel)

    return plan_flow(
        with_learned(flow, root),
        schema_of=lambda channel: columns.get(channel) or folder(channel).read_schema(),
        folder_of=lambda channel: str(ChannelFolder.of(here, flow.name, channel).data.absolute()),
    )


def _tiers(
    path: Path, plan: FlowPlan, root: Path, here: Path, warnings: tuple[Problem, ...], chosen: Collection[str]
) -> tuple[Prepared, ...]:
    folders = ((tier, StateFolder(root, plan.flow.name, tier.tier)) for tier in plan.tiers if tier.tier in chosen)
    return tuple(Prepared(path, plan, tier, folder, warnings, here) for tier, folder in folders)


def state_root(path: Path, state: Path | None, base: Path | None = None) -> Path:
    """The given state folder, or `.scribengin` beside the data: in `base`, by default the folder of the flow file."""
    return state or (path.resolve().parent if base is None else base.resolve()) / DEFAULT_STATE


def open_sources(flow: Flow) -> dict[str, OpenSource]:
    """The connector of every source of the flow."""
    return {node.id: catalog.open_source(node.type, source_place(flow, node.id)) for node in flow.sources.values()}


def is_begun(tier: Prepared, source: str) -> bool:
    """True if a query of the tier has taken something of the source, or, for a static source, has started."""
    for query in tier.plan.queries:
        folder = tier.folder.query(query.name)
        if source in query.sources and SourceLog(folder.sources, source).length():
            return True
        if source in query.static_sources and (folder.rewind.exists() or read_lineage(folder) is not None):
            return True
    return False


def first_file_faults(flow: PreparedFlow, types: Collection[str] = ()) -> Iterator[SourceError | Unreachable]:
    """The errors of sources in the files that they are going to read first, if no query has started to read them; each with its place.

    A lookup table is read as a whole at each start, so that its keys are looked for in each of its files in any case. `types`: check only
    sources of these types; empty for all.
    """
    keys = key_columns(flow.plan.flow)
    for tier in flow.tiers:
        for node in tier.plan.flow.sources.values():
            begun = is_begun(tier, node.id)
            if (types and node.type not in types) or (begun and not node.static):
                continue
            try:
                place = replace(source_place(tier.plan.flow, node.id), keys=keys.get(node.id, {}))
                source = catalog.open_source(node.type, place)
                if is_handed_over(source) or not checks_columns(source):
                    continue
                if not begun:
                    source.check_first()
                if node.static and checks_keys(source):
                    source.check_keys()
            except (SourceError, Unreachable) as error:
                error.place = tier.place_of(node.id, (error.option,))
                if isinstance(error, SourceError):
                    error.exit = Exit.INPUT
                yield error


def source_place(flow: Flow, id_: str) -> ConnectorContext:
    """The context with which the source's connector is opened."""
    node = flow.sources[id_]
    options = catalog.source_types(internal=True)[node.type].filled(node.options, flow.defaults.profile)
    schema = node.schema.fields if node.schema else None
    return ConnectorContext(
        id_,
        flow.folder.resolve(),
        options,
        schema,
        flow.on_error(node),
        flow=flow.name,
        members=placed(flow, node, options),
        code=flow.code_folder.resolve(),
        learned=node.schema.learned if node.schema else (),
        static=node.static,
    )


def sink_place(flow: Flow, id_: str) -> ConnectorContext:
    """The context with which the sink's connector is opened to check its target; `open_sinks` adds what it needs to write."""
    node = flow.sinks[id_]
    options = catalog.sink_types(internal=True)[node.type].filled(node.options, flow.defaults.profile)
    return ConnectorContext(
        id_,
        flow.folder.resolve(),
        options,
        flow=flow.name,
        members=placed(flow, node, options),
        delivery=node.delivery or flow.defaults.delivery,
        code=flow.code_folder.resolve(),
    )


def open_sinks(
    flow: Flow, plan: Plan | None = None, folder: StateFolder | None = None, kept_elsewhere: frozenset[str] = frozenset()
) -> dict[str, SinkConnector]:
    """The connector of every sink of the flow.

    Args:
        flow: The flow.
        plan: The plan of the flow; with `folder`, the sinks can write.
        folder: The state folder of the tier.
        kept_elsewhere: See `ConnectorContext`.
    """
    of_sink = {sink: query for query in plan.queries for sink in query.sinks} if plan is not None else {}
    sinks = {}
    for node in flow.sinks.values():
        place = replace(sink_place(flow, node.id), kept_elsewhere=kept_elsewhere)
        if folder is not None and (query := of_sink.get(node.id)) is not None:
            work = folder.query(query.name).work(node.id)
            place = replace(place, version=query.fingerprint, work=work, earlier=works_of(folder.root, flow.name, node.id))
        sinks[node.id] = catalog.open_sink(node.type, place)
    return sinks


def limits_of(options: Mapping[str, object]) -> BatchLimits:
    """The limits of one Batch for a source with these options."""
    given = {name: value for name in ("max_files", "max_bytes", "max_rows") if (value := options.get(name)) is not None}
    return BatchLimits(**({"max_bytes": DEFAULT_BATCH_BYTES} | given))  # type: ignore[arg-type]


def static_streams(source: OpenSource, *, looking: bool = False) -> tuple[SourceStream, ...]:
    """The present contents of a static source. With `looking` they are not for a Batch, so that others may delete them meanwhile."""
    reader = source.reader()
    if looking and isinstance(reader, FilesReader):
        reader.holds, reader.quiet = False, True
    streams: list[SourceStream] = []
    while more := reader.split(BatchLimits(), final=True):
        streams += [stream for stream in more if not stream.skipped]
    return tuple(streams)
