"""`batch list` as people see it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from click.testing import CliRunner

from scribengin.cli.main import scribengin
from scribengin.connectors.contract import BatchId
from scribengin.local.prepare import prepare
from scribengin.state.contract import Counts, Decision
from scribengin.state.decisions import Decisions
from scribengin.state.lineage import open_lineage

if TYPE_CHECKING:
    from pathlib import Path

FLOW = """\
version: 1
name: shop
sources: {numbers: {type: sequence, rows: 3}}
sinks: {kept: {from: numbers, type: files, path: out, format: json}}
"""


def test_the_last_batches_are_a_table(tmp_path: Path) -> None:
    path = tmp_path / "flow.yaml"
    path.write_text(FLOW)
    shown = CliRunner().invoke(scribengin, ["batch", "list", str(path)])
    assert (shown.exit_code, shown.output) == (
        0,
        f"no Batch has been decided yet in {tmp_path}/.scribengin; those of an earlier lineage are not listed\n",
    )

    folder = prepare(path, state=None).tiers[0].folder
    query = folder.query("kept")
    lineage = open_lineage(query, owner=folder.read_owner(), fingerprint="f", state_fingerprint="", sources=["numbers"])
    counts = {"numbers": Counts(rows_in=3000, out=3000), "kept": Counts(rows_in=3000, out=3000)}
    before = {"phases_s": {"decide": 0.25, "plan": 0.25, "process": 0.75}}
    for number, offers in enumerate(((), ("kept",))):
        batch = BatchId("shop", "kept", lineage.id, number, 1)
        decision = Decision(batch, "hash", "f", (), (), (), counts, f"2026-01-01T00:00:0{number}.500+00:00", offers=offers, before=before)
        Decisions(query.decisions).decide(decision)
    shown = CliRunner().invoke(scribengin, ["batch", "list", str(path)])
    assert shown.output.splitlines() == [
        "Query  Batch  decided at               in    out  dead  published  took",
        "kept       1  2026-01-01T00:00:01Z  3,000  3,000     –  not yet    –",
        "kept       0  2026-01-01T00:00:00Z  3,000  3,000     0  yes        1.250 s",
    ]
    shown = CliRunner().invoke(scribengin, ["batch", "show", str(path), "0"])
    assert shown.output.splitlines() == [
        "Batch 0 of query kept, decided 2026-01-01T00:00:00Z, Term 1",
        "3,000 rows in, 3,000 out, 0 dead; published: yes",
        "took plan 0.250 s, process 0.750 s, decide 0.250 s",
        "",
        "node        in    out  filtered  folded  dead  late",
        "numbers  3,000  3,000         0       0     0     0",
        "kept     3,000  3,000         0       0     0     0",
    ]
