"""The age of waiting records, without reading them: from the ends of the logs at each poll, and the brokers' data about earlier times."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scribengin.connectors.kafka.client import Partition

    Ask = Callable[[Mapping[Partition, int]], Mapping[Partition, tuple[int, int]]]
    """partition → milliseconds since 1970, to partition → (offset, milliseconds) of the first record that is not older, if there is one"""

POINTS = 64
"""maximum number of points per partition"""
_NEAREST_MS = 1000
_FARTHEST_MS = 4**10 * _NEAREST_MS
_HALVINGS = 4


class Ages:
    """For each partition some points (seconds, offset): the end of the log at that time. Between two points, records are assumed to be
    evenly distributed.

    All seconds are of one clock.
    """

    def __init__(self) -> None:
        self._points: dict[Partition, list[tuple[float, int]]] = {}

    def note(self, now_s: float, ends: Mapping[Partition, int], taken: Mapping[Partition, int]) -> None:
        """Record the ends of the logs and the read positions. Quick; points of read records are dropped, old points are thinned out."""
        for partition, end in ends.items():
            points = self._points.setdefault(partition, [])
            if points and points[-1][1] > end:
                points.clear()
            if len(points) > 1 and points[-1][1] == points[-2][1] == end:
                points.pop()
            points.append((now_s, end))
            while len(points) > 1 and points[1][1] <= taken.get(partition, 0):
                del points[0]
            if len(points) > POINTS:
                del points[1:-1:2]

    def learn(self, now_s: float, now_ms: int, waiting: Mapping[Partition, int], ends: Mapping[Partition, int], ask: Ask) -> None:
        """Ask the brokers about partitions without any point, for the times of their waiting records (`waiting`: the first offset of each):
        some ten requests, each for all of them."""
        unknown = {partition: offset for partition, offset in waiting.items() if partition not in self._points}
        for partition, came in _came(unknown, ends, now_ms, ask).items():
            points = self._points[partition] = []
            for moment_ms, end in sorted(came):
                # times of records are set by their writers: they need not increase, and may be in the future
                points.append((now_s - max(0, now_ms - moment_ms) / 1000, max(end, points[-1][1] if points else 0)))

    def knows(self, partition: Partition) -> bool:
        """True for a partition with recorded points."""
        return partition in self._points

    def forget(self, partition: Partition) -> None:
        """The log is a new one."""
        self._points.pop(partition, None)

    def age_s(self, partition: Partition, offset: int, now_s: float) -> float | None:
        """The age of the record; for one older than the first point, at least that. None for a partition without points."""
        points = self._points.get(partition, [])
        if points and points[0][1] > offset:
            return now_s - points[0][0]
        for (before_s, before), (after_s, after) in pairwise(points):
            if after > offset:
                return now_s - before_s - (after_s - before_s) * (offset + 1 - before) / (after - before)
        return None


def _came(waiting: Mapping[Partition, int], ends: Mapping[Partition, int], now_ms: int, ask: Ask) -> dict[Partition, list[tuple[int, int]]]:
    """Points (milliseconds since 1970, end of the log) around the first waiting record: backwards in growing steps, then by bisection."""
    came: dict[Partition, list[tuple[int, int]]] = {partition: [] for partition in waiting}
    later = dict.fromkeys(waiting, now_ms)
    earlier: dict[Partition, int] = {}

    def ask_times(times: Mapping[Partition, int]) -> None:
        found = ask(times)
        for partition, time_ms in times.items():
            offset, moment_ms = found.get(partition, (ends[partition] - 1, time_ms))
            # records since the poll that read the ends belong to the next poll
            came[partition].append((moment_ms, min(offset + 1, ends[partition])))
            if offset > waiting[partition] or partition not in found:
                later[partition] = time_ms
            else:
                earlier[partition] = time_ms

    back_ms = _NEAREST_MS
    while back_ms <= _FARTHEST_MS and (asked := waiting.keys() - earlier.keys()):
        ask_times(dict.fromkeys(asked, now_ms - back_ms))
        back_ms *= 4
    for _ in range(_HALVINGS):
        if earlier:
            ask_times({partition: (time_ms + later[partition]) // 2 for partition, time_ms in earlier.items()})
    return came
