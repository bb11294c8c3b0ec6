"""From a flow file to something that can run: checked, planned, its state folder found, its sinks claimed."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from scribengin.connectors import catalog
from scribengin.connectors.contract import Limits, Place, Sink, SourceStream
from scribengin.connectors.contract import Source as OpenSource
from scribengin.core.errors import InputError
from scribengin.core.problems import Place as TextPlace
from scribengin.plan.cut import build_plan
from scribengin.plan.validate import validate_file
from scribengin.spec.calls import CallPlaces
from scribengin.spec.parse import parse_flow
from scribengin.state.folder import StateFolder

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from scribengin.core.problems import Problem
    from scribengin.plan.model import Plan
    from scribengin.spec.model import Flow
    from scribengin.spec.places import Places

DEFAULT_BATCH_BYTES = 2**30
"""What one Batch takes at most where a source says nothing: a kill costs one Batch, so that it must not be all there is."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A flow that may run, and the folder of its state."""

    path: Path
    plan: Plan
    folder: StateFolder
    warnings: tuple[Problem, ...]

    def place_of(self, node: str) -> TextPlace:
        """Where a node, or a Query's first sink, stands in the flow file; the call that made it where the flow is written in Python."""
        flow = self.plan.flow
        node = next((query.sinks[0] for query in self.plan.queries if query.name == node), node)
        sections = {"sources": flow.sources, "steps": flow.steps, "sinks": flow.sinks}
        section = next((name for name, nodes in sections.items() if node in nodes), None)
        if section is None:
            return TextPlace(str(self.path))
        return self._places().key((section, node))

    def _places(self) -> Places:
        if self.path.suffix == ".py":
            return CallPlaces.of(self.plan.flow, TextPlace(str(self.path)))
        types = {"source_types": catalog.source_types(), "sink_types": catalog.sink_types()}
        return parse_flow(self.path.read_text(), str(self.path), folder=self.path.parent, environment=os.environ, **types).places


def prepare(path: Path, *, state: Path | None) -> Prepared:
    """Check and plan; a flow in Python is executed. Raises InputError with every Problem."""
    flow, problems = validate_file(path, os.environ, execute=True)
    if flow is None or any(problem.severity == "error" for problem in problems):
        raise InputError(problems)
    return Prepared(path, build_plan(flow), state_folder(path, flow, state), tuple(problems))


def state_folder(path: Path, flow: Flow, state: Path | None) -> StateFolder:
    """`.scribengin` beside the flow file, or the given folder."""
    return StateFolder(state or path.resolve().parent / ".scribengin", flow.name)


def open_sources(flow: Flow) -> dict[str, OpenSource]:
    """Every source of the flow, configured."""
    return {node.id: catalog.open_source(node.type, source_place(flow, node.id)) for node in flow.sources.values()}


def source_place(flow: Flow, id_: str) -> Place:
    """What the source's connector is built with."""
    node = flow.sources[id_]
    options = catalog.source_types()[node.type].filled(node.options, flow.defaults.profile)
    return Place(id_, flow.folder.resolve(), options, node.schema.fields if node.schema else None, flow.on_error(node))


def open_sinks(flow: Flow, plan: Plan | None = None, folder: StateFolder | None = None) -> dict[str, Sink]:
    """Every sink of the flow, configured; with `plan` and `folder` so that it can write."""
    types = catalog.sink_types()
    of_sink = {sink: query for query in plan.queries for sink in query.sinks} if plan is not None else {}
    sinks = {}
    for node in flow.sinks.values():
        place = Place(node.id, flow.folder.resolve(), types[node.type].filled(node.options, flow.defaults.profile), flow=flow.name)
        place = replace(place, delivery=node.delivery or flow.defaults.delivery)
        if folder is not None and (query := of_sink.get(node.id)) is not None:
            place = replace(place, version=query.fingerprint, work=folder.query(query.name).work(node.id))
        sinks[node.id] = catalog.open_sink(node.type, place)
    return sinks


def limits_of(options: Mapping[str, object]) -> Limits:
    """What one Batch takes of a source."""
    given = {name: value for name in ("max_files", "max_bytes", "max_rows") if (value := options.get(name)) is not None}
    return Limits(**({"max_bytes": DEFAULT_BATCH_BYTES} | given))  # type: ignore[arg-type]


def static_streams(source: OpenSource) -> tuple[SourceStream, ...]:
    """All there is of a static source now."""
    reader = source.reader()
    streams: list[SourceStream] = []
    while more := reader.split(Limits(), final=True):
        streams += more
    return tuple(streams)
