"""Reads alert conditions, such as `no progress for 5m`, `lag over 100000 rows for 2m`, `dead letters over 100 in 10m`; and the section
`alerts` of a flow file."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from scribengin.core.problems import did_you_mean
from scribengin.core.units import parse_duration_s, show_duration_exactly
from scribengin.spec import keys
from scribengin.spec.model import Alert, Condition
from scribengin.spec.sections import Read, SectionOwner, Sections
from scribengin.spec.yaml_document import Mapping, Scalar, shorten

if TYPE_CHECKING:
    from scribengin.spec.reader import DocumentReader
    from scribengin.spec.yaml_document import Node

FORMS = (
    "no progress for 5m",
    "lag over 100000 rows for 2m",
    "lag over 60s for 2m",
    "dead letters over 100 in 10m",
    "restarts over 3 in 10m",
    "agent away for 5m",
)
"""one example of each form"""
_TIME = r"(\d+(?:\.\d+)?\s*[a-z]+)"
_COUNT = r"(\d[\d_,]*)"
_PROGRESS = re.compile(rf"no progress for {_TIME}")
_ROWS = re.compile(rf"lag over {_COUNT} rows for {_TIME}")
_AGE = re.compile(rf"lag over {_TIME} for {_TIME}")
_TOLD = re.compile(rf"(dead letters|restarts) over {_COUNT} in {_TIME}")
_AWAY = re.compile(rf"agent away for {_TIME}")
_WEB = re.compile(r"https?://[^\s/]+")


def parse_condition(text: str) -> Condition:
    """Parse the condition of `when`. Raises ValueError with what is wrong and, after a semicolon, what to write.

    >>> parse_condition("lag over 100_000 rows for 2m")
    Condition(measure='lag_rows', over=100000.0, span_s=120.0)
    """
    words = " ".join(text.lower().split())
    if found := _PROGRESS.fullmatch(words):
        return Condition("progress", 0.0, _seconds(found[1]))
    if found := _ROWS.fullmatch(words):
        return Condition("lag_rows", _number(found[1]), _seconds(found[2]))
    if found := _AGE.fullmatch(words):
        return Condition("lag_s", _seconds(found[1]), _seconds(found[2]))
    if found := _TOLD.fullmatch(words):
        return Condition("dead" if found[1] == "dead letters" else "restarts", _number(found[2]), _seconds(found[3]))
    if found := _AWAY.fullmatch(words):
        return Condition("agent", 0.0, _seconds(found[1]))
    near = did_you_mean(words, FORMS)
    raise ValueError(f"is not a valid alert condition; {near or 'write one of: ' + ', '.join(FORMS)}")


def show_condition(condition: Condition) -> str:
    """The text of a condition; `parse_condition` reads it back as an equal value.

    >>> show_condition(Condition("restarts", 3.0, 600.0))
    'restarts over 3 in 10m'
    """
    span = show_duration_exactly(condition.span_s)
    match condition.measure:
        case "progress":
            return f"no progress for {span}"
        case "lag_rows":
            return f"lag over {condition.over:.0f} rows for {span}"
        case "lag_s":
            return f"lag over {show_duration_exactly(condition.over)} for {span}"
        case "dead":
            return f"dead letters over {condition.over:.0f} in {span}"
        case "restarts":
            return f"restarts over {condition.over:.0f} in {span}"
        case "agent":
            return f"agent away for {span}"


def read_alerts(reader: DocumentReader, sections: Sections, read: Read) -> dict[str, Alert]:
    """The alerts of the flow whose sections are `read`."""
    mapping: Mapping | None = read.values.get("alerts")
    if mapping is not None and not mapping.entries:
        reader.error(
            "wrong-kind", mapping, "alerts of the flow is empty", "write alerts: {stuck: {when: no progress for 5m}}, or take the key out"
        )
    entries = mapping.entries.items() if mapping else ()
    found = [_alert(reader, sections, name, key, node) for name, (key, node) in entries if not name.startswith("x-")]
    return {alert.id: alert for alert in found if alert is not None}


def _alert(reader: DocumentReader, sections: Sections, id_: str, key: Scalar, node: Node) -> Alert | None:
    owner = SectionOwner("alert", key.start, id=id_)
    reader.check_name(id_, key, "the id of an alert")
    read = sections.read(keys.ALERT, node, owner)
    if read is None or "when" not in read.values:
        return None
    webhook = read.values.get("webhook", "")
    if webhook and not _WEB.match(webhook):
        message = f"{owner.key('webhook')} is {shorten(webhook)}, which is not a web address"
        reader.error("bad-value", read.given["webhook"][1], message, "write https://HOST/PATH")
    try:
        condition = parse_condition(read.values["when"])
    except ValueError as error:
        message, _, remedy = str(error).partition("; ")
        reader.error("alert-when", read.given["when"][1], f"{owner.key('when')} {message}: {shorten(read.values['when'])}", remedy)
        return None
    return Alert(id_, condition, webhook, read.values.get("command", ()))


def _number(text: str) -> float:
    return float(text.replace(",", "").replace("_", ""))


def _seconds(text: str) -> float:
    seconds = parse_duration_s(text)
    if not 1.0 <= seconds <= 14 * 86400.0:
        raise ValueError(f"has {text}, which is not between one second and fourteen days; write a time between the two")
    return seconds
