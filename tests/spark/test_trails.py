"""The way of records: chosen alike in every tier, written where they reach a sink, always there in dead letters, gone with its time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from scribengin.formats.origins import Origins
from scribengin.local.prepare import prepare
from scribengin.local.tracing import trace_record
from scribengin.state.dead_letters import read_letters
from scribengin.state.decisions import Decisions
from scribengin.state.provenance import find_arrivals, forget_trails
from scribengin.state.retention import Retention

FLOW = """\
version: 1
name: traced
defaults: {{trace: {trace}{retain}}}
sources:
  rows: {{type: files, path: data, format: json, schema: "id BIGINT, ts TIMESTAMP"}}
steps:
  some: {{from: rows, filter: id % 10 != 9}}
  odd: {{from: some, filter: id % 2 = 1}}
{twice}sinks:
  kept: {{from: {last}, type: files, path: out, format: json}}
tiers:
  edge: {{steps: [some]}}
  core: {{steps: [odd]}}
  store: {{steps: [kept]}}
"""
STEPS = """
def twice(row):
    if row["id"] == 13:
        raise ValueError("unlucky")
    return [row, row]
"""


def traced(folder: Any, *, trace: float, last: str = "odd", retain: str = "") -> Any:
    twice = '  twice: {from: odd, python: "steps:twice"}\n' if last == "twice" else ""
    folder.flow(FLOW.format(trace=trace, last=last, retain=retain, twice=twice)).steps(STEPS)
    folder.data("data/a.jsonl", [*({"id": id_} for id_ in range(200)), "{}}"])
    assert folder.run().state == "finished"
    return prepare(folder.path / "flow.yaml", state=None)


def tier(prepared: Any, name: str, query: str) -> Any:
    return next(each.folder.query(query) for each in prepared.tiers if each.plan.tier == name)


def test_every_hop_of_a_record_is_kept(folder: Any) -> None:
    prepared = traced(folder, trace=1)
    found = trace_record(prepared, "rows/a.jsonl+3")
    (arrival,) = found["arrivals"]
    assert (arrival["id"], arrival["sink"], arrival["tier"]) == ("rows/a.jsonl+3", "kept", "store")
    hops = [(hop["tier"], hop["query"], hop["batch"]) for hop in arrival["hops"]]
    assert hops == [("edge", "some_to_core", 0), ("core", "odd_to_store", 0), ("store", "kept", 0)]
    times = [hop["time_ms"] for hop in arrival["hops"]]
    assert times == sorted(times)
    assert not found["notes"]
    assert [(read["tier"], read["batch"], read["acknowledged"]) for read in found["read"]] == [("edge", 0, True)]
    arrivals = trace_record(prepared, "rows/")["arrivals"]
    assert len(arrivals) == len(folder.read("out")) == 80
    decision = Decisions(tier(prepared, "store", "kept").decisions).newest()
    assert decision is not None
    assert decision.ran["tier"] == "store"


def test_the_same_records_are_chosen_in_every_tier_and_the_others_are_explained(folder: Any) -> None:
    prepared = traced(folder, trace=0.3, last="twice")
    odd = [id_ for id_ in range(1, 200, 2) if id_ % 10 != 9 and id_ != 13]
    label = "rows/a.jsonl+"
    chosen = set(np.array(odd)[Origins.of(label, np.array(odd)).chosen(0.3)].tolist())
    assert 5 < len(chosen) < 50
    found = trace_record(prepared, "rows/")["arrivals"]
    # the second row of a record has a number behind its id
    assert sorted(each["id"].removeprefix(label).partition(".")[0] for each in found) == sorted(f"{id_}" for id_ in [*chosen, *chosen])
    assert len(trace_record(prepared, f"{label}{min(chosen)}")["arrivals"]) == 2, "and those whose numbers begin so are others"
    other = next(id_ for id_ in odd if id_ not in chosen)
    missing = trace_record(prepared, f"{label}{other}")
    assert not missing["arrivals"]
    assert "not among the 30 %" in missing["notes"][0]
    assert "trace: 1" in missing["notes"][0]
    assert missing["read"][0]["batch"] == 0
    filtered = next(id_ for id_ in range(0, 200, 2) if len(Origins.of(label, np.array([id_])).chosen(0.3)))
    assert "filtered" in trace_record(prepared, f"{label}{filtered}")["notes"][0]
    assert "no committed Batch" in trace_record(prepared, "rows/z.jsonl+1")["notes"][0]


def test_dead_letters_always_carry_their_way(folder: Any) -> None:
    prepared = traced(folder, trace=0, last="twice")
    assert not trace_record(prepared, "rows/")["arrivals"]
    (dead,) = trace_record(prepared, "rows/a.jsonl+13")["dead"]
    assert (dead["tier"], dead["step"], dead["reason"]) == ("core", "twice", "raised")
    assert [hop["tier"] for hop in dead["hops"]] == ["edge", "core"]
    (malformed,) = read_letters(tier(prepared, "edge", "some_to_core"))
    assert malformed.record == "rows/a.jsonl+200"
    assert [hop["tier"] for hop in malformed.trail] == ["edge"]


def test_trails_go_with_their_time_and_what_no_decision_names_goes_at_once(folder: Any) -> None:
    prepared = traced(folder, trace=1, retain=", retain: 1d")
    query = tier(prepared, "store", "kept")
    stray = query.trails / "0000000000" / "stray.jsonl"
    stray.write_text("{}\n")
    undecided = query.trails / "0000000007"
    undecided.mkdir()
    (undecided / "mine.jsonl").write_text("{}\n")
    forget_trails(query, None)
    assert not stray.exists()
    assert undecided.exists(), "a driver that sleeps may decide it yet"
    assert len(list(find_arrivals(query, "rows/"))) == 80
    now = datetime.now(UTC)
    Retention(query, 86_400.0, lambda: now + timedelta(hours=23)).apply()
    assert len(list(find_arrivals(query, "rows/"))) == 80
    Retention(query, 86_400.0, lambda: now + timedelta(hours=25)).apply()
    assert not list(find_arrivals(query, "rows/"))
    assert not (query.trails / "0000000000").exists()


@pytest.mark.parametrize("share", [0.0, 0.01, 0.25, 1.0])
def test_so_many_are_chosen_and_a_larger_share_holds_a_smaller_one(share: float) -> None:
    many = Origins.of("s/a+", np.arange(100_000))
    chosen = many.chosen(share)
    assert abs(len(chosen) - share * 100_000) <= 5 * (100_000 * share * (1 - share)) ** 0.5
    assert set(chosen) <= set(many.chosen(min(1.0, share * 2)))
    by_way = Origins.of("left~r.big~s/a+", np.arange(100_000)).chosen(share)
    assert by_way.tolist() == chosen.tolist(), "a record is the same by whatever inputs it comes"
    assert not len(Origins.of("1a2b/3/0/", np.arange(1000)).chosen(share)), "rows without a record have no way"
