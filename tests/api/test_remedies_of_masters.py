"""Commands that masters print about groups, plans, tokens, letters and nodes: typed as they are, each does what it says."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from starlette.testclient import TestClient

from scribengin.api.serving import Listen
from scribengin.api.tokens import Tokens
from scribengin.cli.flow_verbs import OperationFailed, wait_for_operation
from scribengin.client.models import Submit
from scribengin.connectors.contract import BatchId
from scribengin.control import flow_requests, operation_requests
from scribengin.control.changes import Recut
from scribengin.control.world import RunId
from scribengin.core.errors import InputError, Refused, Unreachable
from scribengin.core.secret import Secret
from scribengin.hosts.node_door import NodeGate, NodeGlance, node_app
from scribengin.packages.package import PackedFlow, build_package
from scribengin.registry.contract import Create, RegistryEntry, Replace
from scribengin.registry.record_io import put
from scribengin.registry.records import Host, Operation, Run, StatusRecord, TierSpec, WorkerSeen
from scribengin.registry.tree import DESIRED, HOST, HOST_UP, RUN, STATUS, WORKER_SEEN
from scribengin.spark.repartition import repartition
from scribengin.state.contract import DeadLetter, Decision, SourceRange
from scribengin.state.dead_letters import DeadWriter
from scribengin.state.decisions import Decisions
from scribengin.state.folder import QueryFolder, StateFolder
from scribengin.state.lease import take_lease
from scribengin.state.lineage import open_lineage, read_lineage
from scribengin.worker.process import _read_spec
from tests.looking import look_until
from tests.plugins.remedies import mentions

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Bench, Served

    Said = dict[str, Any]
    Typed = Callable[..., Said]

FLOW = """\
version: 1
name: numbers
sources: {numbers: {type: files, path: data, format: json, schema: "id BIGINT"}}
sinks: {kept: {from: numbers, type: files, path: out, format: json}}
"""
GROUP = """\
version: 1
name: numbers
sources: {numbers: {type: files, path: data, format: json, schema: "id BIGINT"}}
sinks: {kept: {from: numbers, type: files, path: out, format: json, to: disks}}
groups: {disks: {members: [{at: /near, name: near}, {at: /far, name: far}]}}
"""


@pytest.fixture
def typed(says: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Typed:
    """What a command says with --json, beside the first master of the bench."""
    monkeypatch.chdir(tmp_path)
    return says


def submitted(typed: Typed, text: str = FLOW) -> str:
    Path("numbers.yaml").write_text(text)
    assert typed("apply", "numbers.yaml")["status"] == 0
    return "numbers"


def commands_in(said: Said, code: str, **filled: str) -> list[list[str]]:
    """The commands of the one problem, with what is written in capitals filled in."""
    [problem] = said["problems"]
    assert (said["ok"], problem["code"]) == (False, code), problem
    return commands_of(problem["remedy"], **filled)


def commands_of(remedy: str, **filled: str) -> list[list[str]]:
    found = [[filled.get(word, word) for word in mention.words] for mention in mentions(remedy)]
    assert found, remedy
    return found


def query_of(master: Served, *sources: str, stateful: bool = False) -> QueryFolder:
    """That of the flow, which has begun."""
    folder = StateFolder(master.plane.packages.folder.parent / "state", "numbers")
    query = folder.query("kept")
    open_lineage(query, owner=folder.read_owner(), fingerprint="f", state_fingerprint="s" if stateful else "", sources=sources)
    return query


def decided(query: QueryFolder, number: int, **more: Any) -> None:
    lineage = read_lineage(query)
    assert lineage is not None
    Decisions(query.decisions).decide(Decision(BatchId("numbers", "kept", lineage.id, number, 1), f"hash{number}", "f", **more))


@pytest.mark.executes("group-last")
def test_the_last_member_goes_out_after_another_one_was_let_back(bench: Bench, typed: Typed) -> None:
    bench.master()
    submitted(typed, GROUP)
    out = ("groups", "set", "disks")
    assert typed(*out, "near", "--out")["status"] == 0
    [command] = commands_in(typed(*out, "far", "--out"), "group-last", MEMBER="near")
    assert typed(*command)["status"] == 0
    assert typed(*out, "far", "--out")["status"] == 0


@pytest.mark.executes("node-up")
def test_a_node_is_forgotten_when_its_workers_and_then_its_process_are_gone(bench: Bench, typed: Typed) -> None:
    bench.master()
    process = bench.store.client()
    process.commit(HOST("h1").create(Host(host="h1", cores=1, memory_bytes=0, home="/", since="")))
    process.commit(Create(HOST_UP("h1").path, {"host": "h1"}, ephemeral=True))
    said = typed("node", "remove", "h1")
    emptied, program = commands_in(said, "node-up")
    assert typed(*emptied)["result"]["workers"] == []
    assert program == ["server", "node"]
    process.close()
    assert typed("node", "remove", "h1")["status"] == 0
    assert typed("node", "list")["result"] == []


@pytest.mark.executes("scale-executors")
def test_a_worker_has_more_cores_where_there_are_no_executors(bench: Bench, typed: Typed) -> None:
    bench.master()
    submitted(typed)
    process = bench.store.client()
    process.commit(HOST("h1").create(Host(host="h1", cores=4, memory_bytes=0, home="/", since="")))
    [command] = commands_in(typed("scale", "numbers", "--executors", "3"), "scale-executors")
    assert command == ["scale", "numbers.main", "--cores", "3"]
    assert typed(*command)["result"]["changed"] is True


@pytest.mark.executes("query-unknown")
def test_a_source_that_no_query_has_read_is_not_among_those_that_the_command_shows(bench: Bench, typed: Typed) -> None:
    master = bench.master()
    submitted(
        typed,
        FLOW.replace("sources: {", 'sources: {late: {type: files, path: late, format: json, schema: "id BIGINT"}, ').replace(
            "sinks: {", "sinks: {other: {from: late, type: files, path: other, format: json}, "
        ),
    )
    decided(query_of(master, "numbers"), 0, sources=(SourceRange("numbers", 0, 0),), receipts=())
    assert typed("stop", "numbers")["status"] == 0
    bench.person.commit(put(bench.person, STATUS("numbers"), StatusRecord(state="stopped", generation=9)))
    said = typed("offsets", "set", "numbers", "late", "end", "--yes")
    [command] = commands_in(said, "query-unknown")
    shown = typed(*command)
    assert shown["status"] == 0, shown
    assert [row["source"] for row in shown["result"]["sources"]] == ["numbers"], shown


@pytest.mark.executes("plan-stale")
def test_a_plan_that_is_stale_is_replaced_by_the_one_that_the_command_shows(bench: Bench, typed: Typed) -> None:
    bench.master()
    submitted(typed)
    seen = typed("apply", "numbers.yaml", "--dry-run")["result"]["hash"]
    Path("numbers.yaml").write_text(FLOW.replace("path: data", "path: data, max_files: 2"))
    [command] = commands_in(typed("apply", "numbers.yaml", "--plan", seen), "plan-stale", FILE="numbers.yaml")
    fresh = typed(*command)
    assert fresh["status"] == 0
    assert typed("apply", "numbers.yaml", "--plan", fresh["result"]["hash"])["status"] == 0


@pytest.mark.executes("plan-stale")
def test_a_flow_that_was_submitted_meanwhile_is_compared_by_the_command(bench: Bench, typed: Typed, tmp_path: Path) -> None:
    bench.master()
    submitted(typed)
    submission = flow_requests.Submission("numbers", "1" * 64, "flow.yaml", "/base", {"main": TierSpec()})
    with pytest.raises(Refused) as stale:
        flow_requests.apply_all(bench.person, [submission], {"numbers": 0}, state=lambda _: str(tmp_path), by="bob")
    assert stale.value.code == "plan-stale"
    [command] = commands_of(stale.value.remedy, FILE="numbers.yaml")
    assert [each["version"] for each in typed(*command)["result"]["flows"]] == [1]


@pytest.mark.executes("plan-refused")
def test_a_reader_that_has_failed_is_tried_again_by_the_command_before_its_channels_go(bench: Bench, typed: Typed, tmp_path: Path) -> None:
    bench.master()
    submitted(typed)
    failed = Run(number=1, node="here", asked_at=1.0, generation=1, ended_at=2.0, cause="the disk is full", permanent=True)
    bench.person.commit(put(bench.person, RUN("numbers", "main"), failed))
    comes = flow_requests.Submission("numbers", "1" * 64, "flow.yaml", "/base", {"main": TierSpec()})
    asked: dict[str, Any] = {"state": lambda _: str(tmp_path), "by": "bob", "recut": {"numbers": Recut("main", ("main",), {"main": ()})}}
    with pytest.raises(Refused, match="has failed: the disk is full") as refused:
        flow_requests.apply_all(bench.person, [comes], {"numbers": 1}, **asked)
    assert refused.value.code == "plan-refused"
    [command] = commands_of(refused.value.remedy)
    before = bench.person.read(DESIRED("numbers").path)
    assert typed(*command)["status"] == 0
    assert bench.person.read(DESIRED("numbers").path) != before, "wanted anew, what waits for a person is tried again"


@pytest.mark.executes("role-lacking")
def test_what_takes_another_role_is_done_with_the_token_that_the_command_makes(
    bench: Bench, typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = {role: bench.tokens.add(role, role, {}) for role in ("viewer", "editor", "admin")}
    bench.master(listen=Listen(asks=True))
    monkeypatch.setenv("SCRIBENGIN_TOKEN", tokens["editor"])
    flow = submitted(typed)
    monkeypatch.setenv("SCRIBENGIN_TOKEN", tokens["viewer"])
    said = typed("pause", flow)
    [command] = commands_in(said, "role-lacking", NAME="ann", ROLE="operator")
    assert "this needs role operator" in said["problems"][0]["message"]
    monkeypatch.setenv("SCRIBENGIN_TOKEN", tokens["admin"])
    made = typed(*command)["result"]["token"]
    monkeypatch.setenv("SCRIBENGIN_TOKEN", made)
    assert typed("pause", flow)["status"] == 0


@pytest.mark.executes("role-lacking")
def test_what_a_node_shows_to_masters_only_is_shown_by_a_master(bench: Bench, typed: Typed) -> None:
    master = bench.master()
    submitted(typed)
    decided(query_of(master, "numbers"), 0, sources=(SourceRange("numbers", 0, 0),), receipts=())
    gate = NodeGate(bench.person, Listen(), Secret("the key of the node", "a test's"), Tokens(bench.person))
    with TestClient(node_app(node_glance(master), gate), headers={"host": "127.0.0.1"}) as node:
        refused = node.post("/states", json={}, headers={"authorization": f"Bearer {bench.tokens.add('ann', 'admin', {})}"}).json()
    assert refused["code"] == "role-lacking"
    [command] = commands_of(refused["remedy"], NAME="numbers")
    shown = typed(*command)
    assert shown["status"] == 0, shown
    assert [row["source"] for row in shown["result"]["sources"]] == ["numbers"], shown


class IdleProcess:
    """Of a node whose workers do nothing."""

    def __init__(self, *workers: str) -> None:
        self._workers = [{"worker": worker} for worker in workers]

    def glance(self) -> dict[str, Any]:
        return {"workers": self._workers, "lease": {}, "orders": []}


def node_glance(master: Served, *workers: str) -> NodeGlance:
    plane = master.plane
    idle: Any = IdleProcess(*workers)
    return NodeGlance(plane.registry, "h1", idle, plane.packages, lambda _: (), {}, plane.planner)


@pytest.mark.executes("worker-unknown")
def test_a_worker_that_a_node_does_not_have_is_among_those_that_the_command_shows(bench: Bench, typed: Typed) -> None:
    master = bench.master()
    submitted(typed)
    for name in ("h1", "h2"):
        bench.person.commit(HOST(name).create(Host(host=name, cores=1, memory_bytes=0, home="/", since="")))
    bench.person.commit(WORKER_SEEN("h2", "numbers.main-3").create(WorkerSeen("running")))
    with pytest.raises(Refused) as unknown:
        node_glance(master).worker("numbers.main-3")
    [command] = commands_of(unknown.value.remedy)
    assert {row["node"]: row["workers"] for row in typed(*command)["result"]} == {"h1": [], "h2": ["numbers.main-3"]}


@pytest.mark.executes("worker-unknown")
def test_a_worker_that_is_not_wanted_is_wanted_when_its_flow_is_submitted(bench: Bench, typed: Typed) -> None:
    bench.master()
    id_ = RunId("numbers", "main", 1)
    with pytest.raises(Refused) as unwanted:
        _read_spec(bench.person, id_)
    Path("FILE.yaml").write_text(FLOW)
    [command] = commands_of(unwanted.value.remedy, FILE="FILE.yaml")
    assert typed(*command)["status"] == 0
    desired = flow_requests.read_flow(bench.person, "numbers").desired
    assert (desired.state, desired.version) == ("running", 1), "the leading master gives the worker this version"


@pytest.mark.executes("letter-refused")
def test_letters_whose_records_are_withheld_are_shown_without_them(bench: Bench, typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = {role: bench.tokens.add(role, role, {}) for role in ("viewer", "editor")}
    master = bench.master(listen=Listen(asks=True))
    monkeypatch.setenv("SCRIBENGIN_TOKEN", tokens["editor"])
    submitted(typed)
    query = query_of(master, "numbers")
    writer = DeadWriter(query.dead, "attempt")
    writer.write(DeadLetter("numbers/a:1", "kept", 0, "numbers", "malformed", "no", file="a", line=1, payload=b"x", record="numbers/a+1"))
    decided(query, 0, sources=(), receipts=(), dead=(writer.close(),))
    monkeypatch.setenv("SCRIBENGIN_TOKEN", tokens["viewer"])
    [command] = commands_in(typed("dead-letter", "export", "numbers", "--to", "FILE"), "letter-refused")
    [letter] = typed(*command)["result"]["letters"]
    assert (letter["reason"], letter.get("payload"), letter.get("payload_base64")) == ("malformed", None, None), letter


@pytest.mark.executes("plan-late")
def test_a_flow_whose_import_takes_too_long_is_seen_in_it(bench: Bench, tmp_path: Path) -> None:
    master = bench.master()
    master.plane.planner._limit_s = 1
    code = f"import time\nopen({str(tmp_path / 'here')!r}, 'w').close()\ntime.sleep(600)\n"
    package = build_package("numbers", "0", [PackedFlow("numbers", "flow.py")], [], {"flow.py": code.encode()})
    with pytest.raises(Refused) as late:
        bench.client().apply("numbers", Submit(package.id, "flow.py", "/base"), package.data)
    (tmp_path / "here").unlink(missing_ok=True)
    (tmp_path / "flow.py").write_text(code)
    [words] = commands_of(late.value.remedy, FILE="flow.py")
    command = [sys.executable, "-m", "scribengin.cli", *words]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        try:
            look_until((tmp_path / "here").exists, "the flow file is executed", 120)
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=120)
        finally:
            process.kill()
    assert "flow.py:3" in said, said


@pytest.mark.executes("repartition-early", "repartition-pending")
@pytest.mark.parametrize("code", ["repartition-early", "repartition-pending"])
def test_a_state_that_cannot_be_spread_yet_is_let_run_by_the_command_that_says_so(bench: Bench, typed: Typed, code: str) -> None:
    master = bench.master()
    submitted(typed)
    query = query_of(master, "numbers", stateful=True)
    for number in range(2):
        offsets = query.checkpoint / "offsets" / str(number)
        offsets.parent.mkdir(parents=True, exist_ok=True)
        offsets.write_text('v1\n{"conf": {"spark.sql.shuffle.partitions": "2"}}\n{}\n')
    if code == "repartition-pending":
        for number in range(2):
            decided(query, number, sources=(SourceRange("numbers", 0, 0),), receipts=())
        (query.checkpoint / "commits").mkdir()
        (query.checkpoint / "commits/0").write_text("v1\n{}")
    assert typed("stop", "numbers")["status"] == 0
    with take_lease(StateFolder(query.path.parent.parent.parent, "numbers")) as lease, pytest.raises(Refused) as refused:
        repartition(None, query, 5, lease)  # type: ignore[arg-type]
    assert refused.value.code == code
    [command] = commands_of(refused.value.remedy, NAME="numbers")
    assert typed(*command)["status"] == 0
    assert flow_requests.read_flow(bench.person, "numbers").desired.state == "running"


@pytest.mark.executes("registry-damaged")
def test_a_record_that_is_damaged_is_written_anew_by_the_command_that_says_so(bench: Bench, typed: Typed) -> None:
    bench.master()
    submitted(typed)
    stored = bench.person.read(DESIRED("numbers").path)
    assert isinstance(stored, RegistryEntry)
    bench.person.commit(Replace(stored, {"format": 1, "version": "x"}))
    [command] = commands_in(typed("scale", "numbers", "--cores", "2"), "registry-damaged", NAME="numbers")
    bench.person.commit(put(bench.person, STATUS("numbers"), StatusRecord(state="running", goal="running", version=1, generation=1)))
    assert typed(*command)["status"] == 0
    assert isinstance(bench.person.read(DESIRED("numbers").path), RegistryEntry)
    assert flow_requests.read_flow(bench.person, "numbers").desired.version == 1
    assert typed("scale", "numbers", "--cores", "2")["status"] == 0


@pytest.mark.executes("token-unknown")
def test_a_token_that_is_not_known_is_replaced_by_the_one_that_the_command_makes(
    bench: Bench, typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin_token = bench.tokens.add("root", "admin", {})
    bench.master(listen=Listen(asks=True))
    monkeypatch.setenv("SCRIBENGIN_TOKEN", "wrong")
    [command] = commands_in(typed("list"), "token-unknown", NAME="ann", ROLE="viewer")
    monkeypatch.setenv("SCRIBENGIN_TOKEN", admin_token)
    made = typed(*command)["result"]["token"]
    monkeypatch.setenv("SCRIBENGIN_TOKEN", made)
    assert typed("list")["status"] == 0


@pytest.mark.executes("tokens")
def test_tokens_that_cannot_be_read_are_made_anew_when_their_file_is_gone(
    bench: Bench, typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.master()
    file = ("--file", str(tmp_path / "tokens.json"))
    (tmp_path / "tokens.json").write_text("{")
    said = typed("token", "list", *file)
    [command] = commands_in(said, "tokens", NAME="ann", ROLE="viewer")
    assert typed(*command, *file)["problems"][0]["code"] == "tokens", "restored or deleted first"
    (tmp_path / "tokens.json").unlink()
    assert typed(*command, *file)["status"] == 0
    assert [row["name"] for row in typed("token", "list", *file)["result"]] == ["ann"]


@pytest.mark.executes("package-id")
def test_an_id_of_a_package_is_the_one_that_the_command_prints(bench: Bench, typed: Typed) -> None:
    master = bench.master()
    submitted(typed)
    assert typed("package", "create", ".", "--file", "x.package")["status"] == 0
    with pytest.raises(Refused) as refused:
        master.packages.get("x")
    assert refused.value.code == "package-id"
    [command] = commands_of(refused.value.remedy)
    shown = typed(*command, "x.package")["result"]["id"]
    assert master.ask("PUT", f"/v1/packages/{shown}", content=Path("x.package").read_bytes()).status_code < 300
    assert (master.packages.get(shown) / "numbers.yaml").is_file()


@pytest.mark.executes("unreachable")
def test_a_worker_that_does_not_answer_is_looked_at_in_the_logs_that_the_command_shows(bench: Bench, typed: Typed) -> None:
    master = bench.master()
    submitted(typed)
    bench.person.commit(put(bench.person, RUN("numbers", "main"), Run(number=1, node="h1", asked_at=0.0, generation=1)))
    with pytest.raises(Unreachable) as silent:
        node_glance(master, "numbers.main-1").worker("numbers.main-1")
    [command] = commands_of(silent.value.remedy)
    [shown] = typed(*command)["result"]
    assert (shown["tier"], shown["node"]) == ("main", "h1")


@pytest.mark.executes("package-name", "body")
@pytest.mark.parametrize("code", ["package-name", "body"])
def test_a_package_is_named_by_what_the_command_that_makes_it_shows(bench: Bench, typed: Typed, code: str) -> None:
    bench.master()
    submitted(typed)
    client = bench.client()

    def asks(id_: str) -> str:
        if code == "body":
            return str(client.submit("numbers", Submit(id_, "numbers.yaml", "/base"), accept="again").version)
        return str(client.upload(id_, Path("x.package").read_bytes()))

    assert typed("package", "create", ".", "--file", "x.package")["status"] == 0
    with pytest.raises(InputError) as refused:
        asks("x")
    [problem] = refused.value.problems
    assert problem.code == code
    [command] = commands_of(problem.remedy)
    id_ = typed(*command, ".", "--file", "x.package")["result"]["id"]
    client.upload(id_, Path("x.package").read_bytes())
    assert asks(id_)


@pytest.mark.executes("flows-circle")
def test_flows_in_a_circle_are_taken_apart_by_the_command_that_removes_one(bench: Bench, typed: Typed) -> None:
    bench.master()
    submitted(typed)
    text = FLOW
    for before, after in (
        ("name: numbers", "name: back"),
        ("path: data", "path: in"),
        ("path: out", "path: data"),
        ("path: in", "path: out"),
    ):
        text = text.replace(before, after)
    Path("back.yaml").write_text(text)
    [command] = commands_in(typed("apply", "back.yaml"), "flows-circle")
    assert typed("stop", "numbers")["status"] == 0
    desired = bench.person.read(DESIRED("numbers").path)
    assert isinstance(desired, RegistryEntry)
    bench.person.commit(put(bench.person, STATUS("numbers"), StatusRecord(state="stopped", generation=desired.changed)))
    assert typed(*command)["status"] == 0
    assert typed("apply", "back.yaml")["status"] == 0


@pytest.mark.executes("not-reached")
def test_workers_that_stay_on_a_node_are_shown_by_the_command_that_says_so(bench: Bench, typed: Typed) -> None:
    bench.master()
    bench.person.commit(HOST("h1").create(Host(host="h1", cores=1, memory_bytes=0, home="/", since="")))
    bench.person.commit(WORKER_SEEN("h1", "numbers.main-3").create(WorkerSeen("running")))
    [problem] = typed("node", "drain", "h1", "--wait", "1ms")["problems"]
    assert problem["code"] == "not-reached"
    [command] = commands_of(problem["remedy"])
    assert [(row["node"], row["workers"]) for row in typed(*command)["result"]] == [("h1", ["numbers.main-3"])]


@pytest.mark.executes("operation-failed")
def test_why_an_operation_failed_is_shown_by_the_command_that_says_so(bench: Bench, typed: Typed) -> None:
    bench.master()
    submitted(typed)
    failed = Operation(kind="rewind", step="failed", version=1, tiers=("main",), error="the disk is full")
    id_ = operation_requests.begin(bench.person, "numbers", failed, by="bob")
    with pytest.raises(OperationFailed) as told:
        wait_for_operation(bench.client(), "numbers", id_, 60)
    [command] = commands_of(told.value.remedy)
    assert [(row["step"], row["error"]) for row in typed(*command)["result"]] == [("failed", "the disk is full")]
