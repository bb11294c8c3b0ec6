"""The checker must catch protocols that are wrong on purpose; the right one must come through the same trials clean."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from harness.broken_sinks import BROKEN
from scribengin.testing.protocol import Driver, Job
from scribengin.testing.trials import Outcome, killed, overtaken

Trial = Callable[..., Outcome]

CATCHES: dict[str, tuple[Trial, set[str]]] = {
    "no_staging": (partial(killed, faults=["stage.after@2:kill"]), {"torn"}),
    "names_from_the_attempt": (partial(killed, faults=["stage.after@2:kill"]), {"doubled"}),
    "decision_overwritten": (partial(overtaken, point="decide.before@2"), {"imbalance"}),
    "publish_before_fsync": (partial(killed, faults=["publish.after@2:kill"], power=True), {"lost"}),
    # as many may be doubled as lost: then the counts balance
    "replay_from_rerun": (partial(killed, faults=["publish.renamed@1:kill"]), {"lost", "doubled"}),
    "purged_too_early": (partial(overtaken, point="decide.before@2", successor="batch.entry:kill"), {"lost"}),
    "copied_into_place": (partial(killed, faults=["publish.renamed@1:kill"]), {"torn"}),
    "skipped_silently": (partial(killed, faults=["publish.renamed@1:kill"]), {"lost"}),
}


def test_every_broken_protocol_has_a_trial() -> None:
    assert set(CATCHES) == set(BROKEN)


@pytest.mark.parametrize("name", CATCHES)
def test_the_checker_catches(name: str, place: Path) -> None:
    trial, kinds = CATCHES[name]
    outcome = trial(Job(place / "state", place / "out", rows=60), make_driver=BROKEN[name])
    assert kinds <= set(outcome.findings.kinds()), str(outcome)


@pytest.mark.parametrize("name", CATCHES)
def test_the_right_protocol_outlives_the_trial_of(name: str, place: Path) -> None:
    trial, _ = CATCHES[name]
    outcome = trial(Job(place / "state", place / "out", rows=60), make_driver=Driver)
    assert outcome.clean, str(outcome)
