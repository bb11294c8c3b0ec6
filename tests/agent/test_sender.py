"""An agent beside gateways that answer as they should not, and as they must."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from scribengin.wire.protocol import AgentConfig, GatewayMember
from tests.agent import own_input
from tests.agent.edge_gateway import LANE, Cut, EdgeGateway, expected, lines, log_of, one_lane, running_agent, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from scribengin.agent.process import EdgeAgent

own_input.install()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "in.log"
    path.write_bytes(lines(0, 500))
    return path


def all_there(gateway: EdgeGateway, count: int = 500) -> None:
    wait_for(lambda: len(gateway.all_records()) >= count, f"{count} records")
    assert gateway.all_records() == expected(count)
    assert gateway.different == []


def committed(agent: EdgeAgent, count: int = 500) -> None:
    wait_for(lambda: LANE in agent.lanes and agent.lanes[LANE].report().committed == count, "commits")


def only_first(*answers: Any) -> Callable[[EdgeGateway, int], Any]:
    """A script that gives these answers to the first requests, in order."""

    def script(_: EdgeGateway, number: int) -> Any:
        answer = answers[number] if number < len(answers) else None
        if isinstance(answer, Cut):
            raise answer
        return answer

    return script


def test_records_arrive_and_the_log_is_freed_by_commits(tmp_path: Path, file: Path) -> None:
    with EdgeGateway(one_lane(file, block=2048)) as gateway, running_agent(tmp_path / "a", gateway.url) as agent:
        all_there(gateway)
        committed(agent)
        report = agent.lanes[LANE].report()
        assert (report.read, report.stored, report.waiting_bytes, report.oldest_ms) == (500, 500, 0, 0)
        (head,) = {(lane, headers["Scribengin-Agent"], headers["Content-Type"]) for lane, headers in gateway.requests}
        assert head == (LANE, "a1", "application/x-scribengin-frames")


def test_what_is_stored_and_not_committed_stays_in_the_log(tmp_path: Path, file: Path) -> None:
    with EdgeGateway(one_lane(file)) as gateway:
        gateway.commit = False
        with running_agent(tmp_path / "a", gateway.url) as agent:
            all_there(gateway)
            wait_for(lambda: agent.lanes[LANE].report().stored == 500)
            report = agent.lanes[LANE].report()
            assert (report.committed, report.waiting_bytes > 0, report.oldest_ms > 0) == (0, True, True)
            with gateway.lock:
                gateway.committed.update(gateway.stored)
            committed(agent)  # by the answer to a report: there are no more frames to be answered


@pytest.mark.parametrize(
    "answer",
    [
        (500, {}, b""),
        (503, {"Retry-After": "0.1"}, b""),
        (429, {"Retry-After": "0.1"}, {"message": "full"}),
        (404, {}, {"message": "no such lane"}),
        (302, {"Location": "https://elsewhere"}, b""),
        (200, {}, b"<html>log in</html>"),
        (200, {}, b'{"stored": 123456789}'),
        (200, {}, b'{"stored": 500, "committed": 999999}'),
        (200, {}, b"x" * 200_000),
        (409, {}, b'{"stored": 99999}'),
        (409, {}, b'{"stored": 0}'),
        Cut(),
        Cut(b"HT"),
        Cut(b"HTTP/1.1 200 OK\r\nContent-"),
        Cut(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{"),
        Cut(b"\x16\x03\x01\x00\x00 what is this\r\n\r\n"),
        ("store", 500, {}, b""),
        ("store", Cut()),
        ("store", Cut(b'HTTP/1.1 200 OK\r\nContent-Length: 28\r\n\r\n{"stored":500,"comm')),
        ("store", 200, {}, b"garbage"),
    ],
    ids=str,
)
def test_no_answer_of_a_gateway_loses_or_changes_a_record(tmp_path: Path, file: Path, answer: Any) -> None:
    with EdgeGateway(one_lane(file)) as gateway:
        gateway.script = only_first(answer)
        with running_agent(tmp_path / "a", gateway.url) as agent:
            all_there(gateway)
            committed(agent)
            assert len(gateway.records) == 1
            wait_for(lambda: agent.lanes[LANE].report().message == "")  # what was wrong is over


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((200, {}, b"<html>"), "not a valid answer of a gateway"),
        ((200, {}, b'{"stored": 123456789}'), "no record from 500 on was ever sent"),
        ((409, {}, b'{"stored": 0}'), "asks for those from 0 on"),
        ((413, {}, b""), "lower `frame_bytes`"),
        ((404, {}, b""), "no flow there has this lane"),
        ((403, {}, b""), "scribengin token add"),
        (Cut(), "closed the connection without an answer"),
        (Cut(b"nonsense\r\n\r\n"), "not valid HTTP"),
    ],
    ids=str,
)
def test_a_gateway_that_goes_on_so_is_reported_and_another_one_used(tmp_path: Path, file: Path, answer: Any, words: str) -> None:
    with EdgeGateway() as bad, EdgeGateway() as good:
        config = one_lane(file, gateways=[GatewayMember(bad.url, 1.0), GatewayMember(good.url, 2.0)])
        bad.config = good.config = config
        bad.script = only_first(*[answer] * 10_000)
        with running_agent(tmp_path / "a", bad.url) as agent:
            all_there(good)
            committed(agent)
            (text,) = {text for level, text in log_of(agent).lines if level == "warning" and words in text} or {""}
            assert bad.url in text, log_of(agent).lines
            assert bad.all_records() == []


def test_a_body_that_is_too_large_for_a_proxy_is_sent_in_smaller_ones(tmp_path: Path) -> None:
    file = tmp_path / "in.log"
    file.write_bytes(lines(0, 20_000))

    def script(_: EdgeGateway, number: int) -> Any:
        size = int(gateway.requests[number][1]["Content-Length"])
        return (413, {}, b"") if size > 40_000 else None

    with EdgeGateway(one_lane(file, block=30_000, compression="none")) as gateway:
        gateway.script = script
        with running_agent(tmp_path / "a", gateway.url):
            all_there(gateway, 20_000)


def test_a_full_channel_is_waited_for_as_long_as_the_gateway_says(tmp_path: Path, file: Path) -> None:
    with EdgeGateway(one_lane(file)) as gateway:
        gateway.script = only_first(*[(429, {"Retry-After": "0.2"}, b"")] * 3)
        with running_agent(tmp_path / "a", gateway.url) as agent:
            wait_for(lambda: agent.lanes and agent.lanes[LANE].report().state == "waiting", "waiting")
            all_there(gateway)
            wait_for(lambda: agent.lanes[LANE].report().state == "running", "running")


def test_a_token_that_is_removed_while_connected_keeps_everything_until_there_is_another(tmp_path: Path, file: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    with EdgeGateway(one_lane(file)) as gateway:
        gateway.token = "first"
        with running_agent(tmp_path / "a", gateway.url, token_file=token) as agent:
            all_there(gateway)
            gateway.token = "second"
            with file.open("ab") as more:
                more.write(lines(500, 100))
            wait_for(lambda: log_of(agent).has("scribengin token add"), "the message")
            wait_for(lambda: agent.lanes[LANE].report().read == 600)
            assert len(gateway.all_records()) == 500
            assert "second" not in str(log_of(agent).lines)
            assert "first" not in re.sub("first use", "", str(log_of(agent).lines))
            token.write_text("second\n")
            all_there(gateway, 600)


def test_a_gateway_that_knows_of_less_gets_the_rest_again(tmp_path: Path, file: Path) -> None:
    """Fail-over to a gateway that never met this agent; nothing is committed yet."""
    with EdgeGateway() as first, EdgeGateway() as second:
        config = one_lane(file, block=2048, gateways=[GatewayMember(first.url, 1.0), GatewayMember(second.url, 2.0)])
        first.config = second.config = config
        first.commit = second.commit = False
        with running_agent(tmp_path / "a", first.url):
            all_there(first)
            first.script = only_first(*[(503, {}, b"")] * 10_000)
            with file.open("ab") as more:
                more.write(lines(500, 100))
            all_there(second, 600)


def test_a_gateway_that_lost_committed_records_is_not_given_invented_ones(tmp_path: Path, file: Path) -> None:
    with EdgeGateway() as first, EdgeGateway() as second:
        config = one_lane(file, gateways=[GatewayMember(first.url, 1.0), GatewayMember(second.url, 2.0)])
        first.config = second.config = config
        with running_agent(tmp_path / "a", first.url) as agent:
            committed(agent)
            first.script = only_first(*[(503, {}, b"")] * 10_000)
            with file.open("ab") as more:
                more.write(lines(500, 100))
            wait_for(lambda: log_of(agent).has("of which those before 500 are committed and no longer kept"), "the message")
            assert second.all_records() == []
            assert {headers["Scribengin-Committed"] for _, headers in second.requests} == {"500"}
            with second.lock:  # as a gateway does that trusts the header
                second.stored.update(first.stored)
            wait_for(lambda: len(second.all_records()) == 100, "the rest")


def test_a_commit_never_goes_backwards(tmp_path: Path, file: Path) -> None:
    with EdgeGateway(one_lane(file)) as gateway, running_agent(tmp_path / "a", gateway.url) as agent:
        committed(agent)
        with gateway.lock:
            for key in gateway.committed:
                gateway.committed[key] = 7
        reports = len(gateway.reports)
        wait_for(lambda: len(gateway.reports) > reports + 3, "reports")
        assert agent.lanes[LANE].report().committed == 500


def test_a_report_with_numbers_that_cannot_be_is_not_believed(tmp_path: Path, file: Path) -> None:
    with EdgeGateway(one_lane(file)) as gateway:
        gateway.commit = False
        answer = (
            200,
            {},
            b'{"revision": "r1", "lanes": {"web.access": {"stored": 5, "committed": 123456}, "else.where": {"committed": -1}}}',
        )
        gateway.report_script = lambda: answer
        with running_agent(tmp_path / "a", gateway.url) as agent:
            all_there(gateway)
            wait_for(lambda: log_of(agent).has("reports records up to 123,456"), "the message")
            assert agent.lanes[LANE].report().committed == 0


def test_the_cheapest_gateway_is_used_again_when_it_is_back(tmp_path: Path, file: Path) -> None:
    with EdgeGateway() as cheap, EdgeGateway() as dear:
        cheap.config = dear.config = one_lane(file, gateways=[GatewayMember(dear.url, 9.0), GatewayMember(cheap.url, 1.0)])
        cheap.stored, cheap.committed = dear.stored, dear.committed  # they write to one channel
        cheap.script = only_first((503, {}, b""), (500, {}, b""))
        with running_agent(tmp_path / "a", dear.url) as agent:
            all_there(dear)
            count = 500
            while not cheap.all_records():
                with file.open("ab") as more:
                    more.write(lines(count, 1))
                count += 1
                wait_for(lambda count=count: len(dear.all_records()) + len(cheap.all_records()) >= count)
            wait_for(lambda: log_of(agent).has(f"sends to {cheap.url}"))  # the gateway has the records before the agent has its answer


def test_an_agent_without_lanes_logs_why(tmp_path: Path) -> None:
    config = AgentConfig("r", message="no flow names the group web")
    with EdgeGateway(config) as gateway, running_agent(tmp_path / "a", gateway.url) as agent:
        wait_for(lambda: log_of(agent).has("no flow names the group web"))
