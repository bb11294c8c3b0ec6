"""`dead list` and `dead show`, on letters that the state floor wrote and decided."""

import pytest

from scribengin.connectors.contract import BatchId
from scribengin.state.contract import DeadLetter, Decision
from scribengin.state.dead import DeadWriter
from scribengin.state.decisions import Decisions
from scribengin.state.folder import StateFolder
from scribengin.state.lineage import open_lineage

FLOW = """
version: 1
name: orders
sources:
  orders: {type: files, path: data, format: json, schema: "id BIGINT, amount DOUBLE"}
sinks:
  kept: {from: orders, type: files, path: out, format: json}
"""


@pytest.fixture
def flow(tmp_path):
    path = tmp_path / "flow.yaml"
    path.write_text(FLOW)
    return path


def bury(flow, letters, *, query="kept", decide=True):
    """Write letters as Batch 0 of a query, and decide it."""
    folder = StateFolder(flow.parent / ".scribengin", "orders")
    part = folder.query(query)
    lineage = open_lineage(part, owner=folder.read_owner(), fingerprint="f", state_fingerprint="", sources=["orders"])
    writer = DeadWriter(part.dead, "attempt")
    for letter in letters:
        writer.write(letter)
    segment = writer.close()
    if decide:
        batch = BatchId("orders", query, lineage.id, 0, 1)
        Decisions(part.decisions).decide(Decision(batch, "hash", "f", (), (), (segment,) if segment else ()))


def letter(number, *, step="orders", reason="malformed", payload=b'{"id": 1'):
    return DeadLetter(
        f"orders/data/a.jsonl:{number}#{step}",
        "kept",
        0,
        step,
        reason,
        "unexpected end",
        "orders",
        "data/a.jsonl",
        line=number,
        payload=payload,
    )


def test_letters_are_counted_by_query_step_and_reason(command, flow):
    bury(flow, [letter(1), letter(2), letter(3, step="tax", reason="raised")])
    result = command("dead", "list", flow, "--json").object["result"]
    assert result["dead"] == 3
    assert [(g["query"], g["step"], g["reason"], g["count"]) for g in result["groups"]] == [
        ("kept", "orders", "malformed", 2),
        ("kept", "tax", "raised", 1),
    ]
    text = command("dead", "list", flow).out
    assert "malformed" in text
    assert "data/a.jsonl line 1" in text


def test_letters_are_shown_whole_and_can_be_chosen(command, flow):
    bury(flow, [letter(1), letter(2, payload=b"\xff\xfe"), letter(3, step="tax")])
    letters = command("dead", "show", flow, "--json").object["result"]["letters"]
    assert [one["line"] for one in letters] == [1, 2, 3]
    assert letters[0]["payload"] == '{"id": 1'
    assert letters[1]["payload_base64"] == "//4="
    assert len(command("dead", "show", flow, "--limit", 2, "--json").object["result"]["letters"]) == 2
    assert len(command("dead", "show", flow, "--step", "tax", "--json").object["result"]["letters"]) == 1
    assert len(command("dead", "show", flow, "orders/data/a.jsonl:2", "--json").object["result"]["letters"]) == 1
    assert "\\xff\\xfe" in command("dead", "show", flow).out


def test_letters_of_an_undecided_batch_do_not_count(command, flow):
    bury(flow, [letter(1)], decide=False)
    assert command("dead", "list", flow, "--json").object["result"]["dead"] == 0
    assert "no dead letters" in command("dead", "list", flow).out
    assert "no dead letters" in command("dead", "show", flow).out


def test_a_flow_that_never_ran_and_a_query_that_is_not_there_are_told(command, flow):
    ended = command("dead", "list", flow, "--json")
    assert (ended.status, ended.codes) == (2, ["state-missing"])
    bury(flow, [letter(1)])
    ended = command("dead", "list", flow, "--query", "kep", "--json")
    assert "kept" in ended.object["problems"][0]["remedy"]


def test_letters_can_be_read_when_the_flow_has_mistakes_by_now(command, flow):
    bury(flow, [letter(1)])
    flow.write_text(FLOW.replace("from: orders", "from: gone"))
    assert command("dead", "list", flow, "--json").object["result"]["dead"] == 1


def test_the_state_folder_can_be_named(command, flow, tmp_path):
    bury(flow, [letter(1)])
    (flow.parent / ".scribengin").rename(tmp_path / "elsewhere")
    assert command("dead", "list", flow, "--json").status == 2
    assert command("dead", "list", flow, "--state", tmp_path / "elsewhere", "--json").object["result"]["dead"] == 1
