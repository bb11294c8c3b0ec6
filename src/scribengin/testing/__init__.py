"""Tools for tests of flows, connectors and Scribengin itself: `run_flow`, the record checker, conformance suites and fault campaigns."""

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

    Sources and sinks of the flow are not used. The first call starts a Spark session (5 to 15 s); later calls in this process share it.
    A query that fails raises nothing: it is in `state` and `problems` of the result. docs/flow-file.md describes tests.

    Args:
        flow: A flow, or the path of a flow file.
        given: Source → rows. A row is a mapping of columns, or the text of a raw record. A list of such lists has one list for each
            Batch, which starts after the one before is committed. Sources that are left out are empty.
        clock: The current time for SQL, for the whole run or for each Batch.
        crash_after: As in the flow file, such as `batch 1`: the process dies there, and the next one continues.
        spark: A session to use instead of a new one.

    Raises:
        InputError: for a flow, or a row, that is not valid.

    Example::

        def test_large_orders_stay() -> None:
            result = run_flow("flow.yaml", {"orders": [{"id": 1, "amount": 700.0, "paid": True}, '{"id": ']})
            assert [row["id"] for row in result["kept"]] == [1]
            assert [each.reason for each in result.dead] == ["malformed"]
            assert result.ledger["orders"].out == 1
    """
    from scribengin.flow_tests.calls import call_flow

    return call_flow(flow, given or {}, clock=clock, crash_after=crash_after, spark=spark)
