"""`--wait`: what a flow has to come to, and which values there are."""

import click
import pytest

from scribengin.cli import waiting
from scribengin.cli.waiting import NotReached, WaitOption, wait_for, wait_running_option
from scribengin.client.models import FlowStatus, FlowView, TierRow, WantedState


class Plane:
    """Answers with one view after the other, the last again and again."""

    def __init__(self, *views):
        self.views = list(views)

    def flow(self, _name):
        return self.views.pop(0) if len(self.views) > 1 else self.views[0]


def seen(state, *ready, reason="", after="", version=1):
    """Tiers a, b, …, by whether each is ready."""
    tiers = tuple(TierRow(name, "running", ready=each) for name, each in zip("abc", ready, strict=False))
    wanted = WantedState(state="running", version=version, by="", at="", revision=7)
    return FlowView("drift", wanted, FlowStatus(state, reason=reason, next=after, generation=7), tiers)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch):
    monkeypatch.setattr(waiting, "_POLL_S", 0.0)


def test_a_flow_that_runs_is_waited_for_until_each_tier_has_committed_or_found_nothing_to_read():
    plane = Plane(seen("starting", False, False), seen("running", True, False), seen("running", True, True))
    found = wait_for(plane, "drift", ("running",), WaitOption(60.0))
    assert (found.state, len(plane.views)) == ("running", 1)


def test_a_flow_that_fails_on_its_first_batch_is_an_error_with_its_cause():
    failed = seen("failed", False, reason="tier main: query kept: no such id", after="fix it; then: scribengin resume drift")
    with pytest.raises(NotReached, match="flow drift is failed: tier main: query kept: no such id") as caught:
        wait_for(Plane(seen("running", False), failed), "drift", ("running",), WaitOption(60.0))
    assert caught.value.remedy == "fix it; then: scribengin resume drift"


def test_a_version_that_is_given_up_for_the_one_before_is_an_error_at_once():
    plane = Plane(seen("running", True), seen("draining", version=2), seen("running", True))
    with pytest.raises(NotReached, match="was changed from version 2 to version 1") as caught:
        wait_for(plane, "drift", ("stopped",), WaitOption(60.0), version=2)
    assert caught.value.remedy == "see why: scribengin operation list drift"


def test_started_waits_for_the_start_alone():
    plane = Plane(seen("running", False))
    assert wait_for(plane, "drift", ("running",), WaitOption(60.0, started=True)).state == "running"


def test_a_first_batch_that_takes_too_long_is_said_to_be_under_way():
    with pytest.raises(NotReached) as caught:
        wait_for(Plane(seen("running", True, False)), "drift", ("running",), WaitOption(0.0))
    assert caught.value.message == "flow drift is running, but its first Batch of tier b is not committed after 0 s"
    assert "scribengin top drift" in caught.value.remedy


def test_a_worker_of_an_earlier_release_reports_nothing_and_is_not_waited_for():
    assert wait_for(Plane(seen("running", None)), "drift", ("running",), WaitOption(60.0)).state == "running"


def test_a_flow_that_is_to_be_paused_need_not_be_ready():
    assert wait_for(Plane(seen("paused", False)), "drift", ("paused",), WaitOption(60.0)).state == "paused"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], None),
        (["--wait"], WaitOption(120.0)),
        (["--wait", "60s"], WaitOption(60.0)),
        (["--wait=started"], WaitOption(120.0, started=True)),
        (["--wait=started:5m"], WaitOption(300.0, started=True)),
    ],
)
def test_the_values_of_wait(arguments, expected):
    found = []
    command = click.Command("apply", callback=lambda wait: found.append(wait))  # noqa: PLW0108  the option is put on a function
    wait_running_option(command.callback)
    command.params = command.callback.__click_params__
    command.main(arguments, standalone_mode=False)
    assert found == [expected]


@pytest.mark.parametrize("value", ["strated", "started:", "started:soon"])
def test_another_value_names_those_that_there_are(value, command):
    ended = command("apply", "flow.yaml", f"--wait={value}")
    assert ended.status == 2
    assert "started:60s" in ended.err
