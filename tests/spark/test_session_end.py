"""What is left of a session is stopped, also when its Java has died before."""

from __future__ import annotations

from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError

from scribengin.spark.session import stop_session


class Session:
    """One whose `stop` ends so."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def stop(self) -> None:
        raise self.error


@pytest.mark.parametrize("error", [Py4JNetworkError("Answer from Java side is empty"), ConnectionRefusedError(111)])
def test_java_that_is_gone_hides_no_result_of_the_run(error: Exception) -> None:
    session: Any = Session(error)
    stop_session(session)


def test_other_mistakes_of_a_stop_are_told() -> None:
    session: Any = Session(RuntimeError("a mistake"))
    with pytest.raises(RuntimeError):
        stop_session(session)
