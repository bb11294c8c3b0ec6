"""Dead letters that are replayed: each comes through once, as the record that it was, and the ledger balances."""

import math
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scribengin.core.errors import Refused
from scribengin.core.types import arrow_schema, parse_schema
from scribengin.local.audit import audit_flow
from scribengin.local.contract import RunSettings
from scribengin.local.dead_letter_repair import find_to_edit
from scribengin.local.dead_letter_replay import replay
from scribengin.local.dead_letters import Which
from scribengin.local.positions import move_back
from scribengin.local.prepare import prepare
from scribengin.local.run import run_flow
from scribengin.spark.replay_input import REFUSED
from scribengin.state.dead_letters import read_letters
from scribengin.state.lease import take_lease
from scribengin.state.ledger import read_totals

pytestmark = pytest.mark.timeout(600)

TAIL = """\
version: 1
name: tail
sources:
  rows: {type: files, path: data, format: json, schema: "id BIGINT, amount DOUBLE, at TIMESTAMP"}
steps:
  big: {from: rows, filter: amount > 0}
  priced: {from: big, python: "steps:price"}
  checked: {from: priced, python: "steps:check"}
sinks:
  kept: {from: checked, type: files, path: out, format: json, together: both}
  all: {from: priced, type: files, path: all, format: json, together: both}
"""
STEPS = """
def price(row):
    if row["id"] in BAD:
        raise ValueError("no price")
    return row | {"amount": row["amount"] * 2}
def check(row):
    if row["id"] in WORSE:
        raise ValueError("not so")
    return True
"""


def steps(bad=(), worse=()):
    return f"BAD, WORSE = {set(bad)!r}, {set(worse)!r}\n" + STEPS


def prepared(folder):
    return prepare(folder.path / "flow.yaml", state=None)


def query(folder, name):
    return prepared(folder).tiers[0].folder.query(name)


def balanced(folder):
    audit = audit_flow(prepared(folder))
    assert [report.violations for report in audit.reports] == [()] * len(audit.reports)
    return True


def ids(folder, path):
    return sorted(row["id"] for row in folder.read(path))


def test_letters_go_on_from_the_step_that_refused_them_and_nowhere_else(folder):
    folder.flow(TAIL).steps(steps(bad=[2], worse=[3]))
    good = [{"id": id_, "amount": 1.5, "at": "2026-01-01T00:00:00Z"} for id_ in range(1, 5)]
    folder.data("data/a.jsonl", [*good, '{"id": 9, "amount": }'])
    assert folder.run().state == "finished"
    assert (ids(folder, "out"), ids(folder, "all")) == ([1, 4], [1, 3, 4])
    letters = {letter.step: letter for letter in read_letters(query(folder, "both"))}
    assert set(letters) == {"rows", "priced", "checked"}

    folder.steps(steps())
    said = replay(prepared(folder), Which())
    assert (said.asked, said.refusals) == (2, 1), said
    again = replay(prepared(folder), Which())
    assert (again.asked, again.before) == (0, 2)
    assert folder.run().state == "finished"
    assert (ids(folder, "out"), ids(folder, "all")) == ([1, 2, 3, 4], [1, 2, 3, 4])
    assert balanced(folder)
    nodes = read_totals(query(folder, "both")).nodes
    assert {node: counts.replayed for node, counts in nodes.items() if counts.replayed} == {"priced": 1, "checked": 1}


USEFUL = """\
version: 1
name: useful
sources:
  rows: {type: files, path: data, format: json, schema: "id BIGINT, amount DOUBLE, at TIMESTAMP"}
steps:
  u: {from: rows, utilities: ["steps:check", "steps:large"], order: free}
  v: {from: rows, utilities: ["steps:price", "steps:check"]}
sinks:
  kept: {from: u, type: files, path: out, format: json, together: both}
  all: {from: v, type: files, path: all, format: json, together: both}
"""


def test_letters_of_utilities_go_on_from_their_step_where_the_row_that_came_to_it_is_known(folder):
    tests = "def large(row) -> bool:\n    return row['amount'] > 1\n"
    folder.flow(USEFUL).steps(steps(worse=[2, 3]).replace("check(row)", "check(row) -> bool") + tests)
    folder.data("data/a.jsonl", [{"id": id_, "amount": id_ - 1.5, "at": "2026-01-01T00:00:00Z"} for id_ in range(1, 5)])
    assert folder.run().state == "finished"
    assert (ids(folder, "out"), ids(folder, "all")) == ([4], [1, 4])
    assert sorted(letter.step for letter in read_letters(query(folder, "both"))) == ["u.check", "v.check", "v.check"]

    folder.steps(steps().replace("check(row)", "check(row) -> bool") + tests)
    said = replay(prepared(folder), Which(step="u"))
    assert (said.asked, said.refusals) == (1, 0), said.refused
    said = replay(prepared(folder), Which(step="v.check"))
    assert (said.asked, said.refusals) == (0, 2)  # 3 has come through u, and 2 was dropped there; the row that came to v was changed
    assert folder.run().state == "finished"
    assert (ids(folder, "out"), ids(folder, "all")) == ([3, 4], [1, 4])
    assert balanced(folder)


MANY = """\
version: 1
name: many
sources:
  rows: {type: files, path: data, format: csv, schema: "id BIGINT, text STRING"}
steps:
  words: {from: rows, python: "steps:words", schema: "id BIGINT, text STRING"}
  short: {from: words, python: "steps:short"}
sinks:
  kept: {from: short, type: files, path: out, format: json}
"""
MANY_STEPS = """
def words(row):
    return [{"id": row["id"], "text": word} for word in row["text"].split()]
def short(row):
    row["text"] = row["text"].upper()
    if len(row["text"]) > LONG:
        raise ValueError(row["text"])
    return row
"""


def test_a_letter_whose_record_has_come_through_in_part_is_told_and_stays_unless_one_says_from_the_start(folder):
    folder.flow(MANY).steps("LONG = 3" + MANY_STEPS)
    (folder.path / "data").mkdir()
    (folder.path / "data/a.csv").write_text('text,id\n"one three",1\nsix,2\n"a,\nb",x\n')
    assert folder.run().state == "finished"
    assert sorted(row["text"] for row in folder.read("out")) == ["ONE", "SIX"]
    folder.steps("LONG = 9" + MANY_STEPS)
    said = replay(prepared(folder), Which(step="short"))
    assert (said.asked, said.refusals) == (0, 1)
    assert "several rows" in said.refused[0]["why"]
    assert "--from-start" in said.refused[0]["remedy"]
    (bad,) = find_to_edit(prepared(folder), Which(step="rows"), record=False)
    with pytest.raises(Refused, match="was not changed"):
        bad.keep(bad.with_columns({"id": "y"}))
    assert bad.keep(bad.with_columns({"id": "3"}))
    said = replay(prepared(folder), Which(), from_start=True)
    assert (said.asked, said.repaired, said.refusals) == (2, 1, 0)
    assert folder.run().state == "finished"
    # `one` a second time, as was said
    assert sorted(row["text"] for row in folder.read("out")) == ["A,", "B", "ONE", "ONE", "SIX", "THREE"]
    assert balanced(folder)


WINDOWS = """\
version: 1
name: windows
sources:
  rows: {type: files, path: data, format: json, schema: "id BIGINT, at TIMESTAMP", watermark: at 10d}
steps:
  daily: {from: rows, aggregate: {by: [id], window: {time: at, size: 1d}, emit: update, columns: {n: count(*)}}}
  judged: {from: daily, python: "steps:judge", schema: "id BIGINT, window_start TIMESTAMP, n BIGINT"}
sinks:
  kept: {from: judged, type: console}
"""
JUDGE = """
def judge(row):
    if row["id"] in BAD:
        raise ValueError("no")
    return {name: row[name] for name in ("id", "window_start", "n")}
"""


def test_a_query_that_keeps_state_takes_letters_in_before_it_and_behind_it(folder):
    folder.flow(WINDOWS).steps("BAD = {2}" + JUDGE)
    folder.data("data/a.jsonl", [{"id": id_, "at": "2026-01-01T10:00:00Z"} for id_ in (1, 2, 2)] + ['{"id": 1, "at": "2026-01-01"'])
    assert folder.run().state == "finished"
    folder.steps("BAD = set()" + JUDGE)
    (torn,) = find_to_edit(prepared(folder), Which(step="rows"), record=False)
    assert torn.keep(b'{"id": 1, "at": "2026-01-01T11:00:00Z"}')
    said = replay(prepared(folder), Which())
    assert (said.asked, said.refusals) == (2, 0), said
    assert set(said.entering) == {("kept", "rows"), ("kept", "judged")}
    assert folder.run().state == "finished"
    assert balanced(folder)
    nodes = read_totals(query(folder, "kept")).nodes
    assert (nodes["rows"].replayed, nodes["judged"].replayed, nodes["kept"].out) == (1, 1, 3)


PLAIN = """\
version: 1
name: plain
sources:
  rows: {type: files, path: data, format: FORMAT, schema: "SCHEMA"}
steps:
  judged: {from: rows, python: "steps:judge"}
sinks:
  kept: {from: judged, type: files, path: out, format: json}
"""


def plain(format="json", schema="id BIGINT"):
    return PLAIN.replace("FORMAT", format).replace("SCHEMA", schema)


def test_letters_of_a_flow_that_was_changed_are_taken_as_it_is_now_or_die_again_and_none_is_lost(folder):
    folder.flow(plain()).steps("def judge(row):\n    return row['id'] > 1 or 1 / 0\n")
    folder.data("data/a.jsonl", [{"id": 1}, {"id": "2"}, {"id": 3}])
    assert folder.run().state == "finished"
    assert replay(prepared(folder), Which(step="rows")).refusals == 1
    folder.flow(plain(schema="id STRING")).steps("def judge(row):\n    return True\n")
    said = replay(prepared(folder), Which())
    assert (said.asked, said.refusals) == (1, 1), said  # the number is no text now
    folder.flow(plain()).steps("def judge(row):\n    return True\n")
    assert replay(prepared(folder), Which()).asked == 1
    # by the time of the run the text is no number again
    assert folder.run().state == "finished"
    assert ids(folder, "out") == [1, 3]
    again = {letter.reason: letter for letter in read_letters(query(folder, "kept")) if letter.replays}
    assert set(again) == {"wrong-type"}
    assert again["wrong-type"].id.endswith("#rows~1")
    assert again["wrong-type"].replay_of == "0:0"
    assert balanced(folder)


def test_a_letter_that_was_to_enter_at_a_step_that_is_gone_dies_again_and_says_so(folder):
    folder.flow(TAIL).steps(steps(worse=[3]))
    folder.data("data/a.jsonl", [{"id": id_, "amount": 1.5, "at": None} for id_ in (1, 3)])
    assert folder.run().state == "finished"
    assert replay(prepared(folder), Which(step="checked")).asked == 1
    folder.flow(TAIL.replace("checked", "tested")).steps(steps())
    assert folder.run().state == "finished"
    letters = [letter for letter in read_letters(query(folder, "both")) if letter.replays]
    assert [(letter.step, letter.reason) for letter in letters] == [("checked", REFUSED)]
    assert balanced(folder)
    said = replay(prepared(folder), Which(), from_start=True)
    assert (said.asked, said.before) == (1, 1)
    assert folder.run().state == "finished"
    assert ids(folder, "out") == [1, 3]
    assert balanced(folder)


def test_who_goes_back_to_before_a_letter_died_reads_it_once_again_and_not_its_replay_too(folder):
    folder.flow(plain()).steps("def judge(row):\n    return row['id'] > 1 or 1 / 0\n")
    folder.data("data/a.jsonl", [{"id": 1}, {"id": 2}])
    assert folder.run().state == "finished"
    folder.steps("def judge(row):\n    return True\n")
    assert replay(prepared(folder), Which()).asked == 1
    assert folder.run().state == "finished"
    tier = prepared(folder).tiers[0]
    with take_lease(tier.folder) as lease:
        move_back(tier, query(folder, "kept"), "rows", 0, lease)
    assert folder.run().state == "finished"
    assert ids(folder, "out") == [1, 1, 2, 2]
    assert balanced(folder)


def test_of_several_who_replay_at_once_each_letter_is_taken_by_one_and_a_flow_that_runs_takes_it_up(folder):
    folder.flow(plain()).steps("def judge(row):\n    return row['id'] % 2 == 1 or 1 / 0\n")
    folder.data("data/a.jsonl", [{"id": id_} for id_ in range(60)])
    assert folder.run().state == "finished"
    folder.steps("def judge(row):\n    return True\n")
    stop = threading.Event()
    with ThreadPoolExecutor(5) as pool:
        running = pool.submit(run_flow, folder.path / "flow.yaml", RunSettings(stop=stop), lambda _: None, spark=folder.spark)
        said = list(pool.map(lambda _: replay(prepared(folder), Which()), range(4)))
        assert sum(each.asked for each in said) == 30
        assert all(each.asked + each.before == 30 for each in said)
        give_up_s = time.monotonic() + 120
        while len(folder.read("out")) < 60 and time.monotonic() < give_up_s:
            time.sleep(0.1)
        stop.set()
        assert running.result(120).state == "stopped"
    assert ids(folder, "out") == list(range(60))
    assert balanced(folder)


def test_a_row_of_any_type_comes_back_to_its_step_as_it_was(folder):
    schema = "id BIGINT, d DOUBLE, t TIMESTAMP, day DATE, m DECIMAL(9,2), b BINARY, a ARRAY<STRUCT<x: INT>>, k MAP<STRING, DOUBLE>"
    code = "def judge(row):\n    if FAIL: raise ValueError\n    row['s'] = repr(sorted(row.items()))\n    return {'s': row['s']}\n"
    text = plain("parquet", schema).replace('"steps:judge"', '"steps:judge", schema: s STRING')
    folder.flow(text).steps("FAIL = False\n" + code)
    rows = [
        {
            "id": 2**53 + 1,
            "d": math.inf,
            "t": datetime(2026, 1, 2, 3, 4, 5, 6, UTC),
            "day": date(2026, 1, 2),
            "m": Decimal("1.50"),
            "b": b"\xff\x00",
            "a": [{"x": 1}, None],
            "k": [("é", 0.1)],
        },
        dict.fromkeys(("id", "d", "t", "day", "m", "b", "a", "k")),
    ]
    (folder.path / "data").mkdir()
    pq.write_table(pa.Table.from_pylist(rows, arrow_schema(parse_schema(schema))), folder.path / "data/a.parquet")
    assert folder.run().state == "finished"
    as_they_are = folder.read("out")
    shutil.rmtree(folder.path / ".scribengin")
    shutil.rmtree(folder.path / "out")
    folder.steps("FAIL = True\n" + code)
    assert folder.run().state == "finished"
    folder.steps("FAIL = False\n" + code)
    said = replay(prepared(folder), Which())
    assert (said.asked, said.refusals, set(said.entering)) == (2, 0, {("kept", "rows")}), said.refused
    assert folder.run().state == "finished"
    assert folder.read("out") == as_they_are


BEHIND = """\
version: 1
name: behind
sources:
  rows: {type: files, path: data, format: json, schema: "id BIGINT"}
steps:
  one: {from: rows, python: "steps:one", require: {small: id < 100}}
  some: {from: one, filter: id > 0, require: {odd: id % 2 = 1}}
  two: {from: some, python: "steps:two"}
  last: {from: two, filter: id < 50}
sinks:
  kept: {from: last, type: files, path: out, format: json}
"""


def test_behind_sparks_steps_nobody_knows_whether_a_python_step_has_made_several_rows(folder):
    folder.flow(BEHIND).steps(
        "def one(row):\n    return row\ndef two(row):\n    row['id'] += 0\n    return row if row['id'] < 9 else 1 / 0\n"
    )
    folder.data("data/a.jsonl", [{"id": id_} for id_ in (1, 2, 10, 11, 200)])
    assert folder.run().state == "finished"
    letters = {letter.step for letter in read_letters(query(folder, "kept"))}
    assert letters == {"one", "some", "two"}
    said = replay(prepared(folder), Which(), dry_run=True)
    assert (said.asked, {row["why"].partition(",")[0] for row in said.refused}) == (
        0,
        {'Python step "one" may have made several rows from it'},
    )


DAILY = """\
version: 1
name: daily
sources:
  rows: {type: files, path: data, format: json, schema: "id BIGINT, at TIMESTAMP", watermark: at 1h}
steps:
  known: {from: rows, filter: id > 0}
  daily: {from: FED, aggregate: {by: [id], window: {time: at, size: 1d}, emit: append, columns: {n: count(*)}}}
sinks:
  kept: {from: daily, type: files, path: out, format: json}
"""


@pytest.mark.parametrize("fed", ["rows", pytest.param("known", marks=pytest.mark.long)])
def test_a_letter_that_is_behind_the_watermark_is_told_before_and_is_a_letter_again(folder, fed):
    known = "  known: {from: rows, filter: id > 0}\n"
    folder.flow(DAILY.replace("FED", fed).replace(known, known if fed == "known" else ""))
    folder.data("data/a.jsonl", [{"id": 1, "at": "2026-01-01T10:00:00Z"}, '{"id": "x", "at": "2026-01-01T11:00:00Z"}'])
    folder.data("data/b.jsonl", ['{"id": "x", "at": "2026-01-09T11:00:00Z"}'])
    assert folder.run().state == "finished"
    for day in (3, 4):  # the watermark moves behind the Batch that has seen the time
        folder.data(f"data/c{day}.jsonl", [{"id": 1, "at": f"2026-01-0{day}T10:00:00Z"}])
        assert folder.run().state == "finished"
    for letter in read_letters(query(folder, "kept")):
        (torn,) = find_to_edit(prepared(folder), Which(prefix=letter.id), record=False)
        assert torn.keep(letter.payload.replace(b'"x"', b"7"))
    said = replay(prepared(folder), Which())
    assert (said.asked, said.refusals) == (2, 0), said
    assert dict(said.late) == {("kept", "2026-01-04T09:00:00Z"): 1}
    assert folder.run().state == "finished"
    (again,) = [letter for letter in read_letters(query(folder, "kept")) if letter.replays]
    assert (again.step, again.reason, again.replay_of, again.source) == ("daily", "late", "0:0", "rows")
    assert "2026-01-01T11:00:00Z" in again.message
    assert balanced(folder)
    # what has been late would be late again: that is no way on
    said = replay(prepared(folder), Which(reason="late"))
    assert (said.asked, said.refusals) == (0, 1), said
    assert "it would be late again" in said.refused[0]["why"]
    nodes = read_totals(query(folder, "kept")).nodes
    assert (sum(counts.late for counts in nodes.values()), sum(counts.late_dead for counts in nodes.values())) == (0, 1)
    # and so is what nobody has sent by hand, which stays in the count where the step says so
    folder.data("data/d.jsonl", [{"id": 1, "at": "2026-01-01T12:00:00Z"}])
    assert folder.run().state == "finished"
    assert sum(counts.late_dead for counts in read_totals(query(folder, "kept")).nodes.values()) == 2
    assert balanced(folder)
