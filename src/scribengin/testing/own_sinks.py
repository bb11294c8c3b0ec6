"""Tests the commit protocol with your own sink: real drivers that are killed, superseded or lose unsynced data, with every record counted.

For faults that `conformance.check_sink` cannot detect from outside: data that was not durable before the decision, and Batches that a
successor and a suspended driver process concurrently, including the engine's records, dead letters and the ledger.

    def test_my_sink_outlives_all_trials(tmp_path):
        check_trials(tmp_path, make_sink, lambda at, node: {"path": str(at / node)}, lambda at, node: read_my_rows(at / node))
"""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from scribengin.connectors.contract import ConnectorContext
from scribengin.testing import campaign
from scribengin.testing.checker import Found
from scribengin.testing.conformance import must
from scribengin.testing.protocol import SINKS, Driver, Job
from scribengin.testing.trials import killed, overtaken

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from scribengin.connectors.contract import StagingSink
    from scribengin.testing.trials import Outcome

    Options = Callable[[Path, str], Mapping[str, Any]]
    Read = Callable[[Path, str], Iterable[Mapping[str, Any]]]

_ROWS = 24
_ENGINE = ("stage.after", "decide.before", "decide.after", "publish.before", "publish.after", "commit.before")
"""crash points of the engine before and after the sink's work"""
_SINK = ("publish.record.before", "publish.record.after", "publish.renamed", "offer.sent", "settle.offered", "settle.after")
"""crash points in the work of many sinks; if the sink does not pass one, its trial is a run without a fault"""
_ASLEEP = ("decide.before", "publish.before", "publish.after")
_ASLEEP_INSIDE = "publish.record.before"
"""the point of `_SINK` at which a driver may hold a lock; it sleeps there only if this sink passes it"""
_KILLED = -signal.SIGKILL
_DARK = ("publish.after", "commit.before")


@dataclass(frozen=True, slots=True)
class OwnJob(Job):
    """A Job with the sinks of a test. Child processes get the job without `found`."""

    make: Callable[[ConnectorContext], StagingSink] | None = None
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """node → the options of its sink"""
    found: Callable[[str], Iterable[Mapping[str, Any]]] | None = None

    def __reduce__(self) -> Any:
        """Pickle the job for a child process without `found`, which only the parent calls and which need not be picklable."""
        return partial(OwnJob, make=self.make, options=self.options, batches=self.batches, rows=self.rows), (self.state, self.out)

    def place(self, node: str) -> ConnectorContext:
        """The context of the sink of that node."""
        return ConnectorContext(node, self.out, self.options[node], flow="protocol", work=self.query.path / "work" / node)

    def read(self, torn: list[str]) -> dict[str, list[Found]]:
        """The rows that an independent reader finds, by sink; errors while reading are added to `torn`."""
        assert self.found is not None
        read: dict[str, list[Found]] = {}
        for node in SINKS:
            try:
                read[node] = [Found(node, row) for row in self.found(node)]
            except Exception as error:
                torn.append(f"{node}: {error!r}")
                read[node] = []
        return read


def own_driver(job: Job) -> Driver:
    """A driver that writes to the sinks of an OwnJob."""
    return Driver(job, _own_sink)


def check_trials(
    folder: Path,
    make_sink: Callable[[ConnectorContext], StagingSink],
    options: Options,
    read: Read,
    *,
    power: bool = False,
    keeps_lock: bool = False,
) -> None:
    """Run drivers that write records to two sinks and are struck by faults, and check every record. Each trial uses a new folder.

    Args:
        folder: The folder for all trials.
        make_sink: Creates the sink; a function of a module that child processes can import.
        options: `options(at, node)` returns the options of a sink of one trial. `at` is an existing folder, `node` is `heads` or `tails`.
        read: `read(at, node)` returns the rows that an independent reader finds, in the order of writing, with the columns of
            `records.SCHEMA`.
        power: Simulate power failures too. Only calls of Python's `os.fsync` are detected, so this is for sinks that write files under `at`
            themselves, without a library that syncs by itself.
        keeps_lock: True if a driver that is suspended inside its publication keeps a lock that no other process can end, as in SQLite: no
            driver sleeps there. A server can end it (`idle_in_transaction_session_timeout` of PostgreSQL).

    Raises:
        AssertionError: with the trial in which a record was lost, duplicated or changed, or the audit failed.
    """
    trials: dict[str, Callable[[Job], Outcome]] = {}
    if power:
        dark = partial(killed, make_driver=own_driver, power=True)
        trials |= {f"the machine goes dark at {point}": partial(dark, faults=[f"{point}@2:kill"]) for point in _DARK}
    for point in (*_ENGINE, *_SINK):
        trials[f"a driver is killed at {point}"] = partial(killed, faults=[f"{point}@2:kill"], make_driver=own_driver)
    for point in _ASLEEP:
        what = f"a driver sleeps at {point} while its successor works"
        trials[what] = partial(overtaken, point=f"{point}@2", make_driver=own_driver)
    inside = partial(overtaken, point=f"{_ASLEEP_INSIDE}@2", make_driver=own_driver)
    passed = set[str]()
    last = f"a driver sleeps at {_ASLEEP_INSIDE} while its successor works"
    for number, (what, trial) in enumerate((trials | {last: inside}).items()):
        if what == last and (keeps_lock or f"a driver is killed at {_ASLEEP_INSIDE}" not in passed):
            continue
        at = folder / f"{number:02}" / "out" / "at"
        at.mkdir(parents=True)
        given = {node: options(at, node) for node in SINKS}
        job = OwnJob(folder / f"{number:02}" / "state", at.parent, rows=_ROWS, make=make_sink, options=given, found=partial(read, at))
        outcome = trial(job)
        must(outcome.clean and campaign.BUG not in outcome.statuses, f"{what}: each record is there once, or is a dead letter; {outcome}")
        passed |= {what} if outcome.statuses[:1] == (_KILLED,) else set()
        told = campaign.audit(job, own_driver)
        must(not told, f"{what}: an audit finds nothing wrong; {told}")


def _own_sink(job: Job, node: str) -> StagingSink:
    assert isinstance(job, OwnJob)
    assert job.make is not None
    return job.make(job.place(node))
