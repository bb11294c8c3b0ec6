"""`-l` at the verbs that take one flow: each that has the label is done by itself, and told; what fails for one keeps no other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from scribengin.cli.main import main
from scribengin.control import flow_requests
from scribengin.registry.contract import Replace
from scribengin.registry.records import TierSpec

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from conftest import Bench

    Typed = Callable[..., dict[str, Any]]


@pytest.fixture
def typed(says: Typed, bench: Bench, tmp_path: Path) -> Typed:
    """What a command says with --json, beside the master of the bench."""
    bench.master()
    for flow, team in (("ads", "web"), ("bids", "web"), ("carts", "shop")):
        for package in "01":
            submission = flow_requests.Submission(flow, package * 64, "flow.yaml", "/base", {"main": TierSpec()}, labels={"team": team})
            flow_requests.apply(bench.person, submission, state=lambda _: str(tmp_path), by="bob")
    return says


@pytest.mark.parametrize("words", ["status", "describe --tasks", "history", "events", "logs", "scale --cores 3"])
def test_each_flow_with_the_label_is_done_and_told(typed: Typed, words: str) -> None:
    alone = typed(*words.split()[:1], "ads", *words.split()[1:])
    both = typed(*words.split(), "-l", "team=web")
    assert (alone["status"], both["status"]) == (0, 0), both
    assert [(each["flow"], each["ok"], each["problems"]) for each in both["result"]] == [("ads", True, []), ("bids", True, [])]
    if words != "scale --cores 3":
        assert both["result"][0]["result"] == alone["result"]
    assert typed(*words.split(), "-l", "team=none")["problems"][0]["code"] == "label-unknown"
    if words == "status":
        assert [each["flow"] for each in typed("status")["result"]] == ["ads", "bids", "carts"], "without a name: all"
    else:
        assert typed(*words.split())["problems"][0]["code"] == "usage"
    assert typed(*words.split(), "ads", "-l", "team=web")["problems"][0]["code"] == "usage", "a name, or a label"


@pytest.mark.parametrize("words", ["limit  --rows-per-s 1", "scale  --cores 3", "rollback  1", "rewind  --to-batch 0 --yes", "history "])
def test_an_empty_name_is_no_flow(typed: Typed, bench: Bench, words: str) -> None:
    """As in `limit "$F"` where F is not set."""
    before = bench.person.sync()
    said = typed(*words.split(" "))
    assert (said["status"], said["problems"][0]["code"]) == (2, "usage")
    assert "name a flow, or pass -l NAME=VALUE" in said["problems"][0]["message"]
    assert bench.person.sync() == before, "nothing is written"


def test_what_fails_for_one_is_told_of_it_and_the_others_are_done(typed: Typed, bench: Bench) -> None:
    flow_requests.rollback(bench.person, "ads", 1, by="bob")
    said = typed("rollback", "-l", "team=web", "1")
    assert said["status"] == 2
    assert [(each["flow"], each["ok"]) for each in said["result"]] == [("ads", False), ("bids", True)]
    [problem] = said["problems"]
    assert (problem["code"], problem["message"].startswith("flow ads: version 1 is already the desired version of flow ads")) == (
        "version-same",
        True,
    )
    assert [flow_requests.read_flow(bench.person, flow).desired.version for flow in ("ads", "bids", "carts")] == [1, 1, 2]


def test_operations_alerts_and_rates_of_flows_are_chosen_by_labels(typed: Typed, bench: Bench) -> None:
    assert typed("operation", "list", "-l", "team=web")["result"] == []
    assert typed("top", "--once", "-l", "team=none")["problems"][0]["code"] == "label-unknown"
    assert typed("top", "--once", "-l", "team=web")["result"] == []
    # no master has looked at them yet, so that each is told as unknown to it
    told = typed("alerts", "list", "-l", "team=web")["result"]
    assert [(each["flow"], each["problems"][0]["code"]) for each in told] == [("ads", "flow-unknown"), ("bids", "flow-unknown")]
    assert typed("alerts", "test", "-l", "team=web", "late", "more")["problems"][0]["code"] == "usage"
    there = bench.person.read("flows/ads/spec/2")
    bench.person.commit(Replace(there, {**there.value, "labels": {}}))
    assert [each["flow"] for each in typed("history", "-l", "team=web")["result"]] == ["bids"]


@pytest.mark.parametrize(
    "words", ["graph --steps", "batch list", "dead-letter list", "dead-letter show", "offsets show", "audit", "trace -l team=web a+1"]
)
def test_what_looks_into_states_takes_labels_too(typed: Typed, words: str) -> None:
    """Nobody has their packages here: that is told of each."""
    told = typed(*words.split(), *([] if " -l " in words else ["-l", "team=web"]))
    assert [(each["flow"], each["problems"][0]["code"]) for each in told["result"]] == [
        ("ads", "package-missing"),
        ("bids", "package-missing"),
    ]


@pytest.mark.parametrize(
    ("words", "usage"),
    [
        (("status",), "[FLOW | -l NAME=VALUE]"),
        (("history",), "(NAME | -l NAME=VALUE)"),
        (("scale",), "(NAME[.TIER] | -l NAME=VALUE)"),
        (("limit",), "(NAME[:SOURCE|:EDGE] | -l NAME=VALUE)"),
    ],
)
def test_help_says_what_the_label_stands_for(words: tuple[str, ...], usage: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([*words, "--help"])
    assert usage in capfd.readouterr().out
