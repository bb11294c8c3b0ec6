"""`validate --env` connects to every source and sink, says for each what it found, and changes nothing."""

from __future__ import annotations

import socket
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from scribengin.cli.commands import validate
from scribengin.core.errors import Exit
from scribengin.local import connection_checks
from scribengin.local.prepare import prepare

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FLOW = """\
version: 1
name: small
sources:
  events: {{type: files, path: {source}, format: json, schema: "id BIGINT"}}
  rows: {{type: sequence, rows: 5}}
sinks:
  kept: {{from: events, type: files, path: {sink}, format: json}}
  shown: {{from: rows, type: console}}
  sent: {{from: events, type: http, url: "{url}", delivery: at_least_once}}
"""


def write(folder: Path, source: str = "data", sink: str = "out", url: str = "http://127.0.0.1:1/x") -> Path:
    (folder / "data").mkdir(exist_ok=True)
    (folder / "a_file").touch()
    path = folder / "flow.yaml"
    path.write_text(FLOW.format(source=source, sink=sink, url=url))
    return path


@pytest.fixture
def answering() -> Iterator[str]:
    """A server that takes connections, and is never heard of again."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def validated(path: Path, *, environment: bool = True) -> tuple[Exit, dict[str, str], list[dict[str, Any]]]:
    """Exit status, node → state, problems; the folder stays as it is."""
    assert validate.command.callback is not None
    before = sorted(path.parent.rglob("*"))
    answer = validate.command.callback(files=(str(path),), environment=environment, state=None)
    assert sorted(path.parent.rglob("*")) == before
    given = answer.as_object("validate")
    (file,) = given["result"]["files"]
    assert given["ok"] == (answer.exit is Exit.DONE)
    return answer.exit, {place["node"]: place["state"] for place in file.get("places", [])}, given["problems"]


def test_all_that_is_there_is_ok(tmp_path: Path, answering: str) -> None:
    status, states, problems = validated(write(tmp_path, url=f"{answering}/x"))
    assert status is Exit.DONE
    assert states == dict.fromkeys(("events", "rows", "kept", "shown", "sent"), "ok")
    assert problems == []


def test_what_does_not_answer_is_a_warning_and_exit_status_3(tmp_path: Path) -> None:
    status, states, (problem,) = validated(write(tmp_path))
    assert status is Exit.ENVIRONMENT
    assert states["sent"] == "unreached"
    assert (problem["severity"], problem["code"], problem["line"]) == ("warning", "unreachable", 9)
    assert "127.0.0.1:1" in problem["message"]
    assert problem["remedy"]


def test_what_is_wrong_is_an_error_and_exit_status_2_also_beside_what_does_not_answer(tmp_path: Path) -> None:
    status, states, problems = validated(write(tmp_path, source="dta", sink="a_file"))
    assert status is Exit.INPUT
    assert (states["events"], states["kept"], states["sent"]) == ("wrong", "wrong", "unreached")
    assert [(each["severity"], each["line"]) for each in problems] == [("error", 4), ("error", 7), ("warning", 9)]


def test_a_first_file_that_no_run_would_read_is_wrong(tmp_path: Path, answering: str) -> None:
    path = write(tmp_path, url=f"{answering}/x")
    (tmp_path / "data" / "a.jsonl").write_text('{"number": 1}\n')
    status, states, (problem,) = validated(path)
    assert status is Exit.INPUT
    assert states["events"] == "wrong"
    assert (problem["severity"], problem["code"], problem["line"]) == ("error", "source-columns", 4)


def test_who_is_silent_is_not_waited_for(tmp_path: Path, answering: str) -> None:
    path = write(tmp_path)
    silent = f'{{type: opensearch, server: ["{answering}"], index: orders, schema: "id BIGINT"}}'
    path.write_text(path.read_text().replace("sources:\n", f"sources:\n  docs: {silent}\n").replace("[events]", "[events, docs]"))
    path.write_text(path.read_text().replace("{from: rows, type: console}", "{from: [docs], type: console}"))
    before_s = time.monotonic()
    found = {each.node: each for each in connection_checks.check_places(prepare(path, state=None), within_s=1.0)}
    assert time.monotonic() - before_s < 60
    assert found["docs"].state == "unreached"
    assert "within 1 s" in found["docs"].says
    assert found["docs"].problem is not None
    assert found["docs"].problem.place.line == 4
    assert found["events"].state == "ok"


def test_without_env_nothing_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def looked(*_args: object, **_more: object) -> None:
        raise AssertionError("it looked")

    monkeypatch.setattr(connection_checks, "check_places", looked)
    assert validated(write(tmp_path, source="dta", sink="a_file"), environment=False) == (Exit.DONE, {}, [])


def test_a_flow_with_mistakes_is_not_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_checks, "check_places", lambda *_args, **_more: pytest.fail("it looked"))
    path = write(tmp_path)
    path.write_text(path.read_text().replace("type: console", "type: consol"))
    status, states, problems = validated(path)
    assert (status, states) == (Exit.INPUT, {})
    assert problems


def test_what_a_client_raises_by_itself_is_told_beside_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_args: object) -> bool:
        raise ValueError("a client's own")

    monkeypatch.setattr(connection_checks.catalog, "check_source_place", broken)
    status, states, problems = validated(write(tmp_path))
    assert status is Exit.ENVIRONMENT
    assert (states["events"], states["kept"]) == ("unreached", "ok")
    assert any("a client's own" in each["message"] for each in problems)
