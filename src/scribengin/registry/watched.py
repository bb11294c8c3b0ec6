"""The kinds of records that say how flows are watched; `tree` says where they lie."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  msgspec looks at the annotations of records

from scribengin.registry.records import Record


class AlertSpec(Record):
    """An alert of a version: what is told to whom. The master's log hears of all."""

    when: str
    """as the flow file writes it"""
    webhook: str = ""
    command: tuple[str, ...] = ()


class AlertSettings(Record):
    """What a version says of how it is watched."""

    max_delay_s: float | None = None
    alerts: Mapping[str, AlertSpec] = {}


class AlertRecord(Record):
    """An alert that fires, or has fired."""

    firing: bool
    since: str = ""
    """ISO 8601: of the change"""
    value: str = ""
    """what was seen then, in words"""


class Alerts(Record):
    """The alerts of a flow that are, or were, more than quiet: name → its standing. It is written once everybody was told."""

    alerts: Mapping[str, AlertRecord] = {}
