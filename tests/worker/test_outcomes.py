"""What ends a worker: what passes by itself is tried again, with the back-off told; what does not waits, with its cause and what to do."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest
from farm import FLOW, until

from scribengin.core.errors import EnvironmentFault, Refused, SourceError, StateError, Unreachable
from scribengin.core.storage import explained
from scribengin.worker.service import outcome_of

if TYPE_CHECKING:
    from farm import Farm


BROKEN = """\
from scribengin import record


@record
def odd(row):
    return 1 / (row["id"] - 7) > 0
"""


def _full() -> EnvironmentFault:
    try:
        with explained("/state cannot be written"):
            raise OSError(errno.ENOSPC, "No space left on device")
    except EnvironmentFault as error:
        return error
    raise AssertionError("a full disk is explained")


@pytest.mark.parametrize(
    ("error", "permanent"),
    [
        (Unreachable("the broker is away", remedy="start it"), False),
        (EnvironmentFault("Spark did not start: killed", remedy="see spark.log", code="spark-start"), False),
        (_full(), False),
        (OSError(errno.EMFILE, "Too many open files"), False),
        (KeyError("a mistake of ours"), False),
        (PermissionError(errno.EACCES, "Permission denied"), True),
        (EnvironmentFault("no Java", remedy="install one", code="java-missing"), True),
        (SourceError("the folder data is not there", remedy="make it"), True),
        (StateError("the state folder contradicts itself", remedy="restore it"), True),
        (Refused("the login is wrong", remedy="mend it", code="login"), True),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_what_passes_by_itself_is_tried_again_and_all_else_waits_for_a_person(error: Exception, permanent: bool) -> None:
    outcome = outcome_of(error)
    assert (outcome.state, outcome.permanent) == ("failed", permanent)
    assert outcome.cause
    assert outcome.remedy


@pytest.mark.timeout(600)
def test_a_flow_whose_source_is_gone_waits_and_one_whose_package_is_gone_is_tried_again_and_both_say_so(farm: Farm) -> None:
    data = farm.folder / "flow" / "data"
    farm.plants()
    data.rmdir()
    until(lambda: _state(farm) == "failed", "failed")
    status = farm.describes()["status"]
    assert "data" in status["reason"]
    assert status["next"].endswith("then: scribengin resume numbers")
    (tier,) = farm.describes()["tiers"]
    assert (tier["worker"], tier["starts_again"]) == ("numbers.main-1", None)

    # mended; but now nobody has the package, and no master is there to ask: that passes
    data.mkdir()
    packages = farm.home.packages.folder
    packages.rename(packages.with_name("elsewhere"))
    farm.wishes("running")
    until(lambda: (run := farm.run()) is not None and run.failures >= 3 and run.ended_at is not None, "three ends in a row")
    until(lambda: _state(farm) == "recovering" and "3 ends in a row" in farm.describes()["status"]["reason"], "the back-off, told")
    found = farm.describes()
    (tier,) = found["tiers"]
    assert "package" in tier["cause"]
    assert tier["failures"] == 3
    assert tier["starts_again"] in found["status"]["next"]
    packages.rmdir() if packages.exists() else None
    packages.with_name("elsewhere").rename(packages)


def _state(farm: Farm) -> str | None:
    status = farm.describes()["status"]
    return None if status is None else status["state"]


@pytest.mark.timeout(600)
def test_a_step_that_fails_for_good_is_told_down_to_its_line_and_not_started_again(farm: Farm) -> None:
    farm.adds()
    farm.plants(FLOW.replace("name: numbers", "name: numbers\ndefaults: {on_error: fail}"), BROKEN)
    until(lambda: _state(farm) == "failed", "failed")
    found = farm.describes()
    for text in ("query kept", "steps.py", "ZeroDivisionError"):
        assert text in found["status"]["reason"], found
    assert found["status"]["next"].endswith("then: scribengin resume numbers")
    assert (found["tiers"][0]["worker"], found["tiers"][0]["starts_again"]) == ("numbers.main-1", None)
    assert farm.finds() == []

    # mended and submitted again it goes on, with the record that was in the way
    farm.plants(steps=BROKEN.replace('1 / (row["id"] - 7) > 0', 'row["id"] % 2 == 1'))
    until(lambda: len(farm.finds()) == 50, "what had waited")
