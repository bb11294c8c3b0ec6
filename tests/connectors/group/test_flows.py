"""Whole flows that go to groups of folders: members go away and come back, drivers are killed, and each record stands somewhere once."""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from scribengin.cli.commands.status import command as status
from scribengin.core.errors import Refused
from scribengin.local.acks import topology_of
from scribengin.local.audit import audit_flow
from scribengin.local.contract import RunSettings
from scribengin.local.prepare import prepare
from scribengin.local.run import run_flow
from scribengin.local.status import read_standing
from scribengin.state.channel_acks import Acks
from scribengin.testing.checker import check_records, read_output
from scribengin.testing.records import SCHEMA, Records
from tests.connectors.group.disks import Disks
from tests.connectors.kafka.processes import kill, said, scribengin, started, within

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from scribengin.local.contract import RunResult, RunView

SINK = f"""
version: 1
name: copied
sources: {{numbers: {{type: files, path: in, format: json, settle: 0s, max_files: 1, schema: "{SCHEMA}"}}}}
sinks: {{kept: {{from: numbers, type: files, path: kept, format: json, to: wan}}}}
groups: {{wan: {{members: [{{at: near, name: near}}, {{at: far, name: far, cost: 2}}]}}}}
"""
EDGE = f"""
version: 1
name: copied
sources: {{numbers: {{type: files, path: in, format: json, settle: 0s, max_files: 1, schema: "{SCHEMA}"}}}}
steps:
  whole: {{from: numbers, filter: seq >= 0}}
  again: {{from: whole, filter: part >= 0}}
sinks: {{kept: {{from: again, type: files, path: out, format: json}}}}
tiers: {{first: {{steps: [whole]}}, second: {{steps: [again]}}}}
edges: {{"whole -> again": {{channel: folder, to: wan}}}}
groups: {{wan: {{members: [{{at: m1}}, {{at: m2}}]}}}}
"""


@dataclass
class Flow(Disks):
    """A flow's folder, to which records come part by part."""

    text: str
    members: tuple[str, ...]
    parts: int = 0

    def write(self) -> Flow:
        (self.folder / "in").mkdir()
        (self.folder / "flow.yaml").write_text(self.text)
        return self

    def add(self, parts: int = 1) -> Flow:
        """More files of ten records, each a Batch."""
        for part in range(self.parts, self.parts + parts):
            lines = "".join(json.dumps(row) + "\n" for row in Records("r", part + 1, 10).of(part))
            (self.folder / f"coming-{part}").write_text(lines)
            (self.folder / f"coming-{part}").rename(self.folder / f"in/records-{part:03}.jsonl")
        self.parts += parts
        return self

    def batches(self, member: str) -> int:
        return len(list((self.folder / member).glob("kept/part-*")))

    def run(self, spark: Any, watch: Callable[[RunView], None] = lambda _: None, **settings: Any) -> RunResult:
        return run_flow(self.folder / "flow.yaml", RunSettings(**settings), watch, spark=spark)

    def check(self, *folders: str) -> None:
        """Each record that came stands in one of the folders, once; and the audit says so too."""
        found = [row for folder in folders for row in read_output(self.folder / folder, "json")]
        expected = Records("r", self.parts, 10).keys()
        findings = check_records(expected, found, ordered=False, ledger_rows=10 * self.parts)
        assert not findings, findings
        audit = audit_flow(prepare(self.folder / "flow.yaml", state=None))
        assert audit.balanced, [report.violations for report in audit.reports]

    def chosen(self, query: str = "kept") -> list[tuple[str, str]]:
        """(member, why) of each decision, in order."""
        folder = next((self.folder / ".scribengin").glob(f"*/*/{query}/decisions"))
        behind = [json.loads(path.read_text())["body"]["behind"][query] for path in sorted(folder.glob("*.json"))]
        return [(each["member"], each["why"]) for each in behind]

    def acknowledged(self) -> bool:
        """Whether all that was read has come through to the ends, as the state folders say."""
        prepared = prepare(self.folder / "flow.yaml", state=None)
        standing = Acks(topology_of(prepared.plan, prepared.root)).read()
        return all(at.acknowledged == at.decided >= 0 for at in standing.queries.values())


@pytest.fixture
def flow(tmp_path: Path) -> Flow:
    return Flow(tmp_path, SINK, ("near", "far")).write()


@pytest.fixture
def cut(tmp_path: Path) -> Flow:
    return Flow(tmp_path, EDGE, ("m1", "m2")).write()


@pytest.mark.timeout(400)
def test_while_a_flow_runs_its_batches_move_to_the_next_member_and_back(flow: Flow, spark: Any) -> None:
    stop, moves = threading.Event(), list[str]()
    flow.add(2)

    def gone() -> None:
        flow.take_away("near")
        flow.add(2)

    def back() -> None:
        flow.give_back("near")
        flow.add(2)

    steps: list[tuple[Callable[[], bool], Callable[[], Any]]] = [
        (lambda: flow.batches("near") == 2, gone),
        (lambda: flow.batches("far") == 2, back),
        # what comes within the second for which `near` is left out goes to `far`: more comes until it is back
        (lambda: len(moves) == 2 or (flow.batches("near") + flow.batches("far") == flow.parts and not flow.add()), stop.set),
    ]

    def watch(view: RunView) -> None:
        # who keeps the members' folders, in a thread of its own, says too that one is away: sooner or later than the sink
        moves.extend(note for note in view.notices if " UTC Batches go to member " in note)
        if steps and steps[0][0]():
            steps.pop(0)[1]()

    result = flow.run(spark, watch, stop=stop)
    assert (result.state, result.balanced) == ("stopped", True)
    flow.run(spark, once=True)
    flow.check("near/kept", "far/kept")
    members = [member for member, _ in flow.chosen()]
    assert members[:4] == ["near", "near", "far", "far"]
    assert members[-1] == "near"
    assert flow.chosen()[2][1].startswith("near is unavailable: ")
    assert ["to member far (cost 2) instead of near" in note for note in moves] == [True, False]
    assert "to member near (cost 1) instead of far: retried after " in moves[1]


@pytest.mark.timeout(400)
def test_equal_members_share_the_batches(tmp_path: Path, spark: Any) -> None:
    flow = Flow(tmp_path, SINK.replace(", cost: 2", ""), ("near", "far")).write().add(6)
    flow.run(spark, once=True)
    assert (flow.batches("near"), flow.batches("far")) == (3, 3)
    flow.check("near/kept", "far/kept")


@pytest.mark.timeout(400)
def test_a_sink_that_goes_to_one_member_writes_there_alone(tmp_path: Path, spark: Any) -> None:
    flow = Flow(tmp_path, SINK.replace("to: wan", "to: wan.far"), ("near", "far")).write().add(2)
    flow.run(spark, once=True)
    assert (flow.batches("near"), flow.batches("far")) == (0, 2)
    assert flow.chosen()[0] == ("far", "the only member")
    flow.check("far/kept")


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_batch_that_a_killed_driver_has_decided_waits_for_its_member_and_stands_there_once(flow: Flow) -> None:
    flow.add(3)
    killed = scribengin(flow.folder, "run", "flow.yaml", "--once", SCRIBENGIN_FAULT="decide.after@2:kill")
    assert killed.returncode == -9, killed.stderr
    flow.take_away("near")
    once = scribengin(flow.folder, "run", "flow.yaml", "--once", "--json")
    assert once.returncode == 1
    (problem,) = json.loads(once.stdout)["problems"]
    assert problem["code"] == "group-waits"
    assert 'batch 1 is decided for member "near" and waits for it' in problem["message"]
    assert flow.batches("far") == 0, "neither that Batch nor one behind it went elsewhere"
    with started(flow.folder, sys.executable, "-m", "scribengin.cli", "run", "flow.yaml") as child:
        within(120, lambda: "waits for it" in said(flow.folder))
        assert flow.batches("far") == 0
        kill(child)  # once more, while it waits
    with started(flow.folder, sys.executable, "-m", "scribengin.cli", "run", "flow.yaml") as child:
        within(120, lambda: "waits for it" in said(flow.folder))
        flow.give_back("near")
        within(120, lambda: flow.batches("near") == 3)
        child.terminate()
        assert child.wait(120) == 0
    assert [member for member, _ in flow.chosen()] == ["near"] * 3
    flow.check("near/kept", "far/kept")


@pytest.mark.timeout(400)
def test_without_a_healthy_member_a_run_says_so_and_loses_nothing(flow: Flow, spark: Any) -> None:
    flow.add(1)
    flow.run(spark, once=True)
    flow.take_away("near")
    flow.take_away("far")
    flow.add(2)
    result = flow.run(spark, once=True)
    assert result.state == "failed"
    (problem,) = result.problems
    assert problem.code == "group-down"
    assert problem.place.line == 5
    for name in ("near", "far"):
        assert f"{name} (retried in " in problem.message
    assert "owner.json cannot be read: Not a directory" in problem.message
    assert "nothing is lost" in (problem.remedy or "")
    flow.give_back("far")
    assert flow.run(spark, once=True).state == "finished"
    flow.give_back("near")
    assert (flow.batches("near"), flow.batches("far")) == (1, 2)
    flow.check("near/kept", "far/kept")


@pytest.mark.timeout(400)
def test_an_edge_to_a_group_is_read_at_every_member(cut: Flow, spark: Any) -> None:
    cut.add(4)
    assert cut.run(spark, once=True).state == "finished"
    shares = [len(list((cut.folder / name).rglob("*.packs"))) for name in ("m1", "m2")]
    assert shares == [2, 2]
    standing = read_standing(prepare(cut.folder / "flow.yaml", state=None))
    (edge,) = standing["edges"]
    assert [(member["member"], member["batches"]) for member in edge["members"]] == [("m1", 2), ("m2", 2)]
    assert sorted(member["last_batch"] for member in edge["members"]) == [2, 3]
    assert [query["lag"] for tier in standing["tiers"] for query in tier["queries"]] == [None, {"rows": 0, "bytes": 0, "seconds": None}]
    said = CliRunner().invoke(status, [str(cut.folder / "flow.yaml")]).output
    assert re.search(r"m1 2, m2 2, the last to m[12]", said), said
    assert cut.acknowledged()
    cut.check("out")


@pytest.mark.timeout(400)
def test_the_files_of_a_channel_go_at_every_member_once_their_retention_is_over(tmp_path: Path, spark: Any) -> None:
    cut = Flow(tmp_path, EDGE.replace("to: wan}", "to: wan, retention: 1s}"), ("m1", "m2")).write().add(4)
    cut.run(spark, once=True)
    give_up_s = time.monotonic() + 60.0
    while any(list((cut.folder / name).rglob("*.packs")) for name in ("m1", "m2")):
        assert time.monotonic() < give_up_s
        cut.run(spark, once=True)
    cut.check("out")


@pytest.mark.long
@pytest.mark.timeout(400)
def test_what_waits_at_a_member_that_is_away_is_read_when_it_is_back_and_the_others_go_on(cut: Flow, spark: Any) -> None:
    cut.add(2)
    cut.run(spark, once=True)
    cut.add(2)
    cut.run(spark, once=True, tier="first")
    cut.take_away("m2")
    notices: list[str] = []
    result = cut.run(spark, lambda view: notices.extend(view.notices), once=True, tier="second")
    assert result.state == "failed", "not all that was there could be read"
    assert [problem.code for problem in result.problems] == ["group-waits"]
    assert any("member m2 is unavailable; its backlog is read when it is available again" in note for note in notices)
    assert len(list(read_output(cut.folder / "out", "json"))) == 30, "what waits at the other member was read"
    assert not cut.acknowledged()
    cut.give_back("m2")
    cut.run(spark, once=True)
    assert cut.acknowledged()
    cut.check("out")


@pytest.mark.timeout(400)
def test_a_sink_that_leaves_its_group_is_refused_with_what_to_do_and_goes_on_when_it_is_back(flow: Flow, spark: Any) -> None:
    flow.add(2)
    assert flow.run(spark, once=True).state == "finished"
    (flow.folder / "flow.yaml").write_text(SINK.replace(", to: wan", ""))
    flow.add(1)
    with pytest.raises(Refused) as refused:
        flow.run(spark, once=True)
    assert refused.value.code == "group-changed"
    assert 'sink "kept": batch 1 was decided for member "near" of a group' in refused.value.message
    assert "restore `to` of the sink" in (refused.value.remedy or "")
    assert not list((flow.folder / "kept").glob("part-*"))
    (flow.folder / "flow.yaml").write_text(SINK)
    assert flow.run(spark, once=True).state == "finished"
    flow.check("near/kept")
