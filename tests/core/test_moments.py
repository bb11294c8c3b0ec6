"""A moment that a person writes: the same forms, and the same words about what is none, wherever one is asked for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click
import pytest

from scribengin.api import lifecycle_routes, state_routes
from scribengin.cli.commands import dead, logs, rewind
from scribengin.client.problems import PointedError
from scribengin.connectors.kafka.reader import _start_of
from scribengin.connectors.sequence.options import start_fault, start_us
from scribengin.core.errors import Refused, SourceError
from scribengin.core.time_text import parse_moment, parse_time

if TYPE_CHECKING:
    from collections.abc import Callable

TIMES = {
    "2026-01-31T12:00:00Z": datetime(2026, 1, 31, 12, tzinfo=UTC),
    "2026-01-31T12:00:00": datetime(2026, 1, 31, 12, tzinfo=UTC),
    "2026-01-31 13:00+01:00": datetime(2026, 1, 31, 12, tzinfo=UTC),
    "2026-01-31": datetime(2026, 1, 31, tzinfo=UTC),
}
NONE = ["soon", "12", "2026-13-01", "0001-01-01T00:00:00+05:00", "99999999999d", "-2h"]


def option(command: click.Command, name: str) -> Callable[[str], datetime]:
    """What a command makes of the option's text."""

    def read(text: str) -> datetime:
        value = command.make_context("x", ["shop", f"--{name}", text]).params[name.replace("-", "_")]
        return value if isinstance(value, datetime) else datetime.fromisoformat(value)

    return read


LIST = dead.command.commands["list"]
ANY: dict[str, Callable[[str], datetime]] = {
    "core": parse_moment,
    "rewind --to-time": option(rewind.command, "to-time"),
    "logs --since": option(logs.command, "since"),
    "dead-letter list --since": option(LIST, "since"),
    "dead-letter list --until": option(LIST, "until"),
    "API: letters": lambda text: datetime.fromisoformat(state_routes._moment(text)),
    "API: rewind": lambda text: datetime.fromisoformat(lifecycle_routes._time(text) or ""),
}
FIXED: dict[str, Callable[[str], datetime]] = {
    "core": parse_time,
    "sequence: start": lambda text: datetime.fromtimestamp(start_us(text) / 1e6, UTC),
    "kafka: start": lambda text: datetime.fromtimestamp(int(_start_of("k", text)) / 1e3, UTC),
}
"""those that mean the same at each run: how long ago is none there"""


@pytest.mark.parametrize("place", [*ANY, *FIXED])
def test_a_time_is_read_everywhere_the_same(place: str) -> None:
    read = (ANY | FIXED)[place]
    assert {text: read(text) for text in TIMES} == TIMES


@pytest.mark.parametrize("place", ANY)
@pytest.mark.parametrize(("text", "ago"), [("2h", timedelta(hours=2)), ("90 min", timedelta(minutes=90)), ("1.5d", timedelta(hours=36))])
def test_how_long_ago_is_read_wherever_it_has_a_meaning(place: str, text: str, ago: timedelta) -> None:
    at = ANY[place](text)
    assert abs(datetime.now(UTC) - ago - at) < timedelta(minutes=1)


@pytest.mark.parametrize("text", NONE)
@pytest.mark.parametrize("place", ANY)
def test_what_is_no_time_is_told_in_the_same_words(place: str, text: str) -> None:
    with pytest.raises((ValueError, click.BadParameter, Refused, PointedError)) as told:
        ANY[place](text)
    said = f"{told.value}; {getattr(told.value, 'remedy', '')}"
    assert f'"{text}" is not a valid time' in said
    assert 'write it as "2026-01-31T12:00:00Z", or as a duration before now, such as "2h"' in said


@pytest.mark.parametrize("text", [*NONE, "2h"])
def test_a_time_that_holds_at_each_run_is_written_out(text: str) -> None:
    assert start_fault(text) == (f'is "{text}", which is not a valid time', 'write it as "2026-01-31T12:00:00Z"')
    with pytest.raises(SourceError, match="not a valid start position"):
        _start_of("k", text)
