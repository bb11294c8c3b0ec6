"""Plans submitted flows, each in a process of its own: a person's Python must neither slow a master down nor stay in it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from scribengin.api.answer_process import StateQuestion
from scribengin.api.child import ChildAnswer
from scribengin.api.verb_process import VerbQuestion
from scribengin.client.problems import Fault, ProblemDetails, to_error
from scribengin.core.errors import EnvironmentFault, Refused, ScribenginError
from scribengin.packages.fetch import FetchedPackages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from scribengin.packages.store import PackageStore

T = TypeVar("T")
LIMIT_S = 60
ANSWER_S = 100
AT_ONCE = 2
TURN_S = 10
"""seconds that a question waits for a free slot; each one that waits takes a thread of the API"""
_TOLD_BYTES = 2000
_HIDDEN = ("SCRIBENGIN_REGISTRY_LOGIN", "SCRIBENGIN_TOKEN")
"""environment variables that the master has and that a person's code does not need"""


def from_others(store: PackageStore, others: Callable[[], Sequence[str]], **more: Any) -> Callable[[str], None]:
    """Returns a function that fetches a package into `store` from one of the masters at `others`, with a token and certificates
    (`FetchedPackages`); if there are none, it does nothing."""
    fetched = FetchedPackages(store, others, **more)

    def fetch(package: str) -> None:
        if others():
            fetched.fetch(package)

    return fetch


@contextmanager
def turn(turns: threading.BoundedSemaphore) -> Iterator[None]:
    """One of AT_ONCE slots. Raises Refused `too-many` if none becomes free within TURN_S."""
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
    """Plans flows of the packages in the store's folder `packages`; `state` is the root of the folders of their states."""

    def __init__(
        self,
        packages: Path,
        state: Path,
        *,
        limit_s: int = LIMIT_S,
        answer_s: int = ANSWER_S,
        fetch: Callable[[str], None] = lambda _package: None,
    ) -> None:
        """`fetch` gets a package that another master has; it raises if no master has it."""
        self.fetch = fetch
        self._packages = packages
        self._state = state
        self._limit_s = limit_s
        self._answer_s = answer_s
        self._turns = threading.BoundedSemaphore(AT_ONCE)
        self._questions = threading.BoundedSemaphore(AT_ONCE)

    def ask(self, what: str, records: Mapping[str, Mapping[str, Any]], *, state: Path | None = None, **more: Any) -> Any:
        """The result of `api.verb_process`: it has the records, the packages and the states; `state` replaces the planner's. Raises as the
        process does; Refused: `plan-late`; EnvironmentFault if it ended without an answer."""
        self._fetch_all(records)
        folder = str(self._packages.absolute())
        task = VerbQuestion(what, folder, str((state or self._state).absolute()), records, self._limit_s + 5, **more)
        with self._turns:
            seen = self._run("scribengin.api.verb_process", task, ChildAnswer)
        if seen.problem is not None:
            raise to_error(_without(seen.problem, [os.path.join(folder, each.package, "") for each in task.submits]))  # noqa: PTH118
        return seen.found

    def answer(self, what: str, records: Mapping[str, Mapping[str, Any]], flow: str, arguments: Mapping[str, Any]) -> Any:
        """The result of `api.answer_process` from the state of a flow. Raises Refused: `too-many` if too many questions are being answered,
        `answer-late`; otherwise as `ask`."""
        self._fetch_all(records)
        folder = str(self._packages.absolute())
        question = StateQuestion(what, folder, records, flow, self._answer_s + 5, arguments)
        with turn(self._questions):
            seen = self._run("scribengin.api.answer_process", question, ChildAnswer, self._answer_s)
        if seen.problem is not None:
            raise to_error(seen.problem)
        return seen.found

    def _fetch_all(self, records: Mapping[str, Mapping[str, Any]]) -> None:
        for record in records.values():  # versions that are looked at; of one that is gone the process says so
            if isinstance(package := record.get("package"), str):
                with suppress(ScribenginError):
                    self.fetch(package)

    def _run(self, module: str, task: Any, kind: type[T], answer_s: int | None = None) -> T:
        """Run a process; `answer_s`: it answers a question, and has this many seconds for it."""
        settings = {name: value for name, value in os.environ.items() if name not in _HIDDEN}
        command = [sys.executable, "-m", module]
        with (
            tempfile.TemporaryFile() as said,
            subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, env=settings, start_new_session=True
            ) as process,
        ):
            try:
                answer, _ = process.communicate(msgspec.json.encode(task), answer_s or self._limit_s)
            except subprocess.TimeoutExpired:
                if answer_s is not None:
                    raise Refused(
                        f"no answer within {answer_s} s: the state is large",
                        remedy="request less, such as one Query; or run the same command on the host of the state, with FILE and --state",
                        code="answer-late",
                    ) from None
                raise Refused(
                    f"the flow was not planned within {self._limit_s} s",
                    remedy="the import of its modules takes too long; to see where, press Ctrl-C in: scribengin plan FILE",
                    code="plan-late",
                ) from None
            finally:
                with suppress(ProcessLookupError):  # and what its code has started
                    os.killpg(process.pid, signal.SIGKILL)
            try:
                return msgspec.json.decode(answer, type=kind)
            except msgspec.DecodeError:
                said.seek(max(0, said.tell() - _TOLD_BYTES))
                last = said.read().decode(errors="replace").strip() or "it wrote nothing"
        raise EnvironmentFault(
            f"the process that plans flows ended with status {process.returncode} and no answer: {last}",
            remedy="check what the import of its modules does: scribengin plan FILE",
            code="plan-failed",
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
