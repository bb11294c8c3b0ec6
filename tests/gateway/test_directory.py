from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from scribengin.core.errors import EnvironmentFault, InputError
from scribengin.gateway.directory import AgentTokens, FileDirectory, agent_rows, lanes_of_flow
from scribengin.wire.protocol import AgentReport, GatewayMember, LaneReport
from tests.gateway.gateways import LANE, lane_of
from tests.looking import look_until

if TYPE_CHECKING:
    from pathlib import Path

FLOW = """\
version: 1
name: web
sources:
  access: {{type: agents, input: tail, path: /var/log/x.log, format: json, schema: "message STRING", linger: {linger}}}
sinks:
  out: {{type: files, path: out, format: json, from: access}}
tiers:
  edge: {{agents: web, gateways: dmz}}
"""


def write_flow(folder: Path, linger: str = "200ms") -> Path:
    path = folder / "flow.yaml"
    path.write_text(FLOW.format(linger=linger))
    return path


def changed(path: Path) -> None:
    """Files are told apart by time and size: two writes may fall into one tick."""
    found = path.stat()
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns + 1_000_000_000))


def test_the_lanes_are_those_of_the_flow(tmp_path: Path) -> None:
    directory = FileDirectory([write_flow(tmp_path)], tmp_path / "own", members=[GatewayMember("http://g1")])
    (lane,) = directory.lanes().values()
    assert (lane.name, lane.group, lane.gateways, lane.config.input) == ("web.access", "web", "dmz", "tail")
    assert lane.channel["kind"] == "folder"
    config = directory.config("web1", "web")
    assert config.lanes == {"web.access": lane.config}
    assert [member.url for member in config.gateways] == ["http://g1"]


def test_the_size_of_a_pack_comes_from_the_flow(tmp_path: Path) -> None:
    flow = write_flow(tmp_path, "1s, pack: {rows: 500, bytes: 64KiB}")
    (lane,) = FileDirectory([flow], tmp_path / "own").lanes().values()
    assert (lane.config.frame_rows, lane.config.frame_bytes, lane.config.linger_s) == (500, 65_536, 1.0)
    write_flow(tmp_path, "1s, pack: {rows: 500}")
    (lane,) = FileDirectory([flow], tmp_path / "own").lanes().values()
    assert (lane.config.frame_rows, lane.config.frame_bytes) == (500, 2**20)


def test_a_gateway_of_another_group_does_not_serve_the_lane(tmp_path: Path) -> None:
    flow = write_flow(tmp_path)
    assert not FileDirectory([flow], tmp_path / "own", gateways="inner").lanes()
    assert FileDirectory([flow], tmp_path / "own", gateways="dmz").lanes()


def test_an_agent_of_another_group_is_told_the_groups(tmp_path: Path) -> None:
    config = FileDirectory([write_flow(tmp_path)], tmp_path / "own").config("db1", "db")
    assert not config.lanes
    assert config.message == 'no flow here collects from agents of the group "db"; groups: "web"'


def test_the_revision_changes_with_the_flow_and_with_nothing_else(tmp_path: Path) -> None:
    flow = write_flow(tmp_path)
    directory = FileDirectory([flow], tmp_path / "own")
    first = directory.config("web1", "web").revision
    assert FileDirectory([flow], tmp_path / "other").config("web1", "web").revision == first
    write_flow(tmp_path, "300ms")
    changed(flow)
    look_until(lambda: directory.config("web1", "web").revision != first, "the flow is read again", 60)
    assert directory.config("web1", "web").lanes[LANE].linger_s == 0.3


def test_a_flow_that_is_no_longer_valid_stays_in_force(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flow = write_flow(tmp_path)
    directory = FileDirectory([flow], tmp_path / "own")
    before = directory.config("web1", "web")
    flow.write_text("nothing: 1")
    printed = ""

    def seen() -> bool:
        nonlocal printed
        directory.lanes()
        printed += capsys.readouterr().out
        return "its last valid content stays in force" in printed

    look_until(seen, "the change is logged", 60)
    assert directory.config("web1", "web") == before
    write_flow(tmp_path, "500ms")
    look_until(lambda: directory.config("web1", "web").lanes[LANE].linger_s == 0.5, "the next valid flow is read", 60)


def test_a_flow_that_is_not_valid_at_the_start_is_refused(tmp_path: Path) -> None:
    flow = tmp_path / "flow.yaml"
    flow.write_text("nothing: 1")
    with pytest.raises(InputError, match="nothing"):
        lanes_of_flow(flow)


def test_a_token_that_is_taken_off_the_file_is_not_valid_any_more(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("web1: one\nweb2: two\n")
    directory = FileDirectory([], tmp_path / "own", tokens=tokens)
    assert directory.allows("one", "web1")
    assert not directory.allows("one", "web2")
    assert not directory.allows("", "web1")
    tokens.write_text("web2: two\n")
    look_until(lambda: not directory.allows("one", "web1"), "the file is read again", 60)
    assert directory.allows("two", "web2")
    tokens.unlink()
    assert directory.allows("two", "web2")


@pytest.mark.parametrize(
    ("text", "line"), [("web1", 1), ("ok: x\n: y", 2), ("web1: a b", 1), ("web1: a admin c", 1), ("web1: sha256:12", 1)]
)
def test_a_file_of_tokens_that_is_not_valid_is_refused_with_its_line_but_without_tokens(text: str, line: int) -> None:
    with pytest.raises(EnvironmentFault) as caught:
        AgentTokens.of_text(text, "/etc/tokens")
    assert caught.value.message.startswith(f"/etc/tokens, line {line}: ")
    assert "sha256:12" not in caught.value.message


def test_tokens_may_be_kept_as_their_sum() -> None:
    digest = "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"
    tokens = AgentTokens.of_text(f"# comment\n\nweb1: sha256:{digest.upper()} admin\n", "t")
    assert tokens.allows("foo", "web1")
    assert not tokens.allows(digest, "web1")
    holder = tokens.holder("foo")
    assert holder is not None
    assert holder.admin


def report_of(agent: str, **lane: int) -> AgentReport:
    return AgentReport(agent, host=f"{agent}.local", group="web", release="1", lanes={LANE: LaneReport(**lane)})


def test_reports_are_there_after_a_restart(tmp_path: Path) -> None:
    directory = FileDirectory([], tmp_path)
    directory.report(report_of("web1", read=7))
    directory.report(report_of("web2", read=8))
    directory.report(report_of("web1", read=9))
    directory.close()
    kept = FileDirectory([], tmp_path).agents()
    assert {each.report.agent: each.report.lanes[LANE].read for each in kept} == {"web1": 9, "web2": 8}


def test_reports_that_cannot_be_read_or_written_do_not_stop_the_gateway(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "agents.json").write_text("{")
    directory = FileDirectory([], tmp_path)
    assert "the list of agents starts empty" in capsys.readouterr().out
    (tmp_path / "agents.json").unlink()
    tmp_path.rmdir()
    tmp_path.write_text("a file where the folder was")
    directory.report(report_of("web1"))
    assert "kept in memory only" in capsys.readouterr().out
    assert len(directory.agents()) == 1


def test_the_list_of_agents_has_ages_and_backlogs(tmp_path: Path) -> None:
    directory = FileDirectory([], tmp_path, read_lanes=lambda _: {LANE: lane_of()})
    directory.report(report_of("web2", read=10, stored=9, committed=4, waiting_bytes=100, oldest_ms=5_000))
    directory.report(report_of("web1", read=3, committed=3))
    kept = directory.agents()
    rows = agent_rows(kept, kept[0].received_s + 65)
    assert [row.agent for row in rows] == ["web1", "web2"]
    assert (rows[1].lanes[LANE].backlog, rows[1].lanes[LANE].waiting_bytes) == (6, 100)
    assert rows[0].lanes[LANE].oldest_age_s is None
    assert rows[1].report_age_s == 65
    assert agent_rows(kept, 65)[1].lanes[LANE].oldest_age_s == 60
