"""A test of a flow as the plain data of a flow file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scribengin.spec.flow_tests import ALL
from scribengin.spec.yaml_text import escaped

if TYPE_CHECKING:
    from datetime import datetime

    from scribengin.spec.flow_tests import Expected, FlowTest, GivenRows, VersionChange


def dump_test(test: FlowTest) -> dict[str, Any]:
    """What `read_tests` reads back as the same."""
    data: dict[str, Any] = {"name": escaped(test.name)}
    if test.given:
        data["given"] = {source: _given(batches) for source, batches in test.given.items()}
    expect: dict[str, Any] = {sink: _expected(expected) for sink, expected in test.expect.items()}
    if test.dead is not None:
        dead = {step: _expected(expected) for step, expected in test.dead.items()}
        expect["dead"] = dead.get(ALL, dead)
    data["expect"] = expect
    if test.clock:
        data["clock"] = [_time(time) for time in test.clock]
    if test.crash:
        data["crash_after"] = f"batch {test.crash.batch} {test.crash.point}"
    if test.changes:
        data["changed"] = [_change(change) for change in test.changes]
    return data


def _given(batches: tuple[GivenRows, ...]) -> Any:
    given = [{"files": [escaped(file) for file in rows.files]} if rows.files else list(rows.rows) for rows in batches]
    return given[0] if len(given) == 1 else {"batches": given}


def _expected(expected: Expected) -> Any:
    if expected.rows is not None and (expected.contains, expected.count, expected.files, expected.ordered) == (None, None, (), False):
        return list(expected.rows)
    if expected.count is not None and (expected.rows, expected.contains, expected.files, expected.ordered) == (None, None, (), False):
        return expected.count
    data: dict[str, Any] = {"rows": list(expected.rows)} if expected.rows is not None else {}
    if expected.contains is not None:
        data["contains"] = list(expected.contains)
    if expected.count is not None:
        data["count"] = expected.count
    if expected.files:
        data["files"] = [escaped(file) for file in expected.files]
    return data | ({"ordered": True} if expected.ordered else {})


def _change(change: VersionChange) -> dict[str, Any]:
    what: dict[str, Any] = {"patch": change.patch} if change.patch else {"flow": escaped(change.flow)}
    return {"before": f"batch {change.before}"} | what


def _time(time: datetime) -> str:
    return time.isoformat().replace("+00:00", "Z")
