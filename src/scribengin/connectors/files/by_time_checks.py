"""Checks of folders by event time: `partition_by` with a `time`, and the options that depend on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from scribengin.connectors.files.time_path import path_fault
from scribengin.core.problems import did_you_mean, suggestion
from scribengin.core.zones import is_zone, zone_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scribengin.connectors.check_contract import CheckedNode
    from scribengin.core.problems import Problem

_EXAMPLE = 'partition_by: [{time: ts, path: "dt=%Y-%m-%d/hour=%H"}]'


def folders_by_time_are_right(sink: CheckedNode) -> Iterator[Problem]:
    """Check the time of `partition_by`: it is a TIMESTAMP of the rows, the last part, and its path gives each folder one period of time."""
    by = sink.options.get("partition_by") or ()
    for index, part in enumerate(by):
        if isinstance(part, Mapping):
            yield from _part(sink, part, index, last=index == len(by) - 1)
    if not any(isinstance(part, Mapping) for part in by):
        for name in ("close", "keep"):
            if sink.options.get(name) is not None:
                message = f'{sink.called} has "{name}", which needs folders by time, but has none'
                yield sink.problem_at_key("partition-no-time", sink.path(name), message, f"add {_EXAMPLE}, or take it out")


def closed_folders_stay_closed(sink: CheckedNode) -> Iterator[Problem]:
    """Check the options of closed folders: `late: reopen` needs a completion marker that can be removed; `mode: upsert` could change rows
    of a closed folder."""
    if sink.declared.closed_for_good and (sink.options.get("close") or {}).get("late") == "reopen":
        message = f"{sink.called} has late: reopen, but {sink.declared.closed_for_good}"
        remedy = "write late: dead, which makes late rows dead letters; or write to `type: files`, which can reopen a folder"
        yield sink.problem_at_key("close-reopen", sink.path("close", "late"), message, remedy)
    if sink.options.get("mode") == "upsert":
        for index, part in enumerate(sink.options.get("partition_by") or ()):
            if isinstance(part, Mapping):
                message = f"{sink.called} has mode: upsert, which could move a row out of its folder by time, even out of a closed one"
                remedy = "write mode: append or overwrite; or partition by a column"
                yield sink.problem("partition-time", sink.path("partition_by", index, "time"), message, remedy)


def _part(sink: CheckedNode, part: Mapping[str, str], index: int, *, last: bool) -> Iterator[Problem]:
    def at(key: str, message: str, remedy: str) -> Problem:
        return sink.problem("partition-time", sink.path("partition_by", index, key), f"{sink.called} {message}", remedy)

    if not last:
        yield at("time", "partitions by a time that is not the last folder", "write the time once, as the last entry of `partition_by`")
    fault = path_fault(part["path"])
    if fault is not None:
        yield at("path", f'partitions by time: its path "{part["path"]}" {fault[0]}', fault[1])
    zone = part.get("time_zone", "UTC")
    if not is_zone(zone):
        remedy = did_you_mean(zone, zone_names()) or "write the name of a region, such as Europe/Berlin, or UTC"
        yield at("time_zone", f'has the unknown time zone "{zone}"', remedy)
    columns = sink.columns
    if columns is None:
        return
    found = next((column for column in columns if column.name == part["time"]), None)
    names = [column.name for column in columns]
    if found is None:
        remedy = suggestion(part["time"], names, "its columns are")
        yield at("time", f'partitions by the time "{part["time"]}", which is not a column of its input', remedy)
    elif found.type is not None and found.type.name != "TIMESTAMP":
        yield at(
            "time", f'partitions by the time "{part["time"]}", a {found.type}', "name a TIMESTAMP column, or partition by the column itself"
        )
    both = [] if fault is not None else [name for name in (each.partition("=")[0] for each in part["path"].split("/")) if name in names]
    if both:
        message = f'makes folders "{both[0]}=…", but its rows have a column of that name: readers could not tell the two apart'
        yield at("path", message, "give the folders another name")
