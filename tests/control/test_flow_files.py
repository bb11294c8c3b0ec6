"""Flow files in the registry: each text is taken up once, whenever a master is killed, or refused beside it until it is another."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from scribengin.client.change_models import AnewRow, ChangeRow
from scribengin.control import flow_records, flow_requests
from scribengin.control.changes import Compared
from scribengin.control.flow_files import FlowFilePlanner, FlowFiles
from scribengin.control.topology import PlannedTopology
from scribengin.core.errors import InputError, Refused, Unreachable
from scribengin.core.problems import Place, Problem
from scribengin.registry.contract import RECORD_BYTES, Conflict, Create, Delete
from scribengin.registry.record_io import Stored, put, read_record
from scribengin.registry.records import FlowFile, TakenFile, TierSpec
from scribengin.registry.tree import DESIRED, FILE, STATUS, TAKEN
from tests.control.obedient import LOG, Plane

if TYPE_CHECKING:
    from collections.abc import Callable

    from scribengin.registry.memory import MemoryRegistry

BAD = "tiers: {"


def planned(registry: MemoryRegistry) -> Callable[[str, FlowFile], tuple[PlannedTopology, list[flow_requests.Submission]]]:
    """The text stands for the package that is made of it."""

    def plan(flow: str, file: FlowFile) -> tuple[PlannedTopology, list[flow_requests.Submission]]:
        if file.text == BAD:
            wrong = [
                Problem("yaml", Place("flow.yaml", 3, 7), "this is not closed", "write }"),
                Problem("sinks-missing", Place("flow.yaml", 9), "there are no sinks"),
            ]
            raise InputError(wrong)
        wanted, _ = flow_records.wanted(registry, flow)
        changes = [ChangeRow("step a", "new checkpoint", "its state is another")] if "again" in file.text else []
        anew = [AnewRow("main", "q", {"orders": 7}, {}) for _ in changes]
        compared = Compared(flow, 0 if wanted is None else wanted.version, tuple(changes), tuple(anew))
        submission = flow_requests.Submission(flow, file.text, "flow.yaml", file.base or "/base", {"main": TierSpec()})
        return PlannedTopology((compared,), "0123456789abcdef"), [submission]

    return plan


def plane_of(lives: list[int] | None = None) -> Plane:
    return Plane(lives or [], taking=lambda registry: FlowFiles(registry, planned(registry), "/state"))


def write(plane: Plane, flow: str, raw: bytes) -> None:
    """As somebody does with ZooKeeper's shell."""
    if plane.person.read(f"flows/{flow}") is None:
        plane.person.commit(Create(f"flows/{flow}", {}))
    plane.store.write_raw(FILE(flow).path, raw)


def versions(plane: Plane, flow: str) -> list[tuple[int, str, str]]:
    """Of each the number, the package, who made it; the newest first."""
    return [(each.version, each.package, each.by) for each in flow_records.history(plane.person, flow)]


def taken(plane: Plane, flow: str) -> TakenFile | None:
    found = read_record(plane.person, TAKEN(flow))
    return found.record if isinstance(found, Stored) else None


def refused(plane: Plane, flow: str) -> dict[str, Any]:
    """What is refused of the text, after the looks that there are to be."""
    for _ in range(5):
        plane.turn()
    status = flow_records.read_status(plane.person, flow)
    assert status is not None
    return dict(status.refused.get(FILE(flow).path, {}))


MINE = FILE("f").path


def test_a_text_makes_a_version_that_runs_and_another_text_the_next_one() -> None:
    plane = plane_of()
    write(plane, "f", b"one")
    plane.turn()
    plane.comes_to("f", "running")
    assert versions(plane, "f") == [(1, "one", MINE)]
    write(plane, "f", b'{"text": "two", "base": "/other", "state": "paused", "note": "mine"}')
    plane.turn()
    plane.comes_to("f", "paused")
    assert versions(plane, "f") == [(2, "two", MINE), (1, "one", MINE)]
    assert flow_records.version_of(plane.person, "f", 2).base == "/other"
    there = plane.person.read(FILE("f").path)
    said = taken(plane, "f")
    assert there is not None
    assert said is not None
    assert (said.revision, said.version, said.why) == (there.changed, 2, "")


def test_the_end_is_the_same_wherever_a_master_is_killed() -> None:
    def played(lives: list[int]) -> Plane:
        plane = plane_of()
        plane.lives = lives
        plane.life.left, plane.life.done = (lives.pop(0) if lives else None), 0
        write(plane, "f", b"one")
        plane.turn()
        plane.turn()
        plane.comes_to("f", "running")
        return plane

    quiet = played([])
    points = quiet.life.done
    assert quiet.masters == 1
    assert points >= 4
    for point in range(1, points + 1):
        plane = played([point])
        assert plane.masters == 2
        assert versions(plane, "f") == [(1, "one", MINE)], f"killed after thing {point} of {points}"
        assert taken(plane, "f") is not None
    assert versions(played([1] * 100), "f") == [(1, "one", MINE)]


def test_a_master_that_is_killed_takes_no_text_before_a_verb_and_the_next_one_after_it() -> None:
    applied_over = 0
    for point in range(1, 5):
        plane = plane_of()
        plane.life.left = point
        write(plane, "f", b"one")
        for _ in range(20):
            if plane.masters == 1:
                plane.turn()
        assert plane.masters == 2
        if plane.person.read(DESIRED("f").path) is not None:
            applied_over += 1
            mine = flow_requests.Submission("f", "mine", "flow.yaml", "/base", {"main": TierSpec()})
            flow_requests.apply(plane.person, mine, state=lambda _: "/state", by="me")
        for _ in range(3):
            plane.turn()
        plane.comes_to("f", "running")
        assert [package for _, package, _ in versions(plane, "f")] in (["one"], ["mine", "one"]), f"killed after thing {point}"
    assert applied_over


def test_what_a_verb_says_later_holds_until_the_text_is_written_again() -> None:
    plane = plane_of()
    write(plane, "f", b"one")
    plane.turn()
    plane.comes_to("f", "running")
    flow_requests.apply(
        plane.person, flow_requests.Submission("f", "mine", "flow.yaml", "/base", {"main": TierSpec()}), state=lambda _: "/state", by="me"
    )
    plane.comes_to("f", "running")
    plane.kill_master()
    plane.comes_to("f", "running")
    assert [package for _, package, _ in versions(plane, "f")] == ["mine", "one"]
    flow_requests.want(plane.person, "f", "stopped", by="me")
    plane.comes_to("f", "stopped")
    write(plane, "f", b"one")  # the same text: written again it is meant again
    plane.turn()
    plane.comes_to("f", "running")
    assert [package for _, package, _ in versions(plane, "f")] == ["one", "mine", "one"]


def test_a_text_that_changes_nothing_makes_no_version() -> None:
    plane = plane_of()
    for _ in range(2):
        write(plane, "f", b"one")
        plane.turn()
        plane.comes_to("f", "running")
    assert versions(plane, "f") == [(1, "one", MINE)]


ILL = {
    b"tiers: {": ("line 3: this is not closed (write }); line 9: there are no sinks", "fix the text"),
    b'{"text": 5}': ("does not fit", '"base"'),
    b'{"text": ': ("is not valid JSON", '"base"'),
    b'{"text": "one", "state": "flying"}': ("flying", '"base"'),
    b"caf\xe9": ("is not UTF-8: byte 3 is 0xe9", '"base"'),
    b"a" * (RECORD_BYTES + 1): ("has 100,001 bytes", "scribengin apply f.yaml"),
    b"again": ("7 rows of source orders are read again", '"accept": "again" or "lost"'),
    b'{"format": 9, "words": "one"}': ("newer Scribengin", "run the newer version"),
}


@pytest.mark.parametrize("raw", ILL, ids=["mistakes", "no text", "no json", "no state", "no utf-8", "too long", "rows again", "newer"])
def test_what_cannot_be_taken_is_refused_beside_it_until_it_is_mended(raw: bytes) -> None:
    plane = plane_of()
    write(plane, "f", b"one")
    plane.turn()
    plane.comes_to("f", "running")
    write(plane, "f", raw)
    said = refused(plane, "f")
    there = plane.person.read(FILE("f").path)
    assert there is not None
    assert ILL[raw][0] in said["why"]
    assert ILL[raw][1] in said["remedy"]
    assert said["version"] == there.version
    assert flow_records.read_flow(plane.person, "f").desired.version == 1, "what was wanted goes on"
    assert flow_records.describe(plane.person, "f")["status"]["refused"][MINE] == said
    before = plane.store.revision
    plane.kill_master()
    for _ in range(5):
        plane.turn()
    assert plane.person.read(TAKEN("f").path).changed <= before, "nobody plans it again"  # type: ignore[union-attr]
    write(plane, "f", b'{"text": "again", "accept": "lost"}')
    assert not refused(plane, "f")
    assert versions(plane, "f")[0][:2] == (2, "again")


def test_a_flow_that_never_was_is_shown_while_its_text_is_refused_and_forgotten_with_it() -> None:
    plane = plane_of()
    write(plane, "f", BAD.encode())
    assert "line 3" in refused(plane, "f")["why"]
    (row,) = flow_records.read_refused_files(plane.person)
    assert row.flow == "f"
    assert row.status is not None
    assert (row.status.state, row.status.reason[:30]) == ("created", "flows/f/file line 3: this is n")
    for asks in (flow_records.read_flow, flow_records.describe, flow_records.known_flow):
        with pytest.raises(Refused, match=r"has no version yet: .* line 3: this is not closed") as told:
            asks(plane.person, "f")
        assert told.value.code == "flow-file-refused"
    plane.person.commit(Delete(FILE("f").path))
    for _ in range(3):
        plane.turn()
    assert plane.person.children("flows/f") == ()
    assert flow_records.read_refused_files(plane.person) == ()
    write(plane, "f", b"one")
    plane.turn()
    plane.comes_to("f", "running")
    assert flow_records.read_status(plane.person, "f").refused == {}  # type: ignore[union-attr]


def test_a_flow_that_is_deleted_does_not_come_back_by_its_text() -> None:
    plane = plane_of()
    write(plane, "f", b'{"text": "one", "state": "stopped"}')
    plane.turn()
    plane.comes_to("f", "stopped")
    flow_requests.delete(plane.person, "f")
    for _ in range(3):
        plane.turn()
    assert plane.person.read(DESIRED("f").path) is None
    assert plane.person.read(STATUS("f").path) is None
    assert plane.person.read(FILE("f").path) is None


def test_a_text_waits_for_what_passes() -> None:
    plane = plane_of()
    way = {"free": False}

    def plan(flow: str, file: FlowFile) -> tuple[PlannedTopology, list[flow_requests.Submission]]:
        if not way["free"]:
            raise Refused("operation 3 is under way", remedy="wait", code="operation-under-way")
        return planned(plane.registry)(flow, file)

    plane.taking = lambda registry: FlowFiles(registry, plan, "/state")
    write(plane, "f", b"one")
    assert refused(plane, "f")["why"] == "operation 3 is under way"
    way["free"] = True
    assert not refused(plane, "f")
    assert versions(plane, "f") == [(1, "one", MINE)]


def test_a_text_that_is_replaced_while_it_is_planned_is_not_taken() -> None:
    plane = plane_of()

    def plan(flow: str, file: FlowFile) -> tuple[PlannedTopology, list[flow_requests.Submission]]:
        if file.text == "one":
            write(plane, "f", b"two")
        return planned(plane.registry)(flow, file)

    files = FlowFiles(plane.registry, plan, "/state")
    write(plane, "f", b"one")
    with pytest.raises(Conflict):
        files.take("f", plane.master.lead)  # type: ignore[arg-type]
    assert files.take("f", plane.master.lead)  # type: ignore[arg-type]
    assert versions(plane, "f") == [(1, "two", MINE)]


def test_the_thread_takes_what_is_wanted_and_tries_again_what_failed() -> None:
    plane = plane_of()
    tries = []
    done = threading.Event()

    class Files(FlowFiles):
        def take(self, flow: str, term: Any) -> bool:
            tries.append(flow)
            if len(tries) == 1:
                raise Unreachable("nobody answers")
            super().take(flow, term)
            done.set()
            return True

    write(plane, "f", b"one")
    there = plane.person.read(FILE("f").path)
    assert there is not None
    taking = FlowFilePlanner(Files(plane.registry, planned(plane.registry), "/state"), LOG)
    try:
        taking.want({"f": there.changed}, plane.master.lead)  # type: ignore[arg-type]
        assert done.wait(60)
    finally:
        taking.close()
    assert tries == ["f", "f"]
    assert versions(plane, "f") == [(1, "one", MINE)]


def test_a_note_of_what_was_taken_that_is_damaged_is_written_anew() -> None:
    plane = plane_of()
    write(plane, "f", b"one")
    plane.turn()
    plane.comes_to("f", "running")
    plane.store.write_raw(TAKEN("f").path, b"oops")
    for _ in range(3):
        plane.turn()
    assert taken(plane, "f") is not None
    assert versions(plane, "f") == [(1, "one", MINE)]
    plane.person.commit(put(plane.person, FILE("f"), FlowFile(text="two")))
    plane.turn()
    plane.comes_to("f", "running")
    assert versions(plane, "f")[0] == (2, "two", MINE)
