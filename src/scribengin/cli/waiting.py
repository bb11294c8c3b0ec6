"""The option `--wait`: wait until a flow reaches the requested state."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from scribengin.core.errors import ScribenginError
from scribengin.core.units import parse_duration_s
from scribengin.watching.producer_signal import BEHIND

if TYPE_CHECKING:
    from collections.abc import Collection

    from scribengin.api.views import RegistryView
    from scribengin.client.client import Client
    from scribengin.client.models import FlowStatus, FlowView

DEFAULT_S = 120.0
_POLL_S = 0.2
_WITH_END = ("failed", "degraded")


class NotReached(ScribenginError):
    """A flow has not reached the requested state in time, or cannot reach it without intervention."""

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
    help=f"Wait until done, up to this time ({DEFAULT_S:.0f}s without a value).",
)
"""Adds the option to a command, which receives `wait` in seconds; None does not wait."""


_STARTED = "started"


@dataclass(frozen=True, slots=True)
class WaitOption:
    """The value of `--wait` of a command that may start flows."""

    seconds: float
    started: bool = False
    """wait only until the flow is `running`, not for its first Batch"""


def _wait(_context: click.Context, _parameter: click.Parameter, value: str | None) -> WaitOption | None:
    if value is None:
        return None
    first, _, rest = value.partition(":")
    try:
        if first != _STARTED:
            return WaitOption(parse_duration_s(value))
        return WaitOption(parse_duration_s(rest) if value != _STARTED else DEFAULT_S, started=True)
    except ValueError as error:
        raise click.BadParameter(f"{error}; other values: {_STARTED}, {_STARTED}:60s") from None


wait_running_option = click.option(
    "--wait",
    is_flag=False,
    flag_value=f"{DEFAULT_S:.0f}s",
    metavar="[TIME]",
    callback=_wait,
    help=f"Wait up to this time ({DEFAULT_S:.0f}s without a value) until each flow that should run has committed its first Batch, or found "
    "no data. With started, or started:TIME, wait only until it is running.",
)
"""Adds the option to a command, which receives `wait`, a `WaitOption`; None does not wait."""


def wait_for(
    plane: Client | RegistryView, flow: str, states: Collection[str], wait: WaitOption | None, *, version: int = 0
) -> FlowStatus | None:
    """Wait until a flow has one of the states, and return its status; None without waiting if `wait` is None.

    The status must refer to the newest desired state. A flow that runs must also have committed its first Batch, or found no data, unless
    `wait.started`.

    Args:
        plane: the masters, or the registry
        flow: the flow
        states: the states to wait for
        wait: the value of --wait
        version: the requested version; 0 waits for any

    Raises:
        NotReached: the flow is in another state at the end of the time; at once if it needs intervention or the version was replaced
    """
    if wait is None:
        return None
    deadline = time.monotonic() + wait.seconds
    begun = False
    while True:
        found = plane.flow(flow)
        begun = begun or found.wanted.version == version
        if begun and version and found.wanted.version != version:
            raise NotReached(
                f"flow {flow} was changed from version {version} to version {found.wanted.version}",
                remedy=f"see why: scribengin operation list {flow}",
            )
        now = found.status
        runs = False
        if now is not None and now.generation == found.wanted.revision:
            # a flow that is degraded only because it is behind counts as running
            runs = "running" in states and (now.state == "running" or now.reason.startswith(BEHIND))
            if (now.state in states and not runs) or (runs and (wait.started or not _unready(found))):
                return now
            if now.state in _WITH_END and not runs:
                raise NotReached(f"flow {flow} is {now.state}: {now.reason}", remedy=now.next)
        if time.monotonic() >= deadline:
            raise _first_batch_late(found, wait.seconds) if runs else _late(flow, now, states, wait.seconds)
        time.sleep(_POLL_S)


def _unready(found: FlowView) -> list[str]:
    """The tiers that have neither committed a Batch nor found that there is nothing to read. Workers of earlier releases report neither and
    are left out."""
    return [tier.tier for tier in found.tiers if tier.ready is False]


def _first_batch_late(found: FlowView, wait_s: float) -> NotReached:
    tiers = _unready(found)
    which = "" if tiers == [tier.tier for tier in found.tiers] else f" of tier {' and '.join(tiers)}"
    return NotReached(
        f"flow {found.flow} is running, but its first Batch{which} is not committed after {wait_s:.0f} s",
        remedy=f"watch it: scribengin top {found.flow}; or wait longer: --wait 10m",
    )


def _late(flow: str, now: FlowStatus | None, states: Collection[str], wait_s: float) -> NotReached:
    wanted = " or ".join(states)
    if now is None:
        return NotReached(f"no master took up flow {flow} within {wait_s:.0f} s", remedy="start one: scribengin server dev")
    said = f": {now.reason}" if now.reason else ""
    return NotReached(f"flow {flow} is {now.state}, not {wanted}, after {wait_s:.0f} s{said}", remedy=now.next or "wait longer: --wait 10m")
