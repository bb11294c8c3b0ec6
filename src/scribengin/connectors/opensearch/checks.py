"""Checks of indexes whose name contains a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.connectors.opensearch.by_time import TYPES, TimeTemplate
from scribengin.core.problems import suggestion

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scribengin.connectors.check_contract import CheckedNode
    from scribengin.core.problems import Problem


def indexes_are_of_a_time(sink: CheckedNode) -> Iterator[Problem]:
    """The name of an index by time must use a time column, and all rows with the same key must go to the same index."""
    try:
        by_time = TimeTemplate.of(str(sink.options.get("index", "")))
    except ValueError as error:
        remedy = 'write it as: index: "orders-{ts:%Y.%m.%d}"'
        yield sink.problem_at_key("table-mode", sink.path("index"), f"{sink.called}: {error}", remedy)
        return
    if by_time is None:
        return
    key = sink.options.get("key") or ()
    if sink.options.get("mode") == "upsert" and key and by_time.column not in key:
        message = f'{sink.called} has "{by_time.column}" in `index` but not in `key`: rows of one key would be in several indexes'
        yield sink.problem_at_key("table-mode", sink.path("key"), message, f"add {by_time.column} to key, or use a single index")
    if sink.columns is not None and by_time.column not in (names := [column.name for column in sink.columns]):
        message = f'{sink.called} has index "{by_time.column}", which is not a column of its input'
        yield sink.problem("column-unknown", sink.path("index"), message, suggestion(by_time.column, names, "its columns are"))
    for column in sink.columns or ():
        if column.name == by_time.column and column.type and column.type.name not in TYPES:
            message = f'{sink.called} has "{by_time.column}" in `index`, which is {column.type}, not a time'
            yield sink.problem("table-mode", sink.path("index"), message, f"name a column of type {' or '.join(TYPES)}")
