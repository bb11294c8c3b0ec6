"""A flow file to its Flow and every Problem in it, without Java, Spark, or running user code of a YAML flow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.connectors import catalog
from scribengin.core.problems import Place, Problem
from scribengin.plan.check import check_flow
from scribengin.spec.parse import parse_flow

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from scribengin.spec.model import Flow


def validate_file(path: Path, environment: Mapping[str, str]) -> tuple[Flow | None, list[Problem]]:
    """Read and check one YAML file. The Flow is None where the text is none; with errors it is not for running.

    `environment` fills `${env:…}`. Problems come in file order; those of modules that the flow names stand under their own file.
    """
    try:
        text = path.read_bytes().decode()
    except UnicodeDecodeError as error:
        return None, [_at_byte(path, error)]
    except OSError as error:
        return None, [Problem("flow-file-missing", Place(str(path)), f"the flow file cannot be read: {error.strerror}")]
    types = {"source_types": catalog.source_types(), "sink_types": catalog.sink_types()}
    parsed = parse_flow(text, str(path), folder=path.parent, environment=environment, **types)
    if parsed.flow is None:
        return None, list(parsed.problems)
    found = [*parsed.problems, *check_flow(parsed.flow, parsed.places, broken=parsed.broken, **types)]
    return parsed.flow, sorted(dict.fromkeys(found), key=lambda problem: (problem.place.file != str(path), problem.place))


def _at_byte(path: Path, error: UnicodeDecodeError) -> Problem:
    before = bytes(error.object[: error.start]).decode()
    place = Place(str(path), before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1)
    byte = error.object[error.start]
    return Problem("flow-file-missing", place, f"the flow file is not UTF-8: byte 0x{byte:02x} stands here", "save it as UTF-8")
