"""The process in which a master, or a node, executes one state query. A query may read much data, and executes a user's modules, so it does
not run in a master's thread.

stdin: a `PlannerTask` as JSON. stdout: a `StateAnswer` as JSON. It has copies of the records that it needs, and no access to the registry.
"""

from __future__ import annotations

import os
import pkgutil
import resource
import signal
import sys
from collections.abc import Mapping  # noqa: TC003  msgspec evaluates the annotations
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from scribengin.api.state_queries import StateQuery  # noqa: TC001  msgspec evaluates the annotations
from scribengin.client.problems import ProblemDetails, to_problem
from scribengin.core.errors import Refused, ScribenginError

if TYPE_CHECKING:
    from scribengin.packages.store import PackageStore
    from scribengin.registry.contract import Registry

MEMORY_BYTES = 8 * 2**30
MOST_BYTES = 16 * 2**20
"""limit of an answer in bytes: a master has several of them in memory at a time"""


@dataclass(frozen=True, slots=True)
class PlannerTask:
    """A query, and what the process needs for it.

    Attributes:
        query: the query.
        handler: see `RegisteredQuery`.
        plans: see `RegisteredQuery`.
        packages: the folder of packages.
        records: path → value of the records that the query reads.
        limit_s: the time limit in whole seconds, from 1.
    """

    query: StateQuery
    handler: str
    plans: bool
    packages: str
    records: Mapping[str, Mapping[str, Any]]
    limit_s: int


@dataclass(frozen=True, slots=True)
class StateAnswer:
    """The result of a query, as JSON; or `problem` if it was refused."""

    found: Any = None
    problem: ProblemDetails | None = None


@dataclass(frozen=True, slots=True)
class PlanInput:
    """The input of a handler that plans. `registry` has copies of the records of `query.flows`."""

    registry: Registry
    packages: PackageStore
    query: StateQuery


def main() -> None:
    """Read a task from stdin, execute it, and write its answer to stdout, both as JSON. Anything printed meanwhile goes to stderr.

    The process ends when the time limit of the task is exceeded, even if the master that started it is gone; its memory is limited to
    MEMORY_BYTES. If the answer has more than MOST_BYTES, the problem `answer-large` is written instead.
    """
    answer = os.dup(1)
    os.dup2(2, 1)
    task = msgspec.json.decode(sys.stdin.buffer.read(), type=PlannerTask)
    signal.alarm(task.limit_s)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    data = memoryview(within(msgspec.json.encode(execute(task))))
    while data:
        data = data[os.write(answer, data) :]


def execute(task: PlannerTask) -> StateAnswer:
    """Run the task's handler over an in-memory registry with copies of the records, and return its answer."""
    from scribengin.control.offsets import prepared_flow
    from scribengin.packages.store import PackageStore
    from scribengin.registry.contract import Create
    from scribengin.registry.memory import MemoryStore

    registry = MemoryStore().client()
    registry.commit(*(Create(path, dict(value)) for path, value in task.records.items()))
    packages = PackageStore(Path(task.packages))
    handler = pkgutil.resolve_name(task.handler)
    try:
        first = PlanInput(registry, packages, task.query) if task.plans else prepared_flow(registry, packages, task.query.flow)[0]
        return StateAnswer(handler(first, **task.query.arguments))
    except ScribenginError as error:
        return StateAnswer(problem=to_problem(error))


def within(answer: bytes) -> bytes:
    """The answer, or a `StateAnswer` with the problem `answer-large` if it is too large."""
    if len(answer) <= MOST_BYTES:
        return answer
    error = Refused(
        f"the answer has {len(answer):,} bytes; up to {MOST_BYTES:,} are allowed",
        remedy="request less: fewer dead letters (limit=), a longer id prefix, one query, or fewer flows at once",
        code="answer-large",
    )
    return msgspec.json.encode(StateAnswer(problem=to_problem(error)))


if __name__ == "__main__":
    main()
