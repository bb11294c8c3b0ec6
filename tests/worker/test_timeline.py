"""What a worker's start took is told once, in one line."""

from __future__ import annotations

import time

from scribengin.worker.log import LAST, Timeline, born_at, read_timelines


def test_each_milestone_counts_the_first_time_and_the_line_comes_with_the_last() -> None:
    told: list[str] = []
    timeline = Timeline(told.append)
    timeline.mark("loaded")
    timeline.mark("loaded")
    assert told == []
    timeline.mark(LAST)
    timeline.mark(LAST)
    timeline.mark("later")
    (line,) = told
    (found,) = read_timelines(f"something else\n{line}\nstart: no JSON\n")
    assert list(found) == ["born", "loaded", LAST]
    assert found["born"] <= found["loaded"] <= found[LAST] <= time.time() + 0.001, "to a millisecond"


def test_a_process_knows_when_it_began() -> None:
    assert 0 <= time.time() - born_at() < 24 * 3600
