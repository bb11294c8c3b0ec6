"""A flow file to its Flow and every Problem in it, without Java or Spark."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from scribengin.connectors import catalog
from scribengin.plan.check import check_flow
from scribengin.spec.load import load_flow

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from scribengin.core.problems import Problem
    from scribengin.spec.model import Flow


def validate_file(
    path: Path, environment: Mapping[str, str], *, execute: bool = False, base: Path | None = None, tests: bool = False
) -> tuple[Flow | None, list[Problem]]:
    """Read and check one flow file. The Flow is None if it could not be read; with errors it must not be run.

    `environment` fills `${env:…}`. A `.py` file gives a Flow only with `execute`, which runs it; modules that a flow names are
    never run here. `base` is where the paths of its data start where that is not the file's folder. A test that names what is not there
    is a warning, unless it is `tests` that are asked for: a flow runs without them.

    Problems come in file order, those in the user's modules last, under their own file.
    """
    types = {"source_types": catalog.source_types(), "sink_types": catalog.sink_types()}
    loaded = load_flow(path, environment=environment, execute=execute, base=base, **types)
    if loaded.flow is None:
        return None, list(loaded.problems)
    checked = check_flow(loaded.flow, loaded.places, broken=loaded.broken, unread=loaded.unread, **types)
    found = [_milder(problem) if not tests else problem for problem in (*loaded.problems, *checked)]
    return loaded.flow, sorted(dict.fromkeys(found), key=lambda problem: (problem.place.file != str(path), problem.place))


def _milder(problem: Problem) -> Problem:
    return replace(problem, severity="warning") if problem.code.startswith("test-") else problem
