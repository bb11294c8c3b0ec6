"""Child processes of trials. They are forked from a server that has imported all there is to import, so that one costs some 10 ms, not
half a second."""

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
    """A child that does it and ends. Both are pickled: by their names in modules that it can import too."""
    process = _context().Process(target=act, args=given)
    with _blank_main():
        process.start()
    return process


def await_end(process: BaseProcess, limit_s: float = LIMIT_S) -> int:
    """Its exit status, negative for a signal. Raises TimeoutError, after ending it."""
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
    """Children would import the program that started this one (pytest, say), each anew, and need nothing of it."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
