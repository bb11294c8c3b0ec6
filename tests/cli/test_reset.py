"""`reset`: it lists what is removed, asks, and what it removed can be brought back, byte for byte, for a week."""

import json
import os
import re
import shlex
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from scribengin.cli import confirm
from scribengin.connectors.files.orphans import find_orphans
from scribengin.core.faults import VARIABLE
from scribengin.local.audit import audit_flow
from scribengin.local.prepare import prepare
from scribengin.local.reset import Reset, TrashKeeper
from scribengin.state import trash as trash_module
from scribengin.state.trash import KEPT, Trash

FLOW = """\
version: 1
name: shop
sources:
  rows: {type: files, path: data, format: json, schema: "id BIGINT, kind STRING", max_files: 1}
sinks:
  kept: {from: rows, type: files, path: out, format: json, partition_by: [kind]}
"""

NEXT = """\
version: 1
name: next
sources:
  rows: {type: files, path: "out/**", format: json, schema: "id BIGINT"}
sinks:
  kept: {from: rows, type: files, path: out2, format: json}
"""


def tree(folder: Path) -> dict[str, bytes]:
    """Every file of outputs and state, but what a lease leaves."""
    files = (path for top in ("out", ".scribengin") for path in (folder / top).rglob("*") if path.is_file())
    found = {str(path.relative_to(folder)): path.read_bytes() for path in files}
    return {name: data for name, data in found.items() if not re.search(r"/(lock|terms|tmp|code|ledger)(/|$)", name)}


def ids(folder):
    return sorted(json.loads(line)["id"] for part in (folder.path / "out").rglob("*.jsonl") for line in part.read_text().splitlines())


@pytest.fixture
def shop(folder):
    """Two Batches through, with a dead letter; the process that killed commands start takes this flow too."""
    folder.flow(FLOW)
    folder.data("data/a.jsonl", [{"id": 1, "kind": "x"}, {"id": 2, "kind": "y"}, "no record"])
    folder.data("data/b.jsonl", [{"id": 3, "kind": "x"}])
    assert folder.run().state == "finished"
    return folder


def test_without_a_person_to_ask_nothing_is_removed_and_all_that_would_be_is_listed(shop, command):
    before = tree(shop.path)
    ended = command("reset", "flow.yaml", "--outputs", "--json")
    (problem,) = ended.object["problems"]
    assert (ended.status, problem["code"]) == (2, "reset-unsaid")
    for part in ("2 Batches", "the positions of rows", "1 dead letter", "3 files in out"):
        assert part in problem["message"]
    assert "--yes" not in problem["remedy"]
    dry = command("reset", "flow.yaml", "--outputs", "--dry-run", "--json")
    assert dry.status == 0
    (query,) = dry.object["result"]["queries"]
    assert query == {
        "query": "kept",
        "tier": "main",
        "batches": 2,
        "positions": {"rows": 2},
        "dead_letters": 1,
        "replays": 0,
        "repairs": 0,
        "damaged": "",
    }
    assert dry.object["result"]["outputs"] == [{"sink": "kept", "place": "out", "items": 3, "restorable": True, "earlier": []}]
    assert tree(shop.path) == before


@pytest.mark.parametrize("answer", ["n", "y"])
def test_on_a_terminal_it_asks(shop, command, monkeypatch, answer):
    said = []
    monkeypatch.setattr(confirm, "_asks", lambda _: True)
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda prompt: said.append(prompt) or answer)
    ended = command("reset", "flow.yaml", "--outputs")
    assert said
    assert "1 dead letter" in ended.err
    assert ended.status == (0 if answer == "y" else 1)
    assert ids(shop) == ([] if answer == "y" else [1, 2, 3])


def test_what_was_removed_comes_back_byte_for_byte_and_the_flow_goes_on(shop, command):
    (shop.path / "out" / "mine.txt").write_text("of somebody else")
    before = tree(shop.path)
    ended = command("reset", "flow.yaml", "--outputs", "--yes", "--json")
    trash = ended.object["result"]["trash"]["id"]
    assert ids(shop) == []
    assert (shop.path / "out" / "mine.txt").exists()
    assert command("audit", "flow.yaml", "--json").codes == ["state-missing"]
    assert command("reset", "flow.yaml", "--undo", trash).status == 0
    assert tree(shop.path) == before
    assert not (shop.path / "out" / ".scribengin-trash").exists()
    shop.data("data/c.jsonl", [{"id": 4, "kind": "z"}])
    assert shop.run().balanced
    assert ids(shop) == [1, 2, 3, 4]
    assert command("audit", "flow.yaml").status == 0
    assert command("reset", "flow.yaml", "--undo", "--json").codes == ["trash-missing"]


def test_after_a_reset_all_is_read_again_and_its_trash_is_read_by_nobody(shop, command):
    assert command("reset", "flow.yaml", "--outputs", "--yes").status == 0
    assert shop.run().balanced
    assert ids(shop) == [1, 2, 3]
    (shop.path / "flow.yaml").write_text(NEXT)
    assert shop.run().state == "finished"
    assert sorted(row["id"] for row in shop.read("out2")) == [1, 2, 3]


@pytest.mark.executes("trash-taken")
def test_a_reset_is_not_undone_over_what_was_written_since_and_the_remedy_brings_both_back(shop, command):
    first = command("reset", "flow.yaml", "--outputs", "--yes", "--json").object["result"]["trash"]["id"]
    shop.data("data/c.jsonl", [{"id": 4, "kind": "z"}])
    assert shop.run().balanced
    before = tree(shop.path)
    ended = command("reset", "flow.yaml", "--undo", first, "--json")
    (problem,) = ended.object["problems"]
    assert (ended.status, problem["code"]) == (2, "trash-taken")
    assert tree(shop.path) == before
    commands = [shlex.split(found)[1:] for found in re.findall(r"scribengin [^;]+", problem["remedy"])]
    assert [each[0] for each in commands] == ["reset", "reset"]
    assert command(*commands[0], "--yes").status == 0
    assert command(*commands[1]).status == 0
    assert ids(shop) == [1, 2, 3]
    assert audit_flow(prepare(shop.path / "flow.yaml", state=None)).balanced


def test_after_a_reset_of_the_state_alone_the_refusal_says_how_to_undo_it(shop, command):
    assert command("reset", "flow.yaml", "--yes").status == 0
    with pytest.raises(Exception, match="another lineage") as refused:
        shop.run()
    assert refused.value.remedy.startswith("restore the data that a reset removed: scribengin reset FLOW --undo; or start over")
    (told,) = command("audit", "flow.yaml", "--json").object["problems"]
    assert told["remedy"] == "restore the data that a reset removed: scribengin reset flow.yaml --undo"
    assert command(*shlex.split(told["remedy"].partition(": scribengin ")[2])).status == 0
    assert shop.run().balanced
    assert ids(shop) == [1, 2, 3]


def test_of_two_resets_each_undo_says_what_it_brought_back_and_what_is_left(shop, command):
    first = command("reset", "flow.yaml", "--yes", "--json").object["result"]["trash"]["id"]
    assert command("reset", "flow.yaml", "--outputs", "--yes").status == 0
    said = command("reset", "flow.yaml", "--undo").out
    assert "3 files of sink kept" in said
    assert f"still in the trash: {first} (the state of query kept); scribengin reset flow.yaml --undo {first}" in said
    assert "the state of query kept" in command("reset", "flow.yaml", "--undo").out
    assert audit_flow(prepare(shop.path / "flow.yaml", state=None)).balanced


def test_a_query_whose_sink_is_not_in_the_flow_leaves_what_it_wrote(shop, command):
    shop.flow(FLOW.replace("kept: {", "other: {").replace("path: out,", "path: elsewhere,"))
    (line,) = command("reset", "flow.yaml", "--outputs", "--dry-run").out.splitlines()
    assert line.startswith("query kept: ")
    assert line.endswith("; no sink of the flow uses it any more, and its output is kept")


def killed(folder: Path, point: str, *words: str) -> int:
    """The status of a command that dies at a point."""
    environment = {**os.environ, VARIABLE: f"{point}:die"}
    command = [sys.executable, "-m", "scribengin.cli", "reset", "flow.yaml", *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False).returncode


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_reset_that_is_killed_goes_on_and_is_undone_as_a_whole(shop, command, nth):
    before = tree(shop.path)
    assert killed(shop.path, f"trash.moved@{nth}", "--outputs", "--yes") == -9
    assert command("reset", "flow.yaml", "--outputs", "--yes").status == 0
    assert ids(shop) == []
    assert len(Trash(shop.path / ".scribengin", "shop").all()) == 1
    assert killed(shop.path, "trash.restored@1", "--undo") == -9
    assert command("reset", "flow.yaml", "--undo").status == 0
    assert tree(shop.path) == before


def test_what_a_killed_reset_has_moved_is_nobodys_orphan(shop):
    assert killed(shop.path, "trash.moved@3", "--outputs", "--yes") == -9
    assert list((shop.path / "out" / ".scribengin-trash").rglob("*.removed"))
    assert [orphan for orphan in find_orphans(shop.path / "out") if orphan.foreign] == []


def test_a_run_over_half_a_reset_doubles_nothing(shop):
    assert killed(shop.path, "trash.moved@2", "--outputs", "--yes") == -9
    with pytest.raises(Exception, match="another lineage"):
        shop.run()


def test_what_is_older_than_a_week_is_deleted_by_the_next_run(shop, command, monkeypatch):
    assert command("reset", "flow.yaml", "--outputs", "--yes").status == 0
    trash = Trash(shop.path / ".scribengin", "shop")
    now = datetime.now(UTC)
    assert trash.drop_expired(now + KEPT - timedelta(minutes=1)) == []
    assert len(trash.drop_expired(now + KEPT + timedelta(minutes=1))) == 1
    assert not (shop.path / "out" / ".scribengin-trash").exists()
    assert trash.all() == []
    assert command("reset", "flow.yaml", "--yes").status == 0
    monkeypatch.setattr(trash_module, "KEPT", timedelta(seconds=-1))
    assert shop.run().balanced
    assert trash.all() == []


def test_a_flow_that_runs_on_empties_its_trash_by_the_hour(shop, command, monkeypatch):
    assert command("reset", "flow.yaml", "--yes").status == 0
    trash = Trash(shop.path / ".scribengin", "shop")
    monkeypatch.setattr(trash_module, "KEPT", timedelta(seconds=-1))
    clock = [0.0]
    keeper = TrashKeeper(prepare(shop.path / "flow.yaml", state=None), lambda: clock[0])
    clock[0] = 3599.0
    keeper.empty_old()
    assert len(trash.all()) == 1
    clock[0] = 3600.0
    keeper.empty_old()
    assert trash.all() == []


def test_a_flow_that_never_ran_has_nothing_to_remove(tmp_path, command):
    (tmp_path / "flow.yaml").write_text(FLOW)
    (tmp_path / "data").mkdir()
    ended = command("reset", "flow.yaml", "--outputs")
    assert (ended.status, ended.out) == (0, "nothing was removed: there was no state\n")


def test_a_copied_state_becomes_an_installation_of_its_own(shop, command, tmp_path_factory):
    copy = tmp_path_factory.mktemp("copy")
    subprocess.run(["cp", "-r", f"{shop.path}/.", copy], check=True)
    declared = prepare(copy / "flow.yaml", state=None)
    reset = Reset.of(declared.plan.flow, [(tier.plan.flow, tier.folder) for tier in declared.tiers], outputs=False)
    reset.run([])
    assert declared.tiers[0].folder.read_owner() != prepare(shop.path / "flow.yaml", state=None).tiers[0].folder.read_owner()
    assert ids(shop) == [1, 2, 3]


def test_an_audit_ends_once_with_what_to_do_about_files_that_are_gone(shop, command):
    path = shop.path / "flow.yaml"
    said = f"What to do: restore what is missing or was changed from a backup, or start over: scribengin reset {path} --outputs"
    assert "What to do" not in command("audit", str(path)).out
    first = next(part for part in (shop.path / "out").rglob("part-*.jsonl") if '"id":1' in part.read_text().replace(" ", ""))
    kept = first.read_bytes()
    first.unlink()
    ended = command("audit", str(path))
    assert ended.status == 1
    assert ended.out.count(said) == 1
    first.write_bytes(kept)
    assert command("audit", str(path)).status == 0
