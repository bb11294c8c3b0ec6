"""Gives commands their Spark session: a new one, or that of the warm process, whose Java process outlives a command."""

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
        """A session set as `start_session` sets it. Raises EnvironmentFault."""


_lenders: list[Lender] = []


def lend_sessions(lender: Lender) -> None:
    """From now on, for the rest of this process, `open_session` asks `lender`."""
    _lenders[:] = [lender]


def begin_session(
    name: str, *, master: str, memory: str, conf: Mapping[str, str], folder: Path, plans_only: bool = False
) -> SparkStart | LentStart:
    """A session under the preset, whose Java boots from now on, or one to be lent. A lent one has its scratch files with its lender, not in
    `folder`.

    Args:
        name: what Spark calls the application, behind "scribengin".
        master: Spark's master; empty for all cores of this machine.
        memory: the driver's heap, such as 2g; empty for Spark's default.
        conf: settings over the preset.
        folder: takes Spark's scratch files and its log.
        plans_only: as for `start_session`; a lender starts its JVM for that in any case.

    Returns:
        Its `session` waits for the session, which `close_session` gives back; `close` is for a session that was never requested.

    Raises:
        EnvironmentFault: Spark does not start; with the remedy. So does `session`.
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
    """`begin_session`, and wait for it."""
    with closing(begin_session(name, master=master, memory=memory, conf=conf, folder=folder, plans_only=plans_only)) as begun:
        return begun.session()


def close_session(spark: SparkSession) -> None:
    """Stop a session of `open_session`; a lent one goes back to its lender, who stops it when this process has answered."""
    if not _lenders:
        stop_session(spark)
