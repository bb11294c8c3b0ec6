"""Child processes for trials. They are forked from a server process that has imported all modules already, so that a start takes some 10 ms
instead of half a second."""

from __future__ import annotations

import multiprocessing
import sys
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.process import BaseProcess

LIMIT_S = 120.0


def fork(act: Callable[..., None], *given: Any) -> BaseProcess:
    """Start a child process that calls `act` with the given arguments. Both are pickled, so the child must be able to import their
    modules."""
    process = _context().Process(target=act, args=given)
    with _blank_main():
        process.start()
    return process


def await_end(process: BaseProcess, limit_s: float = LIMIT_S) -> int:
    """Wait for the end and return the exit status, negative for a signal. If the child still runs after `limit_s` seconds, kill it and
    raise TimeoutError."""
    process.join(limit_s)
    if process.is_alive():
        process.kill()
        process.join()
        raise TimeoutError(f"child {process.pid} has not ended in {limit_s} s")
    status = process.exitcode
    assert status is not None
    return status


def _context() -> multiprocessing.context.ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["scribengin.testing.campaign", "scribengin.formats.encoders", "pyarrow.parquet", "confluent_kafka.admin", "psycopg"]
    )
    return context


@contextmanager
def _blank_main() -> Iterator[None]:
    """Replace `__main__` while a child starts: otherwise each child would import the main program (such as pytest), which it does not
    need."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
