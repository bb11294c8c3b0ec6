"""Summaries of managed flows: from any master, whoever leads, and by command."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from scribengin.cli.main import main
from scribengin.client.models import Submit
from scribengin.connectors.contract import BatchId, Receipt
from scribengin.connectors.summary.question import read_question
from scribengin.connectors.summary.table import SummaryTable
from scribengin.core.errors import Refused
from scribengin.state.contract import Counts, Decision
from scribengin.state.decisions import Decisions
from scribengin.state.folder import StateFolder
from scribengin.state.lineage import open_lineage

if TYPE_CHECKING:
    from conftest import Bench, Served

SQL = "SELECT kind, count(*) AS n FROM rows GROUP BY kind ORDER BY kind"
FLOW = f"""\
version: 1
name: numbers
sources: {{numbers: {{type: files, path: data, format: json, schema: "kind STRING"}}}}
sinks: {{kinds: {{from: numbers, type: summary, sql: "{SQL}"}}}}
"""


def decides(master: Served, number: int, *kinds: str) -> None:
    folder = StateFolder(master.plane.packages.folder.parent / "state", "numbers")
    query = folder.query("kinds")
    lineage = open_lineage(query, owner=folder.read_owner(), fingerprint="f", state_fingerprint="", sources=["numbers"])
    table = SummaryTable(read_question(SQL), 1000)
    table.add(pa.record_batch({"kind": list(kinds)}))
    receipt = Receipt("kinds", 0, len(kinds), 0, ({"part": table.as_json()},))
    Decisions(query.decisions).decide(
        Decision(BatchId("numbers", "kinds", lineage.id, number, 1), "hash", "f", (), (receipt,), counts={"kinds": Counts()})
    )


def test_any_master_tells_the_summary_as_of_the_last_decision(bench: Bench, capfd: pytest.CaptureFixture[str]) -> None:
    first, second = bench.master(), bench.master()
    package = bench.package(FLOW)
    bench.client().apply("numbers", Submit(package.id, "flow.yaml", str(bench.folder)), package.data)
    decides(first, 0, "a", "b", "a")
    for master in (first, second):
        (told,) = bench.client(master).summary("numbers").summaries
        assert (told.sink, told.batch, told.rows_in, list(told.rows)) == ("kinds", 0, 3, [{"kind": "a", "n": 2}, {"kind": "b", "n": 1}])
    decides(first, 1, "b")  # as whoever took over would
    assert bench.client(second).summary("numbers", "kinds").summaries[0].rows[1] == {"kind": "b", "n": 2}
    with pytest.raises(Refused) as refused:
        bench.client(second).summary("numbers", "others")
    assert refused.value.code == "summary-missing"

    with pytest.raises(SystemExit):
        main(["summary", "numbers", "--master", second.url, "--json"])
    assert json.loads(capfd.readouterr().out)["result"]["summaries"][0]["rows_in"] == 4
