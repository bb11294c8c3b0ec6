"""For tests of flows, connectors and of Scribengin itself: the record checker, conformance suites, crash campaigns; `run_flow`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    from pyspark.sql import SparkSession

    from scribengin.flow_tests.contract import Result
    from scribengin.spec.model import Flow

__all__ = ["run_flow"]


def run_flow(
    flow: Flow | Path | str,
    given: Mapping[str, Iterable[Any]] | None = None,
    *,
    clock: datetime | Sequence[datetime] = (),
    crash_after: str = "",
    spark: SparkSession | None = None,
) -> Result:
    """Run a flow on given rows and return its outputs, dead letters and ledger. For pytest and others.

    Sources and sinks of the flow are not used.

    `given`: source → rows, each a mapping of columns, or the text of a raw record; or a list of such lists, each a Batch that starts
    after the one before is committed. Sources that are left out are empty. `clock` is the current time for SQL, for the whole run or
    for each Batch; `crash_after` as in the flow file (`batch 1`). See docs/flow-file.md, Tests.

    The first call starts a Spark session (5 to 15 s), later ones of this process share it; `spark` lends another. A Query that fails raises
    nothing: it is in `state` and `problems`. Raises InputError for a flow, or a row, that is not right.

        def test_large_orders_stay() -> None:
            result = run_flow("flow.yaml", {"orders": [{"id": 1, "amount": 700.0, "paid": True}, '{"id": ']})
            assert [row["id"] for row in result["kept"]] == [1]
            assert [each.reason for each in result.dead] == ["malformed"]
            assert result.ledger["orders"].out == 1
    """
    from scribengin.flow_tests.calls import call_flow

    return call_flow(flow, given or {}, clock=clock, crash_after=crash_after, spark=spark)
