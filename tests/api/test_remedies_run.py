"""Commands that problems of the control plane print: typed as they are, beside the master that answered, each does what it says."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from scribengin.cli.main import main
from scribengin.client.models import Submit
from scribengin.control import flow_requests, operation_requests
from scribengin.core.errors import EnvironmentFault
from scribengin.packages.package import PackedFlow, build_package
from scribengin.registry.records import Host, Operation, TierSpec
from scribengin.registry.tree import HOST
from tests.plugins.remedies import mentions

FLOW = """\
version: 1
name: numbers
sources: {numbers: {type: files, path: data, format: json, schema: "id BIGINT"}}
sinks: {kept: {from: numbers, type: files, path: out, format: json}}
"""
ENDS = """\
import os
os._exit(7)
from scribengin import Flow
flow = Flow("numbers")
"""

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from conftest import Bench

    Typed = Callable[..., dict[str, Any]]


@pytest.fixture
def typed(says: Typed, bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Typed:
    """What a command says with --json, beside the master of the bench, which has the two versions of flow ads."""
    bench.master()
    for package in "01":
        submission = flow_requests.Submission("ads", package * 64, "flow.yaml", "/base", {"main": TierSpec()}, labels={"team": "web"})
        flow_requests.apply(bench.person, submission, state=lambda _: str(tmp_path), by="bob")
    monkeypatch.chdir(tmp_path)
    return says


@pytest.fixture
def submitted(typed: Typed, tmp_path: Path) -> str:
    """A flow whose package the master has, and which never ran."""
    (tmp_path / "numbers.yaml").write_text(FLOW)
    assert typed("apply", "numbers.yaml")["status"] == 0
    return "numbers"


def remedy_of(said: dict[str, Any], code: str) -> list[tuple[str, ...]]:
    """The commands of the one problem."""
    [problem] = said["problems"]
    assert (said["status"], problem["code"]) == (2, code), problem
    found = [mention.words for mention in mentions(problem["remedy"])]
    assert found, problem["remedy"]
    return found


@pytest.mark.executes("version-unknown", "version-same", "operation-unknown", "worker-unknown", "label-unknown", "token-unknown-name")
@pytest.mark.parametrize(
    ("words", "code", "there"),
    [
        ("rollback ads 9", "version-unknown", "history ads"),
        ("rollback ads 2", "version-same", "history ads"),
        ("operation cancel ads 9", "operation-unknown", "operation list ads"),
        ("operation cancel ads w9", "operation-unknown", "operation list ads"),
        ("worker show ads.main-9", "worker-unknown", "status ads"),
        ("pause -l team=none", "label-unknown", "list"),
        ("token remove nobody", "token-unknown-name", "token list"),
    ],
)
def test_what_is_not_there_names_the_command_that_lists_what_is(typed: Typed, words: str, code: str, there: str) -> None:
    [command] = remedy_of(typed(*words.split()), code)
    assert " ".join(command) == there
    assert typed(*command)["status"] == 0


@pytest.mark.executes("flow-unknown")
def test_a_flow_that_nobody_submitted_is_there_when_it_is_submitted(typed: Typed, tmp_path: Path) -> None:
    [command] = remedy_of(typed("status", "numbers"), "flow-unknown")
    (tmp_path / "FILE.yaml").write_text(FLOW)
    assert typed(*(word.replace("FILE", "FILE.yaml") for word in command))["status"] == 0
    assert typed("status", "numbers")["result"]["flow"] == "numbers"


@pytest.mark.executes("token-taken")
def test_a_name_that_a_token_has_is_free_when_that_is_removed(typed: Typed) -> None:
    add = ("token", "add", "ci", "--role", "viewer")
    assert typed(*add)["status"] == 0
    [command] = remedy_of(typed(*add), "token-taken")
    assert typed(*command)["status"] == 0
    assert typed(*add)["status"] == 0


@pytest.mark.executes("quota-value")
def test_a_quota_that_bounds_nothing_is_removed_by_the_command_that_says_so(typed: Typed) -> None:
    assert typed("quota", "set", "team=web", "--cores", "2")["status"] == 0
    [command] = remedy_of(typed("quota", "set", "team=web", "--off", "cores"), "quota-value")
    assert typed(*command)["status"] == 0
    assert typed("quota", "list")["result"] == []


@pytest.mark.executes("quota-value")
def test_a_quota_of_nothing_names_the_command_that_lets_nothing_through(typed: Typed, bench: Bench) -> None:
    [command] = remedy_of(typed("quota", "set", "team=web", "--cores", "0"), "quota-value")
    assert typed(*(word.replace("LABEL=VALUE", "team=web") for word in command))["status"] == 0
    assert flow_requests.read_flow(bench.person, "ads").desired.state == "paused"


@pytest.mark.executes("node-unknown")
def test_a_node_that_is_not_there_names_the_command_that_lists_them(typed: Typed) -> None:
    listed, started = remedy_of(typed("node", "map", "ads.main", "far"), "node-unknown")
    assert typed(*listed)["result"] == []
    assert started == ("server", "node", "--registry", "ADDRESS"), "which runs until it is stopped"


@pytest.mark.executes("node-decommissioned")
def test_a_node_that_was_taken_out_is_taken_back_by_the_command_that_says_so(typed: Typed, bench: Bench) -> None:
    bench.person.commit(HOST("h1").create(Host(host="h1", cores=1, memory_bytes=0, home="/", since="")))
    assert typed("node", "drain", "h1")["status"] == 0
    [command] = remedy_of(typed("node", "map", "ads.main", "h1"), "node-decommissioned")
    assert typed(*command)["status"] == 0
    assert typed("node", "map", "ads.main", "h1")["status"] == 0


@pytest.mark.executes("flow-not-stopped")
def test_what_is_not_stopped_is_asked_to_stop_by_the_command_that_says_so(typed: Typed, bench: Bench) -> None:
    [command] = remedy_of(typed("delete", "ads"), "flow-not-stopped")
    assert command == ("stop", "ads", "--wait")
    typed(*command[:2])  # no master of this bench makes it so, which --wait would wait for
    assert flow_requests.read_flow(bench.person, "ads").desired.state == "stopped"


@pytest.mark.executes("usage")
def test_a_command_line_that_is_wrong_names_the_help_of_its_command(typed: Typed, capfd: pytest.CaptureFixture[str]) -> None:
    [problem] = typed("dead", "lits")["problems"]
    [mention] = mentions(problem["remedy"])
    with pytest.raises(SystemExit) as ended:
        main(list(mention.words))
    assert ended.value.code == 0
    assert "scribengin dead-letter" in capfd.readouterr().out


@pytest.mark.executes("state-missing", "rewind-nothing", "refused")
@pytest.mark.parametrize(
    ("words", "code", "there"),
    [
        ("dead-letter list numbers", "state-missing", "status numbers"),
        ("rewind numbers --to-time 1h --yes", "rewind-nothing", "offsets show numbers"),
        ("maintain numbers", "refused", "status numbers"),
    ],
)
@pytest.mark.usefixtures("submitted")
def test_what_a_flow_has_not_yet_is_awaited_where_the_command_shows_it(typed: Typed, words: str, code: str, there: str) -> None:
    [command] = remedy_of(typed(*words.split()), code)
    assert " ".join(command) == there
    assert typed(*command)["status"] == 0


@pytest.mark.executes("operation-under-way")
def test_an_operation_under_way_is_shown_and_cancelled_by_the_commands_that_say_so(typed: Typed, bench: Bench) -> None:
    operation_requests.begin(bench.person, "ads", Operation(kind="rewind", step="stop", version=2, tiers=("main",)), by="bob")
    shown, cancelled = remedy_of(typed("rollback", "ads", "1"), "operation-under-way")
    assert [row["id"] for row in typed(*shown)["result"]] == ["1"]
    assert typed(*cancelled)["status"] == 0
    assert typed("rollback", "ads", "1")["status"] == 0


@pytest.mark.executes("operation-at-work")
def test_an_operation_at_work_is_shown_by_the_command_that_says_so(typed: Typed, bench: Bench) -> None:
    id_ = operation_requests.begin(bench.person, "ads", Operation(kind="rewind", step="work", version=2, tiers=("main",)), by="bob")
    [command] = remedy_of(typed("operation", "cancel", "ads", id_), "operation-at-work")
    assert [row["step"] for row in typed(*command)["result"]] == ["work"]


@pytest.mark.executes("plan-failed")
def test_code_that_ends_its_process_is_met_by_the_command_that_shows_it(bench: Bench, tmp_path: Path) -> None:
    bench.master()
    package = build_package("numbers", "0", [PackedFlow("numbers", "flow.py")], [], {"flow.py": ENDS.encode()})
    with pytest.raises(EnvironmentFault) as told:
        bench.client().apply("numbers", Submit(package.id, "flow.py", "/base"), package.data)
    assert told.value.code == "plan-failed"
    [command] = [mention.words for mention in mentions(told.value.remedy)]
    (tmp_path / "flow.py").write_text(ENDS)
    words = [word.replace("FILE", "flow.py") for word in command]
    assert subprocess.run([sys.executable, "-m", "scribengin.cli", *words], cwd=tmp_path, check=False).returncode == 7
