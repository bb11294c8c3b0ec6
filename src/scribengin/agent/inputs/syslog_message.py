"""Syslog messages as mappings: RFC 5424, and RFC 3164 as it is really sent.

Every message becomes a mapping with the same keys: `facility` (0 to 23) and `severity` (0 to 7) as numbers, `timestamp` (ISO 8601 in UTC,
with the digits that were sent), `host`, `app`, `proc_id`, `msg_id`, `structured` (id → name → value; several values of one name are
joined by a comma and a blank), `message`, `sender`. What a message does not say is null. Where a message is neither, or not wholly,
`message` is all of its text and `parse_error` says why; nothing is dropped. Bytes that are no UTF-8 become `\\xNN`. A line feed, carriage
return or NUL at the end of a message belongs to its framing.

RFC 3164 has no year and no zone. The rule: the year is the one that brings the timestamp nearest to the time of receipt; the zone is that
of the agent's host, or the option `zone`. Senders that add a year, an offset, or the zone UTC, GMT or Z are taken at their word. What
devices of Cisco add is kept as RFC 5424 would have it: the sequence number as `meta.sequenceId`, a clock that is not set (`*`) or not
synchronised (`.`) as `timeQuality.isSynced` 0, the name of another zone as `timeQuality.zone`, a mnemonic such as `%SYS-5-CONFIG_I` as
`msg_id`; it stays in the message, too.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

_PRIORITY = re.compile(r"<(\d{1,3})>", re.ASCII)
_MODERN = re.compile(r"<\d{1,3}>(\d{1,3}) (\S+) (\S+) (\S+) (\S+) (\S+) (?=[-\[])", re.ASCII)
"""the header of RFC 5424"""
_MODERN_START = re.compile(r"<\d{1,3}>1 (?:-|\d{4}-)", re.ASCII)
_ISO = re.compile(r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?(Z|[+-]\d\d:?\d\d)", re.ASCII)
_ELEMENT = re.compile(r'\[([^\s=\]"]{1,255})((?: +[^\s=\]"]{1,255}="(?:[^"\\]|\\.)*")*) *\]', re.DOTALL)
_PARAMETER = re.compile(r' +([^\s=\]"]{1,255})="((?:[^"\\]|\\.)*)"', re.DOTALL)
_ESCAPED = re.compile(r'\\(["\\\]])')
_MONTHS = {name: at for at, name in enumerate(("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), 1)}
_SEQUENCE = re.compile(r" *(\d{1,12}): ", re.ASCII)
_OLD_TIME = re.compile(
    r" *(?P<clock>[*.])?(?P<month>[A-Z][a-z]{2}) +(?P<day>\d{1,2})(?: (?P<year>\d{4}))? (?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)"
    r"(?:\.(?P<fraction>\d{1,9}))?"
    r"(?: (?P<zone>[A-Z]{1,5}(?=: %| \d{4} )|UTC(?= )|GMT(?= ))(?: (?P<late_year>\d{4})(?= ))?)?(?P<end>: ?| |$)",
    re.ASCII,
)
_CISCO_HOST = re.compile(r" *([A-Za-z0-9][\w.-]{0,254}): (?=[*.]?[A-Z][a-z]{2} +\d)", re.ASCII)
_MNEMONIC = re.compile(r"%([A-Z0-9_]+(?:-[A-Z0-9_]+)*-[0-7]-[A-Z0-9_]+):", re.ASCII)
_TAG = re.compile(r"([^\s:\[\]]{1,128})(?:\[([^\]\s]{0,128})\]:?|:)(?: |$)")
_HOST = re.compile(r"([^\s\[\]]{1,255}) +")
_HALF_A_YEAR = timedelta(days=180)
_UTC_NAMES = frozenset({"UTC", "GMT", "Z"})


def parse_syslog(raw: bytes, sender: str, *, now: datetime, zone: tzinfo | None = None) -> dict[str, Any]:
    """A message as a mapping, see the module.

    Args:
        raw: The bytes of the message, without its framing.
        sender: The address that it came from.
        now: When it came, with a zone.
        zone: Of timestamps that have none; None: that of this host.
    """
    raw = raw.rstrip(b"\n\r\0")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        text = raw.decode("utf-8", "backslashreplace")
    text = text.removeprefix("\ufeff")
    found: dict[str, Any] = {
        "facility": None,
        "severity": None,
        "timestamp": None,
        "host": None,
        "app": None,
        "proc_id": None,
        "msg_id": None,
        "structured": {},
        "message": text,
        "sender": sender,
    }
    priority = _PRIORITY.match(text)
    if priority is None or (number := int(priority[1])) > 191:
        found["parse_error"] = "it begins with no priority; expected <0> to <191>"
        return found
    found["facility"], found["severity"] = number >> 3, number & 7
    fault = _modern(text, found) if _MODERN_START.match(text) else _old(text, priority.end(), found, now, zone)
    if fault:
        found["parse_error"] = fault
        found["message"] = text
        found["structured"] = {}
    return found


# RFC 5424.


def _modern(text: str, found: dict[str, Any]) -> str:
    """Fill `found` from a message of RFC 5424; returns what is wrong with it."""
    header = _MODERN.match(text)
    if header is None:
        return "the header of RFC 5424 is not complete; expected <PRI>1 TIME HOST APP PROCID MSGID and structured data or -"
    _, stamp, *names = header.groups()
    for key, name in zip(("host", "app", "proc_id", "msg_id"), names, strict=True):
        found[key] = None if name == "-" else name
    if stamp != "-":
        found["timestamp"] = _utc_of_iso(stamp)
        if found["timestamp"] is None:
            return f"{stamp[:40]!r} is not a valid time of RFC 5424"
    at = header.end()
    if text[at] == "-":
        at += 1
    while (element := _ELEMENT.match(text, at)) is not None:
        into = found["structured"].setdefault(element[1], {})
        for parameter in _PARAMETER.finditer(element[2]):
            value = _ESCAPED.sub(r"\1", parameter[2])
            into[parameter[1]] = f"{into[parameter[1]]}, {value}" if parameter[1] in into else value
        at = element.end()
    if at < len(text) and text[at] != " ":
        return 'the structured data are not valid; expected - or [ID NAME="VALUE" …]'
    found["message"] = text[at + 1 :].removeprefix("\ufeff")
    return ""


def _utc_of_iso(text: str) -> str | None:
    parts = _ISO.fullmatch(text)
    return None if parts is None else _utc_of(parts)


def _utc_of(parts: re.Match[str]) -> str | None:
    *numbers, fraction, offset = parts.groups()
    try:
        moment = datetime(*(int(each) for each in numbers), tzinfo=UTC)  # type: ignore[misc, arg-type]
        if offset != "Z":
            hours, minutes = int(offset[1:3]), int(offset[-2:])
            if hours > 23 or minutes > 59:
                return None
            shift = timedelta(hours=hours, minutes=minutes)
            moment -= -shift if offset[0] == "-" else shift
    except (ValueError, OverflowError):
        return None
    return _iso(moment, fraction)


def _iso(moment: datetime, fraction: str | None) -> str:
    return f"{moment.isoformat()[:19]}{f'.{fraction}' if fraction else ''}Z"


# RFC 3164, and what is sent under its name.


def _old(text: str, at: int, found: dict[str, Any], now: datetime, zone: tzinfo | None) -> str:
    """Fill `found` from a message of RFC 3164 or like it; returns what is wrong with it."""
    structured = found["structured"]
    stamp = _ISO.match(text, at)
    if stamp is not None and (stamp.end() == len(text) or text[stamp.end()] == " "):
        found["timestamp"] = _utc_of(stamp)
        if found["timestamp"] is None:
            return f"{stamp[0]!r} is not a valid time"
        at = stamp.end() + 1
        names_follow = True
    else:
        start, host = at, None
        if (sequence := _SEQUENCE.match(text, at)) is not None:
            structured["meta"] = {"sequenceId": sequence[1]}
            at = sequence.end()
        if (named := _CISCO_HOST.match(text, at)) is not None:
            host = named[1]
            at = named.end()
        old = _OLD_TIME.match(text, at)
        if old is None:
            return _without_time(text, at, found)
        found["timestamp"] = _utc_of_old(old, now, zone)
        if found["timestamp"] is None:
            return f"{text[start : old.end()].strip()!r} is not a valid time"
        quality = {}
        if old["clock"]:
            quality["isSynced"] = "0"
        if old["zone"] and old["zone"] not in _UTC_NAMES:
            quality["zone"] = old["zone"]
        if quality:
            structured["timeQuality"] = quality
        found["host"] = host
        at = old.end()
        names_follow = not old["end"].startswith(":")
    if names_follow:
        tag = _TAG.match(text, at)
        if tag is None and (host_name := _HOST.match(text, at)) is not None:
            found["host"] = host_name[1]
            at = host_name.end()
            tag = _TAG.match(text, at)
        if tag is not None and not tag[1].startswith("%"):
            if tag[2] is None and found["host"] is None and _MNEMONIC.match(text, tag.end()):
                found["host"] = tag[1]
            else:
                found["app"], found["proc_id"] = tag[1], tag[2] or None
            at = tag.end()
        elif text.startswith(": ", at):  # devices that leave the tag out
            at += 2
    return _message(text, at, found)


def _without_time(text: str, at: int, found: dict[str, Any]) -> str:
    """A device of Cisco that has no clock sends the time since its start, which stays in the message."""
    return (
        _message(text, at, found)
        if _MNEMONIC.search(text, at, at + 200)
        else "it has no time of RFC 3164; expected such as Oct 11 22:14:15"
    )


def _message(text: str, at: int, found: dict[str, Any]) -> str:
    mnemonic = _MNEMONIC.search(text, at, at + 200)
    if mnemonic is not None:
        found["msg_id"] = mnemonic[1]
    found["message"] = text[at:].removeprefix("\ufeff")
    return ""


def _utc_of_old(parts: re.Match[str], now: datetime, zone: tzinfo | None) -> str | None:
    month = _MONTHS.get(parts["month"].lower())
    if month is None:
        return None
    day, hour, minute, second = (int(parts[name]) for name in ("day", "hour", "minute", "second"))
    year = parts["year"] or parts["late_year"]
    if parts["zone"] in _UTC_NAMES:
        zone = UTC
    best: datetime | None = None
    for each in (int(year),) if year else (now.year, *range(now.year - 4, now.year + 5)):
        try:
            moment = datetime(each, month, day, hour, minute, second, tzinfo=zone).astimezone(UTC)
        except (ValueError, OverflowError):  # the 29th of February is not in every year
            continue
        if year or abs(moment - now) < _HALF_A_YEAR:
            return _iso(moment, parts["fraction"])
        if best is None or abs(moment - now) < abs(best - now):
            best = moment
    return None if best is None else _iso(best, parts["fraction"])
