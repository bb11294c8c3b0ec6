"""One Spark session for all tests of all flows of a process."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Self

from scribengin.core.errors import EnvironmentFault
from scribengin.spark.session import PRESET
from scribengin.spark.shared_session import close_session, open_session
from scribengin.spark.user_code import deactivate_below

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

MASTER = "local[2,3]"
CONF = {
    "spark.sql.shuffle.partitions": "1",  # a test has a few rows: one task each, so that their order is the same each time
    "spark.sql.streaming.stateStore.maintenanceInterval": "600s",
    "spark.sql.codegen.wholeStage": "false",  # compiling code takes longer than a few rows
}

_RULES = ("spark.sql.session.timeZone", "spark.sql.ansi.enabled", "spark.sql.caseSensitive", "spark.sql.streaming.stateStore.providerClass")
"""settings of the preset that can change the results of a flow; the others only affect speed"""


def start_briefly(folder: Path) -> SparkSession:
    """Create a session with the settings of tests. Raises EnvironmentFault."""
    return open_session("test", master=MASTER, memory="", conf=CONF, folder=folder, plans_only=True)


def check_lent(conf: Callable[[str], str]) -> None:
    """Reject a session with settings that can change the results of a flow, compared with `run`. `conf` returns the value of a
    setting in a new session of its context, in which each query runs: what was set on the session itself later does not count.
    Raises EnvironmentFault."""
    found = {key: value for key in _RULES if (value := conf(key)).lower() != PRESET[key].lower()}
    if found:
        what = ", ".join(f"{key} is {value}" for key, value in found.items())
        remedy = "build it with " + "".join(f'.config("{key}", "{PRESET[key]}")' for key in found)
        raise EnvironmentFault(f"the Spark session of this process has other settings than a run: {what}", remedy=remedy)


def running_session() -> SparkSession | None:
    """The session of this process, if there is one: a process has one context."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    return SparkSession.builder.getOrCreate() if SparkContext._active_spark_context is not None else None


def is_alive(spark: SparkSession) -> bool:
    """False if the session was stopped."""
    context = spark.sparkContext
    return context._jsc is not None and not context._jsc.sc().isStopped()


class LazySpark:
    """Starts Spark when the first test needs it. `lent` is an existing session to use; `tell` is called when Spark starts.

    Raises EnvironmentFault for an existing session with other settings than a run.
    """

    def __init__(self, *, lent: SparkSession | None = None, tell: Callable[[str], None] = lambda _: None) -> None:
        if lent is not None:
            check_lent(lambda key: str(lent.newSession().conf.get(key)))
        self._spark = lent
        self._own = lent is None
        self._tell = tell
        self.folder = Path(tempfile.mkdtemp(prefix="scribengin-test-"))
        """for scratch folders of tests; removed with the session"""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def spark(self) -> SparkSession:
        """The session. Raises EnvironmentFault if Spark cannot start."""
        if self._spark is None:
            self._tell("starting spark")
            self._spark = start_briefly(self.folder / "spark")
        return self._spark

    @property
    def ended(self) -> bool:
        """True if Spark has started and was stopped by other code."""
        return self._spark is not None and not is_alive(self._spark)

    def close(self) -> None:
        """Stop Spark, unless the session was lent, and remove the scratch folders of tests."""
        if self._own and self._spark is not None and not self.ended:
            close_session(self._spark)
        deactivate_below(self.folder)
        shutil.rmtree(self.folder, ignore_errors=True)
