"""Flows that send by HTTP, in processes of their own that are killed, and what a server that honours keys comes to have."""

from __future__ import annotations

import json
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.connectors.kafka.processes import SCRIBENGIN, scribengin, started, within
from tests.connectors.plain.web_server import Answer, Came, WebServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FLOW = """
version: 1
name: shop
sources: {orders: {type: files, path: data, format: json, schema: "id BIGINT NOT NULL, name STRING", max_files: 1}}
steps: {some: {from: orders, filter: id % 10 > 0}}
sinks: {sent: {from: some, type: http, url: "URL", body: array, rows: 50, headers: {X-Token: "${secret:env/TOKEN}"}, DELIVERY}}
"""


@pytest.fixture
def server() -> Iterator[WebServer]:
    with WebServer() as started:
        yield started


def shop(folder: Path, server: WebServer, delivery: str = "delivery: at_least_once") -> None:
    (folder / "flow.yaml").write_text(FLOW.replace("URL", f"{server.url}/orders").replace("DELIVERY", delivery))
    (folder / "data").mkdir()


def data(folder: Path, name: str, first: int, rows: int) -> None:
    lines = [json.dumps({"id": id_, "name": f"n{id_}"}) + "\n" for id_ in range(first, first + rows)]
    (folder / "data" / name).write_text("".join(lines))


def run(folder: Path, fault: str = "") -> Any:
    return scribengin(folder, "run", "flow.yaml", "--once", SCRIBENGIN_FAULT=fault, TOKEN="hunter2")


def poisoned(came: Came) -> Answer:
    """A server that does not take number 77 and 1777."""
    return Answer(422, text="not this one") if {77, 1777} & {row["id"] for row in came.rows} else Answer()


SENT = [id_ for id_ in range(3000) if id_ % 10 > 0 and id_ not in (77, 1777)]


FAULTS = ("offer.sent@5:kill", "settle.before:kill", "publish.record.before@2:kill")


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("faults", [FAULTS[::2], FAULTS], ids=len)
def test_a_flow_that_is_killed_again_and_again_loses_nothing_and_its_keys_tell_what_came_twice(
    tmp_path: Path, server: WebServer, faults: tuple[str, ...]
) -> None:
    shop(tmp_path, server)
    for batch in range(3):
        data(tmp_path, f"{batch}.jsonl", batch * 1000, 1000)
    server.answers = poisoned
    for fault in faults:
        assert run(tmp_path, fault).returncode == -signal.SIGKILL, fault
    ended = run(tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert server.ids_once() == dict.fromkeys(SENT, 1)
    twice = sum(server.ids().values()) - len(SENT)
    assert 0 <= twice <= 3 * 4 * 50, "of each life what was under way at most"
    audited = scribengin(tmp_path, "audit", "flow.yaml", TOKEN="x")
    assert audited.returncode == 0, audited.stdout + audited.stderr
    letters = json.loads(scribengin(tmp_path, "dead-letter", "show", "flow.yaml", "--json", TOKEN="x").stdout)["result"]["letters"]
    assert sorted(json.loads(letter["payload"])["id"] for letter in letters) == [77, 1777]
    assert all("answered 422" in letter["message"] and "not this one" in letter["message"] for letter in letters)
    assert not [path for path in tmp_path.glob("**/*") if path.is_file() and b"hunter2" in path.read_bytes()]


@pytest.mark.timeout(300)
def test_a_server_that_is_away_is_waited_for_and_gets_everything_then(tmp_path: Path) -> None:
    with WebServer() as away:
        port = away.port
        shop(tmp_path, away, "patience: 0.3s, delivery: at_least_once")
    data(tmp_path, "a.jsonl", 0, 100)
    with started(tmp_path, "env", "TOKEN=x", *SCRIBENGIN, "run", "flow.yaml") as process:
        within(60, lambda: "does not answer" in (tmp_path / "said.txt").read_text())
        with WebServer(port) as back:
            within(90, lambda: sum(back.ids().values()) >= 90)
            time.sleep(0.5)
            process.send_signal(signal.SIGINT)
            process.wait(60)
            assert back.ids_once() == {id_: 1 for id_ in range(100) if id_ % 10 > 0}


@pytest.mark.long
@pytest.mark.timeout(400)
def test_a_batch_that_a_killed_driver_has_begun_to_send_waits_for_its_server_and_later_ones_go_to_the_other(
    tmp_path: Path, server: WebServer
) -> None:
    shop(tmp_path, server)
    for batch in range(2):
        data(tmp_path, f"{batch}.jsonl", batch * 1000, 1000)
    with WebServer() as near:
        port = near.port
        members = f"groups: {{apis: {{members: [{{at: '{near.url}/in'}}, {{at: '{server.url}/in', cost: 2}}]}}}}"
        text = FLOW.replace('url: "URL"', "to: apis, patience: 0.3s").replace("DELIVERY", "delivery: at_least_once")
        (tmp_path / "flow.yaml").write_text(f"{text}{members}\n")
        assert run(tmp_path, "offer.sent@5:kill").returncode == -signal.SIGKILL
    waits = run(tmp_path)
    assert waits.returncode == 1
    assert 'batch 0 is decided for member "m1" and waits for it' in waits.stderr
    assert not server.came
    with WebServer(port) as back:
        assert run(tmp_path).returncode == 0
    data(tmp_path, "2.jsonl", 2000, 1000)
    assert run(tmp_path).returncode == 0
    assert server.ids() == {id_: 1 for id_ in range(2000, 3000) if id_ % 10 > 0}
    assert set(near.ids() | back.ids()) == {id_ for id_ in range(2000) if id_ % 10 > 0}
    audited = scribengin(tmp_path, "audit", "flow.yaml", TOKEN="x")
    assert audited.returncode == 0, audited.stdout + audited.stderr


def test_exactly_once_is_refused_with_what_to_write(tmp_path: Path, server: WebServer) -> None:
    shop(tmp_path, server, "trigger: 1s")
    told = scribengin(tmp_path, "validate", "flow.yaml", TOKEN="x")
    assert told.returncode == 2
    assert "delivery is exactly_once, which a sink of type http does not support" in told.stderr
    assert "write delivery: at_least_once" in told.stderr
