from __future__ import annotations

from typing import TYPE_CHECKING

from flows import flow, sink, source, step, tweets

from scribengin.plan.cut import build_plan
from scribengin.plan.feeders import feeders
from scribengin.spec.model import Filter, Python, Route

if TYPE_CHECKING:
    from pathlib import Path


def test_runs_of_native_steps_are_fed_by_what_their_steps_read(tmp_path: Path) -> None:
    plan = build_plan(tweets(tmp_path))
    kept = next(query for query in plan.queries if query.name == "kept")
    assert feeders(["tweets", "known+hot", "tagged", "kept"], kept, plan.flow) == {
        "known+hot": ("tweets",),
        "tagged": ("known+hot",),
        "kept": ("tagged",),
    }
    assert "kept" not in feeders(["tweets", "kept"], kept, plan.flow), "no Batch with rows for it yet"


def test_readers_of_a_branch_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text("def one(row):\n    return row\n")
    routed = step("r", "tweets", Route((("big", "id > 1"),)))
    plan = build_plan(
        flow(
            source(),
            step("f", "tweets", Filter("id > 0")),
            routed,
            step("p", "r.big", Python("steps:one")),
            sink("k", "p"),
            folder=tmp_path,
        )
    )
    assert feeders(["tweets", "r", "p", "k"], plan.queries[0], plan.flow) == {"r": ("tweets",), "k": ("p",)}
