"""Where flows meet is found without comparing each with each, and is the same as by comparing each with each."""

from __future__ import annotations

import random
from itertools import product
from typing import TYPE_CHECKING

import pytest

from scribengin.connectors.catalog import sink_types, source_types
from scribengin.plan.flow_links import MeetingIndex, circle, meetings, outside_of
from scribengin.registry.flow_ends import ExternalPlace, Outside
from scribengin.spec.load import load_flow
from tests.looking import calls_in

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.spec.model import Flow


def flow(folder: Path, name: str, source: str, sink: str) -> Flow:
    path = folder / f"{name}.yaml"
    path.write_text(
        f"version: 1\nname: {name}\nsources: {{a: {{{source}}}}}\nsinks: {{b: {{from: a, {sink}}}}}\n"
        "groups: {disks: {members: [{at: /one, name: one}, {at: /two, name: two}]}}\n"
    )
    found = load_flow(path, source_types=source_types(), sink_types=sink_types(), environment={}).flow
    assert found is not None
    return found


FILES = 'type: files, format: json, schema: "id BIGINT"'
S3_OUT = "type: objects, format: json, visible: listing"
S3_IN = 'type: objects, format: json, schema: "id BIGINT"'
PG_OUT = "type: postgres, mode: append"
PG_IN = "type: postgres, mode: incremental, by: id, key: id"
KAFKA = 'type: kafka, format: json, schema: "id BIGINT"'


@pytest.mark.parametrize(
    ("written", "read", "place"),
    [
        ("type: files, format: json, path: /d/out", f"{FILES}, path: /d/out", "folder /d/out"),
        ("type: files, format: json, path: /d/out", f'{FILES}, path: "/d/out/*.jsonl"', "folder /d/out"),
        ("type: files, format: json, path: /d/out", f"{FILES}, path: /d", "folder /d/out"),
        ("type: files, format: json, path: /d/out", f'{FILES}, path: "/d/*.jsonl"', ""),
        ("type: files, format: json, path: /d/out", f'{FILES}, path: "/d/**/*.jsonl"', "folder /d/out"),
        ("type: files, format: json, path: /d/out", f"{FILES}, path: /d/out/country=de", "folder /d/out/country=de"),
        ("type: files, format: json, path: /d/out", f"{FILES}, path: /d/other", ""),
        ("type: files, format: json, path: x, to: disks", f"{FILES}, path: /two/x", "folder /two/x"),
        ("type: kafka, format: json, bootstrap: h, topic: t", f"{KAFKA}, bootstrap: h, topics: [s, t]", "topic t"),
        ("type: kafka, format: json, bootstrap: h, topic: t", f"{KAFKA}, bootstrap: i, topics: [t]", ""),
        ("type: kafka, format: json, bootstrap: 'h,i', topic: t", f"{KAFKA}, bootstrap: 'i,h', topics: [t]", "topic t"),
        ("type: kafka, format: json, bootstrap: h, topic: t.de", f"{KAFKA}, bootstrap: h, pattern: 't[.].*'", "topic t.de"),
        ("type: kafka, format: json, bootstrap: h, topic: t.de", f"{KAFKA}, bootstrap: h, pattern: 't'", ""),
        ("type: kafka, format: json, bootstrap: h, topic: 't.{id}'", f"{KAFKA}, bootstrap: h, topics: [t.7]", "topic t.7"),
        ("type: kafka, format: json, bootstrap: h, topic: 't.{id}'", f"{KAFKA}, bootstrap: h, pattern: 't[.].+'", "topic t\\..*"),
        (f"{S3_OUT}, url: s3://b/out", f"{S3_IN}, url: s3://b/out/", "objects s3://b/out"),
        (f"{S3_OUT}, url: s3://b/out/de", f"{S3_IN}, url: s3://b/out", "objects s3://b/out/de"),
        (f"{S3_OUT}, url: s3://b/out", f"{S3_IN}, url: s3://b/outer", ""),
        (f"{S3_OUT}, url: s3://b/out, endpoint: 'http://h:9000'", f"{S3_IN}, url: s3://b/out", ""),
        (
            f"{S3_OUT}, url: s3://b/out, endpoint: 'http://h:9000'",
            f"{S3_IN}, url: s3://b/out, endpoint: 'http://h:9000'",
            "objects s3://h:9000/b/out",
        ),
        (
            "type: hdfs, format: json, url: 'hdfs://n:8020/out'",
            f"{S3_IN.replace('objects', 'hdfs')}, url: 'hdfs://n:8020/out'",
            "objects hdfs://n:8020/out",
        ),
        (
            f"{PG_OUT}, server: 'postgresql://w@db/shop', table: orders",
            f"{PG_IN}, server: 'postgresql://r@DB:5432/shop', table: public.orders",
            "table orders",
        ),
        (f"{PG_OUT}, server: 'postgresql://db/shop', table: orders", f"{PG_IN}, server: 'postgresql://db/shop', table: orders2", ""),
        (f"{PG_OUT}, server: 'postgresql://db/shop', table: orders", f"{PG_IN}, server: 'postgresql://db/other', table: orders", ""),
    ],
)
def test_flows_meet_where_one_writes_what_the_other_reads(tmp_path: Path, written: str, read: str, place: str) -> None:
    feeding = flow(tmp_path, "one", f"{FILES}, path: in", written)
    reading = flow(tmp_path, "two", read, "type: console")
    found = [(each.feeding, each.sink, each.reading, each.source, each.place) for each in meetings([reading, feeding])]
    assert found == ([("one", "b", "two", "a", place)] if place else [])


def test_a_pattern_that_could_be_tried_for_ever_is_told_by_its_beginning() -> None:
    index = MeetingIndex()
    name = "orders" + "a" * 60
    index.put("one", Outside(writes={"w": (ExternalPlace(kind="topic", at="h", topic=name),)}))
    slow = ExternalPlace(kind="topic", at="h", topic="orders(a+)+$", many=True)
    index.put("two", Outside(reads={"r": (slow,)}))
    index.put("three", Outside(reads={"r": (ExternalPlace(kind="topic", at="h", topic="(x+)+$", many=True),)}))
    assert [each.reading for each in index.meetings()] == ["two"]


def test_the_index_finds_what_comparing_each_with_each_finds_whatever_comes_and_goes() -> None:
    dice = random.Random(7)
    folders = ["/", "/a", "/a/b", "/a/b/c", "/a/d", "/e"]
    topics = [("t", False), ("u", False), ("t.*", True), (".*", True)]
    servers = ["h", "i", "h,i"]

    def place(*, reads: bool) -> ExternalPlace:
        if dice.random() < 0.5:
            return ExternalPlace(kind="folder", at=dice.choice(folders), many=reads and dice.random() < 0.5)
        topic, many = dice.choice(topics)
        return ExternalPlace(kind="topic", at=dice.choice(servers), topic=topic, many=many)

    index, there = MeetingIndex(), dict[str, Outside]()
    for _ in range(300):
        name = f"f{dice.randrange(8)}"
        if dice.random() < 0.2:
            index.drop(name)
            there.pop(name, None)
            continue
        there[name] = Outside(
            reads={f"r{n}": (place(reads=True),) for n in range(dice.randrange(3))},
            writes={f"w{n}": (place(reads=False),) for n in range(dice.randrange(3))},
        )
        index.put(name, there[name])
        alone = set()
        for one, two in product(there, there):
            pair = MeetingIndex()
            pair.put(one, there[one])
            pair.put(two, there[two])
            alone |= {(m.feeding, m.sink, m.reading, m.source) for m in pair.meetings()}
        found = [(m.feeding, m.sink, m.reading, m.source) for m in index.meetings()]
        assert sorted(alone) == found
        for flow_ in there:
            assert {m for m in index.meetings() if flow_ in (m.feeding, m.reading)} == set(index.of(flow_))


def test_a_thousand_flows_that_meet_in_pairs_cost_no_more_each_than_ten() -> None:
    def calls(flows: int) -> int:
        index = MeetingIndex()

        def put() -> None:
            for number in range(flows):
                reads = Outside(reads={"r": (ExternalPlace(kind="folder", at=f"/data/in/{number}"),)})
                writes = Outside(writes={"w": (ExternalPlace(kind="folder", at=f"/data/in/{number - 1}"),)})
                index.put(f"f{number}", reads if number % 2 == 0 else writes)
            assert len(index.meetings()) == flows // 2

        return calls_in(put)

    assert calls(2_000) < 1.5 * 100 * calls(20)


def test_the_shortest_circle_is_found_from_the_flows_that_come() -> None:
    index = MeetingIndex()
    for name, reads, writes in (("a", "x", "y"), ("b", "y", "z"), ("c", "z", "x"), ("d", "y", "x"), ("e", "q", "x")):
        index.put(
            name,
            Outside(
                reads={"r": (ExternalPlace(kind="folder", at=f"/{reads}"),)}, writes={"w": (ExternalPlace(kind="folder", at=f"/{writes}"),)}
            ),
        )
    assert [each.feeding for each in circle(["e"], index.meetings())] == []
    assert [each.feeding for each in circle(["c"], index.meetings())] == ["c", "a", "b"]
    assert [each.feeding for each in circle(["a"], index.meetings())] == ["a", "d"]


def test_what_is_no_place_is_left_out(tmp_path: Path) -> None:
    assert outside_of(flow(tmp_path, "one", "type: sequence, rows_per_second: 5", "type: console")) == Outside()
