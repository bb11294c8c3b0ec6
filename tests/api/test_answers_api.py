"""What lies in the state of a managed flow, by REST and by command: real HTTP, looking in real processes."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from scribengin.api import planner
from scribengin.api.planner_process import MOST_BYTES, StateAnswer, within
from scribengin.api.serving import Listen
from scribengin.cli.main import main
from scribengin.client.models import Submit
from scribengin.client.state_models import RepairLetter
from scribengin.connectors.contract import BatchId
from scribengin.control import flow_requests
from scribengin.core.errors import Refused
from scribengin.local.contract import EndView, QueryView
from scribengin.packages.package import PackedFlow, build_package
from scribengin.registry.contract import Create
from scribengin.registry.flow_ends import ExternalPlace, Outside
from scribengin.registry.record_io import put
from scribengin.registry.records import Run, StatusRecord, TierSpec
from scribengin.registry.tree import LEASE, MASTERS, RUN, STATUS
from scribengin.state.contract import Counts, DeadLetter, Decision
from scribengin.state.dead_letters import DeadWriter, Repair, read_repair
from scribengin.state.decisions import Decisions
from scribengin.state.folder import QueryFolder, StateFolder
from scribengin.state.lease import take_lease
from scribengin.state.lineage import open_lineage, read_lineage
from scribengin.watching.progress import TierProgress
from tests.looking import look_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Bench, Served

    Says = Callable[..., Any]


def submits(bench: Bench, *, token: str | None = None) -> None:
    client, package = bench.client(token=token), bench.package()
    client.apply("numbers", Submit(package.id, "flow.yaml", str(bench.folder)), package.data)


def buries(master: Served, *steps: str) -> None:
    """One Batch with a letter of each of these steps, then one with two of `odd`, in the state of the flow."""
    folder = StateFolder(master.plane.packages.folder.parent / "state", "numbers")
    part = folder.query("kept")
    lineage = open_lineage(part, owner=folder.read_owner(), fingerprint="f", state_fingerprint="", sources=["numbers"])
    number = 0
    for batch, those in enumerate((steps, ("odd", "odd"))):
        writer = DeadWriter(part.dead, f"attempt{batch}")
        for step in those:
            number += 1
            id_ = f"numbers/data/a.jsonl:{number}#{step}"
            place, record = {"file": "data/a.jsonl", "line": number}, f"numbers/data/a.jsonl+{number}"
            writer.write(DeadLetter(id_, "kept", batch, step, "raised", "no", **place, payload=b"\xff" * number, record=record))  # type: ignore[arg-type]
        segment = writer.close()
        decision = Decision(BatchId("numbers", "kept", lineage.id, batch, 1), "hash", "f", (), (), (segment,) if segment else ())
        Decisions(part.decisions).decide(decision)


@pytest.fixture
def says(bench: Bench, capfd: pytest.CaptureFixture[str]) -> Says:
    """A command line, and what it answers in JSON."""

    def run(*arguments: object) -> Any:
        capfd.readouterr()
        with pytest.raises(SystemExit):
            main([*map(str, arguments), "--master", ",".join(master.url for master in bench.masters), "--json"])
        said = json.loads(capfd.readouterr().out)
        return said["problems"][0] if said["problems"] else said["result"]

    return run


def test_dead_letters_come_counted_and_page_by_page(bench: Bench, says: Says) -> None:
    master = bench.master()
    submits(bench)
    client = bench.client()
    with pytest.raises(Refused) as early:
        client.dead_letter_counts("numbers")
    assert early.value.code == "state-missing"

    buries(master, "odd", "even", "odd")
    counts = client.dead_letter_counts("numbers")
    assert (counts.dead, [(row.step, row.count, row.place) for row in counts.groups]) == (
        5,
        [("odd", 4, "data/a.jsonl line 1"), ("even", 1, "data/a.jsonl line 2")],
    )
    first = client.dead_letter_page("numbers", limit=2)
    assert [letter.line for letter in first.letters] == [1, 2]
    second = client.dead_letter_page("numbers", first.after, limit=2)
    assert [(letter.batch, letter.line) for letter in second.letters] == [(0, 3), (1, 4)]
    last = client.dead_letter_page("numbers", second.after, limit=2)
    assert ([letter.line for letter in last.letters], last.after) == ([5], "")
    assert [letter.line for letter in client.dead_letters("numbers", step="even")] == [2]
    assert [letter.line for letter in client.dead_letters("numbers", prefix="numbers/data/a.jsonl:4")] == [4]
    for which, code in (
        ({"query": "kep"}, "query-unknown"),
        ({"after": "kept:x:1"}, "page-unknown"),
        ({"after": "keep:0:1"}, "page-unknown"),
    ):
        answer = master.ask("GET", "/v1/flows/numbers/dead-letters", params=which)
        assert (answer.status_code, answer.json()["code"], bool(answer.json()["remedy"])) == (404 if "query" in which else 422, code, True)
    assert master.ask("GET", "/v1/flows/nobody/dead-letters").status_code == 404

    assert says("dead-letter", "list", "numbers")["dead"] == 5
    assert [letter["payload_base64"] for letter in says("dead-letter", "show", "numbers", "--limit", 1)["letters"]] == ["/w=="]
    assert says("offsets", "show", "numbers")["sources"][0]["source"] == "numbers"
    assert says("offsets", "show", "numbers", "--query", "kep")["code"] == "query-unknown"


def test_the_bytes_of_records_are_not_for_who_may_only_look(bench: Bench) -> None:
    viewer, operator = bench.tokens.add("vera", "viewer", {}), bench.tokens.add("otto", "operator", {})
    editor = bench.tokens.add("edda", "editor", {})
    master = bench.master(listen=Listen(asks=True))
    submits(bench, token=editor)
    buries(master, "odd")
    page = bench.client(token=operator).dead_letter_page("numbers", limit=1)
    assert (page.withheld, page.letters[0].payload_base64) == (False, "/w==")
    page = bench.client(token=viewer).dead_letter_page("numbers", limit=1)
    assert (page.withheld, page.letters[0].payload, page.letters[0].payload_base64, page.letters[0].line) == (True, None, None, 1)


def test_a_way_and_an_audit_are_told_of_a_flow_by_name(bench: Bench, says: Says) -> None:
    master = bench.master()
    submits(bench)
    assert bench.client().trace("numbers", "numbers/a.jsonl+7")["notes"][0] == "no committed Batch has read such a record"
    assert says("trace", "numbers", "numbers/a.jsonl+7")["record"] == "numbers/a.jsonl+7"
    assert says("audit", "numbers")["code"] == "state-missing"
    buries(master, "odd")
    audit = says("audit", "numbers")
    assert (audit["flow"], audit["queries"][0]["dead"]) == ("numbers", {"decided": 3, "found": 3, "expired": 0, "purged": 0})


def test_where_a_record_went_is_told_as_those_who_read_it_call_it(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    master = bench.master()
    topic = (ExternalPlace("topic", "t", "broker:9092"),)
    for name, outside in (
        ("a", Outside(writes={"out": topic})),
        ("b", Outside(reads={"in": topic})),
        ("c", Outside(reads={"rows": topic})),
    ):
        submission = flow_requests.Submission(name, "0" * 64, "flow.yaml", "/base", {"main": TierSpec()}, outside=outside)
        flow_requests.apply(bench.person, submission, state=lambda _: str(bench.folder / "state"), by="bob")
    found: dict[str, Any] = {"flow": "a", "record": "r/x+1", "trace": 0.0, "arrivals": [], "dead": [], "read": [], "notes": [], "came": []}
    found["went"] = [{"sink": sink, "place": "t-0@5"} for sink in ("out", "beside")]
    monkeypatch.setattr(master.plane.planner, "ask", lambda *_: found)
    told = bench.client().trace("a", "r/x+1")["went"]
    assert [each["readers"] for each in told] == [[{"flow": "b", "record": "in/t-0@5"}, {"flow": "c", "record": "rows/t-0@5"}], []]


def test_an_answer_has_bounds(bench: Bench) -> None:
    master = bench.master()
    submits(bench)
    buries(master, *["odd"] * 1000)
    way = bench.client().trace("numbers", "numbers/data")
    assert (len(way["dead"]), way["notes"]) == (1000, ["more than 1,000 found: write more of the id"])
    way = bench.client().trace("numbers", "numbers/data/a.jsonl+100")
    assert [each["id"] for each in way["dead"]] == ["numbers/data/a.jsonl+100"]
    answer = master.ask("GET", "/v1/flows/numbers/trace?record=")
    assert (answer.status_code, answer.json()["code"]) == (422, "parameter")

    assert within(b"7" * MOST_BYTES) == b"7" * MOST_BYTES
    problem = msgspec.json.decode(within(b"7" * (MOST_BYTES + 1)), type=StateAnswer).problem
    assert problem is not None
    assert (problem.status, problem.code, "limit=" in problem.remedy) == (422, "answer-large", True)


def test_state_on_another_host_is_asked_of_the_master_there_or_named(bench: Bench) -> None:
    here = bench.master()
    submits(bench)
    person = bench.person
    person.commit(put(person, RUN("numbers", "main"), Run(number=1, node="b", asked_at=0.0, generation=1)))
    person.commit(Create(LEASE("numbers", "main").path, {"host": "far", "pid": 7}, ephemeral=True))
    answer = here.ask("GET", "/v1/flows/numbers/dead-letters")
    assert (answer.status_code, answer.json()["code"]) == (409, "state-elsewhere")
    assert "it may be on b (node b is unavailable" in answer.json()["detail"]
    beside = {"id": "m3", "host": "far", "http": "http://127.0.0.1:1"}
    person.commit(Create(MASTERS("m3").path, beside, ephemeral=True))
    answer = here.ask("GET", "/v1/flows/numbers/audit")
    assert (answer.status_code, answer.json()["code"]) == (409, "state-elsewhere"), "nobody is sent to the loopback of another host"
    person.commit(Create(MASTERS("m2").path, {"id": "m2", "host": "far", "http": "http://far:1"}, ephemeral=True))
    answer = here.ask("GET", "/v1/flows/numbers/trace?record=a%20b&x=1")
    assert (answer.status_code, answer.headers["location"]) == (307, "http://far:1/v1/flows/numbers/trace?record=a%20b&x=1")


def test_a_question_that_takes_too_long_is_ended_and_holds_up_nobody_else_for_long(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    master = bench.master()
    data = build_package("numbers", "0", [PackedFlow("numbers", "flow.py")], [], {"flow.py": b"import time\ntime.sleep(60)\n"})
    master.packages.put([data.data], data.id)
    submission = flow_requests.Submission("numbers", data.id, "flow.py", str(bench.folder), {"main": TierSpec()})
    flow_requests.apply(bench.person, submission, state=lambda _: str(bench.folder / "state"), by="bob")
    monkeypatch.setattr(master.plane.planner, "_answer_s", 4)
    monkeypatch.setattr(planner, "TURN_S", 0.1)
    with ThreadPoolExecutor(2) as threads:
        asked = [threads.submit(master.ask, "GET", "/v1/flows/numbers/graph") for _ in range(2)]
        look_until(lambda: not master.plane.planner._questions._value, "both have their turn", 120)
        answers = [master.ask("GET", "/v1/flows/numbers/graph"), *(each.result() for each in asked)]
    told = [(answer.status_code, answer.json()["code"]) for answer in answers]
    assert told == [(429, "too-many"), (503, "answer-late"), (503, "answer-late")]


def test_a_flow_is_shown_as_a_graph_with_how_it_goes(bench: Bench, says: Says) -> None:
    master = bench.master()
    submits(bench)
    graph = bench.client().graph("numbers")
    assert [(node.node, node.kind, node.tiers, node.live) for node in graph.nodes] == [
        ("numbers", "source", ("main",), None),
        ("odd", "filter", ("main",), None),
        ("kept", "sink", ("main",), None),
    ]
    assert [(edge.reads, edge.node) for edge in graph.edges] == [("numbers", "odd"), ("odd", "kept")]
    assert (graph.told, graph.version, graph.mermaid.splitlines()[0]) == (False, 1, "flowchart LR")

    ends = {"sources": {"numbers": EndView(10, 5.0, lag_rows=3)}, "sinks": {"kept": EndView(4, 2.0)}}
    assert master.plane.watch is not None
    master.plane.watch.board.take(
        TierProgress(
            flow="numbers", tier="main", run=1, version=1, at=0.0, phase="running", queries=(QueryView("kept", "running", **ends),)
        )
    )
    nodes = {node["node"]: node for node in says("graph", "numbers", "--steps")["nodes"]}
    assert (nodes["numbers"]["live"]["rows_per_s"], nodes["numbers"]["live"]["lag_rows"]) == (5.0, 3)
    assert (nodes["kept"]["live"], nodes["odd"]["live"]) == ({"rows": 4, "rows_per_s": 2.0}, None)


def test_the_counts_of_the_last_run_stand_on_the_arrows_of_the_graph(bench: Bench, says: Says) -> None:
    master = bench.master()
    submits(bench)
    assert says("graph", "numbers", "--live")["counts"]["caption"] == "no counts: the flow has not run yet"
    folder = StateFolder(master.plane.packages.folder.parent / "state", "numbers")
    part = folder.query("kept")
    lineage = open_lineage(part, owner=folder.read_owner(), fingerprint="f", state_fingerprint="", sources=["numbers"])
    counts = {"numbers": Counts(9, 9), "odd": Counts(9, 4, 4, 1), "kept": Counts(4, 4)}
    Decisions(part.decisions).decide(Decision(BatchId("numbers", "kept", lineage.id, 0, 1), "hash", "f", (), (), (), counts, "2026-01-01"))
    found = bench.client().graph_counts("numbers")
    assert [(edge["reads"], edge["node"], edge["rows"]) for edge in found.edges] == [("numbers", "odd", "9"), ("odd", "kept", "4")]
    assert [(node["node"], node["dropped"], node["dead"]) for node in found.nodes] == [("numbers", 0, 0), ("odd", 4, 1), ("kept", 0, 0)]
    picture = bench.folder / "numbers.svg"
    assert says("graph", "numbers", "--live", "--svg", picture)["file"] == str(picture)
    assert ">1 dead<" in picture.read_text()
    assert says("graph", "numbers", "--svg", picture)["nodes"][0]["flow"] == "numbers", "without --steps it is the workflow"


def buries_whole(master: Served, payload: bytes = b'{"id": 7, "ts": "2026-01-01T00:00:00Z"}') -> QueryFolder:
    """One letter more, `kept:2:0`, that can be replayed at its source."""
    part = StateFolder(master.plane.packages.folder.parent / "state", "numbers").query("kept")
    writer = DeadWriter(part.dead, "whole")
    place = {"row": 7, "form": "row", "alone": True}
    writer.write(DeadLetter("numbers/numbers:7#odd", "kept", 2, "odd", "require", "no", "numbers", "numbers", payload=payload, **place))  # type: ignore[arg-type]
    segment, lineage = writer.close(), read_lineage(part)
    assert lineage is not None
    assert segment is not None
    Decisions(part.decisions).decide(Decision(BatchId("numbers", "kept", lineage.id, 2, 1), "hash", "f", (), (), (segment,)))
    return part


def test_letters_are_replayed_once_by_operators_whoever_is_asked_and_those_that_cannot_be_are_told(bench: Bench, says: Says) -> None:
    viewer = bench.tokens.add("vera", "viewer", {})
    master = bench.master()
    submits(bench)
    buries(master, "odd")
    buries_whole(master)

    with pytest.raises(Refused) as refused:
        bench.client(token=viewer).replay_letters("numbers", {}, from_start=False, as_is=False, dry_run=False, repaired=None)
    assert refused.value.code == "role-lacking"
    dry = says("dead-letter", "replay", "numbers", "--dry-run")
    assert (dry["dry_run"], dry["replayed"], dry["refused"], dry["requests"]) == (True, 1, 3, [])
    lines = b"\n".join(msgspec.json.encode(each) for each in bench.client().dead_letters("numbers", prefix="kept:2:0")).replace(
        b'\\"id\\": 7', b'\\"id\\": 8'
    )
    (bench.folder / "letters.jsonl").write_bytes(lines)
    done = says("dead-letter", "replay", "numbers", "--repaired", bench.folder / "letters.jsonl")
    assert (done["replayed"], done["repaired"], done["entering"]) == (1, 1, [{"query": "kept", "at": "numbers", "count": 1}])
    again = says("dead-letter", "replay", "numbers", "--reason", "require")
    assert (again["replayed"], again["already"]) == (0, 1)
    groups = {group["reason"]: group for group in says("dead-letter", "list", "numbers")["groups"]}
    assert [(groups[reason]["asked"], groups[reason]["replayed"]) for reason in ("require", "raised")] == [(1, 0), (0, 0)]
    (bench.folder / "letters.jsonl").write_bytes(b'{"key": "kept:2"}\n')
    assert says("dead-letter", "replay", "numbers", "--repaired", bench.folder / "letters.jsonl")["code"] == "letters-file"
    assert says("dead-letter", "edit", "numbers", "kept:2:0", "--set", "id=1")["code"] == "letter-unknown"


def test_a_letter_is_repaired_by_operators_by_columns_whole_and_in_an_editor(
    bench: Bench, says: Says, monkeypatch: pytest.MonkeyPatch
) -> None:
    viewer = bench.tokens.add("vera", "viewer", {})
    master = bench.master()
    submits(bench)
    buries(master, "odd")
    part = buries_whole(master)
    with pytest.raises(Refused) as refused:
        bench.client(token=viewer).repair_letter("numbers", RepairLetter("kept:2:0", columns={"id": "8"}))
    assert refused.value.code == "role-lacking"
    seen = bench.client().repair_letter("numbers", RepairLetter("kept:2:0"))
    assert (seen.queries, seen.text, seen.row, seen.at) == ((), '{"id": 7, "ts": "2026-01-01T00:00:00Z"}', True, "numbers")
    assert read_repair(part, (2, 0)) is None

    done = says("dead-letter", "edit", "numbers", "kept:2:0", "--set", "id=8")
    assert (done["queries"], done["id"]) == (["kept"], "numbers/numbers:7#odd")
    assert msgspec.json.decode((read_repair(part, (2, 0)) or Repair()).payload or b"")["id"] == 8
    assert says("dead-letter", "edit", "numbers", "kept:2:0", "--set", "id=x")["code"] == "letter-refused"
    (bench.folder / "row.json").write_bytes(b'{"id": 9, "ts": "2026-01-01T00:00:00Z"}\n')
    assert says("dead-letter", "edit", "numbers", "kept:2:0", "--with", bench.folder / "row.json")["queries"] == ["kept"]
    edited: list[str] = []
    monkeypatch.setenv("EDITOR", "true")
    monkeypatch.setattr("click.edit", lambda text, **_: edited.append(text) or text.replace("9", "10"))
    assert says("dead-letter", "edit", "numbers", "kept:2:0")["queries"] == ["kept"]
    assert edited == ['{"id": 9, "ts": "2026-01-01T00:00:00Z"}\n']
    monkeypatch.setattr("click.edit", lambda *_, **__: None)
    assert says("dead-letter", "edit", "numbers", "kept:2:0")["queries"] == []
    stale = RepairLetter("kept:2:0", text='{"id": 11, "ts": "2026-01-01T00:00:00Z"}', digest=seen.digest)
    with pytest.raises(Refused) as refused:
        bench.client().repair_letter("numbers", stale)
    assert refused.value.code == "letter-changed"
    now = bench.client().repair_letter("numbers", RepairLetter("kept:2:0")).digest
    assert bench.client().repair_letter("numbers", replace(stale, digest=now)).queries == ("kept",)
    assert [letter.state for letter in bench.client().dead_letters("numbers", prefix="kept:2:0")] == ["repaired"]
    for body, code in (
        (RepairLetter("kept:9:9"), "letter-unknown"),
        (RepairLetter("kept:2:0", columns={"id": "1"}, text="x"), "body"),
        (RepairLetter("kept:2:0", text_base64="?"), "body"),
        (RepairLetter("kept:2:0", text_base64="/w=="), "letter-refused"),
    ):
        with pytest.raises(Refused) as wrong:
            bench.client().repair_letter("numbers", body)
        assert wrong.value.code == code, body
    assert says("dead-letter", "replay", "numbers", "kept:2:0")["repaired"] == 1
    assert says("dead-letter", "edit", "numbers", "kept:2:0", "--set", "id=1")["code"] == "letter-unknown"


def test_letters_of_a_flow_that_is_stopped_are_purged_by_operators_when_they_say_so(bench: Bench, says: Says) -> None:
    viewer = bench.tokens.add("vera", "viewer", {})
    master = bench.master()
    submits(bench)
    buries(master, "odd", "even")
    with pytest.raises(Refused) as refused:
        bench.client(token=viewer).purge_letters("numbers", {}, replayed=False, dry_run=True)
    assert refused.value.code == "role-lacking"
    asked = says("dead-letter", "purge", "numbers", "--step", "odd")
    assert (asked["code"], asked["message"].partition("3 dead letters of kept, 3 of which")[1] != "") == ("dead-purge-unsaid", True)
    assert says("dead-letter", "purge", "numbers", "--step", "odd", "--yes")["code"] == "flow-not-stopped"
    bench.person.commit(put(bench.person, STATUS("numbers"), StatusRecord(state="stopped", generation=1)))
    begins = says("dead-letter", "purge", "numbers", "--yes")
    assert (begins["code"], begins["message"]) == ("flow-not-stopped", "flow numbers is stopped, but its desired state is running")
    bench.client().want("numbers", "stopped")
    folder = StateFolder(master.plane.packages.folder.parent / "state", "numbers")
    with take_lease(folder):
        assert says("dead-letter", "purge", "numbers", "--yes")["code"] == "already-running"
    assert says("dead-letter", "list", "numbers")["dead"] == 4
    done = says("dead-letter", "purge", "numbers", "--step", "odd", "--yes")
    assert (done["purged"], done["unreplayed"], done["queries"]) == (3, 3, {"kept": 3})
    assert [letter.step for letter in bench.client().dead_letters("numbers")] == ["even"]
    assert says("dead-letter", "purge", "numbers", "--replayed", "--yes")["purged"] == 0
    assert says("audit", "numbers")["queries"][0]["dead"]["purged"] == 3
    with pytest.raises(Refused) as refused:
        bench.client(token=viewer).undo_purge("numbers")
    assert refused.value.code == "role-lacking"
    assert says("dead-letter", "purge", "numbers", "--undo", "none")["code"] == "trash-missing"
    undone = says("dead-letter", "purge", "numbers", "--undo", done["trash"]["id"])
    assert (undone["restored"], undone["queries"]) == (3, {"kept": 3})
    assert says("audit", "numbers")["queries"][0]["dead"] == {"decided": 4, "found": 4, "expired": 0, "purged": 0}
