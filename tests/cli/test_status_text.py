"""`status` for people."""

import pytest

from scribengin.cli.commands.status import _show_columns, show_named

KEPT = {"path": "/data/out", "node": "a", "keeper": {"pid": 7}, "looked_at": "2026-01-02T03:04:05Z", "did_at": "", "error": ""}
FAILED = {
    "flow": "drift",
    "wanted": {"state": "running", "version": 1, "by": "me", "at": "2026-01-02T03:04:05.123+00:00"},
    "status": {"state": "failed", "since": "2026-01-02T03:05:05+00:00", "reason": "tier main: query kept: no such id", "next": "fix it"},
    "workflow": None,
    "set_aside": [],
    "now": {"silent": ["main"], "orders": []},
    "tiers": [
        {
            "tier": "main", "state": "ended", "worker": "drift.main-1", "process": None, "failures": 1, "cause": "query kept: no such id",
            "remedy": "fix it", "starts_again": None, "standby": None, "workers": 1, "wanted_workers": 1,
        }
    ],
    "folders": [KEPT],
    "noticed": [],
    "accepted": [],
    "acknowledged": [],
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("new", "a new column"),
        ("renamed", "no value; the file has eventId"),
        ("null", "no value in 12 records"),
        ("nulled", "does not fit: 12 values"),
        ("of-tomorrow", "of-tomorrow"),
    ],
)
def test_each_kind_is_said_in_words(kind, said, capsys):
    row = {"source": "events", "column": "event_id", "kind": kind, "type": "eventId", "records": 12}
    _show_columns({"noticed": [row | {"file": "b.jsonl", "line": 3, "batch": 0, "now": "null"}], "accepted": []})
    assert said in capsys.readouterr().out


def test_a_failed_flow_says_its_error_once_and_nothing_of_rates(capsys):
    show_named(FAILED)
    said = capsys.readouterr().out
    assert said.count("no such id") == 1
    assert said.count("fix it") == 1
    assert "rows/s" not in said
    assert "cause" not in said
    assert "flow drift is failed since 2026-01-02T03:05:05Z" in said
    assert "by me at 2026-01-02T03:04:05Z" in said


@pytest.mark.parametrize(
    ("workers", "wanted", "said"),
    [(1, 1, ""), (3, 3, "3"), (3, 0, "3"), ("each", 2, "each (2)"), ("each", 0, "each")],
)
def test_how_many_workers_a_tier_has_is_said_where_it_is_not_one(workers, wanted, said, capsys):
    (tier,) = FAILED["tiers"]
    helper = {**tier, "tier": "main~2", "workers": None, "wanted_workers": 0}
    show_named({**FAILED, "tiers": [{**tier, "workers": workers, "wanted_workers": wanted}, helper]})
    head, row = [line for line in capsys.readouterr().out.splitlines() if line.startswith(("tier ", "main "))]
    assert ("workers" in head) == bool(said)
    assert row.split("ended")[0].removeprefix("main").strip() == said


ADVICE = {
    "lag_s": 60.0, "min": 1, "max": 8, "mode": "advise", "executors": 2, "advised": 4, "verdict": "grow", "why": "the lag is 2m00s",
    "since": "2026-01-02T03:04:05Z", "change": "", "changed_at": "",
}  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, "2 executors; autoscale (1 to 8) would have 4: the lag is 2m00s, since 2026-01-02T03:04:05Z"),
        ({"mode": "act"}, "2 executors; autoscale (1 to 8) changes it to 4: the lag is 2m00s, since 2026-01-02T03:04:05Z"),
        ({"executors": 1, "advised": 1, "verdict": "stay", "why": "", "since": ""}, "1 executor; autoscale (1 to 8) keeps it"),
        (
            {
                "advised": 2,
                "verdict": "wait",
                "why": "cool-down",
                "since": "",
                "change": "from 1 to 2: x",
                "changed_at": "2026-01-02T03:04:05Z",
            },
            "2 executors; autoscale (1 to 8) decides nothing now: cool-down; last change at 2026-01-02T03:04:05Z, from 1 to 2: x",
        ),
    ],
)
def test_what_autoscale_thinks_of_a_tier_is_said(changed, said, capsys):
    (tier,) = FAILED["tiers"]
    show_named({**FAILED, "tiers": [{**tier, "autoscale": {**ADVICE, **changed}}]})
    assert f"tier main: {said}\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "said"),
    [({}, ""), ({"error": "disk full"}, "maintenance fails: disk full"), ({"node": "", "keeper": None}, "no host maintains it yet")],
)
def test_a_folder_is_named_only_where_something_is_to_be_said(change, said, capsys):
    show_named({**FAILED, "folders": [KEPT | change]})
    out = capsys.readouterr().out
    assert ("/data/out" in out, said in out) == (bool(change), True)


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ((3, 1, "2026-01-02T03:04:05.123+00:00"), "up to Batch 1 of 3, decided at 2026-01-02T03:04:05Z"),
        ((3, 1, ""), "up to Batch 1 of 3"),
        ((3, -1, ""), "nothing yet, Batch 3 is decided"),
    ],
)
def test_how_far_a_query_is_acknowledged_is_a_line(numbers, said, capsys):
    decided, acknowledged, at = numbers
    show_named({**FAILED, "acknowledged": [{"query": "kept", "decided": decided, "acknowledged": acknowledged, "acknowledged_at": at}]})
    assert f"query kept: acknowledged to the end of the flow {said}\n" in capsys.readouterr().out
