"""What a master has done in a process of its own: users' code, and all that may take long or much memory. The child's side."""

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
"""of an answer: a master has several of them in memory at a time"""


@dataclass(frozen=True, slots=True)
class ChildAnswer:
    """What was found, as JSON; `problem` where it was refused."""

    found: Any = None
    problem: ProblemDetails | None = None


class TimeLimited(Protocol):
    """A task with a time limit."""

    @property
    def limit_s(self) -> int:
        """Whole seconds, from 1."""


L = TypeVar("L", bound=TimeLimited)


def serve_one(kind: type[L], perform: Callable[[L], Any]) -> None:
    """Read a task from stdin, perform it, and write what came of it to stdout, both as JSON. All that is printed meanwhile goes to stderr.

    The process is ended when the time of the task is over, also where the master that started it is gone; it gets no more than
    MEMORY_BYTES. Where the answer has more than MOST_BYTES it is a problem instead, `answer-large`.
    """
    answer = os.dup(1)
    os.dup2(2, 1)
    task = msgspec.json.decode(sys.stdin.buffer.read(), type=kind)
    signal.alarm(task.limit_s)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    data = memoryview(within(msgspec.json.encode(perform(task))))
    while data:
        data = data[os.write(answer, data) :]


def look_with(records: Mapping[str, Mapping[str, Any]], find: Callable[[Registry], Any]) -> ChildAnswer:
    """What `find` finds in a registry in memory that has copies of these records, path → value."""
    from scribengin.registry.contract import Create
    from scribengin.registry.memory import MemoryStore

    registry = MemoryStore().client()
    registry.commit(*(Create(path, dict(value)) for path, value in records.items()))
    try:
        return ChildAnswer(find(registry))
    except ScribenginError as error:
        return ChildAnswer(problem=to_problem(error))


def unknown(what: str) -> Refused:
    """The error for a verb that this version does not have."""
    return Refused(
        f'"{what}" is not known here: a master of a newer version has asked for it',
        remedy="update Scribengin on the node that has the flow's state, then ask again",
        code="node-old",
    )


def within(answer: bytes) -> bytes:
    """The answer, or a `ChildAnswer` that says that it is too large."""
    if len(answer) <= MOST_BYTES:
        return answer
    error = Refused(
        f"the answer has {len(answer):,} bytes, and may have {MOST_BYTES:,}",
        remedy="ask for less: fewer letters (limit=), a longer beginning of an id, one Query, fewer flows at once",
        code="answer-large",
    )
    return msgspec.json.encode(ChildAnswer(problem=to_problem(error)))
