"""A small flow over orders, and its tests in the session that all tests of this process share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from scribengin.flow_tests.session import LazySpark
from scribengin.flow_tests.suite import read_suite, run_suites
from tests.flow_tests.shop_flow import ORDERS, STEPS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from scribengin.flow_tests.contract import FlowTestOutcome


@dataclass(frozen=True, slots=True)
class Shop:
    """A flow's folder."""

    path: Path
    session: LazySpark

    def flow(self, tests: str, *, flow: str = ORDERS) -> Path:
        (self.path / "steps.py").write_text(STEPS)
        file = self.path / "flow.yaml"
        file.write_text(flow + tests)
        return file

    def run(self, tests: str, *, flow: str = ORDERS) -> list[FlowTestOutcome]:
        return run_suites([read_suite(self.flow(tests, flow=flow))], self.session, watch=lambda _: None)

    def only(self, test: str, *, flow: str = ORDERS) -> FlowTestOutcome:
        (outcome,) = self.run(f"tests:\n{test}", flow=flow)
        return outcome


@pytest.fixture(scope="session")
def session(spark: SparkSession) -> Iterator[LazySpark]:
    with LazySpark(lent=spark) as session:
        yield session


@pytest.fixture
def shop(tmp_path: Path, session: LazySpark) -> Shop:
    return Shop(tmp_path, session)
