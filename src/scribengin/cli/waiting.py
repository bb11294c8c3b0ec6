"""`--wait`: until a flow has come to what was asked of it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from scribengin.core.errors import ScribenginError
from scribengin.core.units import parse_duration_s
from scribengin.watching.intake import BEHIND

if TYPE_CHECKING:
    from collections.abc import Collection

    from scribengin.api.views import RegistryView
    from scribengin.client.client import Client
    from scribengin.client.models import FlowStatus

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


def wait_for(plane: Client | RegistryView, flow: str, states: Collection[str], wait_s: float | None) -> FlowStatus | None:
    """The flow's status once it speaks of what is wanted now and is one of these; None where it is not to be waited for.

    Raises NotReached with what it is instead, at once where it waits for a person.
    """
    if wait_s is None:
        return None
    deadline = time.monotonic() + wait_s
    while True:
        found = plane.flow(flow)
        now = found.status
        if now is not None and now.generation == found.wanted.revision:
            # a flow that is only behind runs
            if now.state in states or ("running" in states and now.reason.startswith(BEHIND)):
                return now
            if now.state in _WITH_END:
                raise NotReached(f"flow {flow} is {now.state}: {now.reason}", remedy=now.next)
        if time.monotonic() >= deadline:
            raise _late(flow, now, states, wait_s)
        time.sleep(_POLL_S)


def _late(flow: str, now: FlowStatus | None, states: Collection[str], wait_s: float) -> NotReached:
    wanted = " or ".join(states)
    if now is None:
        return NotReached(f"no master has looked at flow {flow} in {wait_s:.0f} s", remedy="start one: scribengin up")
    said = f": {now.reason}" if now.reason else ""
    return NotReached(f"flow {flow} is {now.state}, not {wanted}, after {wait_s:.0f} s{said}", remedy=now.next or "wait longer: --wait 10m")
