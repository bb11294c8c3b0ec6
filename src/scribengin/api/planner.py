"""Executes state queries, each in a process of its own, here or on a node that has the state: a user's Python code must neither slow down a
master nor stay in its memory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections import OrderedDict
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from scribengin.api import planner_process
from scribengin.api.planner_process import PlannerTask, StateAnswer
from scribengin.api.state_queries import StateNeed, StateQuery, registered
from scribengin.api.state_routing import HERE, StateLocation, locate_state
from scribengin.client.problems import Fault, ProblemDetails, to_error
from scribengin.control import flow_records
from scribengin.core.errors import EnvironmentFault, Refused, ScribenginError
from scribengin.packages.fetch import FetchedPackages
from scribengin.registry.contract import RegistryEntry
from scribengin.registry.tree import DESIRED, SPEC, STATUS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from scribengin.api.plane import Plane
    from scribengin.packages.store import PackageStore
    from scribengin.registry.contract import Registry

LIMIT_S = 60
ANSWER_S = 100
AT_ONCE = 2
TURN_S = 10
"""seconds that a query waits for a free slot; each waiting one uses a thread of the API"""
_TOLD_BYTES = 2000
_KEPT = 256
"""answers that depend only on a version of a flow"""
_HIDDEN = ("SCRIBENGIN_REGISTRY_LOGIN", "SCRIBENGIN_TOKEN")
"""environment variables of the master that a user's code does not need"""


def from_others(store: PackageStore, others: Callable[[], Sequence[str]], **more: Any) -> Callable[[str], None]:
    """Returns a function that fetches a package from another master, if there is one.

    Args:
        store: where the package is stored.
        others: returns the addresses of the other masters.
        more: token and certificates; see `FetchedPackages`.
    """
    fetched = FetchedPackages(store, others, **more)

    def fetch(package: str) -> None:
        if others():
            fetched.fetch(package)

    return fetch


@contextmanager
def turn(turns: threading.BoundedSemaphore) -> Iterator[None]:
    """Hold one of AT_ONCE slots. Raises Refused `too-many` if none becomes free within TURN_S seconds."""
    if not turns.acquire(timeout=TURN_S):
        raise Refused(
            f"this master already answers {AT_ONCE} requests about the states of flows",
            remedy="repeat the request later, or use another master",
            code="too-many",
        )
    try:
        yield
    finally:
        turns.release()


class Planner:
    """Executes queries on this host."""

    def __init__(
        self,
        packages: Path,
        *,
        limit_s: int = LIMIT_S,
        answer_s: int = ANSWER_S,
        fetch: Callable[[str], None] = lambda _package: None,
    ) -> None:
        """Create a planner without processes.

        Args:
            packages: the folder of the packages.
            limit_s: the time limit in seconds of queries that plan.
            answer_s: the time limit in seconds of all other queries.
            fetch: fetches a package that another master has; it raises if no master has it.
        """
        self.fetch = fetch
        self._packages = packages
        self._limit_s = limit_s
        self._answer_s = answer_s
        self._kept: OrderedDict[bytes, Any] = OrderedDict()
        self._kept_lock = threading.Lock()
        self._turns = threading.BoundedSemaphore(AT_ONCE)
        self._questions = threading.BoundedSemaphore(AT_ONCE)

    def ask(self, query: StateQuery, records: Mapping[str, Mapping[str, Any]]) -> Any:
        """The answer to a query, from a new `planner_process`.

        Args:
            query: the query.
            records: path → value of the records that it reads.

        Raises:
            ScribenginError: as the query's handler does.
            Refused: `node-old`; `plan-late`, or `answer-late` if the query does not plan; in that case also `too-many`, if too many run
                already.
            EnvironmentFault: the process ended without an answer.
        """
        known = registered(query.verb)
        self._fetch_all(records)
        folder = str(self._packages.absolute())
        limit_s = self._limit_s if known.plans else self._answer_s
        task = PlannerTask(query, known.handler, known.plans, folder, records, limit_s + 5)
        with self._turns if known.plans else turn(self._questions):
            seen = self._run(task, limit_s)
        if seen.problem is not None:
            raise to_error(_without(seen.problem, [os.path.join(folder, each.package, "") for each in query.submits]))  # noqa: PTH118
        return seen.found

    def ask_once(self, query: StateQuery, records: Mapping[str, Mapping[str, Any]], version: object) -> Any:
        """The answer to a query whose answer depends only on `version`, such as a record of the registry; it is kept, as one of the newest
        `_KEPT`. Raises as `ask`; a problem is not kept."""
        key = msgspec.json.encode([query, version])
        with self._kept_lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        found = self.ask(query, records)
        with self._kept_lock:
            self._kept[key] = found
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return found

    def _fetch_all(self, records: Mapping[str, Mapping[str, Any]]) -> None:
        for record in records.values():  # packages of the versions that are read; the process reports one that is missing
            if isinstance(package := record.get("package"), str):
                with suppress(ScribenginError):
                    self.fetch(package)

    def _run(self, task: PlannerTask, limit_s: int) -> StateAnswer:
        settings = {name: value for name, value in os.environ.items() if name not in _HIDDEN}
        command = [sys.executable, "-m", planner_process.__name__]
        with (
            tempfile.TemporaryFile() as said,
            subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, env=settings, start_new_session=True
            ) as process,
        ):
            try:
                answer, _ = process.communicate(msgspec.json.encode(task), limit_s)
            except subprocess.TimeoutExpired:
                raise _late(limit_s, plans=task.plans) from None
            finally:
                with suppress(ProcessLookupError):  # the process, and what its code has started
                    os.killpg(process.pid, signal.SIGKILL)
            try:
                return msgspec.json.decode(answer, type=StateAnswer)
            except msgspec.DecodeError:
                said.seek(max(0, said.tell() - _TOLD_BYTES))
                last = said.read().decode(errors="replace").strip() or "it wrote nothing"
        raise EnvironmentFault(
            f"the process that plans flows ended with status {process.returncode} and no answer: {last}",
            remedy="check what the import of its modules does: scribengin plan FILE",
            code="plan-failed",
        )


def _late(limit_s: int, *, plans: bool) -> Refused:
    if plans:
        return Refused(
            f"the flow was not planned within {limit_s} s",
            remedy="the import of its modules takes too long; to see where, press Ctrl-C in: scribengin plan FILE",
            code="plan-late",
        )
    return Refused(
        f"no answer within {limit_s} s: the state is large",
        remedy="request less, such as one query; or run the same command on the host of the state, with FILE and --state",
        code="answer-late",
    )


def _without(problem: ProblemDetails, folders: Sequence[str]) -> ProblemDetails:
    for folder in folders:
        problem = _from_package(problem, folder)
    return problem


def _from_package(problem: ProblemDetails, folder: str) -> ProblemDetails:
    faults = tuple(_fault_from_package(fault, folder) for fault in problem.problems)
    return replace(problem, file=problem.file.removeprefix(folder), detail=problem.detail.replace(folder, ""), problems=faults)


def _fault_from_package(fault: Fault, folder: str) -> Fault:
    return replace(fault, file=fault.file.removeprefix(folder), detail=fault.detail.replace(folder, ""))


def ask_planner(plane: Plane, query: StateQuery) -> Any:
    """The answer to a query, from this host or from the node that has the state. Raises as `Planner.ask` and `locate_query`."""
    return ask_at(plane, locate_query(plane, query).node, query)


def locate_query(plane: Plane, query: StateQuery, *, masters: bool = False) -> StateLocation:
    """Returns where a query must be executed: at the state of the first of its flows whose state is not on this host.

    Args:
        plane: the master.
        query: the query.
        masters: see `locate_state`.

    Raises:
        Refused: `state-elsewhere` if a node that may have the state does not answer. A query for which the state is optional, such as a
            submission, is then executed here without it; workers refuse a version that does not fit the state.
    """
    need = registered(query.verb).needs_state
    for name in query.flows if need is not StateNeed.NO else ():
        if plane.registry.read(DESIRED(name).path) is None:
            continue
        try:
            location = locate_state(plane.registry, name, plane.nodes.has_state, masters=masters)
        except Refused as error:
            if error.code != "state-elsewhere" or need is not StateNeed.OPTIONAL:
                raise
            continue
        if location != HERE:
            return location
    return HERE


def ask_at(plane: Plane, node: str, query: StateQuery) -> Any:
    """The answer to a query from a node, which has then seen at least what this master has seen; if `node` is empty, from this host."""
    if node:
        return plane.nodes.ask(node, msgspec.structs.replace(query, revision=plane.revision()))
    return plane.planner.ask(query, records_for(plane.registry, query))


def records_for(registry: Registry, query: StateQuery) -> dict[str, Mapping[str, Any]]:
    """The records that a query reads: path → value. If it does not plan, they are the desired state of its flow, and the desired version;
    raises as `read_flow` and `version_of`."""
    if registered(query.verb).plans:
        return _records_of(registry, query.flows, query.versions)
    desired = flow_records.read_flow(registry, query.flow).desired
    spec = flow_records.version_of(registry, query.flow, desired.version)
    return {DESIRED(query.flow).path: desired.dump(), SPEC(query.flow, str(desired.version)).path: spec.dump()}


def _records_of(registry: Registry, flows: Sequence[str], versions: Mapping[str, int]) -> dict[str, Mapping[str, Any]]:
    """The desired states, versions and statuses of flows: path → value. Records that cannot be read are left out. `versions`: flow → a
    further version."""
    found: dict[str, Mapping[str, Any]] = {}
    for flow in dict.fromkeys(flows):
        desired = registry.read(DESIRED(flow).path)
        version = str(desired.value.get("version", "")) if isinstance(desired, RegistryEntry) else ""
        paths = [DESIRED(flow).path, STATUS(flow).path]
        newest = max(flow_records.versions_of(registry, flow), default=0)
        also = [str(versions[flow])] if flow in versions else []
        paths += [SPEC(flow, number).path for number in {version, str(newest), *also} if SPEC.fits(flow, number)]
        entries = {path: registry.read(path) for path in paths}
        found |= {path: entry.value for path, entry in entries.items() if isinstance(entry, RegistryEntry) and entry.value}
    return found
