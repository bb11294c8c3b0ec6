"""What `top` and `status NAME` draw of what a master says."""

from __future__ import annotations

import io
from typing import Any

import msgspec
from rich.console import Console

from scribengin.cli.commands import top
from scribengin.watching.flow_figures import FlowFigures, going_text, why_text

NOW: dict[str, Any] = {
    "heard_s": 0.4,
    "silent": [],
    "rows_in_per_s": 41_250.4,
    "rows_out_per_s": 380.0,
    "lag_rows": 1_200,
    "lag_bytes": 5,
    "delay_s": 64.0,
    "catch_up_s": 12.0,
    "falls_behind": False,
    "dead": 7,
    "restarts": 2,
    "bottleneck": "enrich takes 81% of the Batch; hot -> core grows by 90 rows/s",
    "orders": ["popular asks hot (74 ns, keeps 14%), then tagged (1.1 µs, keeps 28%)"],
}


def lines(**row: Any) -> list[str]:
    console = Console(width=200, file=io.StringIO())
    row = {"flow": "tweets", "state": "running", "reason": "", "alerts": [], "now": NOW, **row}
    figures = None if row["now"] is None else msgspec.convert({"flow": "tweets", "still_s": 0.0, **row["now"]}, FlowFigures)
    row["why"] = why_text(row["state"], row["reason"], figures, row["alerts"])
    console.print(top.drawn([row]))
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined, no-any-return]


def drawn(**row: Any) -> str:
    return lines(**row)[1]


def test_a_flow_is_a_line_with_all_its_figures() -> None:
    assert drawn().split()[:10] == ["tweets", "running", "41,250", "380", "1,200", "1m04s", "12s", "7", "2", "enrich"]


def test_a_flow_of_which_nothing_was_heard_has_none() -> None:
    line = drawn(now=None, state="starting", reason="main is starting")
    assert line.split() == ["tweets", "starting", *["–"] * 7, "main", "is", "starting"]


def test_what_fires_what_is_silent_and_what_never_catches_up_is_told() -> None:
    line = drawn(alerts=["stuck", "late"], now={**NOW, "falls_behind": True, "silent": ["core"], "heard_s": 90.0, "bottleneck": ""})
    assert "never" in line
    assert "alert: stuck, late; no report from core for 1m30s" in line


def test_a_flow_that_is_stopped_is_quiet() -> None:
    line = drawn(state="stopped", reason="drained", now={**NOW, "silent": ["core"], "heard_s": 90.0, "orders": []})
    assert line.split()[-1] == "drained", "its workers are not there, as they should be"
    assert line.split()[4] == "1,200", "what waits is told"


def test_what_holds_a_flow_up_that_is_behind_is_told_once() -> None:
    line = drawn(state="degraded", reason="it is behind: the oldest waiting entry is 64s old; enrich takes 80% of the Batch")
    assert "it is behind; enrich takes 81%" in line
    assert "80%" not in line


def test_status_says_it_in_a_sentence() -> None:
    assert going_text("running", NOW) == (
        "in 41,250 rows/s, out 380 rows/s; 1,200 rows wait, the oldest 1m04s; caught up in 12s; "
        "enrich takes 81% of the Batch; hot -> core grows by 90 rows/s"
    )
    quiet = {**NOW, "rows_in_per_s": 0.0, "rows_out_per_s": 0.0, "lag_rows": 0, "lag_bytes": 0, "catch_up_s": None, "bottleneck": ""}
    assert going_text("running", quiet) == "in 0 rows/s, out 0 rows/s; nothing waits"
    assert (going_text("stopped", NOW), going_text("running", None)) == ("", ""), "nothing is read, or nothing is known"


def test_how_utilities_run_stands_below_the_flows() -> None:
    assert lines()[2:] == ["", "tweets: popular asks hot (74 ns, keeps 14%), then tagged (1.1 µs, keeps 28%)"]
    assert len(lines(now={**NOW, "orders": []})) == len(lines(now=None)) == 2
