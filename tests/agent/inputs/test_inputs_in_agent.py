"""Inputs in a real agent process that is killed: what each promises arrives at a gateway."""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from scribengin.wire.protocol import AgentConfig, LaneConfig
from tests.agent.edge_gateway import EdgeGateway
from tests.agent.inputs.lanes import until
from tests.agent.inputs.test_journal import FakeJournal, entry

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = Path(__file__).parents[3] / "src"


@contextmanager
def agent(
    data: Path, gateway: EdgeGateway, *, level: str = "error", stdin: int | None = None, stderr: IO[bytes] | None = None, **variables: str
) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "scribengin.agent", "--name", "a1", "--data", str(data), "--gateway", gateway.url, "--level", level]
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(SOURCE), **variables}, stdin=stdin, stderr=stderr)
    try:
        yield process
    finally:
        process.kill()
        process.wait(60)


def config_of(kind: str, options: dict[str, Any], **config: Any) -> AgentConfig:
    return AgentConfig("r1", {"web.in": LaneConfig("web", "in", kind, options=options, sync="5ms", linger_s=0.01, **config)}, [], 0.2)


def test_entries_of_the_journal_arrive_once_however_often_the_agent_is_killed(tmp_path: Path) -> None:
    folder = tmp_path / "fake"
    folder.mkdir()
    journal, chosen, count = FakeJournal(folder), random.Random(7), 0
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    with EdgeGateway(config_of("journal", {}, frame_bytes=5000)) as gateway:
        for _ in range(8):
            with agent(tmp_path / "a", gateway, PATH=path) as process:
                end = time.monotonic() + chosen.uniform(0.5, 1.5)
                while time.monotonic() < end:
                    size = chosen.choice([1, 1, 50])
                    journal.write(*[entry(number, MESSAGE="x" * chosen.choice([1, 500])) for number in range(count, count + size)])
                    count += size
                    time.sleep(0.01)
                process.send_signal(signal.SIGKILL)
                process.wait(60)
        with agent(tmp_path / "a", gateway, PATH=path):
            until(lambda: len(gateway.all_records()) >= count, "all entries")
        cursors = [json.loads(record)["__CURSOR"] for record in gateway.all_records()]
    assert cursors == [json.loads(entry(number))["__CURSOR"] for number in range(count)]


def test_what_was_answered_over_http_arrives_however_often_the_agent_is_killed(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    answered: list[bytes] = []
    ending = threading.Event()

    def send(name: int) -> None:
        number, to = 0, http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        while not ending.is_set():
            record = b"%d.%d" % (name, number)
            try:
                to.request("POST", "/", record)
                answer = to.getresponse()
                answer.read()
            except (OSError, http.client.HTTPException):  # killed, or not up: again, without another answer
                to.close()
                ending.wait(0.02)
                continue
            if answer.status == 200:
                answered.append(record)
                number += 1
        to.close()

    with EdgeGateway(config_of("http", {"listen": f"127.0.0.1:{port}"})) as gateway:
        senders = [threading.Thread(target=send, args=(name,)) for name in range(3)]
        for sender in senders:
            sender.start()
        try:
            for _ in range(5):
                before = len(answered)
                with agent(tmp_path / "a", gateway) as process:
                    until(lambda: len(answered) > before + 100, "answers")  # noqa: B023
                    process.send_signal(signal.SIGKILL)
                    process.wait(60)
        finally:
            ending.set()
            for sender in senders:
                sender.join(60)
        with agent(tmp_path / "a", gateway):
            until(lambda: set(answered) <= set(gateway.all_records()), "all that was answered")
        assert len(answered) > 500


def test_a_command_a_port_and_syslog_work_beside_each_other(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    lanes = {
        "web.command": LaneConfig("web", "command", "exec", options={"command": ["sh", "-c", "echo run"], "restart": "never"}),
        "web.broken": LaneConfig("web", "broken", "exec", options={"command": ["/no/such/command"]}),
        "web.open": LaneConfig("web", "open", "tcp", options={"listen": "0.0.0.0:0"}),
        "web.lines": LaneConfig("web", "lines", "tcp", options={"listen": f"127.0.0.1:{port}"}),
    }
    with EdgeGateway(AgentConfig("r1", lanes, [], 0.2)) as gateway, agent(tmp_path / "a", gateway):

        def connected() -> socket.socket | None:
            try:
                return socket.create_connection(("127.0.0.1", port))
            except OSError:
                return None

        with until(connected) as sender:
            sender.sendall(b"line\n")
        until(lambda: sorted(gateway.all_records()) == [b"line", b"run"])

        def messages() -> dict[str, str]:
            return {name: lane.message for name, lane in gateway.reports[-1].lanes.items()} if gateway.reports else {}

        until(lambda: messages().get("web.broken") and messages().get("web.open"))
        assert "the command /no/such/command cannot be started: not found; to fix, " in messages()["web.broken"]
        assert "other hosts can reach tcp://0.0.0.0:0" in messages()["web.open"]
        assert "the command sh ended with status 0" in messages()["web.command"]


def test_an_agent_behind_a_pipe_ends_once_all_of_it_is_committed(tmp_path: Path) -> None:
    with EdgeGateway(config_of("stdin", {})) as gateway:
        gateway.commit = False
        with agent(tmp_path / "a", gateway, stdin=subprocess.PIPE) as process:
            assert process.stdin is not None
            process.stdin.write(b"one\ntwo\nlast")
            process.stdin.close()
            until(lambda: gateway.all_records() == [b"one", b"two", b"last"], "the records")
            assert process.poll() is None
            gateway.committed.update(gateway.stored)
            assert process.wait(60) == 0


def test_what_a_command_writes_to_stderr_is_in_the_log_of_the_agent(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import sys; print('one', flush=True); print('a warning', file=sys.stderr, flush=True); input()"]
    log = tmp_path / "log"
    with (
        EdgeGateway(config_of("exec", {"command": command})) as gateway,
        log.open("wb") as out,
        agent(tmp_path / "a", gateway, level="info", stderr=out),
    ):
        until(lambda: gateway.all_records()[:1] == [b"one"], "the record")
        until(lambda: "a warning" in log.read_text(), "the line of stderr")
