"""What an audit covers: the newest Batch once it is through, and all that lies at the places of the sinks."""

import json
import shutil
from dataclasses import replace

import pytest

from scribengin.connectors import files
from scribengin.local.audit import audit_as_json, audit_flow
from scribengin.local.prepare import prepare
from scribengin.state.lease import take_lease

FLOW = """\
version: 1
name: shop
sources:
  rows: {type: files, path: data, format: json, schema: "id BIGINT"}
sinks:
  kept: {from: rows, type: files, path: out, format: json}
"""


@pytest.fixture
def shop(folder):
    folder.flow(FLOW).data("data/a.jsonl", [{"id": 1}, {"id": 2}])
    assert folder.run().balanced
    return folder


def audited(folder):
    prepared = prepare(folder.path / "flow.yaml", state=None)
    return audit_as_json(prepared, audit_flow(prepared))


def test_rows_of_another_lineage_and_files_of_others_are_counted(shop):
    (sink,) = audited(shop)["queries"][0]["sinks"]
    assert sink["others"] == []
    first = audited(shop)["queries"][0]["lineage"]
    shutil.rmtree(shop.path / ".scribengin")
    shop.data("data/b.jsonl", [{"id": 3}])
    assert shop.run(append_new_lineage=True).balanced
    (shop.path / "out" / "notes.txt").write_text("of somebody else")
    found = audited(shop)
    (sink,) = found["queries"][0]["sinks"]
    assert (sink["decided"], sink["found"], found["ledger"]["balanced"]) == (3, 3, True)
    assert sink["others"] == [
        {"what": f"lineage {first}", "rows": 2, "items": 1},
        {"what": "that no record names", "rows": None, "items": 1},
    ]


def test_what_a_source_that_went_back_has_left_is_accounted_for(shop):
    from scribengin.local.positions import move_back

    prepared = prepare(shop.path / "flow.yaml", state=None).tiers[0]
    with take_lease(prepared.folder) as lease:
        move_back(prepared, prepared.folder.query("kept"), "rows", 0, lease)
    assert shop.run().balanced
    assert [sink["others"] for query in audited(shop)["queries"] for sink in query["sinks"]] == [[], []]


def test_the_newest_batch_is_left_out_only_while_it_is_under_way(shop):
    prepared = prepare(shop.path / "flow.yaml", state=None).tiers[0]
    query = prepared.folder.query("kept")
    with take_lease(prepared.folder):
        (report,) = audited(shop)["queries"]
        assert (report["batches"], report["left_out"], report["sinks"][0]["found"]) == (1, None, 2)
        (query.checkpoint / "commits" / "0").unlink()
        (report,) = audited(shop)["queries"]
        assert (report["batches"], report["left_out"], report["sinks"][0]["found"]) == (0, 0, 0)
    (report,) = audited(shop)["queries"]
    assert (report["batches"], report["left_out"]) == (1, None)


def test_an_audit_says_of_which_places_it_has_not_looked_at_all(shop, capsys, monkeypatch):
    from scribengin.cli.commands.audit import _show

    assert audited(shop)["queries"][0]["sinks"][0]["others"] == []
    monkeypatch.delattr("scribengin.connectors.files.sink.FilesSink.unaccounted")
    monkeypatch.setattr(files, "SINK", replace(files.SINK, abilities=files.SINK.abilities - {"finds_unaccounted"}))
    found = json.loads(json.dumps(audited(shop)))
    assert found["queries"][0]["sinks"][0]["others"] is None
    _show(found, "")
    said = capsys.readouterr().out
    assert "Not covered: other data that the place of kept holds." in said
    assert "What this flow wrote balances." in said
    assert "every record" not in said
    found["queries"][0]["sinks"][0]["others"] = []
    _show(found, "")
    said = capsys.readouterr().out
    assert "Not covered" not in said
    assert "every record that came in is accounted for" in said


def test_an_audit_of_nothing_does_not_say_that_all_is_well(shop, capsys):
    from scribengin.cli.commands.audit import _show

    found = audited(shop)
    found["queries"][0] |= {"batches": 0, "left_out": 0}
    _show(json.loads(json.dumps(found)), "")
    said = capsys.readouterr().out
    assert "Batch 0 is under way" in said
    assert "Nothing was audited" in said
    assert "balances" not in said


def test_rows_that_were_not_counted_are_not_shown_as_found(folder, capsys):
    from scribengin.cli.commands.audit import _show

    folder.flow(f"{FLOW}  shown: {{from: rows, type: console}}\n").data("data/a.jsonl", [{"id": 1}, {"id": 2}])
    assert folder.run().balanced
    capsys.readouterr()
    found = json.loads(json.dumps(audited(folder)))
    sinks = {sink["sink"]: sink for query in found["queries"] for sink in query["sinks"]}
    assert "counted" not in sinks["kept"]
    assert (sinks["shown"]["decided"], sinks["shown"]["found"], sinks["shown"]["counted"]) == (2, 2, False)
    _show(found, "")
    lines = {words[-3]: words for line in capsys.readouterr().out.splitlines() if len(words := line.split()) > 3 and "sink" in words}
    assert lines["kept"][-2:] == ["2", "2"]
    assert lines["counted)"][-2:] == ["2", "-"]
