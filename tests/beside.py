"""Another worker of a tier in the process of the test: it stages portions in a thread, in the same Spark."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from scribengin.local.contract import RunSettings
from scribengin.local.prepare import prepare
from scribengin.local.query_parts import open_stager
from scribengin.spark.user_code import pack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from scribengin.spark.portions import Helper, Portion, Staged, Stager
    from tests.conftest import FlowFolder


class Beside:
    """One helper in this process: it stages in a thread of its own. `broken`: its portions come to nothing."""

    def __init__(self, stager: Stager, *, broken: bool = False) -> None:
        self._stager = stager
        self._broken = broken
        self.staged: list[Portion] = []
        self.errors: list[Exception] = []
        self.dropped = 0

    def take(self, query: str, digest: str) -> list[Helper]:
        assert self._stager.digests[query] == digest
        return [self]

    def begin(self, portion: Portion) -> None:
        self._answer: list[Staged] = []

        def work() -> None:
            try:
                self._answer.append(self._stager.stage(portion))
                self.staged.append(portion)
            except Exception as error:
                self.errors.append(error)

        self._thread = threading.Thread(target=work)
        self._thread.start()

    def answer(self) -> Staged | None:
        self._thread.join()
        return None if self._broken or not self._answer else self._answer[0]

    def drop(self) -> None:
        self.dropped += 1


def helper_beside(spark: SparkSession, folder: FlowFolder, **settings: Any) -> Beside:
    flow = prepare(folder.path / "flow.yaml", state=None)
    return Beside(open_stager(spark, flow.tiers[0], pack(flow.plan.flow.code_folder, flow.here), RunSettings()), **settings)
