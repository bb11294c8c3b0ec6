"""A small flow over orders, and its tests in the session that all tests of this process share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from scribengin.flow_tests.session import Session
from scribengin.flow_tests.suite import read_suite, run_suites
from tests.flow_tests.shop_flow import ORDERS, STEPS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from scribengin.flow_tests.contract import Outcome


@dataclass(frozen=True, slots=True)
class Shop:
    """A flow's folder."""

    path: Path
    session: Session

    def flow(self, tests: str, *, flow: str = ORDERS) -> Path:
        (self.path / "steps.py").write_text(STEPS)
        file = self.path / "flow.yaml"
        file.write_text(flow + tests)
        return file

    def run(self, tests: str, *, flow: str = ORDERS) -> list[Outcome]:
        return run_suites([read_suite(self.flow(tests, flow=flow))], self.session, watch=lambda _: None)

    def only(self, test: str, *, flow: str = ORDERS) -> Outcome:
        (outcome,) = self.run(f"tests:\n{test}", flow=flow)
        return outcome


@pytest.fixture(scope="session")
def session(spark: SparkSession) -> Iterator[Session]:
    with Session(lent=spark) as session:
        yield session


@pytest.fixture
def shop(tmp_path: Path, session: Session) -> Shop:
    return Shop(tmp_path, session)
