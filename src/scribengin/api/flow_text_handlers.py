"""Handlers of queries about the texts of flow files; they are executed in the planner's process."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from scribengin.connectors import catalog
from scribengin.control.flow_records import version_of
from scribengin.control.submission import submission_of
from scribengin.core.errors import ScribenginError
from scribengin.local.prepare import prepare, prepare_valid
from scribengin.plan.flow_graph import graph_as_json
from scribengin.plan.validate import validate_file
from scribengin.spec.load import load_flow
from scribengin.state.places import located

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scribengin.api.planner_process import PlanInput
    from scribengin.spec.model import Flow, Sink, Source
    from scribengin.spec.parse import Parsed

_FILE = "flow.yaml"
MASK = "•••"


def version_text(given: PlanInput, version: int) -> dict[str, Any]:
    """The flow file of a version: its `file`, its `text` without secrets, and `lines`: node → the number of its line. Raises Refused if
    the version or its package is missing."""
    spec = version_of(given.registry, given.query.flow, version)
    path = given.packages.get(spec.package) / spec.path
    text, parsed = _read(path, spec.base)
    if parsed.flow is None:  # a flow in Python is not executed here
        return {"file": spec.path, "text": text, "lines": {}}
    lines = {node: parsed.places.key((section, node)).line for section, node in _nodes(parsed.flow)}
    return {"file": spec.path, "text": _masked(text, parsed), "lines": lines}


def flow_file(given: PlanInput, version: int) -> dict[str, Any]:
    """The flow file of a version as it was submitted, and as it is now at the place where it came from, both without secrets; and the
    resources that it gives its tiers. Raises Refused if the version or its package is missing."""
    spec = version_of(given.registry, given.query.flow, version)
    submitted, origin = given.packages.get(spec.package) / spec.path, Path(spec.base, Path(spec.path).name)
    prepared = prepare(submitted, state=located(spec.state), base=Path(spec.base))
    tiers = submission_of(prepared.plan, spec.package, spec.path, spec.base).tiers
    return {
        "path": str(origin),
        "text": _shown(submitted, spec.base, given.query.flow) or "",
        "now": _shown(origin, spec.base, given.query.flow),
        "tiers": {
            name: {"cores": tier.cores, "memory_bytes": tier.memory_bytes, "executors": tier.executors, "workers": tier.workers}
            for name, tier in tiers.items()
        },
    }


def _read(path: Path, base: str) -> tuple[str, Parsed]:
    """The text of a flow file, and what it says; nothing of it is executed. Raises as `load_flow`."""
    types = {"source_types": catalog.source_types(), "sink_types": catalog.sink_types()}
    parsed = load_flow(path, environment={}, execute=False, base=Path(base), **types)
    return path.read_text(encoding="utf-8"), parsed


def _shown(path: Path, base: str, flow: str) -> str | None:
    """The text of a flow file without secrets; None if it cannot be read, or is not a file of that flow, for only such a one is shown."""
    try:
        text, parsed = _read(path, base)
    except (OSError, UnicodeDecodeError, ScribenginError):
        return None
    return _masked(text, parsed) if parsed.flow is not None and parsed.flow.name == flow else None


def check_text(_given: PlanInput, text: str) -> dict[str, Any]:
    """The problems of the text of a flow file, its flow's name, and its graph, null if it has errors. Nothing of it is executed."""
    with TemporaryDirectory() as folder:
        path = Path(folder, _FILE)
        path.write_text(text, encoding="utf-8")
        flow, problems = validate_file(path, os.environ)
        found = [
            each.as_json() | {"message": each.message.replace(folder, ""), "remedy": each.remedy.replace(str(path), _FILE)}
            for each in problems
        ]
        graph = None
        if flow is not None and not any(each.severity == "error" for each in problems):
            try:
                prepared = prepare_valid(path, flow, problems, state=Path(folder, "state"))
                graph = {**graph_as_json(prepared.plan), "version": 0}
            except ScribenginError as error:
                place = {"line": 1, "column": 1}
                found.append(
                    {"severity": "error", "code": error.code, **place, "message": error.message.replace(folder, ""), "remedy": error.remedy}
                )
        return {"flow": "" if flow is None else flow.name, "problems": found, "graph": graph}


def _nodes(flow: Flow) -> Iterator[tuple[str, str]]:
    for section, nodes in (("sources", flow.sources), ("steps", flow.steps), ("sinks", flow.sinks)):
        for node in nodes:
            yield section, node


def _masked(text: str, parsed: Parsed) -> str:
    """The text without the values of options that are declared as secret; `${secret:…}` is a reference, and stays."""
    assert parsed.flow is not None
    lines = text.split("\n")
    for section, types, nodes in (
        ("sources", catalog.source_types(), parsed.flow.sources),
        ("sinks", catalog.sink_types(), parsed.flow.sinks),
    ):
        for node in nodes.values():
            for name in _secret_options(node, types):
                value = node.options.get(name)
                values = {(key,): each for key, each in value.items()} if isinstance(value, Mapping) else {(): value}
                for keys, each in values.items():
                    at = parsed.places.value((section, node.id, name, *keys)).line - 1
                    if isinstance(each, str) and each and 0 <= at < len(lines):
                        lines[at] = lines[at].replace(each, MASK)
    return "\n".join(lines)


def _secret_options(node: Source | Sink, types: Any) -> list[str]:
    declared = types[node.type].options if node.type in types else ()
    return [option.name for option in declared if option.secret]
