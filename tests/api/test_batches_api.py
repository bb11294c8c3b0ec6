"""The last Batches of managed flows: from any master, and by command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from scribengin.api.serving import Listen
from scribengin.client.models import Submit
from scribengin.client.state_models import BatchRow
from scribengin.connectors.contract import BatchId, Receipt
from scribengin.core.errors import Refused
from scribengin.state.contract import Counts, Decision, SourceRange
from scribengin.state.decisions import Decisions
from scribengin.state.folder import StateFolder
from scribengin.state.lineage import open_lineage
from tests.api.test_remedies_of_masters import commands_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Bench, Served


def decides(master: Served, batches: int) -> None:
    """So many Batches in the state of the flow, a minute apart."""
    folder = StateFolder(master.plane.packages.folder.parent / "state", "numbers").query("kept")
    lineage = open_lineage(folder, owner="", fingerprint="f", state_fingerprint="", sources=["numbers"])
    counts = {"numbers": Counts(rows_in=4, out=4), "odd": Counts(rows_in=4, out=2, filtered=2), "kept": Counts(rows_in=2, out=2)}
    before = {"phases_s": {"plan": 0.1, "process": 1.0, "decide": 0.01, "publish": 0.2}, "state_rows": 7, "state_bytes": 640}
    for number in range(batches):
        batch = BatchId("numbers", "kept", lineage.id, number, 1)
        took, receipt = SourceRange("numbers", 4 * number, 4 * number + 4), Receipt("kept", 0, 2, 20, ({"name": "a"},))
        at = f"2026-01-01T00:{number:02}:00+00:00"
        Decisions(folder.decisions).decide(
            Decision(batch, "hash", "f", (took,), (receipt,), (), counts, at, before=before if number else {})
        )


def test_any_master_lists_the_last_batches(bench: Bench, says: Callable[..., dict[str, Any]]) -> None:
    first, second = bench.master(), bench.master()
    package = bench.package()
    bench.client().apply("numbers", Submit(package.id, "flow.yaml", str(bench.folder)), package.data)
    assert bench.client(second).batches("numbers").batches == ()

    decides(first, 12)
    for master in (first, second):
        found = bench.client(master).batches("numbers")
        assert [row.batch for row in found.batches] == list(range(11, 1, -1))
        assert found.batches[0] == BatchRow("main", "kept", 11, "2026-01-01T00:11:00+00:00", 4, 2, 0, published=False)
        assert (found.batches[1].published, found.batches[1].state_rows) == (True, 7)
    assert [row.batch for row in bench.client().batches("numbers", "kept", limit=2).batches] == [11, 10]
    with pytest.raises(Refused) as refused:
        bench.client().batches("numbers", "others")
    assert refused.value.code == "query-unknown"
    assert first.ask("GET", "/v1/flows/numbers/batches?limit=0").json()["code"] == "parameter"

    said = says("batch", "list", "numbers", "--limit", "1")
    assert (said["command"], [row["batch"] for row in said["result"]["batches"]]) == ("batch list", [11])


@pytest.mark.executes("batch-unknown")
def test_one_batch_is_shown_with_its_decision(bench: Bench, says: Callable[..., dict[str, Any]]) -> None:
    master = bench.master()
    package = bench.package()
    bench.client().apply("numbers", Submit(package.id, "flow.yaml", str(bench.folder)), package.data)
    decides(master, 3)

    found = bench.client().batch("numbers", 1)
    assert (found.batch, found.rows_in, found.rows_out, found.lineage != "") == (1, 4, 2, True)
    assert found.phases_s == {"plan": 0.1, "process": 1.0, "decide": 0.01, "publish": 0.2}, "recorded with Batch 2"
    assert (found.state_rows, found.state_bytes) == (7, 640)
    assert [(each["sink"], each["rows"], each["segments"]) for each in found.receipts] == [("kept", 2, [{"name": "a"}])]
    assert [(each["node"], each["in"], each["out"], each["filtered"]) for each in found.nodes] == [
        ("numbers", 4, 4, 0),
        ("odd", 4, 2, 2),
        ("kept", 2, 2, 0),
    ]
    assert found.sources == ({"source": "numbers", "start": 4, "end": 8},)
    assert bench.client().batch("numbers", 2).phases_s is None, "no Batch has followed"
    assert [row.phases_s is None for row in bench.client().batches("numbers").batches] == [True, False, False]

    assert says("batch", "show", "numbers", "1")["result"]["receipts"][0]["sink"] == "kept"
    said = says("batch", "show", "numbers", "9")
    [problem] = said["problems"]
    assert (said["status"], problem["code"]) == (2, "batch-unknown")
    [command] = commands_in(said, "batch-unknown")
    assert [row["batch"] for row in says(*command)["result"]["batches"]] == [2, 1, 0]


def test_a_batch_of_several_queries_needs_the_name_of_its_query(bench: Bench, says: Callable[..., dict[str, Any]]) -> None:
    bench.master()
    package = bench.package(bench.flow.replace("sinks: {", "sinks: {other: {from: numbers, type: files, path: other, format: json}, "))
    bench.client().apply("numbers", Submit(package.id, "flow.yaml", str(bench.folder)), package.data)
    said = says("batch", "show", "numbers", "0")
    assert (said["problems"][0]["code"], "kept" in said["problems"][0]["remedy"]) == ("query-needed", True)
    assert says("batch", "show", "numbers", "0", "--query", "kept")["problems"][0]["code"] == "batch-unknown"


def test_a_viewer_may_list_them(bench: Bench) -> None:
    viewer, editor = bench.tokens.add("vera", "viewer", {}), bench.tokens.add("edda", "editor", {})
    master = bench.master(listen=Listen(asks=True))
    package = bench.package()
    bench.client(token=editor).apply("numbers", Submit(package.id, "flow.yaml", str(bench.folder)), package.data)
    assert bench.client(token=viewer).batches("numbers").flow == "numbers"
    assert master.ask("GET", "/v1/flows/numbers/batches").status_code == 401
