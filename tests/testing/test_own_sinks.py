"""The trials of the commit protocol with a sink of the author's in them: a right one comes through, of another they tell what is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from harness.broken_sinks import UnsyncedSink
from scribengin.connectors.files.options import SINK
from scribengin.connectors.files.sink import FilesSink
from scribengin.testing.checker import read_output
from scribengin.testing.own_sinks import check_trials

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


def options(at: Path, node: str) -> dict[str, Any]:
    return SINK.filled({"path": str(at / node), "format": "json"})


def read(at: Path, node: str) -> Iterator[Mapping[str, Any]]:
    return (each.row for each in read_output(at / node, "json"))


def test_a_sink_that_is_right_comes_through_all_trials(place: Path) -> None:
    check_trials(place, FilesSink, options, read, power=True)


def test_a_sink_that_does_not_sync_is_told_when_the_machine_goes_dark(place: Path) -> None:
    with pytest.raises(AssertionError, match=r"the machine goes dark at publish\.after: each record is there once, .*\d lost"):
        check_trials(place, UnsyncedSink, options, read, power=True)
