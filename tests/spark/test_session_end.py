"""What a session leaves behind: nothing in the folder of the command, and it is stopped, also when its Java has died before."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import AnalysisException

from scribengin.control.world import RunId
from scribengin.spark.session import stop_session
from scribengin.worker.attempt import TierAttempt
from scribengin.worker.status_page import Glance

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEADLINE_S = 60.0


class Session:
    """One whose `stop` ends so. `status`: how its Java has ended, as far as that is known yet."""

    def __init__(self, error: Exception, status: int | None = None) -> None:
        self.error = error
        process = SimpleNamespace(poll=lambda: status)
        self.sparkContext = SimpleNamespace(_gateway=SimpleNamespace(proc=process))

    def stop(self) -> None:
        raise self.error


@pytest.mark.parametrize("error", [Py4JNetworkError("Answer from Java side is empty"), ConnectionRefusedError(111)])
def test_java_that_is_gone_hides_no_result_of_the_run(error: Exception) -> None:
    session: Any = Session(error)
    stop_session(session)


def test_whatever_else_a_stop_says_where_java_has_ended_hides_none_either() -> None:
    session: Any = Session(Py4JError("An error occurred while calling o1.stop"), status=137)
    stop_session(session)


def test_a_worker_stops_one_whose_java_is_dying() -> None:
    none: Any = None
    id_ = RunId("f", "t", 1)
    attempt = TierAttempt(none, id_, none, none, none, Glance(none, id_, none, 1))
    attempt._spark = none or Session(Py4JNetworkError("Answer from Java side is empty"))
    attempt.close()
    assert attempt._spark is None


def test_a_stop_does_not_wait_until_the_server_of_accumulators_looks_up() -> None:
    asked, answered = threading.Event(), threading.Event()

    class Accumulators:
        def shutdown(self) -> None:
            asked.set()
            answered.wait(DEADLINE_S)

    session: Any = Session(ConnectionRefusedError(111))
    session.sparkContext._accumulatorServer = Accumulators()
    stop_session(session)
    assert asked.wait(DEADLINE_S)
    assert session.sparkContext._accumulatorServer is None
    answered.set()


def test_other_mistakes_of_a_stop_are_told() -> None:
    session: Any = Session(RuntimeError("a mistake"))
    with pytest.raises(RuntimeError):
        stop_session(session)


def test_a_name_that_spark_looks_up_makes_no_folder_where_the_command_was_typed(spark: SparkSession) -> None:
    with pytest.raises(AnalysisException, match="todate"):
        spark.sql("SELECT todate(1)")
    warehouse = Path(str(spark.conf.get("spark.sql.warehouse.dir")).removeprefix("file:"))
    assert (warehouse.parent / "spark.log").exists()
