"""Real processes of agents: kills, restarts, stops, and changes while they run."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from scribengin.agent.process import main
from scribengin.wire.protocol import AgentConfig
from tests.agent import own_input
from tests.agent.edge_gateway import LANE, Cut, EdgeGateway, expected, lines, log_of, one_lane, running_agent, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
own_input.install()


@contextmanager
def agent_process(data: Path, *urls: str, flags: tuple[str, ...] = (), environment: dict[str, str] | None = None) -> Iterator[Any]:
    gateways = [part for url in urls for part in ("--gateway", url)]
    command = [sys.executable, str(Path(own_input.__file__)), "--name", "a1", "--data", str(data), *gateways, *flags]
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]), **(environment or {})}
    process = subprocess.Popen(command, env=variables, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("durability", ["end_to_end", "store_on_failure", "best_effort"])
def test_kills_at_any_time_lose_nothing_and_double_nothing_of_one_incarnation(tmp_path: Path, durability: str) -> None:
    """In `end_to_end` there is one incarnation, so the count is exact. The others read again from what is stored: doubles, no loss."""
    chosen, count, written = random.Random(32), 60_000, 0
    file, data = tmp_path / "in.log", tmp_path / "a"
    file.write_bytes(b"")
    stop_writing = threading.Event()

    def write() -> None:
        nonlocal written
        with file.open("ab") as out:
            while written < count:
                out.write(lines(written, 500))
                out.flush()
                written += 500
                stop_writing.wait(0.02)

    def script(gateway: EdgeGateway, number: int) -> Any:
        match chosen.randrange(12):
            case 0:
                raise Cut
            case 1:
                return ("store", Cut(b"HTTP/1.1 2"))
            case 2:
                return 503, {"Retry-After": "0.05"}, b""
        gateway.commit = bool(number % 3)  # some requests are stored and not yet committed
        return None

    writer = threading.Thread(target=write)
    with EdgeGateway(one_lane(file, block=8192, durability=durability, spill_bytes=4 * 2**20)) as gateway:
        gateway.script = script
        writer.start()
        try:
            for _ in range(8):
                with agent_process(data, gateway.url, flags=("--level", "error")) as process:
                    time.sleep(chosen.uniform(0.2, 0.9))
                    process.send_signal(signal.SIGKILL)
                    process.wait()
            with agent_process(data, gateway.url, flags=("--level", "error")):
                wait_for(lambda: len(set(gateway.all_records())) == count, "all records")
        finally:
            stop_writing.set()
            writer.join()
        assert gateway.different == []
        assert gateway.lost == 0
        if durability == "end_to_end":
            assert len(gateway.records) == 1
            assert gateway.all_records() == expected(count)
        else:
            assert set(gateway.all_records()) == set(expected(count))


def test_a_stop_makes_durable_and_hands_over_what_was_read(tmp_path: Path) -> None:
    file = tmp_path / "in.log"
    file.write_bytes(lines(0, 100))
    # with a linger of a minute, only the stop can be why the records come
    with EdgeGateway(one_lane(file, linger_s=60.0)) as gateway, agent_process(tmp_path / "a", gateway.url) as process:
        wait_for(lambda: any(LANE in report.lanes and report.lanes[LANE].files for report in gateway.reports), "a report")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert gateway.all_records() == expected(100)
        assert gateway.reports[-1].lanes[LANE].stored == 100


def test_a_stop_without_a_gateway_ends_in_time_and_keeps_all(tmp_path: Path) -> None:
    file, data = tmp_path / "in.log", tmp_path / "a"
    file.write_bytes(lines(0, 100))
    with EdgeGateway(one_lane(file)) as gateway:
        gateway.script = lambda _, number: (503, {}, b"")
        with agent_process(data, gateway.url, flags=("--stop-timeout", "0.5")) as process:
            wait_for(lambda: gateway.requests, "a request")
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        gateway.script = lambda _, number: None
        file.unlink()  # what was read is in the log
        with agent_process(data, gateway.url):
            wait_for(lambda: len(gateway.all_records()) == 100, "the records")
    assert gateway.all_records() == expected(100)


def test_an_agent_reads_on_with_the_last_configuration_while_no_gateway_answers(tmp_path: Path) -> None:
    file, data = tmp_path / "in.log", tmp_path / "a"
    file.write_bytes(lines(0, 100))
    with EdgeGateway(one_lane(file)) as gateway:
        with agent_process(data, gateway.url):
            wait_for(lambda: len(gateway.all_records()) == 100, "the records")
        config = gateway.config
        incarnation = next(iter(gateway.records))[1]
    with file.open("ab") as more:
        more.write(lines(100, 50))
    with agent_process(data, gateway.url) as process:
        wait_for(lambda: _read_in_status(data) == 150, "reading")
        process.send_signal(signal.SIGKILL)
        process.wait()
    with EdgeGateway(config) as other, agent_process(data, other.url):
        wait_for(lambda: len(other.records) and len(other.all_records()) >= 50, "the rest")
        assert {key[1] for key in other.records} == {incarnation}


def _read_in_status(data: Path) -> int:
    try:
        status = json.loads((data / "status.json").read_bytes())
        return int(status["report"]["lanes"][LANE].get("read", 0))
    except (FileNotFoundError, KeyError):
        return 0


def test_two_agents_on_one_folder_are_refused(tmp_path: Path) -> None:
    with EdgeGateway() as gateway, agent_process(tmp_path / "a", gateway.url):
        wait_for(lambda: gateway.reports, "a report")
        with agent_process(tmp_path / "a", gateway.url) as second:
            _, text = second.communicate(timeout=60)
        assert second.returncode == 2
        assert f"another agent uses the folder {tmp_path / 'a'}" in text
        assert "--data" in text


def test_a_token_is_never_logged_nor_shown_in_the_status(tmp_path: Path) -> None:
    with EdgeGateway() as gateway:
        gateway.token = "an-other"
        environment = {"SCRIBENGIN_AGENT_TOKEN": "s3cr3t-of-mine"}
        with agent_process(tmp_path / "a", gateway.url, flags=("--level", "debug"), environment=environment) as process:
            wait_for(lambda: _has_status(tmp_path / "a", "scribengin token add"), "the status")
            process.send_signal(signal.SIGTERM)
            _, text = process.communicate(timeout=60)
        assert "s3cr3t" not in text
        assert "not, or no longer, valid" in text
        for path in (tmp_path / "a").rglob("*"):
            assert path.is_dir() or b"s3cr3t" not in path.read_bytes()


def _has_status(data: Path, part: str) -> bool:
    path = data / "status.json"
    return path.exists() and part in path.read_text()


def test_the_status_is_a_table_for_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, data = tmp_path / "in.log", tmp_path / "a"
    file.write_bytes(lines(0, 1234))
    with EdgeGateway(one_lane(file)) as gateway, agent_process(data, gateway.url, flags=("--group", "web")):
        wait_for(lambda: _read_in_status(data) == 1234, "the status")
        assert main(["status", "--data", str(data)]) == 0
        text = capsys.readouterr().out
        assert "agent a1, group web: running" in text
        assert [line.split()[:3] for line in text.splitlines() if line.startswith(LANE)] == [[LANE, "running", "1,234"]]
        assert main(["status", "--data", str(data), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["running"] is True
    assert main(["status", "--data", str(data)]) == 0
    assert "stopped" in capsys.readouterr().out
    assert main(["status", "--data", str(tmp_path)]) == 3
    assert "no agent has run" in capsys.readouterr().err


def test_lanes_come_change_and_go_while_the_agent_runs(tmp_path: Path) -> None:
    file, other = tmp_path / "in.log", tmp_path / "other.log"
    file.write_bytes(lines(0, 100))
    other.write_bytes(lines(0, 70))
    with EdgeGateway(one_lane(file)) as gateway, running_agent(tmp_path / "a", gateway.url) as agent:
        wait_for(lambda: len(gateway.all_records()) == 100, "the first lane")
        lane = gateway.config.lanes[LANE]
        second = msgspec.structs.replace(lane, source="other", options={"path": str(other)})
        gateway.config = AgentConfig("r2", {LANE: lane, "web.other": second}, [], 0.2)
        wait_for(lambda: len(gateway.all_records()) == 170, "the second lane")
        assert len(gateway.records) == 2

        gateway.config = AgentConfig("r3", {LANE: msgspec.structs.replace(lane, version=7, paused=True), "web.other": second}, [], 0.2)
        wait_for(lambda: agent.lanes[LANE].report().state == "paused", "the pause")
        with file.open("ab") as more:
            more.write(lines(100, 100))
        reports = len(gateway.reports)
        wait_for(lambda: len(gateway.reports) > reports + 2, "reports")
        assert len(gateway.all_records()) == 170
        assert gateway.reports[-1].lanes[LANE].version == 7
        assert gateway.reports[-1].revision == "r3"

        faster = msgspec.structs.replace(lane, version=8, compression="gzip", tags={"site": "b"})
        gateway.config = AgentConfig("r4", {LANE: faster, "web.other": second}, [], 0.2)
        wait_for(lambda: len(gateway.all_records()) == 270, "the rest")
        assert (gateway.heads[-1].codec, gateway.heads[-1].origin.tags) == ("gzip", {"site": "b"})
        assert len(gateway.records) == 2  # the log is the same one

        gateway.commit = False
        with file.open("ab") as more:
            more.write(lines(200, 30))
        wait_for(lambda: len(gateway.all_records()) == 300, "records without commits")
        gateway.config = AgentConfig("r5", {"web.other": second}, [], 0.2)
        wait_for(lambda: LANE in agent.leaving, "leaving")
        with file.open("ab") as more:
            more.write(lines(230, 30))
        reports = len(gateway.reports)
        wait_for(lambda: len(gateway.reports) > reports + 3, "reports")
        assert LANE in agent.leaving  # until its records are committed
        with gateway.lock:
            gateway.committed.update(gateway.stored)
        wait_for(lambda: LANE not in agent.leaving, "the end")
        assert len(gateway.all_records()) == 300  # and nothing was read since


def test_a_lane_that_left_is_still_sent_by_the_next_run(tmp_path: Path) -> None:
    file, data = tmp_path / "in.log", tmp_path / "a"
    file.write_bytes(lines(0, 100))
    with EdgeGateway(one_lane(file)) as gateway:
        gateway.script = lambda _, number: (503, {}, b"")
        with running_agent(data, gateway.url, stop_s=0.1) as agent:
            wait_for(lambda: LANE in agent.lanes and agent.lanes[LANE].report().read == 100, "reading")
        gateway.config = AgentConfig("r2", report_s=0.2)
        gateway.script = lambda _, number: None
        with running_agent(data, gateway.url) as agent:
            wait_for(lambda: len(gateway.all_records()) == 100, "the records")
            wait_for(lambda: not agent.leaving, "commits")


def test_limits_change_while_a_lane_runs(tmp_path: Path) -> None:
    file = tmp_path / "in.log"
    file.write_bytes(lines(0, 50_000))
    with EdgeGateway(one_lane(file, block=2048, limit_rows=50.0)) as gateway, running_agent(tmp_path / "a", gateway.url) as agent:
        wait_for(gateway.all_records, "first records")
        sender = agent.lanes[LANE].sender
        assert len(gateway.all_records()) < 10_000
        lane = gateway.config.lanes[LANE]
        gateway.config = AgentConfig("r2", {LANE: msgspec.structs.replace(lane, limit_rows=0.0)}, [], 0.2)
        wait_for(lambda: len(gateway.all_records()) == 50_000, "all records")  # with the old limit: a quarter of an hour
        assert agent.lanes[LANE].sender is sender  # nothing was opened anew


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (b"{", "its configuration is not valid"),
        (b'{"lanes": {"a.b": {"flow": "a"}}}', "its configuration is not valid"),
        (b"<html>", "its configuration is not valid"),
    ],
)
def test_a_configuration_that_is_not_valid_leaves_the_last_one_in_use(tmp_path: Path, config: bytes, words: str) -> None:
    file = tmp_path / "in.log"
    file.write_bytes(lines(0, 100))
    with EdgeGateway(one_lane(file)) as gateway, running_agent(tmp_path / "a", gateway.url) as agent:
        wait_for(lambda: len(gateway.all_records()) == 100, "the records")
        gateway.raw_config = config
        gateway.report_script = lambda: (200, {}, b'{"revision": "r2"}')
        wait_for(lambda: log_of(agent).has(words), "the message")
        with file.open("ab") as more:
            more.write(lines(100, 10))
        wait_for(lambda: len(gateway.all_records()) == 110, "more records")


def test_a_lane_whose_name_leads_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    lane = one_lane(tmp_path / "in.log").lanes[LANE]
    bad = {"../../x": msgspec.structs.replace(lane, flow="../../x", source=""), "a.b": lane, "..": lane, "": lane}
    with EdgeGateway(AgentConfig("r", bad)) as gateway, running_agent(tmp_path / "data" / "a", gateway.url) as agent:
        wait_for(lambda: sum("expected FLOW.SOURCE" in text for _, text in log_of(agent).lines) == 4, "the messages")
        assert not agent.lanes
    assert {path.name for path in tmp_path.iterdir()} == {"data"}


def test_an_input_that_this_release_does_not_have_is_reported_and_others_run(tmp_path: Path) -> None:
    file = tmp_path / "in.log"
    file.write_bytes(lines(0, 10))
    config = one_lane(file)
    lane = msgspec.structs.replace(config.lanes[LANE], source="new", input="telepathy")
    both = AgentConfig("r", {**config.lanes, "web.new": lane}, [], 0.2)
    with EdgeGateway(both) as gateway, running_agent(tmp_path / "a", gateway.url) as agent:
        wait_for(lambda: len(gateway.all_records()) == 10, "the other lane")
        wait_for(lambda: any("web.new" in each.lanes and each.lanes["web.new"].state == "failed" for each in gateway.reports))
        assert "has no input 'telepathy'; update the agent" in agent.lanes["web.new"].report().message
