"""Submitting flows: compared with what runs, agreed to by a hash, all of them or none. No Spark, no processes: a registry in memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.submit import submissions
from scribengin.connectors.contract import BatchId, Receipt
from scribengin.control import flow_records, flow_requests, operation_requests
from scribengin.control.changes import Recut, rows_again
from scribengin.control.flow_records import wanted
from scribengin.control.topology import PlannedTopology, apply_topology, check_agreed, plan_rollback, plan_topology
from scribengin.core.errors import InputError, Refused
from scribengin.core.storage import make_folder
from scribengin.local.prepare import prepare
from scribengin.packages.make import make_package
from scribengin.packages.store import PackageStore
from scribengin.plan.topology import topology_of
from scribengin.registry.flow_ends import SourceLevel, Waters
from scribengin.registry.memory import MemoryStore
from scribengin.registry.record_io import Stored, read_record
from scribengin.registry.tree import DESIRED, OPERATION, SPEC
from scribengin.state.contract import Counts, Decision, SourceRange
from scribengin.state.decisions import Decisions
from scribengin.state.lineage import open_lineage
from scribengin.state.topology import write_topology

if TYPE_CHECKING:
    from collections.abc import Callable

    from scribengin.registry.records import Operation

FLOW = """\
version: 1
name: {name}
about: numbers
sources:
  rows: {{type: files, path: {reads}, format: json, schema: "id BIGINT, ts TIMESTAMP", watermark: ts 1m, max_files: 1}}
steps:
  odd: {{from: rows, python: "steps:odd"}}
sinks:
  kept: {{from: odd, type: files, path: {writes}, format: json}}
"""
WINDOWED = """\
version: 1
name: counted
sources:
  rows: {type: files, path: data, format: json, schema: "id BIGINT, kind STRING, ts TIMESTAMP", watermark: ts 1m}
steps:
  per: {from: rows, aggregate: {by: [id], window: {time: ts, size: 1h}, columns: {n: count(*)}}}
sinks:
  counts: {from: per, type: files, path: counts, format: json}
"""
STEPS = "from scribengin import record\n\n\n@record\ndef odd(row):\n    return row['id'] % 2 == 1\n"


@dataclass
class Person:
    """Somebody with a folder of flows, and a control plane of which only the records are there."""

    folder: Path
    store: MemoryStore = field(default_factory=MemoryStore)

    def __post_init__(self) -> None:
        make_folder(self.folder)
        self.registry = self.store.client()
        self.packages = PackageStore(self.folder.with_name("packages"))
        self.state = self.folder.with_name("state")
        self.writes("steps.py", STEPS)

    def writes(self, name: str, text: str) -> Path:
        path = self.folder / name
        make_folder(path.parent)
        path.write_text(text)
        return path

    def flow(self, name: str, reads: str = "data", writes: str = "out") -> Path:
        return self.writes(f"{name}.yaml", FLOW.format(name=name, reads=reads, writes=writes))

    def plans(self, *places: Path) -> PlannedTopology:
        found, _ = submissions(places, self.packages, self.state)
        return plan_topology(self.registry, found, packages=self.packages, state=lambda _: str(self.state))

    def applies(self, *places: Path, **options: Any) -> dict[str, tuple[int, bool]]:
        found, _ = submissions(places, self.packages, self.state)
        asked = {"packages": self.packages, "state": lambda _: str(self.state), "by": "me", **options}
        _, applied = apply_topology(self.registry, found, **asked)
        return {each.flow: (each.version, each.changed) for each in applied}

    def has_run(self, path: Path, rows: int) -> None:
        """As if a worker had committed one Batch of each Query."""
        prepared = prepare(path, state=self.state)
        for tier in prepared.tiers:
            make_folder(tier.folder.path)
            for query in tier.plan.queries:
                folder = tier.folder.query(query.name)
                make_folder(folder.path)
                lineage = open_lineage(
                    folder,
                    owner=tier.folder.read_owner(),
                    fingerprint=query.fingerprint,
                    state_fingerprint=query.state_fingerprint,
                    sources=query.sources,
                    parts=query.parts,
                )
                make_folder(folder.checkpoint)
                batch = BatchId(prepared.name, query.name, lineage.id, 0, 1)
                counts = {source: Counts(rows_in=rows, out=rows) for source in query.sources}
                receipts = tuple(Receipt(sink, 0, rows, 10 * rows) for sink in query.sinks)
                ranges = tuple(SourceRange(source, 0, 1) for source in query.sources)
                at = "2026-01-01T00:00:00+00:00"
                Decisions(folder.decisions).decide(Decision(batch, "x", query.fingerprint, ranges, receipts, (), counts, at))


@pytest.fixture
def person(tmp_path: Path) -> Person:
    return Person(tmp_path / "flows")


def refused(what: Callable[[], Any]) -> Refused:
    with pytest.raises(Refused) as caught:
        what()
    return caught.value


def effects(plan: PlannedTopology) -> dict[str, str]:
    return {change.what: change.effect for each in plan.flows for change in each.changes}


def test_the_same_twice_does_nothing_and_a_change_is_told_with_how_it_takes_effect(person: Person) -> None:
    path = person.flow("numbers")
    assert effects(person.plans(path)) == {"flow": "restart"}
    assert person.applies(path) == {"numbers": (1, True)}
    person.has_run(path, rows=7)
    before = person.store.revision
    assert person.plans(path).flows[0].changes == ()
    assert person.applies(path) == {"numbers": (1, False)}
    assert person.store.revision == before

    text = path.read_text()
    path.write_text(text + "# a word\n")
    assert effects(person.plans(path)) == {"text": "in place"}
    path.write_text(text.replace("about: numbers", "about: odd numbers"))
    assert effects(person.plans(path)) == {"about": "in place"}
    path.write_text(text.replace("max_files: 1", "max_files: 2"))
    assert effects(person.plans(path)) == {"source rows": "next Batch"}
    path.write_text(text)
    person.writes("steps.py", STEPS.replace("== 1", "== 0"))
    assert effects(person.plans(path)) == {"query kept": "restart", "code": "restart"}
    assert person.applies(path) == {"numbers": (2, True)}


def test_other_alerts_and_another_delay_touch_no_worker(person: Person) -> None:
    path = person.flow("numbers")
    person.applies(path)
    before = read_record(person.registry, SPEC("numbers", "1"))
    text = path.read_text()
    path.write_text(f"{text}max_delay: 5m\nalerts: {{stuck: {{when: no progress for 5m}}, loop: {{when: restarts over 3 in 10m}}}}\n")
    (plan,) = person.plans(path).flows
    assert [(change.what, change.effect, change.says) for change in plan.changes] == [
        ("max_delay", "in place", "becomes 5m"),
        ("alerts", "in place", "stuck and loop change"),
    ]
    assert person.applies(path) == {"numbers": (2, True)}
    after = read_record(person.registry, SPEC("numbers", "2"))
    assert isinstance(before, Stored)
    assert isinstance(after, Stored)
    assert (before.record.watched.max_delay_s, after.record.watched.max_delay_s) == (None, 300.0)
    assert after.record.watched.alerts["loop"].when == "restarts over 3 in 10m"
    assert after.record.tiers["main"].since == 1, "the workers of the version before serve it"


def test_other_bounds_of_autoscale_touch_no_worker(person: Person) -> None:
    path = person.flow("numbers")
    text = path.read_text()

    def scaled(autoscale: str) -> list[tuple[str, str, str]]:
        path.write_text(f"{text}tiers: {{all: {{steps: [odd], resources: {{executors: 2}}{autoscale}}}}}\n")
        changes = [(change.what, change.effect, change.says) for change in person.plans(path).flows[0].changes]
        person.applies(path)
        return changes

    scaled("")
    assert scaled(", autoscale: {lag: 1m, max: 8}") == [("tier all", "in place", "autoscale becomes 1 to 8 executors, lag 1m, mode advise")]
    assert scaled(", autoscale: {lag: 1m, max: 4, mode: act}") == [
        ("tier all", "in place", "autoscale becomes 1 to 4 executors, lag 1m, mode act")
    ]
    after = read_record(person.registry, SPEC("numbers", "3"))
    assert isinstance(after, Stored)
    assert after.record.tiers["all"].since == 1, "the workers of the first version serve it"
    assert scaled("") == [("tier all", "in place", "autoscale ends; the number of executors stays")]


def test_another_max_dead_takes_effect_in_new_workers(person: Person) -> None:
    path = person.flow("numbers")
    person.applies(path)
    path.write_text(f"{path.read_text()}max_dead: 1%\n")
    assert effects(person.plans(path)) == {"max_dead": "restart"}
    person.applies(path)
    after = read_record(person.registry, SPEC("numbers", "2"))
    assert isinstance(after, Stored)
    assert after.record.tiers["main"].since == 0, "of this version itself"


def test_what_is_wanted_stopped_is_wanted_to_run_again(person: Person) -> None:
    path = person.flow("numbers")
    person.applies(path)
    flow_requests.want(person.registry, "numbers", "stopped", by="me")
    assert effects(person.plans(path)) == {"flow": "in place"}
    person.applies(path)
    assert flow_records.read_flow(person.registry, "numbers").desired.state == "running"


def test_a_plans_hash_is_refused_once_something_else_runs(person: Person) -> None:
    path = person.flow("numbers")
    person.applies(path)
    person.writes("steps.py", STEPS.replace("== 1", "== 0"))
    seen = person.plans(path).hash
    assert person.plans(path).hash == seen
    flow_requests.want(person.registry, "numbers", "paused", by="me")
    assert person.plans(path).hash == seen, "it is over versions, not over revisions"
    person.writes("steps.py", STEPS.replace("== 1", "== 2"))
    assert refused(lambda: person.applies(path, expected=seen)).code == "plan-stale"
    person.writes("steps.py", STEPS.replace("== 1", "== 0"))
    person.applies(path, expected=seen[:12])
    assert refused(lambda: person.applies(path, expected=seen)).code == "plan-stale"


def test_who_was_faster_makes_a_plan_stale(person: Person) -> None:
    path = person.flow("numbers")
    found, _ = submissions([path], person.packages, person.state)
    person.applies(path)
    told = refused(lambda: flow_requests.apply_all(person.registry, found, {"numbers": 0}, state=lambda _: "", by="me"))
    assert told.code == "plan-stale"


def test_a_query_that_cannot_keep_its_state_needs_a_persons_word(person: Person) -> None:
    path = person.writes("counted.yaml", WINDOWED)
    person.applies(path)
    person.has_run(path, rows=1234)
    path.write_text(WINDOWED.replace("by: [id]", "by: [kind]"))
    plan = person.plans(path)
    assert plan.needs_word
    (anew,) = plan.flows[0].anew
    assert (dict(anew.read), dict(anew.written)) == ({"rows": 1234}, {"counts": 1234})
    assert "1,234 rows of source rows are read again" in rows_again(anew)
    before = person.store.revision
    told = refused(lambda: person.applies(path))
    assert (told.code, "1,234 rows" in told.message, plan.hash in told.remedy) == ("plan-unsaid", True, True)
    assert person.store.revision == before
    assert person.applies(path, accept="lost") == {"counted": (2, True)}
    desired = read_record(person.registry, DESIRED("counted"))
    assert isinstance(desired, Stored)
    operation = read_record(person.registry, OPERATION("counted", desired.record.operation))
    assert isinstance(operation, Stored)
    begun = operation.record
    assert (begun.kind, begun.step, begun.tiers, begun.version) == ("renew", "stop", ("main",), 1)
    assert begun.arguments == {"how": "lost", "queries": [["main", "counts"]]}
    path.write_text(WINDOWED)
    assert refused(lambda: person.applies(path, accept="lost")).code == "operation-under-way"
    assert refused(lambda: flow_requests.rollback(person.registry, "counted", 1, by="me")).code == "operation-under-way"


def test_going_back_to_what_cannot_keep_its_state_needs_a_word_too(person: Person) -> None:
    path = person.writes("counted.yaml", WINDOWED)
    person.applies(path)
    path.write_text(WINDOWED.replace("by: [id]", "by: [kind]"))
    person.applies(path)
    person.has_run(path, rows=9)
    plan = plan_rollback(person.registry, "counted", 1, packages=person.packages)
    assert plan.needs_word
    assert refused(lambda: check_agreed(plan)).code == "plan-unsaid"
    check_agreed(plan, accept="again")
    assert flow_requests.rollback(person.registry, "counted", 1, by="me", renew={"counted": [("main", "counts")]}) == {"counted": 1}
    assert flow_records.read_flow(person.registry, "counted").desired.operation == "1"
    operation = read_record(person.registry, OPERATION("counted", "1"))
    assert isinstance(operation, Stored)
    assert operation.record.version == 2, "the version that knows the checkpoint leaves it"


CHAIN = """\
version: 1
name: chain
sources: {rows: {type: files, path: data, format: json, schema: "id BIGINT"}}
steps:
  a: {from: rows, filter: id > 1}
  b: {from: a, filter: id > 2}
  c: {from: b, filter: id > 3}
sinks: {kept: {from: c, type: files, path: out, format: json}}
tiers: {x: {steps: [a]}, y: {steps: [b]}, z: {steps: [c]}}
"""
INSERTED = CHAIN.replace("  c: {from: b,", "  m: {from: b, filter: id > 0}\n  c: {from: m,").replace("z: {", "w: {steps: [m]}, z: {")


def begun(person: Person) -> Operation:
    """The operation with which the version of `chain` that is wanted begins."""
    desired = read_record(person.registry, DESIRED("chain"))
    assert isinstance(desired, Stored)
    operation = read_record(person.registry, OPERATION("chain", desired.record.operation))
    assert isinstance(operation, Stored)
    return operation.record


def runs_as(person: Person, path: Path) -> None:
    """The chain has run, cut as the file says, and its state knows how."""
    person.applies(path)
    person.has_run(path, rows=7)
    write_topology(person.state, "chain", topology_of(prepare(path, state=person.state).plan))


def test_a_tier_that_is_put_between_two_others_begins_when_the_version_that_runs_has_read_what_waits(person: Person) -> None:
    path = person.writes("chain.yaml", CHAIN)
    runs_as(person, path)
    path.write_text(INSERTED)
    plan = person.plans(path)
    assert plan.flows[0].recut == Recut("z", ("z",), {"x": (), "y": ("x",), "z": ("y",)})
    assert effects(plan)["channel b_to_z"] == "drain"
    assert plan.flows[0].effect == "drain"
    assert person.applies(path) == {"chain": (2, True)}
    asked = begun(person)
    assert (asked.kind, asked.step, asked.tiers, asked.version) == ("recut", "drain", ("z",), 1)
    assert asked.arguments == {"version": 2, "read": ["z"], "feeders": {"x": [], "y": ["x"], "z": ["y"]}}
    operation_requests.cancel(person.registry, "chain", "1", by="me")
    assert flow_records.read_flow(person.registry, "chain").desired.version == 1


def test_what_lies_in_channels_that_another_version_cut_is_not_to_be_read_by_the_one_that_is_wanted(person: Person) -> None:
    path = person.writes("chain.yaml", INSERTED)
    runs_as(person, path)
    path.write_text(CHAIN)
    person.applies(path)
    write_topology(person.state, "chain", topology_of(prepare(path, state=person.state).plan))
    operation_requests.cancel(person.registry, "chain", "1", by="me")
    again = person.plans(path).flows[0]
    assert again.recut is None, "what lies there was cut by another version than the one that is wanted"


def test_a_flow_in_one_piece_is_cut_by_one_worker_before_those_of_its_tiers_start(person: Person) -> None:
    whole = CHAIN.partition("tiers:")[0]
    path = person.writes("chain.yaml", whole)
    person.applies(path)
    person.has_run(path, rows=7)
    path.write_text(CHAIN)
    plan = person.plans(path)
    assert plan.flows[0].recut == Recut("main", (), {"main": ()})
    assert plan.flows[0].effect == "restart"
    person.applies(path)
    assert (begun(person).tiers, begun(person).arguments["read"]) == (("main",), [])


def test_what_is_cut_otherwise_and_would_remember_something_else_is_done_in_two_steps(person: Person) -> None:
    windowed = CHAIN.replace("id BIGINT", "id BIGINT, ts TIMESTAMP").replace('ts TIMESTAMP"', 'ts TIMESTAMP", watermark: ts 1m')
    per = "{from: a, aggregate: {by: [id], window: {time: ts, size: 1h}, columns: {n: count(*)}}}"
    windowed = windowed.replace("{from: rows, filter: id > 1}", per.replace("from: a", "from: rows"))
    windowed = windowed.replace("filter: id > 2", "select: {id: id, n: n}")
    path = person.writes("chain.yaml", windowed)
    runs_as(person, path)
    both = (
        windowed.replace("by: [id]", "by: [ts]")
        .replace("id: id, n: n", "n: n")
        .replace("  c: {from: b, filter: id > 3}", "  c: {from: b, filter: n > 3}")
    )
    path.write_text(
        both.replace("  c: {from: b,", "  m: {from: b, filter: n > 0}\n  c: {from: m,").replace("z: {", "w: {steps: [m]}, z: {")
    )
    told = refused(lambda: person.applies(path, accept="again"))
    assert (told.code, "apply the two changes one after the other" in told.remedy) == ("plan-refused", True)


def test_a_hash_agrees_to_what_the_plan_says(person: Person) -> None:
    path = person.writes("counted.yaml", WINDOWED)
    person.applies(path)
    path.write_text(WINDOWED.replace("by: [id]", "by: [kind]"))
    seen = person.plans(path)
    assert not seen.needs_word
    person.has_run(person.writes("before/counted.yaml", WINDOWED), rows=5)
    assert refused(lambda: person.applies(path, expected=seen.hash)).code == "plan-stale", "it was to be harmless"
    person.applies(path, expected=person.plans(path).hash)


def test_a_folders_flows_come_together_or_not_at_all(person: Person) -> None:
    person.flow("first", "data", "between")
    person.flow("second", "between", "out")
    assert person.applies(person.folder) == {"first": (1, True), "second": (1, True)}
    before = person.store.revision
    person.flow("second", "between", "data")
    with pytest.raises(InputError) as circle:
        person.applies(person.folder)
    assert [problem.code for problem in circle.value.problems] == ["flows-circle"]
    person.writes("first.yaml", FLOW.format(name="first", reads="data", writes="between").replace("from: odd", "from: od"))
    person.writes("second.yaml", FLOW.format(name="second", reads="between", writes="out").replace("steps:odd", "steps:old"))
    with pytest.raises(InputError) as wrong:
        person.applies(person.folder)
    assert {Path(problem.place.file).name for problem in wrong.value.problems} >= {"first.yaml", "second.yaml"}, "all at once"
    assert person.store.revision == before


def test_how_much_may_wait_at_a_source_changes_while_it_runs_and_is_known_to_masters(person: Person) -> None:
    path = person.flow("first")
    person.applies(path)
    assert wanted(person.registry, "first")[1].outside.waters == {}  # type: ignore[union-attr]
    path.write_text(path.read_text().replace("type: files,", "type: files, high_water: {rows: 100, age: 10s}, low_water: {age: 1s},", 1))
    (compared,) = person.plans(path).flows
    assert compared.effect == "next Batch"
    person.applies(path)
    (waters,) = wanted(person.registry, "first")[1].outside.waters.values()  # type: ignore[union-attr]
    assert waters == Waters(
        high=SourceLevel(rows=100, age_s=10.0), low=SourceLevel(rows=50, age_s=1.0), capacity=SourceLevel(rows=200, age_s=20.0)
    )


def test_levels_of_a_source_rise(person: Person) -> None:
    path = person.flow("first")
    path.write_text(path.read_text().replace("type: files,", "type: files, high_water: {rows: 100}, capacity: {rows: 10},", 1))
    with pytest.raises(InputError) as wrong:
        person.plans(path)
    (problem,) = wrong.value.problems
    assert problem.code == "water-levels"
    assert '`high_water.rows` of source "rows"' in problem.message


def test_flows_in_several_folders_are_one_topology_and_a_name_is_claimed_once(person: Person, tmp_path: Path) -> None:
    other = Person(tmp_path / "others")
    here, there = person.flow("first"), other.flow("second")
    assert person.applies(here, there) == {"first": (1, True), "second": (1, True)}
    before = person.store.revision
    twice = other.flow("first")
    told = refused(lambda: person.applies(here, twice))
    assert (told.code, str(other.folder) in told.message) == ("tier-two-flows", True)
    assert person.store.revision == before


def test_a_package_is_submitted_as_the_folder_it_was_made_of(person: Person) -> None:
    person.flow("first", "data", "between")
    person.flow("second", "between", "out")
    package = make_package(person.folder, {}).package
    file = person.folder.with_name(package.file_name)
    file.write_bytes(package.data)
    found, _ = submissions([file], person.packages, person.state, base=person.folder)
    again, _ = submissions([person.folder], person.packages, person.state)
    assert found == again


def test_what_came_as_one_goes_back_as_one(person: Person) -> None:
    person.flow("first", "data", "between")
    person.flow("second", "between", "out")
    person.applies(person.folder)
    person.writes("steps.py", STEPS.replace("== 1", "== 0"))
    assert person.applies(person.folder) == {"first": (2, True), "second": (2, True)}
    assert flow_requests.rollback(person.registry, "second", 1, by="me", only=True) == {"second": 1}
    assert flow_requests.rollback(person.registry, "first", 1, by="me") == {"first": 1}
    assert flow_requests.rollback(person.registry, "first", 2, by="me") == {"first": 2, "second": 2}
    before = person.store.revision
    assert refused(lambda: flow_requests.rollback(person.registry, "first", 2, by="me")).code == "version-same"
    assert person.store.revision == before
