"""Which versions of flows go: never one that is wanted, served, or that a rollback of another flow would bring back."""

from __future__ import annotations

import pytest

from scribengin.control import flow_records, flow_requests
from scribengin.control.version_retention import prune_versions, surplus, versions_in_use
from scribengin.core.errors import FencedError
from scribengin.registry.contract import Create, Replace
from scribengin.registry.lease import Election
from scribengin.registry.memory import MemoryRegistry, MemoryStore
from scribengin.registry.record_io import Stored, read_record
from scribengin.registry.records import Operation, Report, Spec, TierSpec, TierWish
from scribengin.registry.tree import DESIRED, OPERATION, REPORT, SPEC, WANTED


def applied(registry: MemoryRegistry, times: int, *flows: str) -> None:
    for _ in range(times):
        number = max(flow_records.versions_of(registry, flows[0]), default=0) + 1
        submissions = [flow_requests.Submission(flow, f"{number:064x}", "flow.yaml", "/base", {"main": TierSpec()}) for flow in flows]
        flow_requests.apply_all(registry, submissions, None, state=lambda _: "/state", by="me")


def specs(registry: MemoryRegistry) -> dict[str, dict[int, Spec]]:
    found = {}
    for flow in registry.children("flows"):
        there = {number: read_record(registry, SPEC(flow, str(number))) for number in flow_records.versions_of(registry, flow)}
        found[flow] = {number: each.record for number, each in there.items() if isinstance(each, Stored)}
    return found


@pytest.fixture
def registry() -> MemoryRegistry:
    return MemoryStore().client()


def test_the_newest_stay_with_all_that_is_in_use(registry: MemoryRegistry) -> None:
    applied(registry, 12, "tweets")
    flow_requests.rollback(registry, "tweets", 2, by="me")
    wish = DESIRED("tweets")
    there = registry.read(wish.path)
    registry.commit(
        WANTED("tweets", "main").create(TierWish(version=3, goal="running", generation=1)),
        REPORT("tweets", "main").create(Report(run=1, generation=1, version=4, state="running")),
        OPERATION("tweets", "1").create(Operation(kind="rewind", step="work", version=5)),
        Replace(there, {**there.value, "operation": "1"}),
        Create("flows/tweets/spec/notes", {"by": "somebody else"}),
    )
    assert versions_in_use(registry, "tweets") - {0} == {2, 3, 4, 5}
    with Election(registry, {"id": "m1"}) as election:
        assert election.acquire()
        assert prune_versions(registry, specs(registry), 4, election.term) == 4
        assert prune_versions(registry, specs(registry), 4, election.term) == 0
    assert flow_records.versions_of(registry, "tweets") == [2, 3, 4, 5, 9, 10, 11, 12]
    assert registry.read("flows/tweets/spec/notes") is not None
    stored = read_record(registry, OPERATION("tweets", "1"))
    assert isinstance(stored, Stored)
    registry.commit(stored.replace(Operation(kind="rewind", step="done", version=5)))
    assert flow_requests.rollback(registry, "tweets", 9, by="me") == {"tweets": 9}
    applied(registry, 1, "tweets")
    assert flow_records.versions_of(registry, "tweets")[-1] == 13, "no number is given out twice"


def test_what_was_submitted_as_one_with_a_kept_version_stays(registry: MemoryRegistry) -> None:
    applied(registry, 1, "tweets", "likes")
    applied(registry, 5, "tweets")
    with Election(registry, {"id": "m1"}) as election:
        assert election.acquire()
        prune_versions(registry, specs(registry), 2, election.term)
    assert flow_records.versions_of(registry, "tweets") == [1, 5, 6], "version 1 came with version 1 of likes, which is kept"
    there, gone = specs(registry), MemoryStore().client()
    gone.close()
    assert prune_versions(gone, there, 2, election.term) == 0, "where none may go, nobody is asked"
    applied(registry, 1, "likes")
    assert flow_requests.rollback(registry, "likes", 1, by="me") == {"likes": 1, "tweets": 1}


@pytest.mark.parametrize("wanted", [{"version": 0}, {"operation": "not/an id"}])
def test_what_is_wanted_by_hand_and_can_be_nothing_is_no_reason_to_fail(registry: MemoryRegistry, wanted: dict[str, object]) -> None:
    applied(registry, 5, "tweets")
    there = registry.read(DESIRED("tweets").path)
    registry.commit(Replace(there, {**there.value, **wanted}))
    with Election(registry, {"id": "m1"}) as election:
        assert election.acquire()
        assert prune_versions(registry, specs(registry), 2, election.term) == 3
    assert flow_records.versions_of(registry, "tweets") == [4, 5]


def test_nothing_goes_where_something_else_is_wanted_meanwhile_or_another_leads(registry: MemoryRegistry) -> None:
    applied(registry, 5, "tweets")
    seen = specs(registry)
    with Election(registry, {"id": "m1"}) as election:
        assert election.acquire()
        old = election.term
    with pytest.raises(FencedError):
        prune_versions(registry, seen, 2, old)

    commit = registry.commit  # somebody goes back to the first version, just before it is removed
    with Election(registry, {"id": "m1"}) as election:
        assert election.acquire()

        def late(*writes: object, **more: object) -> object:
            registry.commit = commit  # type: ignore[method-assign]
            flow_requests.rollback(registry, "tweets", 1, by="me")
            return commit(*writes, **more)  # type: ignore[arg-type]

        registry.commit = late  # type: ignore[method-assign,assignment]
        assert prune_versions(registry, seen, 2, election.term) == 0
    assert flow_records.versions_of(registry, "tweets") == [1, 2, 3, 4, 5]


def test_a_version_that_cannot_be_read_is_no_reason(registry: MemoryRegistry) -> None:
    assert surplus({"a": {}, "b": {1: Spec(package="p", path="f", base="/", state="/", tiers={})}}, {}, 5) == {}
