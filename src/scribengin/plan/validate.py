"""Reads and checks a flow file, without Java or Spark."""

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
    """Read and check one flow file.

    Problems are in file order, those in the user's modules last, under their own file.

    Args:
        path: The flow file.
        environment: The values for `${env:…}`.
        execute: Run a `.py` file, which gives a Flow only then; modules that a flow names are never run here.
        base: The folder that the paths of its data are relative to; None: the file's folder.
        tests: True: problems of tests are errors; otherwise they are warnings, since a flow runs without its tests.

    Returns:
        (the Flow, its problems). The Flow is None if it could not be read; with errors it must not be run.
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
