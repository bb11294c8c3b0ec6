"""`--wait`: until a flow has come to what was asked of it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from scribengin.core.errors import ScribenginError
from scribengin.core.units import parse_duration_s

if TYPE_CHECKING:
    from collections.abc import Collection

    from scribengin.registry.contract import Registry

DEFAULT_S = 120.0
_POLL_S = 0.2
_WITH_END = ("failed", "degraded")


class NotReached(ScribenginError):
    """A flow has not come to what was asked of it in time, or cannot without a person."""

    code = "not-reached"


def _seconds(_context: click.Context, _parameter: click.Parameter, value: str | None) -> float | None:
    if value is None:
        return None
    try:
        return parse_duration_s(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


wait_option = click.option(
    "--wait",
    is_flag=False,
    flag_value=f"{DEFAULT_S:.0f}s",
    metavar="[TIME]",
    callback=_seconds,
    help=f"Wait until it is so, up to this time ({DEFAULT_S:.0f}s without a value).",
)
"""Gives a command `wait`, in seconds, None where it is not to wait."""


def wait_for(registry: Registry, flow: str, states: Collection[str], wait_s: float | None) -> dict[str, Any] | None:
    """The flow's status once it speaks of what is wanted now and is one of these; None where it is not to be waited for.

    Raises NotReached with what it is instead, at once where it waits for a person.
    """
    if wait_s is None:
        return None
    from scribengin.registry.records import Stored, read_record
    from scribengin.registry.tree import DESIRED, STATUS

    deadline = time.monotonic() + wait_s
    while True:
        desired, status = read_record(registry, DESIRED(flow)), read_record(registry, STATUS(flow))
        if isinstance(desired, Stored) and isinstance(status, Stored) and status.record.generation == desired.entry.changed:
            now = status.record
            if now.state in states:
                return now.dump()
            if now.state in _WITH_END:
                raise NotReached(f"flow {flow} is {now.state}: {now.reason}", remedy=now.next)
        if time.monotonic() >= deadline:
            raise _late(flow, status.record if isinstance(status, Stored) else None, states, wait_s)
        time.sleep(_POLL_S)


def _late(flow: str, now: Any, states: Collection[str], wait_s: float) -> NotReached:
    wanted = " or ".join(states)
    if now is None:
        return NotReached(f"no master has looked at flow {flow} in {wait_s:.0f} s", remedy="start one: scribengin up")
    said = f": {now.reason}" if now.reason else ""
    return NotReached(f"flow {flow} is {now.state}, not {wanted}, after {wait_s:.0f} s{said}", remedy=now.next or "wait longer: --wait 10m")
