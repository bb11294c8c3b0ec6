"""What is wrong, in one form: the same problem whoever asks, however he asks."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from scribengin.api.request_limits import BODY_BYTES
from scribengin.client.models import Submit
from scribengin.client.problems import to_error, to_problem
from scribengin.core.errors import Exit, InputError, Refused, ScribenginError, StateError, Unreachable
from scribengin.core.problems import Place, Problem
from scribengin.packages.package import PackedFlow, build_package
from scribengin.registry.contract import Conflict, Create, Unsettled

if TYPE_CHECKING:
    import httpx2
    from conftest import Bench

    from scribengin.packages.package import Package

KEYS = {"type", "title", "status", "detail", "code", "kind", "exit", "remedy", "node", "pointer", "file", "line", "column", "problems"}


def problem(answer: httpx2.Response, status: int, code: str) -> dict[str, Any]:
    """The body, which must be a problem of that code."""
    assert answer.headers["Content-Type"] == "application/problem+json", answer.text
    told: dict[str, Any] = answer.json()
    assert told.keys() == KEYS
    assert (answer.status_code, told["status"], told["code"]) == (status, status, code), told
    assert answer.headers["Scribengin-Problem"] == code
    assert told["remedy"], "it says what to do"
    return told


@pytest.mark.parametrize(
    ("method", "path", "more", "status", "code"),
    [
        ("GET", "/nowhere", {}, 404, "not-found"),
        ("GET", "/v1/flows/", {}, 404, "not-found"),
        ("PATCH", "/v1/flows", {}, 405, "method"),
        ("GET", "/v1/flows/nope", {}, 404, "flow-unknown"),
        ("GET", "/v1/flows/No-Name%00", {}, 404, "flow-unknown"),
        ("PUT", "/v1/flows/nope/wanted", {"json": {"state": "paused"}}, 404, "flow-unknown"),
        ("PUT", "/v1/flows/nope/wanted", {"json": {"state": "fast"}}, 422, "body"),
        ("PUT", "/v1/flows/nope/wanted", {"json": {"state": "paused", "more": 1}}, 422, "body"),
        ("PUT", "/v1/flows/nope/wanted", {"json": []}, 422, "body"),
        ("PUT", "/v1/flows/nope/wanted", {"content": b"{", "headers": {"Content-Type": "application/json"}}, 422, "body"),
        ("PUT", "/v1/flows/nope/wanted", {"content": b"\xff\xfe", "headers": {"Content-Type": "application/json"}}, 422, "body"),
        ("PUT", "/v1/flows/nope/wanted", {"content": b""}, 422, "body"),
        ("PUT", "/v1/flows/nope/wanted", {"json": {"state": "paused"}, "headers": {"If-Match": "x"}}, 422, "parameter"),
        ("PUT", "/v1/flows/nope/wanted", {"json": {"state": "paused"}, "headers": {"Idempotency-Key": "k" * 201}}, 422, "key-used"),
        ("PUT", "/v1/flows/nope/wanted", {"content": b" " * (BODY_BYTES + 1)}, 413, "body-large"),
        ("PUT", "/v1/flows/nope", {"json": {"package": "x", "path": "", "base": "here"}}, 422, "body"),
        ("PUT", "/v1/flows/Bad-Name", {"json": {"package": "0" * 64, "path": "", "base": "/"}}, 422, "flow-name"),
        ("PUT", "/v1/flows/nope", {"json": {"package": "0" * 64, "path": "flow.yaml", "base": "/"}}, 404, "package-missing"),
        ("GET", "/v1/flows/nope/logs?lines=many", {}, 422, "parameter"),
        ("GET", f"/v1/packages/{'0' * 64}", {}, 404, "package-missing"),
        ("GET", "/v1/packages/x", {}, 422, "package-name"),
        ("PUT", f"/v1/packages/{'0' * 64}", {"content": b"something"}, 422, "package-hash"),
        ("GET", "/v1/registry/nothing", {}, 404, "record-missing"),
        ("GET", "/v1/registry/a//b", {}, 422, "registry-path"),
        ("PUT", "/v1/registry/flows/numbers/status", {"json": {"value": {}}}, 403, "registry-kept"),
        ("PUT", "/v1/registry/else/where", {"json": {"value": {}}}, 403, "registry-kept"),
        ("DELETE", "/v1/quotas/team=web", {}, 404, "quota-unknown"),
        ("PUT", "/v1/quotas/team", {"json": {"cores": 1}}, 422, "quota-name"),
        ("PUT", "/v1/quotas/team=web", {"json": {"cores": 0}}, 422, "quota-value"),
        ("DELETE", "/v1/peers/berlin", {}, 404, "peer-unknown"),
        ("PUT", "/v1/peers/Berlin", {"json": {"masters": ["h:1"]}}, 422, "peer-name"),
        ("DELETE", "/v1/tokens/nobody", {}, 404, "token-unknown-name"),
        ("POST", "/v1/tokens", {"json": {"name": "a b", "role": "viewer"}}, 422, "token-name"),
        ("POST", "/v1/tokens", {"json": {"name": "ann", "role": "viewer", "until": "soon"}}, 422, "token-until"),
        ("GET", "/v1/events", {"headers": {"Last-Event-ID": "x"}}, 422, "parameter"),
    ],
)
def test_every_mistake_is_a_problem(bench: Bench, method: str, path: str, more: dict[str, Any], status: int, code: str) -> None:
    problem(bench.master().ask(method, path, **more), status, code)


def test_each_mistake_of_a_body_has_its_pointer(bench: Bench) -> None:
    told = problem(bench.master().ask("PUT", "/v1/flows/nope", json={"package": 1, "path": "x", "b": 1}), 422, "body")
    assert sorted(each["pointer"] for each in told["problems"]) == ["/b", "/base", "/package"]


def test_what_is_no_http_is_a_problem_too(bench: Bench) -> None:
    master = bench.master()
    host, port = master.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), 30) as connection:
        connection.sendall(b"\x16\x03\x01 hello\r\n\r\n")
        said = b"".join(iter(lambda: connection.recv(65_536), b""))
    head, _, body = said.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400")
    assert b"application/problem+json" in head
    assert b'"code":"request"' in body


def test_a_body_that_comes_in_pieces_is_ended_where_it_is_too_long(bench: Bench) -> None:
    pieces = (b" " * 65_536 for _ in range(100))
    problem(bench.master().ask("PUT", "/v1/flows/nope/wanted", content=pieces), 413, "body-large")


def test_a_registry_that_is_away_is_503_with_when_to_come_again(bench: Bench) -> None:
    master = bench.master()
    master.registry.cut()
    for method, path, more in (
        ("GET", "/v1/flows", {}),
        ("PUT", "/v1/flows/nope/wanted", {"json": {"state": "paused"}, "headers": {"Idempotency-Key": "k"}}),
        ("GET", "/v1/registry/flows", {}),
    ):
        answer = master.ask(method, path, **more)
        problem(answer, 503, "unreachable")
        assert answer.headers["Retry-After"] == "1"


def test_a_bug_is_told_as_one_without_what_was_inside(bench: Bench) -> None:
    master = bench.master()
    bench.person.commit(Create("flows/numbers", {}))
    bench.store.write_raw("flows/numbers/desired", b'{"state":"paused","version":-1}')
    answer = master.ask("GET", "/v1/flows/numbers")
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.status_code < 500 or answer.json()["code"] == "bug"


def test_damaged_records_are_told_and_leave_the_other_flows_alone(bench: Bench) -> None:
    master = bench.master()
    bench.person.commit(Create("flows/numbers", {}))
    bench.store.write_raw("flows/numbers/desired", b"no json")
    problem(master.ask("GET", "/v1/flows/numbers"), 409, "registry-damaged")
    assert master.ask("GET", "/v1/flows").json() == []
    seen = master.ask("GET", "/v1/registry/flows/numbers/desired").json()
    assert seen["value"] is None
    assert seen["damaged"].startswith("is not valid JSON")


PYTHON = """\
{code}
from scribengin import Flow, source

rows = source("files", id="numbers", path="data", format="json", schema="id BIGINT")
flow = Flow("numbers", rows.to("files", id="kept", path="out", format="json"))
"""


def packed(**files: str) -> Package:
    """A package that nobody has looked into: `flow_py` is its file `flow.py`."""
    content = {name.replace("_", "."): text.encode() for name, text in files.items()}
    return build_package("numbers", "0", [PackedFlow("numbers", min(content))], [], content)


class TestTheFlow:
    def test_its_mistakes_come_with_lines_of_the_file_in_the_package(self, bench: Bench) -> None:
        bench.master()
        package = packed(flow_yaml=bench.flow.replace("from: odd", "from: even"))
        with pytest.raises(InputError) as told:
            bench.client().apply("numbers", Submit(package.id, "flow.yaml", "/base"), package.data)
        assert told.value.exit is Exit.INPUT
        assert ("input-unknown", "flow.yaml:5:22") in [(each.code, str(each.place)) for each in told.value.problems]
        assert all(each.remedy for each in told.value.problems)

    def test_its_code_runs_in_no_master(self, bench: Bench) -> None:
        bench.master()
        pid = bench.folder / "pid"
        code = f"import os\nfrom pathlib import Path\nPath({str(pid)!r}).write_text(str(os.getpid()))\nprint('hello')\nos.closerange(0, 1)"
        package = packed(flow_py=PYTHON.format(code=code))
        assert bench.client().apply("numbers", Submit(package.id, "flow.py", "/base"), package.data).version == 1
        assert int(pid.read_text()) != os.getpid()

    def test_code_that_never_ends_is_ended_with_all_that_it_started(self, bench: Bench) -> None:
        bench.master()
        pid = bench.folder / "pid"
        code = "import subprocess, time\nfrom pathlib import Path\nchild = subprocess.Popen(['sleep', '600'])\n"
        package = packed(flow_py=PYTHON.format(code=f"{code}Path({str(pid)!r}).write_text(str(child.pid))\ntime.sleep(600)"))
        for limit_s in (4, 16, 64):
            for master in bench.masters:
                master.plane.planner._limit_s = limit_s
            with pytest.raises(Refused) as told:
                bench.client().apply("numbers", Submit(package.id, "flow.py", "/base"), package.data)
            assert told.value.code == "plan-late"
            assert bench.client().flows() == []
            if pid.exists():  # else the machine was too slow to get there
                break
        assert not is_alive(int(pid.read_text()))

    def test_code_that_kills_its_process_or_takes_all_memory_ends_no_master(self, bench: Bench) -> None:
        bench.master()
        for code, said in (
            ("import os\nos.write(2, b'my last words')\nos._exit(7)", "status 7 and no answer: my last words"),
            ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", "status -9"),
            ("kept = bytearray(2**36)", "MemoryError"),
        ):
            package = packed(flow_py=PYTHON.format(code=code))
            with pytest.raises(ScribenginError, match=said):
                bench.client().apply("numbers", Submit(package.id, "flow.py", "/base"), package.data)
        assert bench.client().flows() == []

    def test_another_flow_than_the_address_says_is_refused(self, bench: Bench) -> None:
        bench.master()
        package = bench.package()
        with pytest.raises(InputError) as told:
            bench.client().apply("letters", Submit(package.id, "flow.yaml", "/base"), package.data)
        assert told.value.problems[0].code == "flow-name"
        with pytest.raises(Refused) as refused:
            bench.client().apply("numbers", Submit(package.id, "other.yaml", "/base"), package.data)
        assert (refused.value.code, refused.value.remedy) == ("flow-path", "it has flow.yaml")


def is_alive(pid: int) -> bool:
    """Whether it runs; one that has ended and that nobody has waited for does not."""
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


@pytest.mark.parametrize(
    "error",
    [
        Refused("no", remedy="do", code="flow-unknown"),
        StateError("no", remedy="do", code="registry-damaged"),
        Unreachable("no", remedy="do"),
        Unsettled("no", remedy="do"),
        InputError([Problem("input-unknown", Place("flow.yaml", 3, 4), "no", "do"), Problem("x", Place("y"), "w", "", "warning")]),
        ScribenginError("no", remedy="do", node="kept"),
    ],
)
def test_an_error_comes_through_as_the_same(error: ScribenginError) -> None:
    same = to_error(to_problem(error))
    assert isinstance(same, type(error))
    assert (same.message, same.remedy, same.node, same.exit) == (error.message, error.remedy, error.node, error.exit)
    if isinstance(error, InputError):
        assert isinstance(same, InputError)
        assert same.problems == error.problems
    else:
        assert same.code == error.code


def test_a_conflict_comes_through_with_its_code() -> None:
    error = Conflict("flows/numbers/desired", "has changed")
    same = to_error(to_problem(error))
    assert (same.code, same.message, same.remedy) == (error.code, error.message, error.remedy)
