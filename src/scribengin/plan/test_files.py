"""Reads the test files of a flow: those that `tests` names, and `FLOW.test.yaml`."""

from __future__ import annotations

from dataclasses import dataclass
from glob import glob
from typing import TYPE_CHECKING

from scribengin.connectors import catalog
from scribengin.core.problems import Place, Problem
from scribengin.plan.checks.subject import Subject
from scribengin.plan.checks.tests import check_tests
from scribengin.spec.call_sites import CallPlaces
from scribengin.spec.read_tests import parse_tests
from scribengin.spec.yaml_document import Document

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from scribengin.spec.flow_tests import FlowTest
    from scribengin.spec.model import Flow
    from scribengin.spec.places import Path as At
    from scribengin.spec.places import Places


@dataclass(frozen=True, slots=True)
class PlacedTest:
    """A test and its place."""

    test: FlowTest
    file: Path
    places: Places
    at: At
    """the path of the test in its file"""
    text: str = ""
    """the text of the file as it was read"""

    def place(self, path: Sequence[str | int]) -> Place:
        """The place of a part of the test."""
        return self.places.value((*self.at, *path))


def beside(flow_file: Path) -> Path:
    """The test file beside a flow file: `flow.yaml` → `flow.test.yaml`."""
    return flow_file.with_suffix(".test.yaml")


def read_test_files(flow: Flow, flow_file: Path) -> tuple[list[PlacedTest], list[Problem]]:
    """(every test of every file, the problems of these), in the order of the files."""
    problems: list[Problem] = []
    files: dict[Path, None] = {}
    for name in flow.test_files:
        found = files_named(flow.folder, name)
        if not found:
            remedy = f"check the path: it is relative to {flow.folder}"
            problems.append(
                Problem("test-file", _place_in(flow_file, name), f'`tests` names "{name}", but that file does not exist', remedy)
            )
        files |= dict.fromkeys(found)
    if beside(flow_file).is_file():
        files |= {beside(flow_file): None}
    placed: list[PlacedTest] = []
    subject = Subject(flow, CallPlaces(Place(str(flow_file)), {}), catalog.source_types(), catalog.sink_types())
    for file in files:
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            problems.append(Problem("test-file", Place(str(file)), f"the file cannot be read: {error}", "correct the file, or remove it"))
            continue
        tests, wrong, places, prefix = parse_tests(text, str(file), folder=flow.folder)
        problems += wrong
        problems += sorted(check_tests(subject, tests, places, prefix), key=lambda problem: problem.place)
        placed += [PlacedTest(test, file, places, (*prefix, test.index), text) for test in tests]
    return placed, problems


def _place_in(file: Path, name: str) -> Place:
    """The place of the name in the flow file; the beginning of the file if it does not contain the name."""
    document = Document(file.read_text(encoding="utf-8"), str(file))
    at = document.text.rfind(name)
    return document.place(at) if at >= 0 else Place(str(file))


def files_named(folder: Path, name: str) -> list[Path]:
    """The files that a path or a pattern names, relative to a folder or absolute, in order."""
    if any(sign in name for sign in "*?["):  # `Path.glob` refuses absolute patterns
        found = glob(name, root_dir=folder, recursive=True, include_hidden=True)  # noqa: PTH207
        return sorted(path for path in (folder / each for each in found) if path.is_file())
    return [path] if (path := folder / name).is_file() else []
