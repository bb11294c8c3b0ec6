"""Two masters on a real ZooKeeper: whatever is written through one is read through the other, at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scribengin.client.client import Client
from scribengin.control import flow_requests
from scribengin.control.home import Home
from scribengin.core.errors import ScribenginError
from scribengin.embedded.zookeeper import ZooKeeper
from scribengin.hosts.master import MasterHost
from scribengin.registry.access import RegistryAddress
from scribengin.registry.connection_settings import ConnectionSettings
from scribengin.registry.records import TierSpec

if TYPE_CHECKING:
    from pathlib import Path

GOALS = ("paused", "running", "drained", "stopped")


@pytest.mark.timeout(300)
def test_a_write_through_either_is_read_through_the_other_and_events_tell_it(tmp_path: Path) -> None:
    with ZooKeeper(tmp_path / "zookeeper") as server:
        address = RegistryAddress((server.address,), "/both")
        entrance = ConnectionSettings(address, Home(tmp_path / "one").login())
        with (
            MasterHost(Home(tmp_path / "one"), "one", entrance) as one,
            MasterHost(Home(tmp_path / "two"), "two", entrance) as two,
            Client([one.url]) as first,
            Client([two.url]) as second,
        ):
            submission = flow_requests.Submission("numbers", "0" * 64, "flow.yaml", "/base", {"main": TierSpec()})
            flow_requests.apply(one.registry, submission, state=lambda _: "/state", by="bob")
            assert {master.http for master in first.masters_up()} == {one.url, two.url}
            assert sum(master.leads for master in second.masters_up()) == 1
            for number in range(60):
                writer, reader = (first, second) if number % 2 else (second, first)
                reader.revision = 0  # a client that has seen nothing
                written = writer.want("numbers", GOALS[number % 4])
                seen = reader.flow("numbers").wanted
                assert seen.state == GOALS[number % 4]
                assert seen.revision <= written.revision
                assert reader.flows()[0].wanted == GOALS[number % 4]
            with pytest.raises(ScribenginError) as told:
                first.want("numbers", "running", expected=seen.revision - 1)
            assert told.value.code == "revision-stale"
            changes = [event.change for _, event in zip(range(2), second.events(seen.revision - 1), strict=False)]
            assert changes[1] is not None
            assert changes[1].flow.wanted == GOALS[59 % 4]
