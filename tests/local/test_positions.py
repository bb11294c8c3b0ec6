"""`offsets set`: what is passed over is never read; what is read again stands there twice, as was said; the ledger balances."""

import pytest

from scribengin.core import storage
from scribengin.core.errors import Refused
from scribengin.core.records import seal, unseal
from scribengin.local.audit import audit_flow
from scribengin.local.positions import move_back, move_forward, preview_move_back
from scribengin.local.prepare import prepare
from scribengin.state.dead_letters import read_letters
from scribengin.state.lease import take_lease
from scribengin.state.lineage import past_lineages

FLOW = """\
version: 1
name: moved
sources:
  rows: {type: files, path: data, format: json, schema: "id BIGINT", max_files: 1}
sinks:
  kept: {from: rows, type: files, path: out, format: json}
"""


def rows(*ids):
    return [{"id": id_} for id_ in ids]


def prepared_of(folder):
    return prepare(folder.path / "flow.yaml", state=None).tiers[0]


def audit_of(folder):
    return audit_flow(prepare(folder.path / "flow.yaml", state=None))


def back(folder, position, query="kept"):
    prepared = prepared_of(folder)
    with take_lease(prepared.folder) as lease:
        return move_back(prepared, prepared.folder.query(query), "rows", position, lease)


def three_files(folder):
    folder.flow(FLOW)
    for id_, name in enumerate("abc", 1):
        folder.data(f"data/{name}.jsonl", rows(id_))
    assert folder.run().state == "finished"
    return folder


def test_a_source_moves_forward_over_what_is_there_(folder):
    folder.flow(FLOW).data("data/a.jsonl", rows(1))
    assert folder.run().state == "finished"
    for name, id_ in (("b", 2), ("c", 3)):
        folder.data(f"data/{name}.jsonl", rows(id_))
    prepared = prepared_of(folder)
    query = prepared.folder.query("kept")
    moved = move_forward(prepared.plan.flow, query, "rows", 2)
    assert (moved.before, moved.after, moved.files) == (1, 2, 1)
    result = folder.run()
    assert (result.state, result.balanced) == ("finished", True)
    assert [row["id"] for row in folder.read("out")] == [1, 3]

    folder.data("data/d.jsonl", rows(4))
    moved = move_forward(prepared.plan.flow, query, "rows", None)
    assert (moved.before, moved.after) == (3, 4)
    folder.data("data/e.jsonl", rows(5))
    assert folder.run().balanced
    assert [row["id"] for row in folder.read("out")] == [1, 3, 5]


def test_a_source_goes_back_and_its_rows_stand_there_twice_as_was_said(folder):
    three_files(folder)
    query = prepared_of(folder).folder.query("kept")
    told = preview_move_back(query, "rows", 1)
    assert (told.before, told.after, told.files, dict(told.doubled)) == (3, 1, 2, {"kept": 2})
    moved = back(folder, 1)
    assert moved.lineage
    assert sorted(row["id"] for row in folder.read("out")) == [1, 2, 3], "nothing happens before the next run"
    folder.data("data/d.jsonl", rows(4))
    result = folder.run()
    assert (result.state, result.balanced) == ("finished", True)
    assert result.queries[0].rows.rows_in == 3, "the new lineage's own"
    assert sorted(row["id"] for row in folder.read("out")) == [1, 2, 2, 3, 3, 4]
    folder.data("data/e.jsonl", rows(5))
    assert folder.run().queries[0].this_run.rows_in == 1


def test_an_audit_reads_the_lineages_on_both_sides_of_a_rewind(folder):
    three_files(folder)
    moved = back(folder, 1)
    folder.run()
    audit = audit_of(folder)
    assert audit.balanced
    assert [(r.past, dict(r.starts), r.sinks[0].decided, r.sinks[0].found) for r in audit.reports] == [
        (True, {}, 3, 3),
        (False, {"rows": 1}, 2, 2),
    ]
    assert audit.reports[1].lineage == moved.lineage
    min((folder.path / "out").glob("part-*"), key=lambda path: path.stat().st_mtime).unlink()
    (past, now) = audit_of(folder).reports
    assert not past.balanced
    assert now.balanced


def test_a_lineage_can_be_left_again_and_again(folder):
    three_files(folder)
    for _ in range(2):
        back(folder, 2)
        folder.run()
    back(folder, 0)
    assert folder.run().balanced
    assert sorted(row["id"] for row in folder.read("out")) == [1, 1, 2, 2, 3, 3, 3, 3]
    audit = audit_of(folder)
    assert audit.balanced
    assert [dict(report.starts) for report in audit.reports] == [{}, {"rows": 2}, {"rows": 2}, {"rows": 0}]


def test_other_sources_of_the_query_go_on_where_they_are(folder):
    folder.flow(
        FLOW.replace("sinks:", '  more: {type: files, path: more, format: json, schema: "id BIGINT", max_files: 1}\nsinks:').replace(
            "from: rows", "from: [rows, more]"
        )
    )
    folder.data("data/a.jsonl", rows(1)).data("more/m.jsonl", rows(2))
    assert folder.run().balanced
    back(folder, 0)
    folder.data("more/n.jsonl", rows(3))
    assert folder.run().balanced
    assert sorted(row["id"] for row in folder.read("out")) == [1, 1, 2, 3]


def test_a_query_that_keeps_state_cannot_go_back(folder):
    folder.flow(
        FLOW.replace('schema: "id BIGINT"', 'schema: "id BIGINT, ts TIMESTAMP", watermark: ts 1m')
        .replace("sinks:", "steps:\n  once: {from: rows, dedupe: {key: [id], time: ts, within: 1m}}\nsinks:")
        .replace("from: rows, type", "from: once, type")
    )
    folder.data("data/a.jsonl", [{"id": 1, "ts": "2026-01-01T00:00:00Z"}])
    assert folder.run().balanced
    with pytest.raises(Refused, match="keeps state") as caught:
        preview_move_back(prepared_of(folder).folder.query("kept"), "rows", 0)
    assert "reset" in caught.value.remedy


def test_a_place_that_another_has_claimed_since_is_not_taken_back(folder, tmp_path):
    three_files(folder)
    owner = folder.path / "out" / "_scribengin" / "owner.json"
    claims = unseal(owner.read_bytes(), "owner", 1, owner)
    owner.write_bytes(seal("owner", 1, [*claims, claims[-1] | {"owner": "somebody"}]))
    with pytest.raises(Refused, match="another installation"):
        back(folder, 0)
    assert past_lineages(prepared_of(folder).folder.query("kept")) == []


def test_a_rewind_that_is_cut_short_is_completed_by_the_next_run(folder, monkeypatch):
    three_files(folder)
    with monkeypatch.context() as patched:
        patched.setattr(storage, "remove_tree", _pulled)
        with pytest.raises(OSError, match="pulled"):
            back(folder, 1)
    with pytest.raises(Refused, match="was interrupted"):
        audit_of(folder)
    with pytest.raises(Refused, match="another lineage"):
        folder.run()
    assert folder.run(append_new_lineage=True).balanced
    assert sorted(row["id"] for row in folder.read("out")) == [1, 2, 2, 3, 3]
    assert audit_of(folder).balanced


def _pulled(_path):
    raise OSError("the plug was pulled")


def test_dead_letters_of_the_left_lineage_stay_with_it(folder):
    folder.flow(FLOW).data("data/a.jsonl", [*rows(1), "not json"])
    folder.run()
    back(folder, 0)
    query = prepared_of(folder).folder.query("kept")
    assert list(read_letters(query)) == []
    ((past, _),) = past_lineages(query)
    assert len(list(read_letters(past))) == 1
    folder.run()
    assert len(list(read_letters(query))) == 1
    assert audit_of(folder).balanced
