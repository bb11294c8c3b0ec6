"""A summary of a flow over two hosts, while it runs: from any master, also when the one that leads is killed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from plane import until

from scribengin.registry.contract import RegistryEntry
from scribengin.registry.records import Mapped
from scribengin.registry.tree import MAPPED, RUN

if TYPE_CHECKING:
    from plane import Plane

pytestmark = pytest.mark.timeout(400)
FLOW = """\
version: 1
name: numbers
sources: {numbers: {type: sequence, rate: 400}}
steps: {odd: {from: numbers, filter: id % 2 = 1}}
sinks:
  sums: {from: odd, type: summary, sql: "SELECT count(*) AS n, min(id) AS first, max(id) AS last FROM rows", trigger: 200ms}
tiers: {edge: {steps: [numbers, odd]}, core: {steps: [sums]}}
"""


@pytest.mark.long
def test_it_grows_while_the_flow_runs_and_survives_the_leading_master(plane: Plane) -> None:
    for name in ("m1", "m2"):
        plane.master(name)
    for name in ("a", "b"):
        plane.real_node(name)
    plane.registry.commit(*(MAPPED(host, f"numbers.{tier}").create(Mapped()) for host, tier in (("a", "edge"), ("b", "core"))))
    (plane.folder / "flow.yaml").write_text(FLOW)
    plane.says("apply", "flow.yaml")

    def counted() -> int:
        (found,) = plane.says("summary", "numbers")["summaries"]
        (row,) = found["rows"]
        # whatever has happened: from the first on, each second number, each once
        assert row["n"] == 0 or (row["first"], row["last"]) == (1, 2 * row["n"] - 1)
        assert (found["since"], found["rows_in"]) == (None, row["n"])
        return int(row["n"])

    def grows(than: int, said: str) -> int:
        return int(until(lambda: (now := counted()) > than and now, said))

    seen = grows(grows(0, "the first rows"), "more of them")
    workers = {tier: plane.worker("numbers", tier) for tier in ("edge", "core")}
    runs = {tier: plane.registry.read(RUN("numbers", tier).path) for tier in workers}
    assert {tier: run.value["node"] for tier, run in runs.items() if isinstance(run, RegistryEntry)} == {"edge": "a", "core": "b"}
    plane.kill(plane.leader())
    grows(seen, "more rows, told by the other master")
    assert {tier: plane.worker("numbers", tier) for tier in workers} == workers
