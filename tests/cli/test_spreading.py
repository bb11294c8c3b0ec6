"""`--spread` and `--branches` on the command line: what they take, and what they say to what they do not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from scribengin.cli import spreading
from scribengin.cli.commands.apply import command as apply
from scribengin.cli.commands.show import resolved as show
from scribengin.client.models import NodeRow
from scribengin.core.errors import Unreachable

if TYPE_CHECKING:
    from pathlib import Path

FLOW = """version: 1
name: numbers
sources: {numbers: {type: files, path: data, format: json, schema: "id BIGINT"}}
steps: {some: {from: numbers, filter: id > 1}}
sinks: {kept: {from: some, type: console}}
"""


@pytest.fixture(autouse=True)
def _flow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCRIBENGIN_HOME", str(tmp_path / "home"))
    (tmp_path / "flow.yaml").write_text(FLOW)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["flow.yaml", "--spread", "0"],
            '"0" is not a valid number of tiers; write --spread 3, or --spread alone for as many as nodes are up',
        ),
        (["flow.yaml", "--spread", "many"], '"many" is not a valid number of tiers'),
        (["--spread", "flow.yaml"], "flow.yaml was read as the number of tiers; name files before --spread"),
        (["flow.yaml", "--branches", "id ts 10m"], "--branches needs --spread"),
    ],
)
def test_a_number_of_tiers_that_is_none_is_told_before_anybody_is_asked(words: list[str], told: str) -> None:
    ended = CliRunner().invoke(apply, words)
    assert ended.exit_code == 2
    assert told in ended.output


def test_branches_alone_are_refused_where_nothing_is_submitted_too() -> None:
    ended = CliRunner().invoke(show, ["flow.yaml", "--branches", "id ts 10m"])
    assert ended.exit_code == 2
    assert "--branches needs --spread" in ended.output


def test_a_file_without_utilities_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    ended = CliRunner().invoke(show, ["flow.yaml", "--spread", "2", "--json"])
    assert ended.exit_code == 2
    (problem,) = json.loads(capfd.readouterr().out)["problems"]
    assert (problem["file"], problem["message"]) == ("flow.yaml", "flow numbers has no step of utilities; --spread takes one")


def node(name: str, state: str, *, up: bool) -> NodeRow:
    return NodeRow(name, state, up)


def test_as_many_tiers_as_nodes_that_take_workers_and_none_is_an_error() -> None:
    away, out = node("b", "away", up=False), node("c", "decommissioned", up=True)
    assert spreading.tiers_as_nodes([node("a", "up", up=True), away, out, node("d", "up", up=True)]) == 2
    with pytest.raises(Unreachable, match="no node is running") as told:
        spreading.tiers_as_nodes([away, out])
    assert "scribengin server node" in told.value.remedy
