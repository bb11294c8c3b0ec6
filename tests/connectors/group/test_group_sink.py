"""The sink of a group over folders, without Spark: which member a Batch goes to, that it stays there, and what stands there in the end."""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from scribengin.connectors.contract import BatchId, ConnectorContext, Decided, Published, RefusedRow
from scribengin.connectors.files.options import SINK
from scribengin.connectors.files.sink import FilesSink
from scribengin.connectors.group.health import MemberOverrides
from scribengin.connectors.group.sink import GroupSink
from scribengin.connectors.keyed.sink import KeyedSink
from scribengin.core import numbered_log
from scribengin.core.errors import FencedError, Refused, SinkError, Unreachable
from scribengin.core.types import arrow_schema, parse_schema
from scribengin.testing.sqlite_store import SqliteStore
from tests.connectors.group.alternating import Driver
from tests.connectors.group.disks import Clock, Disks

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SCHEMA = parse_schema("id BIGINT")
LINEAGE = "l1"


@dataclass
class Group(Disks):
    """A group of folders, one driver after the other over the same state, and all that was decided."""

    costs: dict[str, float]
    clock: Clock = field(default_factory=Clock)
    decided: list[Decided] = field(default_factory=list)
    sink: Any = None

    def start(self, *, lineage: str = LINEAGE, adopt: bool = False) -> Group:
        """A new process: nothing is remembered but what lies in folders."""
        members = tuple((name, cost, {}) for name, cost in self.costs.items())
        sinks = {name: FilesSink(self._place(name)) for name in self.costs}
        place = ConnectorContext("kept", self.folder, flow="f", members=members, work=self.folder / "state")
        self.sink = GroupSink(place, sinks, now=self.clock)
        self.sink.prepare(owner="me", lineage=lineage, adopt=adopt)
        return self

    def recover(self) -> Group:
        self.sink.recover(self.decided[-1] if self.decided else None, lineage=LINEAGE, before=len(self.decided))
        return self

    def _place(self, name: str) -> ConnectorContext:
        options = SINK.filled({"path": f"{name}/kept", "format": "json"})
        return ConnectorContext("kept", self.folder, options, flow="f", member=name, work=self.folder / "state" / name)

    def decide(self, *ids: int, term: int = 1) -> Decided:
        """Choose, stage, decide; nothing is published."""
        behind = self.sink.behind(0)
        batch = BatchId("f", "q", LINEAGE, len(self.decided), term)
        stream = pickle.loads(pickle.dumps(self.sink.chosen(behind))).stream(batch, 0, f"t{term}", SCHEMA)
        stream.write(pa.RecordBatch.from_pylist([{"id": id_} for id_ in ids], schema=arrow_schema(SCHEMA)))
        self.decided.append(Decided(batch, f"h{batch.number}", (stream.close(),), behind))
        return self.decided[-1]

    def put(self, *ids: int, term: int = 1) -> str:
        """A whole Batch; the member that it went to."""
        decided = self.decide(*ids, term=term)
        self.sink.publish(decided)
        return str(decided.behind["member"])

    def ids(self, member: str) -> list[int]:
        parts = sorted((self.folder / member / "kept").glob("part-*"))
        return [json.loads(line)["id"] for part in parts for line in part.read_text().splitlines()]

    def everywhere(self) -> list[int]:
        return sorted(id_ for member in self.costs for id_ in self.ids(member))

    def audit(self) -> list[Published]:
        return list(self.sink.audit(lineage=LINEAGE, decided=iter(self.decided)))


@pytest.fixture
def group(tmp_path: Path) -> Callable[..., Group]:
    def made(**costs: float) -> Group:
        for name in costs:
            (tmp_path / name).mkdir()
        return Group(tmp_path, costs).start().recover()

    return made


def test_batches_go_to_the_lowest_cost_fail_over_and_come_back(group: Any) -> None:
    g = group(near=1, far=2)
    assert [g.put(1), g.put(2)] == ["near", "near"]
    g.take_away("near")
    assert [g.put(3), g.put(4)] == ["far", "far"]
    assert [note.partition(" UTC ")[2] for note in g.sink.upkeep()] == [
        "Batches go to member far (cost 2) instead of near: near is unavailable: "
        f"{g.folder}/near/kept/_scribengin/owner.json cannot be read: Not a directory"
    ]
    g.give_back("near")
    assert g.put(5) == "far", "it is left out for a second"
    g.clock.seconds += 1
    assert g.put(6) == "near"
    assert [note.partition(" UTC ")[2] for note in g.sink.upkeep()] == [
        "Batches go to member near (cost 1) instead of far: retried after 1 s"
    ]
    assert (g.ids("near"), g.ids("far")) == ([1, 2, 6], [3, 4, 5])
    assert [(each.number, each.rows, each.violations) for each in g.audit()] == [(n, 1, ()) for n in range(6)]


def test_equal_members_share_and_nobody_is_told_of_it(group: Any) -> None:
    g = group(a=1, b=1)
    assert [g.put(n) for n in range(6)] == ["a", "b"] * 3
    assert g.sink.upkeep() == []
    assert g.start().recover().put(6) == "a", "the turn goes on behind the last decision"


def test_a_decision_says_the_member_and_why(group: Any) -> None:
    g = group(near=1, far=2)
    assert g.decide(1).behind == {"member": "near", "cost": 1, "why": "the lowest cost", "behind": {}}


def test_a_decided_batch_waits_for_its_member_and_is_published_there_once(group: Any) -> None:
    g = group(near=1, far=2)
    g.put(1)
    decided = g.decide(2)
    g.take_away("near")
    for _ in range(3):
        with pytest.raises(Unreachable, match='batch 1 is decided for member "near" and waits for it') as told:
            g.sink.publish(decided)
        g.clock.seconds += 60
    assert "never changes its member" in told.value.remedy
    assert g.ids("far") == []
    g.give_back("near")
    g.sink.publish(decided)
    g.sink.publish(decided)
    assert (g.ids("near"), g.ids("far")) == ([1, 2], [])


def test_a_killed_driver_s_decided_batch_waits_in_the_next_process_and_goes_before_any_other(group: Any) -> None:
    g = group(near=1, far=2)
    g.put(1)
    g.decide(2)
    g.take_away("near")
    g.start()
    with pytest.raises(Unreachable, match="waits for it"):
        g.recover()
    with pytest.raises(Unreachable, match='batch 1 is decided for member "near"'):
        g.sink.behind(0)  # a newer Batch must not overtake it at another member
    assert g.ids("far") == []
    g.give_back("near")
    assert g.put(3) == "near"
    assert g.ids("near") == [1, 2, 3]


def test_a_restart_does_not_wait_for_a_member_whose_newest_batch_is_known_to_be_through(group: Any) -> None:
    g = group(near=1, far=2)
    g.put(1)
    g.take_away("near")
    g.start().recover()
    g.sink.publish(g.decided[0])  # Spark runs it again where it was killed before its own commit
    assert g.put(2) == "far"
    g.give_back("near")
    assert (g.ids("near"), g.ids("far")) == ([1], [2])


def test_a_member_may_be_taken_out_once_its_newest_batch_is_through(group: Any) -> None:
    g = group(near=1, far=2)
    g.put(1)
    del g.costs["near"]
    assert g.start().recover().put(2) == "far"


def test_a_batch_that_was_staged_and_not_decided_may_go_elsewhere_and_leaves_nothing_behind(group: Any) -> None:
    g = group(near=1, far=2)
    g.put(1)
    g.decide(2)
    g.decided.pop()  # killed before the decision
    g.take_away("near")
    assert g.start().recover().put(2) == "far"
    g.give_back("near")
    g.clock.seconds += 1
    assert g.put(3) == "near"
    assert (g.ids("near"), g.ids("far")) == ([1, 3], [2])
    g.start().recover()
    assert list((g.folder / "near/kept/_scribengin" / LINEAGE / "staged").rglob("*-*")) == []


def test_a_member_that_goes_away_while_a_batch_is_staged_makes_it_run_again_elsewhere(group: Any) -> None:
    g = group(near=1, far=2)
    behind = g.sink.behind(0)
    g.sink.blame(behind, OSError("it was something else"))  # the member answers: what was raised stands
    g.take_away("near")
    with pytest.raises(Unreachable, match='"near" became unavailable while a Batch was staged'):
        g.sink.blame(behind, OSError("no such folder"))
    assert g.put(1) == "far"


def test_no_healthy_member_is_told_with_each_one_s_reason_and_when_it_is_tried_again(group: Any) -> None:
    g = group(near=1, far=2)
    g.take_away("near")
    g.take_away("far")
    with pytest.raises(Unreachable) as told:
        g.sink.behind(0)
    assert told.value.code == "group-down"
    for name in ("near", "far"):
        assert f"{name} (retried in 1 s): {g.folder}/{name}/kept/_scribengin/owner.json cannot be read" in told.value.message
    g.give_back("far")
    g.clock.seconds += 1
    assert g.put(1) == "far"


def test_a_member_that_was_never_there_is_claimed_when_it_comes(tmp_path: Path) -> None:
    (tmp_path / "near").touch()
    g = Group(tmp_path, {"near": 1, "far": 2}).start().recover()
    assert g.put(1) == "far"
    (tmp_path / "near").unlink()
    g.clock.seconds += 1
    assert g.put(2) == "near"
    assert g.everywhere() == [1, 2]


def test_an_empty_folder_in_a_claimed_one_s_place_is_no_member_that_answers(group: Any) -> None:
    """A disk that is not mounted leaves its mount point: what is written there would vanish under it."""
    g = group(near=1, far=2)
    g.put(1)
    (g.folder / "near").rename(g.folder / "near.gone")
    (g.folder / "near").mkdir()
    assert g.start().put(2) == "far"
    assert list((g.folder / "near").iterdir()) == []
    with pytest.raises(Unreachable, match="is not the folder that the flow claimed"):
        g.sink.publish(g.decided[0])


def test_another_s_claim_at_one_member_refuses_the_whole(group: Any) -> None:
    g = group(near=1, far=2)
    with pytest.raises(Refused, match="another lineage"):
        g.start(lineage="l2")


def test_a_new_lineage_needs_every_member(group: Any) -> None:
    g = group(near=1, far=2)
    g.take_away("far")
    with pytest.raises(Unreachable, match='member "far" does not answer, but every member must record the new lineage'):
        g.start(lineage="l2", adopt=True)
    g.give_back("far")
    g.start(lineage="l2", adopt=True)
    g.start(lineage="l2")


def test_a_zombie_of_an_older_batch_is_fenced_also_where_numbers_have_gaps(group: Any) -> None:
    """It slept with a copy of the state in which another member was decided."""
    g = group(a=1, b=1, c=1)
    assert [g.put(n) for n in range(7)] == ["a", "b", "c", "a", "b", "c", "a"]
    strange = g.decided[1].behind | {"member": "a"}
    for number in (1, 2, 4, 5):
        late = Decided(BatchId("f", "q", LINEAGE, number, 1), "another", (), strange)
        with pytest.raises(FencedError, match="batch 6 already exists"):
            g.sink.publish(late)
    assert g.everywhere() == list(range(7))


def test_an_older_term_is_fenced_behind_a_gap(group: Any) -> None:
    g = group(a=1, b=1)
    assert [g.put(0, term=2), g.put(1, term=2)] == ["a", "b"]
    with pytest.raises(FencedError, match="batch 0 exists under the newer Term 2; this one has Term 1"):
        g.put(2, term=1)


def test_a_member_s_commit_records_are_folded_though_their_numbers_have_gaps(group: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbered_log, "CHUNK", 10)
    g = group(a=1, b=1)
    for number in range(60):
        g.put(number)
    for name in ("a", "b"):
        batches = g.folder / name / "kept/_scribengin" / LINEAGE / "batches"
        assert len(list(batches.glob("*.json"))) <= 10
    assert g.start().recover().put(60) == "a"
    assert g.everywhere() == list(range(61))
    assert [(each.number, each.rows, each.violations) for each in g.audit()] == [(n, 1, ()) for n in range(61)]


def test_an_audit_names_the_member_that_misses_rows(group: Any) -> None:
    g = group(a=1, b=1)
    g.put(1), g.put(2)
    (part,) = (g.folder / "b/kept").glob("part-*")
    part.unlink()
    found = g.audit()
    assert found[0] == Published(0, 1)
    assert found[1].violations == (f"member b: {part} is missing: 1 rows",)


def test_batches_whose_decisions_were_pruned_are_known_at_a_member_that_has_none_since(group: Any) -> None:
    g = group(near=1, far=2)
    g.put(1)
    g.take_away("near")
    g.put(2)
    g.give_back("near")
    told = list(g.sink.audit(lineage=LINEAGE, decided=iter(g.decided[1:])))
    assert [(each.number, each.rows, each.violations) for each in told] == [(0, 1, ()), (1, 1, ())]


def test_an_audit_asks_for_a_member_that_is_away(group: Any) -> None:
    g = group(a=1, b=1)
    g.put(1)
    g.take_away("a")
    with pytest.raises(Unreachable, match='an audit needs every member, and "a" does not answer'):
        g.audit()


def test_outputs_are_cleared_at_every_member(group: Any) -> None:
    g = group(a=1, b=1)
    g.put(1), g.put(2)
    assert g.sink.clear(owner="me", flow="f", dry_run=True) == 2
    assert g.everywhere() == [1, 2]
    assert g.sink.clear(owner="me", flow="f") == 2
    assert g.everywhere() == []


@pytest.mark.parametrize(
    ("behind", "told"),
    [
        ({}, "was decided before the sink used a group"),
        ({"member": "c", "behind": {}}, 'was decided for member "c", which is not in its group any more'),
    ],
)
def test_a_batch_that_was_decided_for_no_member_that_is_there_is_refused(group: Any, behind: dict[str, Any], told: str) -> None:
    g = group(a=1, b=1)
    with pytest.raises(Refused, match=told):
        g.sink.recover(Decided(BatchId("f", "q", LINEAGE, 0, 1), "h", (), behind), lineage=LINEAGE, before=1)


def test_a_member_that_is_taken_out_while_it_runs_keeps_what_is_decided_for_it_and_gets_no_more(group: Any) -> None:
    g = group(near=1, far=2)
    now = MemberOverrides()
    g.sink.turns = lambda: now
    decided = g.decide(1)
    now = MemberOverrides(out={"near": "disk is swapped"})
    g.sink.publish(decided)
    assert [g.put(2), g.put(3)] == ["far", "far"]
    assert [note.partition(" UTC ")[2] for note in g.sink.upkeep()] == [
        "Batches go to member far (cost 2) instead of near: near is unavailable: disk is swapped"
    ]
    assert [(seen.member, seen.state, seen.batches) for seen in g.sink.members()] == [("near", "out", 1), ("far", "healthy", 2)]
    g.take_away("far")
    with pytest.raises(Unreachable, match=r"near \(disabled\): disk is swapped"):
        g.sink.behind(0)
    now = MemberOverrides(costs={"near": 9})
    assert g.put(4) == "near"
    g.give_back("far")
    g.clock.seconds += 1
    assert g.put(5) == "far"
    assert (g.ids("near"), g.ids("far")) == ([1, 4], [2, 3, 5])
    assert all(not each.violations for each in g.audit())


@dataclass
class Places:
    """Two places that take or refuse rows one by one, behind the decision: of numbers 666 none. A member is away while it is in `away`."""

    folder: Path
    away: set[str] = field(default_factory=set)

    def open(self, _: str, place: ConnectorContext) -> KeyedSink:
        store = AwayStore(self.folder / f"{place.member}.db", b"666", away=self.away, member=place.member)
        return KeyedSink(place, store, key=(), connections=1)

    def driver(self) -> Driver:
        driver = Driver("keyed", {"near": {}, "far": {}}, self.folder, Clock(), SCHEMA, self.open)
        driver.recover()
        return driver

    def ids(self, member: str) -> list[int]:
        return sorted(row["id"] for row in SqliteStore(self.folder / f"{member}.db").documents())


@dataclass(slots=True)
class AwayStore(SqliteStore):
    away: Any = None
    member: str = ""

    def read_record(self) -> Any:
        if self.member in self.away:
            raise Unreachable(f"{self.member} does not answer")
        return SqliteStore.read_record(self)


def test_rows_are_offered_to_the_member_of_the_decision_and_wait_for_it(tmp_path: Path) -> None:
    places = Places(tmp_path)
    driver = places.driver()
    assert driver.put([{"id": 1}]) == "near"
    owed = driver.decide([{"id": 2}])
    places.away.add("near")
    for tried in (driver.publish, lambda _: (driver.start(), driver.recover())):
        with pytest.raises(Unreachable, match='batch 1 is decided for member "near" and waits for it: near does not answer'):
            tried(owed)
    places.away.clear()
    driver.sink.offer(owed, list[RefusedRow]().append)
    places.away.add("near")
    driver.start()
    with pytest.raises(Unreachable, match='batch 1 is decided for member "near" and waits for it'):
        driver.recover()  # its rows are there, and nothing says so yet
    places.away.clear()
    driver.recover()
    assert (places.ids("near"), places.ids("far")) == ([1, 2], [])
    places.away.add("near")
    assert driver.put([{"id": 3}]) == "far"
    places.away.clear()
    assert [(each.number, each.rows, each.violations) for each in driver.audit()] == [(n, 1, ()) for n in range(3)]


def test_a_row_that_a_member_never_takes_is_a_letter_and_no_sign_that_it_is_away(tmp_path: Path) -> None:
    driver = Places(tmp_path).driver()
    decided = driver.decide([{"id": 1}, {"id": 666}])
    refused: list[RefusedRow] = []
    driver.sink.offer(decided, refused.append)
    driver.sink.publish(replace(decided, refused=len(refused)))
    assert [each.id for each in refused] == ["source/0+1"]
    assert {each.state for each in driver.sink.members()} == {"healthy"}


def test_a_row_that_stops_the_query_says_so_and_not_that_its_member_is_away(tmp_path: Path) -> None:
    driver = Places(tmp_path).driver()
    decided = driver.decide([{"id": 666}])

    def refuse(refusal: RefusedRow) -> None:
        raise SinkError(f"the row {refusal.id} is refused", code="row-refused")

    with pytest.raises(SinkError, match=r"the row source/0\+0 is refused"):
        driver.sink.offer(decided, refuse)
    assert {each.state for each in driver.sink.members()} == {"healthy"}
