"""Gives commands their Spark session: a new one, or one of the warm process, whose Java process outlives a command."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from scribengin.spark.session import SparkStart, stop_session

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession


class Lender(Protocol):
    """Provides sessions and keeps their Java process."""

    def open(self, name: str, *, master: str, memory: str, conf: Mapping[str, str]) -> SparkSession:
        """A session with the settings that `start_session` would give it. Raises EnvironmentFault."""


_lenders: list[Lender] = []


def lend_sessions(lender: Lender) -> None:
    """Make `open_session` and `begin_session` use `lender`, for the rest of this process."""
    _lenders[:] = [lender]


def begin_session(
    name: str, *, master: str, memory: str, conf: Mapping[str, str], folder: Path, plans_only: bool = False
) -> SparkStart | LentStart:
    """Start a session with the preset, whose Java boots from now on, or prepare to borrow one. A borrowed session has its scratch files in
    its lender's folder, not in `folder`.

    Args:
        name: The name of the Spark application, after "scribengin".
        master: Spark's master; empty: all cores of this machine.
        memory: The driver's heap, such as 2g; empty: Spark's default.
        conf: Settings that take precedence over the preset.
        folder: The folder of Spark's scratch files and log.
        plans_only: See `start_session`; a lender's JVM is always started for that.

    Returns:
        A start, whose `session` waits for the session, to be ended with `close_session`; `close` is for a session that was never requested.

    Raises:
        EnvironmentFault: Spark does not start; with the remedy. `session` raises it too.
    """
    if _lenders:
        return LentStart(partial(_lenders[0].open, name, master=master, memory=memory, conf=conf))
    return SparkStart(name, master=master, memory=memory, conf=conf, folder=folder, plans_only=plans_only)


class LentStart(NamedTuple):
    """The start of a session whose JVM already runs; see `SparkStart`."""

    session: Callable[[], SparkSession]

    def close(self) -> None:
        """Does nothing: nothing was started."""


def open_session(name: str, *, master: str, memory: str, conf: Mapping[str, str], folder: Path, plans_only: bool = False) -> SparkSession:
    """Call `begin_session` and wait for the session."""
    with closing(begin_session(name, master=master, memory=memory, conf=conf, folder=folder, plans_only=plans_only)) as begun:
        return begun.session()


def close_session(spark: SparkSession) -> None:
    """End a session of `open_session`: stop it, or leave it to its lender, which stops it when the command has ended."""
    if not _lenders:
        stop_session(spark)
