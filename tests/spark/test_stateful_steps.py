"""Every step form that keeps state. Rows carry ids, so that each one is accounted for, late ones too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.spark.test_stateless_steps import ran

if TYPE_CHECKING:
    from tests.conftest import FlowFolder

HEAD = """
version: 1
name: timed
sources:
  events: {type: files, path: events, format: json, schema: "id BIGINT, who STRING, ts TIMESTAMP", watermark: ts 10m, max_files: 1}
"""


def at(minutes: float) -> str:
    """Minutes after midnight."""
    whole = int(minutes)
    return f"2026-01-{1 + whole // 1440:02}T{whole // 60 % 24:02}:{whole % 60:02}:{int(minutes % 1 * 60):02}Z"


def events(folder: FlowFolder, name: str, *rows: tuple[int, float], who: str = "a") -> None:
    folder.data(f"events/{name}.jsonl", [{"id": id_, "who": who, "ts": at(minutes)} for id_, minutes in rows])


def late(result: Any, node: str) -> int:
    """Rows that the step has not taken because the watermark had passed them: letters, or only counted."""
    (found,) = [counts for query in result.queries for name, counts in query.nodes.items() if node in name.split("+")]
    return int(found.late + found.late_dead)


# The watermark that drops rows in a Batch is that of the Batch before, which has seen the Batches before it: a row is late two
# Batches after the one that made it so.
FILES = {
    "0": [(0, 30), (1, 61), (2, 65)],
    "1": [(3, 100), (4, 62)],
    "2": [(5, 130), (6, 40), (7, 59.5)],
    "3": [(8, 61), (9, 89), (10, 91), (11, 119), (13, 30)],
    "4": [(15, 90), (14, 100), (16, 500)],
    "5": [(21, 5000)],
}
"""name → (id, minute); the last one closes all windows but its own"""


def test_late_rows_are_those_that_no_window_holds_over_batches_and_a_restart(folder: FlowFolder) -> None:
    folder.flow(
        HEAD
        + """
steps:
  sliding: {from: events, aggregate: {window: {time: ts, size: 1h, slide: 20m}, by: [who], columns: {ids: collect_list(id)}}}
  spelled:
    from: events
    sql: SELECT window(ts, '30 minutes').start AS start, collect_list(id) AS ids FROM events GROUP BY window(ts, '30 minutes')
sinks:
  a: {from: sliding, type: files, path: out/sliding, format: json}
  b: {from: spelled, type: files, path: out/spelled, format: json}
"""
    )
    for name in "0123":
        events(folder, name, *FILES[name])
    first = ran(folder)
    for name in "45":
        events(folder, name, *FILES[name])
    last = ran(folder)

    minutes = {id_: minute for rows in FILES.values() for id_, minute in rows}
    for step in ("sliding", "spelled"):
        rows = folder.read(f"out/{step}")
        held = {id_ for row in rows for id_ in row["ids"]}
        missing = minutes.keys() - held - {21}
        assert late(last, step) == len(missing), (step, missing)
        assert missing, step
        assert late(first, step) <= late(last, step)
    spelled = folder.read("out/spelled")
    for row in spelled:
        assert {at(minutes[id_] // 30 * 30)[:19] for id_ in row["ids"]} == {row["start"][:19]}
    assert len({row["start"] for row in spelled}) == len(spelled)
    nodes = {query.name: query.nodes for query in last.queries}
    assert nodes["b"]["spelled"].held == 1
    assert last.queries[1].notes == (
        '1 window stays open in "spelled" until the watermark (2026-01-04T11:10:00Z) reaches 2026-01-04T11:30:00Z: '
        'that takes a record of "events" that reaches "spelled", with "ts" from 2026-01-04T11:40:00Z on, in this run or a later one',
    )
    assert ran(folder).queries[1].notes == last.queries[1].notes  # nothing new came, and it is still so


def test_joins_and_dedupe_account_for_every_row(folder: FlowFolder) -> None:
    folder.flow(
        HEAD
        + """  pays: {type: files, path: pays, format: json, schema: "pay BIGINT, who STRING, at TIMESTAMP", watermark: at 10m,
         max_files: 1}
steps:
  once:  {from: events, dedupe: {key: [who], time: ts, within: 30m}}
  full:  {from: [events, pays], join: {key: [who], how: full, time: {events: ts, pays: at}, within: 5m}}
  semi:  {from: [events, pays], join: {key: [who], how: semi, time: {events: ts, pays: at}, within: 5m}}
  spelled:
    from: [events, pays]
    sql: SELECT id, pay FROM events e JOIN pays p
      ON e.who = p.who AND p.at BETWEEN e.ts - INTERVAL 5 MINUTES AND e.ts + INTERVAL 5 MINUTES
sinks:
  a: {from: once, type: files, path: out/once, format: json}
  d: {from: full, type: files, path: out/full, format: json}
  e: {from: semi, type: files, path: out/semi, format: json}
  f: {from: spelled, type: files, path: out/spelled, format: json}
"""
    )
    people = {0: "a", 1: "b", 2: "a", 3: "c", 4: "d", 5: "e"}
    moments = [[(0, 10), (1, 11), (2, 12), (3, 60)], [(5, 61)], [(4, 15), (9, 3000)]]
    for index, rows in enumerate(moments):
        folder.data(f"events/{index}.jsonl", [{"id": i, "who": people.get(i, f"x{i}"), "ts": at(m)} for i, m in rows])
        folder.data(f"pays/{index}.jsonl", [{"pay": 100 + i, "who": people.get(i, f"y{i}"), "at": at(m + 2)} for i, m in rows])
    result = ran(folder)

    # 4 is late: event and payment both
    pairs = {(0, 100), (0, 102), (1, 101), (2, 100), (2, 102), (3, 103), (5, 105)}
    assert {(row["id"], row["pay"]) for row in folder.read("out/spelled")} == pairs
    assert sorted(row["id"] for row in folder.read("out/semi")) == [0, 1, 2, 3, 5]
    assert {(row["id"], row["pay"]) for row in folder.read("out/full")} - {(9, None), (None, 109)} == pairs
    for step in ("spelled", "semi", "full"):
        assert late(result, step) == 2
    # 2 is a double of 0
    assert sorted(row["id"] for row in folder.read("out/once")) == [0, 1, 3, 5, 9]
    assert late(result, "once") == 1


def test_of_several_inputs_the_slowest_watermark_rules(folder: FlowFolder) -> None:
    folder.flow(
        HEAD
        + """  slow: {type: files, path: slow, format: json, schema: "id BIGINT, who STRING, ts TIMESTAMP", watermark: ts 10m, max_files: 1}
steps:
  both: {from: [events, slow]}
  hours: {from: both, aggregate: {window: {time: ts, size: 1h}, columns: {ids: "sort_array(collect_list(id))"}}}
sinks:
  out: {from: hours, type: files, path: out, format: json}
"""
    )
    for index, (fast, behind) in enumerate([(500, 20), (510, 30), (520, 40), (900, 900)]):
        events(folder, str(index), (index, fast))
        folder.data(f"slow/{index}.jsonl", [{"id": 10 + index, "who": "b", "ts": at(behind)}])
    result = ran(folder)

    assert late(result, "hours") == 0
    assert [row["ids"] for row in folder.read("out")] == [[10, 11, 12], [0, 1, 2]]
