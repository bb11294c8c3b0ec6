"""What people ask of bindings, on the twin."""

from __future__ import annotations

from scribengin.control.node_bindings import bind
from scribengin.registry.memory import MemoryStore
from scribengin.registry.record_io import Stored, read_record
from scribengin.registry.records import Desired, Host, Spec, TierSpec
from scribengin.registry.tree import DESIRED, HOST, SPEC


def test_a_tier_that_is_spawned_keeps_the_operation_under_way_and_what_others_have_written() -> None:
    registry = MemoryStore().client()
    spec = Spec(package="0" * 64, path="flow.yaml", base="/", state="/", tiers={"edge": TierSpec()}, by="a", at="")
    registry.commit(
        SPEC("tweets", "1").create(spec),
        DESIRED("tweets").create(Desired(state="paused", version=1, operation="7", by="a", at="")),
        HOST("h1").create(Host(host="h1", cores=1, memory_bytes=0, home="/", since="")),
    )
    assert bind(registry, "tweets.edge", "h1", by="b", start=True)
    found = read_record(registry, DESIRED("tweets"))
    assert isinstance(found, Stored)
    assert (found.record.state, found.record.operation, found.record.by) == ("running", "7", "b")
