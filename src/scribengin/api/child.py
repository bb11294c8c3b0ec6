"""Runs work of a master in a separate process: users' code, and everything that may take long or need much memory. The child's side."""

from __future__ import annotations

import os
import resource
import signal
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from scribengin.client.problems import ProblemDetails, to_problem
from scribengin.core.errors import Refused, ScribenginError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scribengin.registry.contract import Registry

MEMORY_BYTES = 8 * 2**30
MOST_BYTES = 16 * 2**20
"""limit of an answer: a master has several of them in memory at a time"""


@dataclass(frozen=True, slots=True)
class ChildAnswer:
    """The result, as JSON; `problem` if it was refused."""

    found: Any = None
    problem: ProblemDetails | None = None


class TimeLimited(Protocol):
    """A task with a time limit."""

    @property
    def limit_s(self) -> int:
        """Whole seconds, from 1."""


L = TypeVar("L", bound=TimeLimited)


def serve_one(kind: type[L], perform: Callable[[L], Any]) -> None:
    """Read a task from stdin, perform it, and write its result to stdout, both as JSON. Anything printed meanwhile goes to stderr. The
    process is ended when the time of the task is over, even if the master that started it is gone; its memory is limited to MEMORY_BYTES.
    If the answer has more than MOST_BYTES, a problem is written instead, `answer-large`."""
    answer = os.dup(1)
    os.dup2(2, 1)
    task = msgspec.json.decode(sys.stdin.buffer.read(), type=kind)
    signal.alarm(task.limit_s)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    data = memoryview(within(msgspec.json.encode(perform(task))))
    while data:
        data = data[os.write(answer, data) :]


def look_with(records: Mapping[str, Mapping[str, Any]], find: Callable[[Registry], Any]) -> ChildAnswer:
    """The result of `find` over an in-memory registry that has copies of these records, path → value."""
    from scribengin.registry.contract import Create
    from scribengin.registry.memory import MemoryStore

    registry = MemoryStore().client()
    registry.commit(*(Create(path, dict(value)) for path, value in records.items()))
    try:
        return ChildAnswer(find(registry))
    except ScribenginError as error:
        return ChildAnswer(problem=to_problem(error))


def unknown(what: str) -> Refused:
    """The error for a command that this version does not have."""
    return Refused(
        f'"{what}" is not known here: the request came from a master of a newer version',
        remedy="update Scribengin on the node that has the flow's state, then repeat the request",
        code="node-old",
    )


def within(answer: bytes) -> bytes:
    """The answer, or a `ChildAnswer` with the problem that it is too large."""
    if len(answer) <= MOST_BYTES:
        return answer
    error = Refused(
        f"the answer has {len(answer):,} bytes; up to {MOST_BYTES:,} are allowed",
        remedy="request less: fewer dead letters (limit=), a longer id prefix, one Query, or fewer flows at once",
        code="answer-large",
    )
    return msgspec.json.encode(ChildAnswer(problem=to_problem(error)))
