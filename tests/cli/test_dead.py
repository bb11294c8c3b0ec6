"""`dead-letter list` and `dead-letter show`, on letters that the state floor wrote and decided."""

import json
import re
from dataclasses import replace

import pytest

from scribengin.cli.dead_letters import _whole, _written
from scribengin.connectors.contract import BatchId
from scribengin.core.errors import Refused
from scribengin.state.contract import DeadLetter, Decision
from scribengin.state.dead_letters import DeadWriter
from scribengin.state.decisions import Decisions
from scribengin.state.folder import StateFolder
from scribengin.state.lease import take_lease
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


def bury(flow, letters, *, query="kept", decide=True, batch=0):
    """Write letters as a Batch of a query, and decide it."""
    folder = StateFolder(flow.parent / ".scribengin", "orders")
    part = folder.query(query)
    lineage = open_lineage(part, owner=folder.read_owner(), fingerprint="f", state_fingerprint="", sources=["orders"])
    writer = DeadWriter(part.dead, "attempt")
    for letter in letters:
        writer.write(letter)
    segment = writer.close()
    if decide:
        id_ = BatchId("orders", query, lineage.id, batch, 1)
        Decisions(part.decisions).decide(Decision(id_, "hash", "f", (), (), (segment,) if segment else ()))


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
        record=f"orders/a.jsonl+{number - 1}",
    )


def test_letters_are_counted_by_query_step_and_reason(command, flow):
    bury(flow, [letter(1), letter(2), letter(3, step="tax", reason="raised")])
    result = command("dead-letter", "list", flow, "--json").object["result"]
    assert result["dead"] == 3
    assert [(g["query"], g["step"], g["reason"], g["count"]) for g in result["groups"]] == [
        ("kept", "orders", "malformed", 2),
        ("kept", "tax", "raised", 1),
    ]
    text = command("dead-letter", "list", flow).out
    assert "malformed" in text
    assert "data/a.jsonl line 1" in text


def test_letters_are_shown_whole_and_can_be_chosen(command, flow):
    bury(flow, [letter(1), letter(2, payload=b"\xff\xfe"), letter(3, step="tax")])
    letters = command("dead-letter", "show", flow, "--json").object["result"]["letters"]
    assert [one["line"] for one in letters] == [1, 2, 3]
    assert letters[0]["payload"] == '{"id": 1'
    assert letters[1]["payload_base64"] == "//4="
    assert len(command("dead-letter", "show", flow, "--limit", 2, "--json").object["result"]["letters"]) == 2
    assert len(command("dead-letter", "show", flow, "--step", "tax", "--json").object["result"]["letters"]) == 1
    assert len(command("dead-letter", "show", flow, "orders/data/a.jsonl:2", "--json").object["result"]["letters"]) == 1
    assert "\\xff\\xfe" in command("dead-letter", "show", flow).out


def test_one_short_id_names_a_letter_everywhere(command, flow):
    bury(flow, [letter(1), letter(2, payload=b'{"id": 2}')])
    shows = command("dead-letter", "show", flow).out
    assert shows.startswith("kept:0:0  ")
    assert "orders/data/a.jsonl:1" not in shows
    lists = command("dead-letter", "list", flow).out
    assert "kept:0:0" in lists.splitlines()[1]
    assert f"to see one in full: scribengin dead-letter show {flow} kept:0:0\n" in lists
    (shown,) = command("dead-letter", "show", flow, "kept:0:1", "--json").object["result"]["letters"]
    assert shown["key"] == "kept:0:1"
    assert command("dead-letter", "list", flow, "kept:0:1", "--json").object["result"]["dead"] == 1
    (traced,) = command("trace", flow, "kept:0:1", "--json").object["result"]["dead"]
    assert traced["letter"] == shown["id"]
    assert command("trace", flow, shown["id"], "--json").object["result"]["dead"] == [traced]
    refused = command("dead-letter", "replay", flow, "kept:0:0").out
    assert refused.startswith("kept:0:0 stays: ")
    assert f"scribengin dead-letter edit {flow} kept:0:0" in refused
    assert command("dead-letter", "edit", flow, "kept:0:1", "--set", "id=3").out.startswith("kept:0:1: repaired for kept")
    assert command("dead-letter", "replay", flow, "kept:0:1", "--json").object["result"]["replayed"] == 1


def test_all_letters_are_replayed_only_when_a_person_agrees(command, flow, monkeypatch):
    bury(flow, [letter(number, payload=b'{"id": 1}') for number in (1, 2, 3)])
    ended = command("dead-letter", "replay", flow, "--json")
    assert ended.codes == ["dead-replay-unsaid"]
    (problem,) = ended.object["problems"]
    assert "this replays all open dead letters: 3 dead letters; 3 of them" in problem["message"]
    assert "3 of them are not repaired: they fail again unless the step or sink that refused them has changed" in problem["message"]
    assert problem["remedy"].startswith(
        "choose dead letters by an ID, --step or --reason, or list them first: --dry-run; or run it on a terminal"
    )
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    asked = []
    monkeypatch.setattr("click.confirm", lambda text, **_: asked.append(text) or True)
    ended = command("dead-letter", "replay", flow, "kept:0:0")
    assert (asked, "1 of them are not repaired" in ended.err) == ([], True)
    assert "2 are on their way, 1 were already asked for" in command("dead-letter", "replay", flow).out
    assert asked == ["Go on?"]
    assert command("dead-letter", "replay", flow, "--json").object["result"]["already"] == 3
    assert asked == ["Go on?"]


def test_letters_of_an_undecided_batch_do_not_count(command, flow):
    bury(flow, [letter(1)], decide=False)
    assert command("dead-letter", "list", flow, "--json").object["result"]["dead"] == 0
    assert "no dead letters" in command("dead-letter", "list", flow).out
    assert "no dead letters" in command("dead-letter", "show", flow).out


def test_a_flow_that_never_ran_and_a_query_that_is_not_there_are_told(command, flow):
    ended = command("dead-letter", "list", flow, "--json")
    assert (ended.status, ended.codes) == (2, ["state-missing"])
    bury(flow, [letter(1)])
    ended = command("dead-letter", "list", flow, "--query", "kep", "--json")
    assert "kept" in ended.object["problems"][0]["remedy"]


def test_letters_can_be_read_when_the_flow_has_mistakes_by_now(command, flow):
    bury(flow, [letter(1)])
    flow.write_text(FLOW.replace("from: orders", "from: gone"))
    assert command("dead-letter", "list", flow, "--json").object["result"]["dead"] == 1


def test_the_state_folder_can_be_named(command, flow, tmp_path):
    bury(flow, [letter(1)])
    (flow.parent / ".scribengin").rename(tmp_path / "elsewhere")
    assert command("dead-letter", "list", flow, "--json").status == 2
    assert command("dead-letter", "list", flow, "--state", tmp_path / "elsewhere", "--json").object["result"]["dead"] == 1


def test_a_letter_is_repaired_by_column_file_or_editor_if_the_flow_would_take_it(command, flow, tmp_path, monkeypatch):
    good = b'{"id": 1, "amount": "2.5"}'
    bury(flow, [letter(1), replace(letter(2, reason="wrong-type", payload=good), form="bytes")])
    ended = command("dead-letter", "edit", flow, "kept:0:0", "--set", "id=2", "--json")
    assert (ended.status, ended.codes) == (2, ["letter-columns"])
    ended = command("dead-letter", "edit", flow, "kept:0:1", "--set", "amount=x", "--json")
    assert ended.codes == ["letter-refused"]
    assert "amount" in ended.object["problems"][0]["message"]
    assert command("dead-letter", "edit", flow, "orders/", "--set", "id=2", "--json").codes == ["letter-unknown"]
    assert command("dead-letter", "edit", flow, "kept:0:9", "--set", "id=2", "--json").codes == ["letter-unknown"]
    assert command("dead-letter", "edit", flow, "kept:0:1", "--set", "amount", "--json").status == 2
    ended = command("dead-letter", "edit", flow, "kept:0:1", "--set", "amonut=2.5", "--json")
    assert ended.codes == ["letter-columns"]
    assert ended.object["problems"][0]["remedy"] == 'did you mean "amount"?'
    assert "kept:0:1 --from-start" in command("dead-letter", "edit", flow, "kept:0:1", "--from-start", "--set", "amount=2.25").out
    assert command("dead-letter", "edit", flow, "kept:0:1", "--set", "amount=2.5", "--json").object["result"]["queries"] == ["kept"]
    assert "nothing was changed" in command("dead-letter", "edit", flow, "kept:0:1", "--set", "amount=2.5").out
    (tmp_path / "whole.json").write_text('{"id": 3}\n')
    assert command("dead-letter", "edit", flow, "kept:0:0", "--with", tmp_path / "whole.json").status == 0
    assert command("dead-letter", "edit", flow, "kept:0:0", "--with", tmp_path / "gone.json", "--json").status == 3
    monkeypatch.setenv("EDITOR", "sed -i s/3/4/")
    assert command("dead-letter", "edit", flow, "orders/a.jsonl+0").status == 0
    (group, _) = command("dead-letter", "list", flow, "--json").object["result"]["groups"]
    assert group["repaired"] == 1
    assert [each["payload"] for each in command("dead-letter", "show", flow, "--json").object["result"]["letters"]] == [
        '{"id": 4}',
        '{"id":1,"amount":2.5}',
    ]


@pytest.mark.executes("editor-no-terminal")
@pytest.mark.parametrize("editor", ["", "vim", "/usr/bin/nano -w"])
def test_without_a_terminal_no_editor_is_opened_that_needs_one(command, flow, monkeypatch, editor):
    bury(flow, [letter(1, payload=b'{"id": 1}')])
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", editor)
    monkeypatch.setattr("click.edit", lambda *_, **__: pytest.fail("an editor was opened"))
    ended = command("dead-letter", "edit", flow, "kept:0:0", "--query", "kept", "--json")
    assert (ended.status, ended.codes) == (2, ["editor-no-terminal"])
    (problem,) = ended.object["problems"]
    (told,) = re.findall("scribengin (.*?);", problem["remedy"])
    assert told == f"dead-letter edit {flow} kept:0:0 --query kept --set COLUMN=VALUE"
    assert command(*told.replace("COLUMN=VALUE", "id=7").split()).status == 0
    assert command("dead-letter", "edit", flow, "kept:0:9", "--json").codes == ["letter-unknown"]


@pytest.mark.parametrize("meanwhile", ["replayed", "repaired"])
def test_what_was_written_in_an_editor_is_never_the_repair_of_another_letter_or_over_another_repair(
    command, flow, tmp_path, monkeypatch, meanwhile
):
    bury(flow, [letter(1, payload=b'{"id": 1}')])
    typed = []

    def edit(text, **_):
        if meanwhile == "replayed":
            assert command("dead-letter", "replay", flow, "--as-is", "--yes").status == 0
            bury(flow, [replace(letter(12, payload=b'{"id": 12}'), batch=1)], batch=1)
        else:
            assert command("dead-letter", "edit", flow, "kept:0:0", "--with", tmp_path / "whole.json").status == 0
        typed.append(text)
        return '{"id": 5}\n'

    (tmp_path / "whole.json").write_text('{"id": 3}')
    monkeypatch.setenv("EDITOR", "true")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr("click.edit", edit)
    ended = command("dead-letter", "edit", flow, "orders/data/a.jsonl:1", "--json")
    assert len(typed) == 1
    assert ended.codes == ["letter-changed"]
    (kept,) = tmp_path.glob("letter-*")
    assert kept.read_text() == '{"id": 5}\n'
    assert str(kept) in ended.object["problems"][0]["remedy"]
    letters = command("dead-letter", "show", flow, "--json").object["result"]["letters"]
    assert '{"id": 5}' not in [each["payload"] for each in letters]
    assert [each["state"] for each in letters if each["key"] != "kept:0:0"] in ([], [""])


def test_letters_are_exported_changed_and_given_back_once(command, flow, tmp_path):
    bury(flow, [letter(1), letter(2), letter(3, payload=b'{"id": 3}')])
    out = tmp_path / "letters.jsonl"
    assert command("dead-letter", "export", flow, "--to", out, "--json").object["result"]["letters"] == 3
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    lines[0]["payload"] = '{"id": 1}'
    out.write_text("".join(json.dumps(line) + "\n" for line in [*lines[:2], {**lines[0], "key": "kept:7:0"}]))
    said = command("dead-letter", "replay", flow, "--repaired", out, "--dry-run", "--json").object["result"]
    assert (said["replayed"], said["repaired"], said["refused"], said["requests"]) == (1, 1, 2, [])
    assert [row["key"] for row in said["refusals"]] == ["kept:0:1", "kept:7:0"]
    assert command("dead-letter", "replay", flow, "--repaired", out, "--json").object["result"]["requests"] == ["kept:0"]
    said = command("dead-letter", "replay", flow, "--yes", "--json").object["result"]
    assert (said["replayed"], said["already"], said["refused"]) == (1, 1, 1)
    text = command("dead-letter", "replay", flow).out
    assert "0 are on their way, 2 were already asked for, 1 stay" in text
    assert "repair it: scribengin dead-letter edit" in text
    assert command("dead-letter", "replay", flow, "--step", "nosuch").out.strip() == "no dead letters match"
    out.write_text("{}\n")
    assert command("dead-letter", "replay", flow, "--repaired", out, "--json").codes == ["letters-file"]
    assert command("dead-letter", "replay", flow, "--repaired", tmp_path / "none", "--json").status == 3
    assert command("dead-letter", "list", flow, "--since", "1h", "--json").status == 0
    assert command("dead-letter", "list", flow, "--since", "yesterday", "--json").status == 2


def test_letters_are_purged_when_one_says_so_and_nothing_runs(command, flow):
    bury(flow, [letter(1), letter(2, step="tax"), letter(3)])
    ended = command("dead-letter", "purge", flow, "--step", "orders", "--json")
    assert (ended.status, ended.codes) == (2, ["dead-purge-unsaid"])
    assert "2 dead letters of kept, 2 of which were never replayed" in ended.object["problems"][0]["message"]
    assert command("dead-letter", "purge", flow, "--replayed", "--yes").out == "no dead letters\n"
    with take_lease(StateFolder(flow.parent / ".scribengin", "orders")):
        assert command("dead-letter", "purge", flow, "--yes", "--json").status == 2
    assert command("dead-letter", "purge", flow, "--step", "orders", "--yes", "--json").object["result"]["purged"] == 2
    assert [each["key"] for each in command("dead-letter", "show", flow, "--json").object["result"]["letters"]] == ["kept:0:1"]


def test_purged_letters_come_back_for_a_week(command, flow):
    bury(flow, [letter(1), letter(2, step="tax"), letter(3)])
    before = command("dead-letter", "show", flow, "--json").object["result"]["letters"]
    assert command("dead-letter", "purge", flow, "--undo", "--json").codes == ["trash-missing"]
    first = command("dead-letter", "purge", flow, "--step", "tax", "--yes", "--json").object["result"]["trash"]["id"]
    said = command("dead-letter", "purge", flow, "--yes").out
    assert "deleted 2 dead letters" in said
    assert "to bring them back, until 2" in said
    assert command("reset", flow, "--undo", "--json").codes == ["trash-missing"]
    assert command("dead-letter", "purge", flow, "--undo", "--dry-run").status == 2
    with take_lease(StateFolder(flow.parent / ".scribengin", "orders")):
        assert command("dead-letter", "purge", flow, "--undo", "--json").codes == ["already-running"]
    again = said.splitlines()[-1].partition("scribengin ")[2].split()
    assert command(*again).out.startswith("brought back 2 dead letters")
    undone = command("dead-letter", "purge", flow, "--undo", first, "--json").object["result"]
    assert undone == {"flow": "orders", "id": first, "restored": 1, "expired": 0, "queries": {"kept": 1}}
    assert command("dead-letter", "show", flow, "--json").object["result"]["letters"] == before


def test_an_export_that_is_cut_short_leaves_the_file_that_was_there(tmp_path):
    file = tmp_path / "letters.jsonl"
    file.write_text("before\n")

    def letters():
        yield {"payload": "a", "payload_base64": None}
        yield _whole({"payload": None, "payload_base64": None})

    with pytest.raises(Refused, match="may not see the bytes"):
        _written("orders", file, letters())
    assert (file.read_text(), list(tmp_path.iterdir())) == ("before\n", [file])
    _written("orders", file, iter([{"id": "a"}]))
    assert (file.read_text(), list(tmp_path.iterdir())) == ('{"id":"a"}\n', [file])


def test_letters_of_a_query_whose_sink_is_gone_are_listed_as_such_with_those_that_wait(command, flow):
    bury(flow, [letter(1, payload=b'{"id": 1}'), letter(2, payload=b'{"id": 2}')])
    assert command("dead-letter", "replay", flow, "kept:0:0", "--json").object["result"]["replayed"] == 1
    flow.write_text(flow.read_text().replace("kept:", "renamed:"))
    (group,) = command("dead-letter", "list", flow, "--json").object["result"]["groups"]
    assert (group["query"], group["count"], group["asked"], group["replayed"], group["gone"]) == ("kept", 2, 1, 0, True)
    said = command("dead-letter", "list", flow).out
    assert "kept (gone)" in said
    assert "1 wait to be replayed in a query that no sink belongs to" in said
    said = command("dead-letter", "replay", flow, "--json").object["result"]
    assert (said["replayed"], said["refused"], ["waits" in row["why"] for row in said["refusals"]]) == (0, 2, [True, False])


def test_that_there_are_more_letters_than_are_shown_is_said(command, flow):
    bury(flow, [letter(1), letter(2), letter(3)])
    assert command("dead-letter", "show", flow, "--limit", "2").out.endswith("… and more: these are the first 2; --limit shows others\n")
    assert "… and more" not in command("dead-letter", "show", flow, "--limit", "3").out


HOURLY = FLOW.replace("amount DOUBLE", "amount DOUBLE, at TIMESTAMP").replace(
    'DOUBLE, at TIMESTAMP"', 'DOUBLE, at TIMESTAMP", watermark: at 1h'
)
HOURLY = HOURLY.replace(
    "sinks:", "steps:\n  hourly: {from: orders, aggregate: {window: {time: at, size: 1h}, columns: {n: count(*)}}}\nsinks:"
).replace("{from: orders, type: files, path: out", "{from: hourly, type: files, path: out")


def test_letters_of_a_query_that_no_run_would_take_up_stay_and_are_not_promised(command, flow, monkeypatch):
    bury(flow, [letter(number, payload=b'{"id": 1}') for number in (1, 2)])
    StateFolder(flow.parent / ".scribengin", "orders").query("kept").checkpoint.mkdir()
    flow.write_text(HOURLY)
    (refused,) = (each for each in command("plan", flow, "--json").object["problems"] if each["code"] == "state-changed")
    for words in (["--dry-run"], ["--yes"], []):
        found = command("dead-letter", "replay", flow, *words, "--json").object["result"]
        assert (found["replayed"], found["refused"], found["requests"]) == (0, 2, [])
        assert {(row["why"], row["remedy"]) for row in found["refusals"]} == {(refused["message"], refused["remedy"])}
    text = command("dead-letter", "replay", flow, "--dry-run").out
    assert text.startswith('kept:0:0, kept:0:1 stay: query "kept": a stateful step or its input has changed')
    assert text.endswith("0 to be replayed, 2 stay\n")


def test_what_stays_is_said_before_a_person_agrees(command, flow):
    bury(flow, [letter(1, payload=b'{"id": 1}'), letter(2, payload=b"{")])
    (problem,) = command("dead-letter", "replay", flow, "--json").object["problems"]
    assert "this replays all open dead letters: 1 dead letter; 1 stay: source orders rejects it: " in problem["message"]


def test_it_is_said_of_which_letters_only_spark_knows_whether_they_fit(command, flow):
    odd = "odd: {from: orders, select: {id: id, upto: 'sequence(1, id)'}}"
    flow.write_text(
        FLOW.replace("sinks:", f"steps:\n  {odd}\nsinks:").replace(
            "from: orders, type: files, path: out", "from: odd, type: files, path: out"
        )
    )
    bury(flow, [replace(letter(1, step="kept"), came='{"id": 1}')])
    assert command("dead-letter", "replay", flow, "--dry-run", "--json").object["result"]["unchecked"] == [
        {"query": "kept", "at": "kept", "count": 1}
    ]
    text = command("dead-letter", "replay", flow, "--dry-run").out
    assert "1 of them enter at kept, whose columns only Spark knows: a row that does not fit there becomes a dead letter again" in text


def test_letters_that_stay_for_one_reason_are_one_line_and_hide_no_other_reason(command, flow):
    bury(flow, [letter(number, payload=b"no record") for number in range(25)] + [letter(25, payload=b'{"id": "x"}')])
    listed = command("dead-letter", "replay", flow, "--dry-run", "--json").object["result"]
    assert (listed["refused"], len(listed["refusals"])) == (26, 21)
    first, second, *_, bulk, last = command("dead-letter", "replay", flow, "--dry-run").out.splitlines()
    assert first.startswith("kept:0:0, kept:0:1, kept:0:2 and 17 more stay: source orders rejects it: not a JSON object")
    assert first.endswith(f"scribengin dead-letter edit {flow} kept:0:0")
    assert second.startswith("kept:0:25 stays: ")
    assert bulk == (
        f"to repair many in one file: scribengin dead-letter export {flow} --to FILE, "
        f"then scribengin dead-letter replay {flow} --repaired FILE"
    )
    assert last == "0 to be replayed, 26 stay"


def test_a_repair_for_one_query_says_how_the_record_is_repaired_for_all(command, flow):
    bury(flow, [letter(number, payload=b'{"id": 1}') for number in (1, 2)])
    alone = command("dead-letter", "edit", flow, "kept:0:1", "--set", "id=3").out
    assert ("repaired for kept" in alone, "for all of them" in alone) == (True, False)
    flow.write_text(flow.read_text() + "  copied: {from: orders, type: files, path: copied, format: json}\n")
    said = command("dead-letter", "edit", flow, "kept:0:0", "--set", "id=4").out
    (id_,) = {each["id"] for each in command("dead-letter", "show", flow, "kept:0:0", "--json").object["result"]["letters"]}
    assert f"repair it for all of them by its id: scribengin dead-letter edit {flow} " in said
    assert id_ in said
