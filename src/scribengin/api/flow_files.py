"""Packs and plans flow files that were written to the registry, in the same way as submitted ones, for `control.flow_files`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from scribengin.api.planner import ask_planner
from scribengin.api.state_queries import StateQuery
from scribengin.client.models import Submit
from scribengin.client.problems import PointedError
from scribengin.control import flow_records
from scribengin.control.submission import Submission
from scribengin.control.topology import PlannedTopology
from scribengin.core.errors import InputError, Refused
from scribengin.registry.tree import FILE

if TYPE_CHECKING:
    from scribengin.api.plane import Plane
    from scribengin.registry.records import FlowFile


def plan_file(plane: Plane, flow: str, file: FlowFile) -> tuple[PlannedTopology, list[Submission]]:
    """Make a package of a text, and plan its submission, in two processes of the planner.

    Args:
        plane: the master, which stores the package.
        flow: the flow in whose folder of the registry the text is.
        file: the text, and the folder from which relative paths are resolved.

    Returns:
        The plan, and the submitted flow.

    Raises:
        InputError: every problem of the text, at its lines.
        Refused: the text is of another flow, or the folder for its relative paths is unknown; and as `Planner.ask`.
    """
    if file.base and not file.base.startswith("/"):
        raise Refused(
            f'has "base": "{file.base}", which is not an absolute path', remedy="write the folder's absolute path", code="flow-file-base"
        )
    base = file.base or _base_before(plane, flow)
    try:
        packed = ask_planner(plane, StateQuery("pack", flow, {"text": file.text, "base": base}))
        submit = Submit(packed["package"], packed["path"], packed["base"])
        found = ask_planner(plane, StateQuery("topology", "", flows=(flow,), submits=(submit,), state=plane.state))
    except PointedError as error:
        raise PointedError(tuple(replace(fault, file=FILE(flow).path) for fault in error.faults)) from None
    except InputError as error:
        raise InputError([replace(each, place=replace(each.place, file=FILE(flow).path)) for each in error.problems]) from None
    return msgspec.convert(found["plan"], PlannedTopology), msgspec.convert(found["submissions"], list[Submission])


def _base_before(plane: Plane, flow: str) -> str:
    """The folder from which relative paths of the desired version are resolved; empty if there is no such version."""
    try:
        return flow_records.version_of(plane.registry, flow, flow_records.read_flow(plane.registry, flow).desired.version).base
    except Refused:
        return ""
