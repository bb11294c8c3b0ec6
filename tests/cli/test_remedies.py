"""Remedies: what a refused flow is told to do works when it is pasted, and destroys nothing without asking."""

import ast
import json
import re
import shlex
import shutil
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

import scribengin
from scribengin.cli import confirm
from scribengin.cli.commands import run as run_command
from scribengin.cli.each_flow import each_flow
from scribengin.core.errors import Refused, ScribenginError
from scribengin.core.remedies import flow_command
from scribengin.local import background_compaction
from scribengin.local.audit import audit_as_json, audit_flow, planned_changes
from scribengin.local.prepare import prepare

SOURCE = Path(scribengin.__file__).parent

ROWS = """\
version: 1
name: shop
sources:
  rows: {type: files, path: data, format: json, schema: "id BIGINT, kind STRING"}
sinks:
  kept: {from: rows, type: files, path: out, format: json}
"""

COUNTS = """\
version: 1
name: shop
sources:
  rows: {type: files, path: data, format: json, schema: "id BIGINT, kind STRING, ts TIMESTAMP", watermark: ts 1m}
steps:
  counts: {from: rows, aggregate: {by: [kind], window: {time: ts, size: 1m}, columns: {n: count(*)}}}
sinks:
  kept: {from: counts, type: files, path: out, format: json}
"""

MINUTES = [{"id": n, "kind": "x", "ts": f"2026-03-01T10:{n:02}:00Z"} for n in range(10)]


def test_each_remedy_that_names_a_reset_is_built_in_one_place_and_none_confirms_it():
    found = []
    for file in SOURCE.rglob("*.py"):
        source = file.read_text()
        if file.name == "remedies.py" or not ("--yes" in source or "scribengin reset" in source):
            continue
        for node in ast.walk(ast.parse(source)):
            named = [keyword.value for keyword in node.keywords if keyword.arg == "remedy"] if isinstance(node, ast.Call) else []
            texts = [
                part.value for value in named for part in ast.walk(value) if isinstance(part, ast.Constant) and isinstance(part.value, str)
            ]
            found += [f"{file.name}:{node.lineno}: {text}" for text in texts if "--yes" in text or "scribengin reset" in text]
    assert found == []


def commands_in(remedy):
    """The commands of a remedy, in their order."""
    return [shlex.split(found.strip("`. "))[1:] for found in re.findall(r"scribengin [^;,]+", remedy)]


@pytest.fixture
def follow(folder, command, monkeypatch):
    """Does what one command of a remedy says, as a person who answers yes."""
    monkeypatch.setattr(confirm, "_asks", lambda _: True)
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda prompt: "y")

    def does(words):
        if words[0] == "run":
            assert Path(words[1]).name == "flow.yaml"
            assert folder.run(append_new_lineage="--append-new-lineage" in words).balanced
        elif words == ["list"]:
            assert "[not-up]" in command(*words).err, "no control plane runs it"
        else:
            ended = command(*words)
            assert ended.status == 0, ended.err

    return does


def run_of(folder):
    """A run's remedy; empty where it runs."""
    try:
        result = folder.run()
    except ScribenginError as error:
        return prepare(folder.path / "flow.yaml", state=None).named(error.remedy)
    return "; ".join(query.remedy for query in result.queries if query.remedy)


def changed_step(folder):
    folder.flow(COUNTS)
    for name in "ab":
        folder.data(f"data/{name}.jsonl", MINUTES)
        assert folder.run().balanced
    folder.flow(COUNTS.replace("by: [kind]", "by: [kind, id]"))


def changed_type(folder):
    folder.flow(ROWS).data("data/a.jsonl", [{"id": 1, "kind": "x"}])
    assert folder.run().balanced
    folder.flow(ROWS.replace("type: files, path: out, format: json}", "type: console}"))


def renamed_source(folder):
    folder.flow(ROWS).data("data/a.jsonl", [{"id": 1, "kind": "x"}])
    assert folder.run().balanced
    folder.flow(ROWS.replace("rows", "records"))


def lost_state(folder):
    folder.flow(ROWS).data("data/a.jsonl", [{"id": 1, "kind": "x"}])
    assert folder.run().balanced
    shutil.rmtree(folder.path / ".scribengin")


def copied_state(folder):
    folder.flow(ROWS).data("data/a.jsonl", [{"id": 1, "kind": "x"}])
    assert folder.run().balanced
    (folder.path / ".scribengin").rename(folder.path / ".moved")
    prepare(folder.path / "flow.yaml", state=folder.path / ".moved").tiers[0].folder.read_owner()  # that one is the original now
    shutil.copytree(folder.path / ".moved", folder.path / ".scribengin")
    folder.flow(ROWS.replace("path: out", "path: out_of_copy"))


def renamed_folders(folder):
    """Of a store: some of them are closed."""
    by_time = "partition_by: [{time: ts, path: 'dt=%Y-%m-%d'}], close: {delay: 1m}"
    sink = f"type: objects, url: 'file://{folder.path}/store', {by_time}, format: json"
    flow = re.sub(r"steps:\n.*\n", "", COUNTS).replace("from: counts, type: files, path: out, format: json", f"from: rows, {sink}")
    folder.flow(flow).data("data/a.jsonl", MINUTES)
    assert folder.run().balanced
    folder.flow(flow.replace("dt=", "day="))


@pytest.mark.executes("state-copied", "state-changed", "output-form", "sink-type-changed", "output-foreign", "source-renamed")
@pytest.mark.parametrize("case", [copied_state, changed_step, changed_type, lost_state, renamed_source, renamed_folders])
def test_what_a_refused_run_says_lets_it_run(folder, follow, monkeypatch, case):
    monkeypatch.chdir(folder.path)
    case(folder)
    commands = commands_in(run_of(folder))
    assert commands, "a remedy has a command"
    for words in commands:
        follow(words)
    assert run_of(folder) == ""
    prepared = prepare(folder.path / "flow.yaml", state=None)
    audit = audit_as_json(prepared, audit_flow(prepared))
    assert audit["ledger"]["balanced"]
    if case not in (lost_state, copied_state):
        assert [sink["others"] for query in audit["queries"] for sink in query["sinks"] if "others" in sink] in ([[]], [])


def test_the_plan_says_the_same_before_it_is_run(folder, monkeypatch):
    monkeypatch.chdir(folder.path)
    changed_step(folder)
    (change,) = planned_changes(prepare(Path("flow.yaml"), state=None)).queries
    assert (change.fate, change.remedy) == ("refused", run_of(folder).replace(str(folder.path / "flow.yaml"), "flow.yaml"))
    assert 'give sink "kept" another id' in change.remedy
    assert change.remedy.endswith("start over: scribengin reset flow.yaml --outputs")


def test_the_plan_says_what_would_be_computed_again_and_whether_it_is_still_there(folder):
    changed_step(folder)

    def says():
        (change,) = planned_changes(prepare(folder.path / "flow.yaml", state=None)).queries
        return change.again

    (sentence,) = says()
    assert re.fullmatch(r"rows from its start, 2 files, [0-9.]+ KiB: all of them exist", sentence)
    (folder.path / "data" / "b.jsonl").unlink()
    (sentence,) = says()
    assert sentence.endswith("b.jsonl no longer exists")


def test_a_new_sink_beside_the_old_one_loses_nothing(folder):
    """The way of a changed stateful step that destroys nothing."""
    changed_step(folder)
    old = folder.read("out")
    assert old
    text = (folder.path / "flow.yaml").read_text()
    folder.flow(text.replace("kept: {from", "kept_v2: {from").replace("path: out,", "path: out_v2,"))
    assert folder.run().balanced
    assert folder.read("out") == old
    assert folder.read("out_v2")


# --- the state is elsewhere, and so says each command ---


@pytest.fixture
def state(tmp_path):
    return tmp_path / "the state"


@pytest.fixture
def away(folder, command, monkeypatch):
    """A folder with a flow of whose four records three are dead letters; and whose state is not at the default place; `run` runs it as
    `scribengin run` does, in the Spark of the tests."""
    folder.flow(ROWS).data("data/a.jsonl", [{"id": 1, "kind": "x"}, "no", "record", "here"])

    def runs(_paths, settings, _display):
        return folder.run(state=settings.state)

    monkeypatch.setattr(run_command, "_run", runs)
    return folder


def printed(text):
    """The one command that a text prints, without the word scribengin."""
    (found,) = re.findall(r"scribengin ([^;\n]+?)(?: \[[a-z-]+\])?(?=;|$)", text, re.MULTILINE)
    return shlex.split(found)


@pytest.mark.executes("mostly-dead")
def test_what_a_run_says_of_its_dead_letters_finds_them(away, command, state):
    ended = command("run", "flow.yaml", "--once", "--state", state)
    assert ended.status == 1, "most of it is dead letters"
    for text in (ended.out, ended.err):
        found = command(*printed(text), "--json")
        assert (found.status, found.object["result"]["dead"]) == (0, 3), text


def test_what_status_says_of_dead_letters_finds_them(away, command, state):
    away.run(state=state)
    found = command(*printed(command("status", "flow.yaml", "--state", state).out), "--json")
    assert found.object["result"]["dead"] == 3


def test_what_was_reset_comes_back_by_the_commands_that_were_printed(away, command, state):
    away.run(state=state)
    first = command("reset", "flow.yaml", "--state", state, "--yes").out
    away.run(state=state, append_new_lineage=True)
    second = command("reset", "flow.yaml", "--state", state, "--yes").out
    left = command(*printed(second))
    assert left.status == 0
    assert printed(left.out) == printed(first), "it names what is still in the trash"
    assert command("dead-letter", "list", "flow.yaml", "--state", state, "--json").object["result"]["dead"] == 3
    assert command("reset", "flow.yaml", "--state", state, "--yes").status == 0
    assert command(*printed(first)).status == 0


def repair_one(folder, command, state):
    """Repairs a dead letter, and gives back what that prints."""
    (letter, *_) = command("dead-letter", "show", "flow.yaml", "--state", state, "--json").object["result"]["letters"]
    (folder.path / "repaired").write_text('{"id": 2, "kind": "y"}')
    return command("dead-letter", "edit", "flow.yaml", letter["key"], "--with", "repaired", "--state", state).out


def test_a_repaired_letter_is_replayed_and_read_by_the_commands_that_were_printed(away, command, state):
    away.run(state=state)
    replayed = command(*printed(repair_one(away, command, state)))
    assert "1 are on their way" in replayed.out
    assert command(*printed(replayed.out), "--once").status == 0
    assert sorted(row["id"] for row in away.read("out")) == [1, 2]


def test_the_remedy_of_a_letter_that_stays_is_a_command_that_works(away, command, state):
    away.run(state=state)
    away.flow(ROWS.replace("kept:", "renamed:").replace("path: out", "path: out2"))
    refused = command("dead-letter", "replay", "flow.yaml", "--yes", "--state", state, "--json").object["result"]["refusals"]
    exported = command(*printed(refused[0]["remedy"]))
    assert exported.status == 0, exported.err
    assert len((away.path / "FILE").read_text().splitlines()) == 3


def test_a_run_that_leaves_letters_behind_says_how_to_see_them(away, command, state):
    away.run(state=state)
    command(*printed(repair_one(away, command, state)))
    away.flow(ROWS.replace("kept:", "renamed:").replace("path: out", "path: out2"))
    notices = []
    away.run(lambda view: notices.extend(view.notices), state=state)
    (notice,) = {each for each in notices if "dead-letter list" in each}
    assert command(*printed(notice), "--json").object["result"]["dead"] == 6


def test_a_remedy_for_one_of_several_flows_names_that_flow():
    @each_flow("flow", all_without=True)
    def fails(**_given):
        raise Refused("no", remedy=flow_command("dead-letter show"))

    plane = SimpleNamespace(flows=lambda: [SimpleNamespace(flow="shop"), SimpleNamespace(flow="tweets")])
    answer = fails(labels={}, masters=SimpleNamespace(reader=lambda: nullcontext(plane)), flow="")
    assert [problem.remedy for problem in answer.problems] == ["scribengin dead-letter show shop", "scribengin dead-letter show tweets"]


# --- codes that a run or its letters print: the remedy is typed as it is ---


def remedy_of(ended, code):
    """The one command of a problem."""
    problem = next(each for each in ended.object["problems"] if each["code"] == code)
    return printed(problem["remedy"])


@pytest.mark.executes("letter-unknown")
def test_letter_unknown(away, command, state):
    away.run(state=state)
    words = remedy_of(
        command("dead-letter", "edit", "flow.yaml", "kept:9:9", "--set", "id=1", "--state", state, "--json"), "letter-unknown"
    )
    assert len(command(*words, "--json").object["result"]["letters"]) == 3


@pytest.mark.executes("letters-file")
def test_letters_file(away, command, state):
    away.run(state=state)
    (away.path / "mine").write_text('{"id": 1}\n')
    words = remedy_of(command("dead-letter", "replay", "flow.yaml", "--repaired", "mine", "--state", state, "--json"), "letters-file")
    assert command(*words).status == 0
    exported = (away.path / "FILE").read_text().splitlines()
    (away.path / "FILE").write_text(json.dumps(json.loads(exported[0]) | {"payload": '{"id": 2}'}) + "\n")
    replayed = command("dead-letter", "replay", "flow.yaml", "--repaired", "FILE", "--state", state, "--json").object["result"]
    assert (replayed["replayed"], replayed["repaired"]) == (1, 1)


@pytest.mark.executes("dead-purge-unsaid")
def test_dead_purge_unsaid(away, command, state):
    away.run(state=state)
    ended = command("dead-letter", "purge", "flow.yaml", "--state", state, "--json")
    (problem,) = ended.object["problems"]
    assert problem["code"] == "dead-purge-unsaid"
    copy, _, _ = problem["remedy"].partition("; or run it on a terminal")
    assert command(*printed(copy)).status == 0
    assert len((away.path / "FILE").read_text().splitlines()) == 3


@pytest.mark.executes("position-unknown")
def test_position_unknown(away, command, state):
    away.run(state=state)
    words = remedy_of(command("offsets", "set", "flow.yaml", "rows", "99", "--yes", "--state", state, "--json"), "position-unknown")
    assert command(*words).status == 0


def failing(folder, state):
    """The problem of a run that stops over a file of which too much is dead letters."""
    folder.flow(f"{ROWS}max_dead: 1\n")
    (problem,) = folder.run(state=state).problems
    assert problem.code == "max-dead"
    return problem


@pytest.mark.executes("max-dead")
@pytest.mark.parametrize("corrected", ["a", "b"])
def test_max_dead(away, command, state, corrected):
    """A wrong file that is corrected, or removed with another one beside it, is read as a new one."""
    problem = failing(away, state)
    assert "correct or remove it, then skip the file: " in problem.remedy
    (away.path / "data/a.jsonl").unlink()
    away.data(f"data/{corrected}.jsonl", [{"id": 5, "kind": "x"}])
    assert command(*(word.replace("FILE", "data/a.jsonl") for word in printed(problem.remedy))).status == 0
    assert away.run(state=state).state == "finished"
    assert [row["id"] for row in away.read("out")] == [5]


@pytest.mark.executes("source")
def test_a_file_that_was_taken_and_is_gone(away, command, state):
    failing(away, state)
    (away.path / "data/a.jsonl").unlink()
    away.data("data/b.jsonl", [{"id": 5, "kind": "x"}])
    (problem,) = away.run(state=state).problems
    assert "is missing; it had" in problem.message
    assert command(*printed(problem.remedy)).status == 0
    assert away.run(state=state).state == "finished"
    assert [row["id"] for row in away.read("out")] == [5]


def test_a_letter_that_is_refused_is_repaired_by_the_command_that_says_so(away, command, state, monkeypatch):
    """The command asks in an editor."""
    editor = away.path / "editor.sh"
    editor.write_text('#!/bin/sh\necho \'{"id": 2, "kind": "y"}\' > "$1"\n')
    editor.chmod(0o755)
    monkeypatch.setenv("EDITOR", str(editor))
    away.run(state=state)
    ask = ("dead-letter", "replay", "flow.yaml", "--yes", "--state", state, "--json")
    refused = command(*ask).object["result"]["refusals"]
    assert len(refused) == 3
    for row in refused:
        assert command(*printed(row["remedy"])).status == 0
    assert command(*ask).object["result"]["replayed"] == 3


def test_what_is_hidden_when_a_run_ends_is_shown_by_the_commands_that_say_so(folder, command, state, monkeypatch):
    folder.flow(ROWS.replace("path: out,", "path: out, roll: {every: 1h},")).data("data/a.jsonl", [{"id": 1, "kind": "x"}])

    def fails(*_args, **_named):
        raise RuntimeError("for a moment")

    with monkeypatch.context() as patch:
        patch.setattr(background_compaction, "roll_folder", fails)
        (problem,) = folder.run(state=state).problems
    assert folder.read("out") == [], "what is hidden has other names"
    audit, maintain = commands_in(problem.remedy)
    assert command(*audit).status == 0
    assert command(*maintain).status == 0
    assert [row["id"] for row in folder.read("out")] == [1]
