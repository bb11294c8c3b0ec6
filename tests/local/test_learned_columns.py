"""`evolve: add`: a start never fails for a column that the data had, and a state stays when one is taken in."""

import pytest

from scribengin.connectors.contract import BatchId
from scribengin.core.errors import InputError
from scribengin.formats.notice import FormatNotice
from scribengin.local.prepare import prepare
from scribengin.local.schema_drift import sentence, why_new_dropped
from scribengin.state.columns import learn
from scribengin.state.contract import Decision
from scribengin.state.decisions import Decisions
from scribengin.state.folder import StateFolder
from scribengin.state.lineage import open_lineage

FLOW = """\
version: 1
name: orders
sources:
  a: {type: files, path: a, format: json, schema: {fields: "id BIGINT, amount DOUBLE", evolve: add}}
%s
"""
KEPT = "sinks:\n  kept: {from: %s, type: files, path: out, format: json}\n"
OTHER = "  b: {type: files, path: b.csv, format: csv, schema: 'id BIGINT, title STRING', static: true}\n"
ONCE = "  once: {from: %s, dedupe: {key: [id]}}\n"


def new(column, type_="STRING"):
    return FormatNotice("a", column, "new", type_, "a/1.jsonl", 1)


def planned(tmp_path, rest, *learned):
    path = tmp_path / "flow.yaml"
    path.write_text(FLOW % rest)
    for each in learned:
        learn(tmp_path / ".scribengin", "orders", each, "2026-01-01T00:00:00Z")
    return prepare(path, state=None).plan


def columns(plan):
    return plan.flow.sources["a"].schema.fields.names


def test_a_state_behind_a_select_stays_when_a_column_is_taken_in(tmp_path):
    rest = (
        "steps:\n  some: {from: a, select: {id: id, at: CAST(id AS TIMESTAMP)}, watermark: at 10m}\n"
        + ONCE % "some"
        + "sinks:\n  kept: {from: once, type: console}\n"
    )
    before = planned(tmp_path, rest)
    after = planned(tmp_path, rest, new("note"))
    assert columns(after) == ("id", "amount", "note")
    (was,), (now,) = (plan.tiers[0].queries for plan in (before, after))
    assert was.state_fingerprint
    assert was.state_fingerprint == now.state_fingerprint
    assert was.fingerprint != now.fingerprint


@pytest.mark.parametrize(
    ("rest", "column", "why"),
    [
        (KEPT % "a", "_sg_at", "names that begin with _sg_ are reserved"),
        (KEPT % "a", "Amount", 'the schema has "amount"'),
        (
            'steps:\n  s: {from: a, sql: "SELECT *, amount + 1 AS total FROM a"}\n' + KEPT % "s",
            "Total",
            "already has a column of that name",
        ),
        (OTHER + "steps:\n  j: {from: [a, b], join: {key: [id], how: left}}\n" + KEPT % "j", "title", "a and b both have title"),
        (OTHER.replace(", static: true", "").replace("title STRING", "amount DOUBLE") + KEPT % "[a, b]", "note", "note"),
    ],
)
def test_a_column_with_which_the_flow_could_not_start_is_left_out_and_told(tmp_path, rest, column, why):
    plan = planned(tmp_path, rest, new(column), new("fine"))
    told = sentence(new(column), "add", why_new_dropped(plan.flow, new(column)))
    assert "it is dropped: " in told
    assert why in told
    assert column not in columns(plan)
    assert ("fine" in columns(plan)) == (column != "note")


def test_columns_that_may_be_added_reach_no_sink_whose_columns_stay(tmp_path):
    csv = (KEPT % "a").replace("json", "csv")
    with pytest.raises(InputError, match="read by column position"):
        planned(tmp_path, csv)
    with pytest.raises(InputError, match="evolve: strict"):
        planned(tmp_path, (KEPT % "a").replace("json", "json, evolve: strict"))
    narrow = 'steps:\n  s: {from: a, sql: "SELECT id, amount * 2 AS twice FROM a"}\n' + csv.replace("from: a", "from: s")
    assert columns(planned(tmp_path, narrow, new("note"))) == ("id", "amount", "note")
    assert columns(planned(tmp_path, csv.replace("csv", "csv, evolve: any"), new("note"))) == ("id", "amount", "note")


@pytest.mark.parametrize("tier", ["main", "edge"])
def test_what_a_kill_kept_from_being_learned_is_taken_in_at_the_very_next_start(tmp_path, tier):
    """Also of a flow that was cut into tiers before, which goes without `evolve: add`."""
    folder = StateFolder(tmp_path / ".scribengin", "orders", tier)
    lineage = open_lineage(folder.query("kept"), owner=folder.read_owner(), fingerprint="f", state_fingerprint="", sources=["a"])
    batch = BatchId("orders", "kept", lineage.id, 0, 1)
    decision = Decision(batch, "hash", "f", (), (), (), {}, "2026-01-01T00:00:00Z", noticed=(new("note"), new("_sg_x")))
    Decisions(folder.query("kept").decisions).decide(decision)
    assert columns(planned(tmp_path, KEPT % "a")) == ("id", "amount", "note")
