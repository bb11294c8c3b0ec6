"""A stop at any moment ends the run, and soon."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from scribengin.cli.summary import show_summary
from scribengin.core.errors import InputError
from scribengin.local.contract import RunSettings, RunView
from scribengin.local.run import run_flow

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import FlowFolder

FLOW = """
version: 1
name: endless
sources:
  numbers: {type: sequence, rate: 2000, max_rows: 500}
sinks:
  kept: {from: numbers, type: files, path: out, format: json}
"""


@pytest.mark.timeout(400)
def test_a_stop_between_any_two_batches_ends_the_run_and_loses_nothing(folder: FlowFolder) -> None:
    folder.flow(FLOW)
    for batches in range(1, 7):
        stop = threading.Event()

        def watch(view: RunView, stop: threading.Event = stop, batches: int = batches) -> None:
            if any(query.batches >= batches for query in view.queries):
                stop.set()

        result = run_flow(folder.path / "flow.yaml", RunSettings(stop=stop), watch, spark=folder.spark)
        assert (result.state, result.balanced) == ("stopped", True)
    written = [row["id"] for row in folder.read("out")]
    assert written == list(range(len(written)))


class _Right:
    """As a worker has it, by a registry."""

    path = "flows/endless/tiers/main/lease"

    def check(self) -> None:
        """It is held."""


def test_an_endless_sequence_is_drained_where_it_is_and_goes_on_from_there(folder: FlowFolder) -> None:
    folder.flow(FLOW)
    for rounds in range(1, 3):
        stop = threading.Event()

        def watch(view: RunView, stop: threading.Event = stop) -> None:
            if any(query.batches for query in view.queries):
                stop.set()

        run_flow(folder.path / "flow.yaml", RunSettings(stop=stop, right=_Right()), watch, spark=folder.spark)
        drained = run_flow(folder.path / "flow.yaml", RunSettings(once=True, right=_Right()), lambda view: None, spark=folder.spark)
        assert (drained.state, drained.balanced, rounds) == ("finished", True, rounds)
    written = [row["id"] for row in folder.read("out")]
    assert written == list(range(len(written)))


def test_a_run_that_is_to_end_is_refused_where_a_source_does_not(tmp_path: Path) -> None:
    (tmp_path / "flow.yaml").write_text(FLOW)
    with pytest.raises(InputError) as caught:
        run_flow(tmp_path / "flow.yaml", RunSettings(once=True), lambda view: None)
    (problem,) = caught.value.problems
    assert (problem.place.line, problem.remedy) == (5, "set `rows:` on the sequence")
    assert not (tmp_path / "out").exists()


def test_a_run_that_is_stopped_before_it_begins_says_so_and_claims_nothing(folder: FlowFolder, capsys: pytest.CaptureFixture[str]) -> None:
    folder.flow(FLOW)
    settings = RunSettings()
    settings.stop.set()
    result = run_flow(folder.path / "flow.yaml", settings, lambda view: None, spark=folder.spark)
    assert (result.state, result.queries, result.balanced) == ("stopped", (), True)
    assert not (folder.path / "out").exists()
    show_summary(result, "scribengin dead-letter list flow.yaml")
    assert "before it began: nothing was read or written" in capsys.readouterr().out
