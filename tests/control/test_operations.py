"""Operations: the master is killed after each thing that it does, and the end is the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from scribengin.control import flow_records, flow_requests
from scribengin.control.changes import Recut
from scribengin.control.event_history import read_happened
from scribengin.control.operation_records import KEPT_OPERATIONS
from scribengin.control.operation_requests import begin, cancel, list_operations
from scribengin.core.errors import Refused
from scribengin.registry.record_io import Stored, put, read_record
from scribengin.registry.records import Operation, TierSpec
from scribengin.registry.tree import CHANGES, DESIRED, OPERATION, RUN
from tests.control.obedient import Plane, applied

if TYPE_CHECKING:
    from collections.abc import Callable

TIERS = {"edge": (), "core": ("edge",), "store": ("core",)}


def rewound(plane: Plane) -> None:
    operation = Operation(kind="rewind", step="stop", version=1, tiers=("edge",), arguments={"moves": [["edge", "q", {"a": 1}]]})
    begin(plane.person, "f", operation, by="me")
    plane.comes_to("f", "running")


def set_while_stopped(plane: Plane) -> None:
    flow_requests.want(plane.person, "f", "stopped", by="me")
    plane.comes_to("f", "stopped")
    operation = Operation(kind="offsets", step="stop", version=1, tiers=("core", "edge"), arguments={"moves": []})
    begin(plane.person, "f", operation, by="me")
    plane.comes_to("f", "stopped")


def begun_anew(plane: Plane) -> None:
    specs = applied(Plane(), "f", "1", **TIERS)
    asked: dict[str, Any] = {"state": lambda _: "/state", "by": "me", "renew": {"f": [("core", "q"), ("store", "r")]}}
    flow_requests.apply_all(plane.person, [specs], {"f": 1}, **asked)
    plane.comes_to("f", "running")


def failed(plane: Plane) -> None:
    plane.part = lambda id_, _: "the source is another" if id_.tier == "core" else ""
    operation = Operation(kind="rewind", step="stop", version=1, tiers=("edge", "core"))
    begin(plane.person, "f", operation, by="me")
    plane.comes_to("f", "running")


def spread(plane: Plane) -> None:
    operation = Operation(kind="repartition", step="stop", version=1, tiers=("core",), arguments={"partitions": 3})
    begin(plane.person, "f", operation, by="me")
    plane.comes_to("f", "running")


def cut_otherwise(plane: Plane) -> None:
    """A tier is put between core and store."""
    cut = {
        "edge": TierSpec(),
        "core": TierSpec(feeders=("edge",)),
        "more": TierSpec(feeders=("core",)),
        "store": TierSpec(feeders=("more",)),
    }
    submission = flow_requests.Submission("f", "1", "flow.yaml", "/base", cut)
    recut = {"f": Recut("store", ("store",), TIERS)}
    flow_requests.apply_all(plane.person, [submission], {"f": 1}, state=lambda _: "/state", by="me", recut=recut)
    plane.comes_to("f", "running")


def cut_with_nothing_to_read(plane: Plane) -> None:
    submission = flow_requests.Submission("f", "1", "flow.yaml", "/base", {"whole": TierSpec()})
    recut = {"f": Recut("edge", (), TIERS)}
    flow_requests.apply_all(plane.person, [submission], {"f": 1}, state=lambda _: "/state", by="me", recut=recut)
    plane.comes_to("f", "running")


def cut_otherwise_behind_a_reader_that_fails(plane: Plane) -> None:
    plane.ill = frozenset({"store"})
    cut_otherwise(plane)


def cut_otherwise_and_not_all_was_through(plane: Plane) -> None:
    plane.part = lambda _id, _operation: "7 rows have not been read"
    cut_otherwise(plane)


KINDS: dict[str, tuple[Callable[[Plane], None], set[str], str]] = {
    "rewind": (rewound, {"edge"}, "done"),
    "offsets": (set_while_stopped, {"core", "edge"}, "done"),
    "renew": (begun_anew, {"core", "store"}, "done"),
    "repartition": (spread, {"core"}, "done"),
    "rewind that fails": (failed, {"core", "edge"}, "failed"),
    "recut": (cut_otherwise, {"store"}, "done"),
    "recut with nothing to read": (cut_with_nothing_to_read, {"edge"}, "done"),
    "recut whose reader fails": (cut_otherwise_behind_a_reader_that_fails, set(), "failed"),
    "recut that is refused in the end": (cut_otherwise_and_not_all_was_through, {"store"}, "failed"),
}


def end_of(plane: Plane) -> dict[str, Any]:
    """What there is when all is over, without how often anybody had to try."""
    found = flow_records.describe(plane.person, "f")
    (operation,) = list_operations(plane.person, "f")
    tiers = {tier["tier"]: (tier["state"], tier["failures"]) for tier in found["tiers"]}
    state, version = found["status"]["state"], found["status"]["version"]
    wanted = (found["wanted"]["state"], found["wanted"]["version"])
    return {"state": (state, version), "wanted": wanted, "tiers": tiers, "operation": (operation.step, operation.error)}


def played(kind: str, lives: list[int]) -> Plane:
    plane = Plane()
    applied(plane, "f", **TIERS)
    plane.comes_to("f", "running")
    plane.lives = lives
    plane.life.left = lives.pop(0) if lives else None
    plane.life.done = 0
    KINDS[kind][0](plane)
    return plane


@pytest.mark.parametrize("kind", KINDS)
def test_the_end_is_the_same_wherever_a_master_is_killed(kind: str) -> None:
    _, tiers, step = KINDS[kind]
    quiet = played(kind, [])
    expected = end_of(quiet)
    assert quiet.masters == 1
    assert expected["operation"][0] == step
    assert sorted(quiet.parts) == sorted((tier, "1") for tier in tiers), "each part is done once"
    points = quiet.life.done
    assert points > 10
    for point in range(1, points + 1):
        plane = played(kind, [point])
        assert plane.masters == 2, f"point {point} of {points}"
        assert end_of(plane) == expected, f"killed after thing {point} of {points}"
        assert {tier for tier, _ in plane.parts} == tiers
        assert plane.most_at_work == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("each", [1, 2, 3])
def test_the_end_is_the_same_where_every_master_is_killed_after_a_thing_or_a_few(kind: str, each: int) -> None:
    plane = played(kind, [each] * 300)
    assert plane.masters > 4
    assert end_of(plane) == end_of(played(kind, []))
    assert plane.most_at_work == 1


def test_a_part_that_is_lost_before_it_could_be_told_is_done_again_by_the_next_worker() -> None:
    plane = Plane()
    lost: list[str] = []

    def part(id_: Any, _: Operation) -> str:
        if not lost:
            lost.append(str(id_))
            plane.cluster.workers[str(id_)].seen = plane.cluster.workers[str(id_)].seen.__class__(str(id_), "gone")
        return ""

    applied(plane, "f", main=())
    plane.comes_to("f", "running")
    says = plane._says

    def silent(id_: Any, *told: Any, **said: Any) -> None:
        if str(id_) in lost:
            plane.workers[id_][0].close()
        else:
            says(id_, *told, **said)

    plane._says, plane.part = silent, part  # type: ignore[method-assign]
    begin(plane.person, "f", Operation(kind="rewind", step="stop", version=1, tiers=("main",)), by="me")
    plane.comes_to("f", "running")
    assert plane.parts == [("main", "1"), ("main", "1")]
    (operation,) = list_operations(plane.person, "f")
    assert operation.step == "done"


def test_there_is_one_at_a_time_and_what_else_is_wanted_waits() -> None:
    plane = Plane()
    applied(plane, "f", **TIERS)
    plane.comes_to("f", "running")
    one = Operation(kind="rewind", step="stop", version=1, tiers=("edge",))
    assert begin(plane.person, "f", one, by="me") == "1"
    for what in (
        lambda: begin(plane.person, "f", one, by="me"),
        lambda: flow_requests.apply(plane.person, applied(Plane(), "f", "1", **TIERS), state=lambda _: "", by="me"),
    ):
        with pytest.raises(Refused) as refused:
            what()
        assert refused.value.code == "operation-under-way"
    flow_requests.want(plane.person, "f", "paused", by="me")
    plane.comes_to("f", "paused")
    (operation,) = list_operations(plane.person, "f")
    assert (operation.step, plane.parts) == ("done", [("edge", "1")])
    assert begin(plane.person, "f", one, by="me") == "2"


def test_it_is_cancelled_while_nothing_of_it_is_done_and_a_new_version_goes_with_it() -> None:
    plane = Plane()
    applied(plane, "f", **TIERS)
    plane.comes_to("f", "running")
    submission = applied(Plane(), "f", "1", **TIERS)
    flow_requests.apply_all(plane.person, [submission], None, state=lambda _: "", by="me", renew={"f": [("core", "q")]})
    assert flow_records.read_flow(plane.person, "f").desired.version == 2
    plane.turn()
    cancel(plane.person, "f", "1", by="me")
    assert flow_records.read_flow(plane.person, "f").desired.version == 1
    plane.comes_to("f", "running")
    assert plane.parts == []
    with pytest.raises(Refused) as over:
        cancel(plane.person, "f", "1", by="me")
    assert over.value.code == "operation-over"
    with pytest.raises(Refused) as unknown:
        cancel(plane.person, "f", "7", by="me")
    assert unknown.value.code == "operation-unknown"
    begin(plane.person, "f", Operation(kind="rewind", step="stop", version=1, tiers=("edge",)), by="me")
    while list_operations(plane.person, "f")[0].step == "stop":
        plane.turn()
    with pytest.raises(Refused) as late:
        cancel(plane.person, "f", "2", by="me")
    assert late.value.code == "operation-at-work"


def test_those_that_are_over_are_kept_up_to_twenty() -> None:
    plane = Plane()
    applied(plane, "f", main=())
    plane.comes_to("f", "running")
    for _ in range(KEPT_OPERATIONS + 5):
        begin(plane.person, "f", Operation(kind="rewind", step="stop", version=1, tiers=("main",)), by="me")
        plane.comes_to("f", "running")
    kept = [int(each.id) for each in list_operations(plane.person, "f")]
    assert kept == list(range(KEPT_OPERATIONS + 5, 4, -1))


def test_a_run_that_waited_for_a_person_does_not_hold_back_an_operation() -> None:
    plane = Plane()
    applied(plane, "f", main=())
    plane.comes_to("f", "running")
    run = read_record(plane.person, RUN("f", "main"))
    assert isinstance(run, Stored)
    broken = run.record.__class__(
        **{**{n: getattr(run.record, n) for n in run.record.__struct_fields__}, "permanent": True, "ended_at": 1.0}
    )
    plane.workers[next(iter(plane.workers))][1].close()
    plane.cluster.workers.clear()
    plane.person.commit(put(plane.person, RUN("f", "main"), broken))
    plane.comes_to("f", "failed")
    begin(plane.person, "f", Operation(kind="rewind", step="stop", version=1, tiers=("main",)), by="me")
    plane.comes_to("f", "running")
    assert list_operations(plane.person, "f")[0].step == "done"


def test_what_became_of_a_flow_is_kept_with_its_cause_and_bounded() -> None:
    plane = Plane()
    applied(plane, "f", main=())
    plane.comes_to("f", "running")
    begin(plane.person, "f", Operation(kind="rewind", step="stop", version=1, tiers=("main",)), by="ann")
    plane.comes_to("f", "running")
    told = read_happened(plane.person, "f")
    states = [each.says for each in told if each.what == "state"][::-1]
    assert (states[0], states[-1], "stopping" in states) == ("starting", "running", True)
    assert next(each.why for each in told if each.says == "stopping").startswith("operation 1 (rewind)")
    assert [(each.says, each.by) for each in told if each.what != "state"] == [("1, package 0", "me"), ("1 (rewind) is done", "ann")]
    for goal in ("paused", "running") * 40:
        flow_requests.want(plane.person, "f", goal, by="me")  # type: ignore[arg-type]
        plane.turn()
        plane.turn()
    kept = read_record(plane.person, CHANGES("f"))
    assert isinstance(kept, Stored)
    assert len(kept.record.last) == 50


def test_a_record_that_is_written_by_hand_is_taken_up_and_one_that_is_struck_out_is_let_go() -> None:
    plane = Plane()
    applied(plane, "f", main=())
    plane.comes_to("f", "running")
    desired = read_record(plane.person, DESIRED("f"))
    assert isinstance(desired, Stored)
    by_hand = {**desired.entry.value, "operation": "x1"}
    made = OPERATION("f", "x1").create(Operation(kind="rewind", step="stop", version=1, tiers=("main",)))
    plane.person.commit(made, desired.replace(desired.record.parse(by_hand)))
    plane.comes_to("f", "running")
    assert plane.parts == [("main", "x1")]


def test_a_flow_that_is_cut_otherwise_reads_what_waits_as_it_was_cut_and_only_then_starts_as_it_comes() -> None:
    plane = Plane()
    applied(plane, "f", **TIERS)
    plane.comes_to("f", "running")
    started: list[tuple[str, int]] = []
    obey = plane._obey

    def noting(id_: Any) -> None:
        if (id_.tier, plane.workers[id_][2]) not in started:
            started.append((id_.tier, plane.workers[id_][2]))
        obey(id_)

    plane._obey = noting  # type: ignore[method-assign]
    cut_otherwise(plane)
    assert plane.drained == [("store", 1)]
    assert flow_records.read_flow(plane.person, "f").desired.version == 2
    assert {each for each in started if each[1] == 2} == {("edge", 2), ("core", 2), ("more", 2), ("store", 2)}
    first = next(index for index, (_, version) in enumerate(started) if version == 2)
    assert all(version == 2 for _, version in started[first:]), "none of the old ones works once a new one does"


def test_a_recut_waits_for_a_reader_and_given_up_the_version_before_goes_on() -> None:
    plane = Plane()
    applied(plane, "f", **TIERS)
    plane.comes_to("f", "running")
    obey = plane._obey
    plane._obey = lambda id_: None if id_.tier == "store" else obey(id_)  # type: ignore[method-assign]
    with pytest.raises(AssertionError, match="never came to running"):
        cut_otherwise(plane)
    status = flow_records.read_flow(plane.person, "f").status
    assert status is not None
    assert (status.state, "waits for store to read the backlog of its channels" in status.reason) == ("draining", True)
    assert "scribengin operation cancel f 1" in status.next
    plane._obey = obey  # type: ignore[method-assign]
    cancel(plane.person, "f", "1", by="me")
    plane.comes_to("f", "running")
    assert flow_records.read_flow(plane.person, "f").desired.version == 1


def test_a_reader_that_has_failed_for_good_is_to_be_fixed_before_its_channels_go() -> None:
    plane = Plane()
    applied(plane, "f", **TIERS)
    plane.ill = frozenset({"store"})
    plane.comes_to("f", "running")
    flow_requests.want(plane.person, "f", "drained", by="me")
    for _ in range(20):
        plane.turn()
    with pytest.raises(
        Refused, match="tier store must read the backlog of its channels before they are removed, and has failed: the store refuses it"
    ):
        cut_otherwise(plane)
    assert flow_records.read_flow(plane.person, "f").desired.version == 1


@pytest.mark.parametrize("kind", ["recut whose reader fails", "recut that is refused in the end"])
def test_a_recut_that_fails_leaves_the_version_before(kind: str) -> None:
    end = end_of(played(kind, []))
    assert end["wanted"] == ("running", 1)
    assert end["state"] == ("running", 1)
    assert end["operation"][1] in (
        "tier store could not read the backlog of its channels: the store refuses it",
        "tier store: 7 rows have not been read",
    )
