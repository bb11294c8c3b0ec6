"""The last Batches of managed flows: from any master, and by command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from scribengin.api.serving import Listen
from scribengin.client.models import Submit
from scribengin.client.state_models import BatchRow
from scribengin.connectors.contract import BatchId
from scribengin.core.errors import Refused
from scribengin.state.contract import Counts, Decision
from scribengin.state.decisions import Decisions
from scribengin.state.folder import StateFolder
from scribengin.state.lineage import open_lineage

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Bench, Served


def decides(master: Served, batches: int) -> None:
    """So many Batches in the state of the flow, a minute apart."""
    folder = StateFolder(master.plane.packages.folder.parent / "state", "numbers").query("kept")
    lineage = open_lineage(folder, owner="", fingerprint="f", state_fingerprint="", sources=["numbers"])
    counts = {"numbers": Counts(rows_in=4, out=4), "odd": Counts(rows_in=4, out=2, filtered=2), "kept": Counts(rows_in=2, out=2)}
    for number in range(batches):
        batch = BatchId("numbers", "kept", lineage.id, number, 1)
        Decisions(folder.decisions).decide(Decision(batch, "hash", "f", (), (), (), counts, f"2026-01-01T00:{number:02}:00+00:00"))


def test_any_master_lists_the_last_batches(bench: Bench, says: Callable[..., dict[str, Any]]) -> None:
    first, second = bench.master(), bench.master()
    package = bench.package()
    bench.client().apply("numbers", Submit(package.id, "flow.yaml", str(bench.folder)), package.data)
    assert bench.client(second).batches("numbers").batches == ()

    decides(first, 12)
    for master in (first, second):
        found = bench.client(master).batches("numbers")
        assert [row.batch for row in found.batches] == list(range(11, 1, -1))
        assert found.batches[1] == BatchRow("main", "kept", 10, "2026-01-01T00:10:00+00:00", 4, 2, 0, published=True)
    assert [row.batch for row in bench.client().batches("numbers", "kept", limit=2).batches] == [11, 10]
    with pytest.raises(Refused) as refused:
        bench.client().batches("numbers", "others")
    assert refused.value.code == "query-unknown"
    assert first.ask("GET", "/v1/flows/numbers/batches?limit=0").json()["code"] == "parameter"

    said = says("batch", "list", "numbers", "--limit", "1")
    assert (said["command"], [row["batch"] for row in said["result"]["batches"]]) == ("batch list", [11])


def test_a_viewer_may_list_them(bench: Bench) -> None:
    viewer, editor = bench.tokens.add("vera", "viewer", {}), bench.tokens.add("edda", "editor", {})
    master = bench.master(listen=Listen(asks=True))
    package = bench.package()
    bench.client(token=editor).apply("numbers", Submit(package.id, "flow.yaml", str(bench.folder)), package.data)
    assert bench.client(token=viewer).batches("numbers").flow == "numbers"
    assert master.ask("GET", "/v1/flows/numbers/batches").status_code == 401
