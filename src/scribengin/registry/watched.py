"""The kinds of records about alerts and delays of flows; `tree` declares their paths."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  msgspec looks at the annotations of records

from scribengin.registry.records import Record


class AlertSpec(Record):
    """An alert of a version: its condition and its targets. The master's log gets all alerts."""

    when: str
    """as in the flow file"""
    webhook: str = ""
    command: tuple[str, ...] = ()


class AlertSettings(Record):
    """A version's settings of alerts and delay."""

    max_delay_s: float | None = None
    alerts: Mapping[str, AlertSpec] = {}


class AlertRecord(Record):
    """An alert that fires, or has fired."""

    firing: bool
    since: str = ""
    """ISO 8601: of the change"""
    value: str = ""
    """the value that was seen then, in words"""


class Alerts(Record):
    """The alerts of a flow that are, or were, more than quiet: name → its state. Written after all targets were notified."""

    alerts: Mapping[str, AlertRecord] = {}
