"""Where commands get their Spark session: they start one, or take the one that the warm process lends, whose Java outlives a command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from scribengin.spark.session import start_session, stop_session

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession


class Lender(Protocol):
    """Keeps what a session runs on."""

    def open(self, name: str, *, master: str, memory: str, conf: Mapping[str, str]) -> SparkSession:
        """A session set as `start_session` sets it. Raises EnvironmentFault."""


_lenders: list[Lender] = []


def lend_sessions(lender: Lender) -> None:
    """From now on, for the rest of this process, `open_session` asks `lender`."""
    _lenders[:] = [lender]


def open_session(name: str, *, master: str, memory: str, conf: Mapping[str, str], folder: Path, plans_only: bool = False) -> SparkSession:
    """A session under the preset, started here or lent. A lent one has its scratch files with its lender, not in `folder`.

    Args:
        name: what Spark calls the application, behind "scribengin".
        master: Spark's master; empty for all cores of this machine.
        memory: the driver's heap, such as 2g; empty for Spark's default.
        conf: settings over the preset.
        folder: takes Spark's scratch files and its log.
        plans_only: as for `start_session`; a lender starts its JVM for that in any case.

    Returns:
        The session; `close_session` gives it back.

    Raises:
        EnvironmentFault: Spark does not start; with the remedy.
    """
    if _lenders:
        return _lenders[0].open(name, master=master, memory=memory, conf=conf)
    return start_session(name, master=master, memory=memory, conf=conf, folder=folder, plans_only=plans_only)


def close_session(spark: SparkSession) -> None:
    """Stop a session of `open_session`; a lent one goes back to its lender, who stops it when this process has answered."""
    if not _lenders:
        stop_session(spark)
