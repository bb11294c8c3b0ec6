"""`source set`: what is passed over is never read, the rest is read once, and the ledger balances."""

import pytest

from scribengin.core.errors import Refused
from scribengin.local.positions import move_forward
from scribengin.local.prepare import prepare

FLOW = """\
version: 1
name: moved
sources:
  rows: {type: files, path: data, format: json, schema: "id BIGINT", max_files: 1}
sinks:
  kept: {from: rows, type: files, path: out, format: json}
"""


def rows(*ids):
    return [{"id": id_} for id_ in ids]


def test_a_source_moves_forward_over_what_is_there_and_never_back(folder):
    folder.flow(FLOW).data("data/a.jsonl", rows(1))
    assert folder.run().state == "finished"
    for name, id_ in (("b", 2), ("c", 3)):
        folder.data(f"data/{name}.jsonl", rows(id_))
    prepared = prepare(folder.path / "flow.yaml", state=None)
    query = prepared.folder.query("kept")
    with pytest.raises(Refused, match="going back to 0") as caught:
        move_forward(prepared.plan.flow, query, "rows", 0)
    assert "reset" in caught.value.remedy
    moved = move_forward(prepared.plan.flow, query, "rows", 2)
    assert (moved.before, moved.after, moved.files) == (1, 2, 1)
    result = folder.run()
    assert (result.state, result.balanced) == ("finished", True)
    assert [row["id"] for row in folder.read("out")] == [1, 3]

    folder.data("data/d.jsonl", rows(4))
    moved = move_forward(prepared.plan.flow, query, "rows", None)
    assert (moved.before, moved.after) == (3, 4)
    folder.data("data/e.jsonl", rows(5))
    assert folder.run().balanced
    assert [row["id"] for row in folder.read("out")] == [1, 3, 5]
