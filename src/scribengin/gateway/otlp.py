"""Logs of OpenTelemetry, as its exporters post them (OTLP/HTTP): the messages as Protocol Buffers or JSON, and one JSON object a record.

    {"timestamp": "2026-11-29T08:00:00.000001Z", "time_unix_nano": 1795939200000001000, "severity": "INFO", "severity_number": 9,
     "body": …, "attributes": {…}, "resource": {…}, "scope": {"name": …, "version": …}, "trace_id": HEX, "span_id": HEX, "flags": 1}

Keys without a value are left out. The reader of Protocol Buffers knows the few messages of logs, so that a gateway needs no package for
them; fields that it does not know are skipped, as the format wants.
"""

from __future__ import annotations

import base64
import struct
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

_MOST_DEPTH = 64
"""how deep values of attributes may be nested"""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SEVERITIES = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL")


class BadLogs(ValueError):
    """The bytes are not the logs that their type says."""


def records_of_json(data: bytes) -> list[bytes]:
    """The records of an ExportLogsServiceRequest in JSON, each as a JSON object. Raises BadLogs."""
    try:
        request = msgspec.json.decode(data, type=_Request)
    except msgspec.MsgspecError as error:
        raise BadLogs(f"the body is not OTLP logs in JSON: {error}") from error
    made = []
    for group in request.resource_logs:
        resource = _attributes_of_json(group.resource.attributes) if group.resource else {}
        for scoped in group.scope_logs:
            scope = {} if scoped.scope is None else _kept({"name": scoped.scope.name, "version": scoped.scope.version})
            made += [
                _record(
                    time=_whole(each.time),
                    observed=_whole(each.observed),
                    severity=each.severity_text,
                    number=_severity_number(each.severity_number),
                    body=_value_of_json(each.body, 0),
                    attributes=_attributes_of_json(each.attributes),
                    trace_id=each.trace_id.lower(),
                    span_id=each.span_id.lower(),
                    flags=each.flags,
                    event=each.event_name,
                    resource=resource,
                    scope=scope,
                )
                for each in scoped.log_records
            ]
    return made


def records_of_protobuf(data: bytes) -> list[bytes]:
    """The records of an ExportLogsServiceRequest in Protocol Buffers, each as a JSON object. Raises BadLogs."""
    try:
        return [record for number, group in _fields(data) if number == 1 for record in _of_resource(group)]
    except (IndexError, struct.error, TypeError, AttributeError, RecursionError) as error:
        raise BadLogs("the body is not OTLP logs in Protocol Buffers") from error


def status_message(code: int, message: str, *, protobuf: bool) -> bytes:
    """A `google.rpc.Status` that says why logs were refused."""
    if not protobuf:
        return msgspec.json.encode({"code": code, "message": message})
    text = message.encode()
    return b"\x08" + _varint(code) + b"\x12" + _varint(len(text)) + text


# What both forms become.


_encode = msgspec.json.Encoder().encode


def _record(
    *,
    time: int,
    observed: int,
    severity: str,
    number: int,
    body: Any,
    attributes: Mapping[str, Any],
    trace_id: str,
    span_id: str,
    flags: int,
    event: str,
    resource: Mapping[str, Any],
    scope: Mapping[str, Any],
) -> bytes:
    moment = time or observed
    kept = _kept(
        {
            "timestamp": _time_text(moment) if moment else "",
            "time_unix_nano": time,
            "observed_time_unix_nano": observed,
            "severity": severity or _severity_of(number),
            "severity_number": number,
            "body": body,
            "event_name": event,
            "attributes": attributes,
            "resource": resource,
            "scope": scope,
            "trace_id": trace_id,
            "span_id": span_id,
            "flags": flags,
        }
    )
    return _encode(kept)


def _kept(form: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in form.items() if key == "body" or value not in ("", 0, {}, [])}


def _time_text(nanoseconds: int) -> str:
    try:
        moment = _EPOCH + timedelta(microseconds=nanoseconds // 1000)
    except OverflowError:
        return ""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _severity_of(number: int) -> str:
    return _SEVERITIES[(number - 1) // 4] if 1 <= number <= 24 else ""


# JSON: keys in camel case, 64-bit numbers as texts, ids in hexadecimal.


class _Scope(msgspec.Struct):
    name: str = ""
    version: str = ""


class _Resource(msgspec.Struct):
    attributes: list[dict[str, Any]] = []


class _LogRecord(msgspec.Struct):
    time: int | str = msgspec.field(default=0, name="timeUnixNano")
    observed: int | str = msgspec.field(default=0, name="observedTimeUnixNano")
    severity_number: int | str = msgspec.field(default=0, name="severityNumber")
    severity_text: str = msgspec.field(default="", name="severityText")
    body: dict[str, Any] | None = None
    attributes: list[dict[str, Any]] = []
    trace_id: str = msgspec.field(default="", name="traceId")
    span_id: str = msgspec.field(default="", name="spanId")
    flags: int = 0
    event_name: str = msgspec.field(default="", name="eventName")


class _ScopeLogs(msgspec.Struct):
    scope: _Scope | None = None
    log_records: list[_LogRecord] = msgspec.field(default_factory=list, name="logRecords")


class _ResourceLogs(msgspec.Struct):
    resource: _Resource | None = None
    scope_logs: list[_ScopeLogs] = msgspec.field(default_factory=list, name="scopeLogs")


class _Request(msgspec.Struct):
    resource_logs: list[_ResourceLogs] = msgspec.field(default_factory=list, name="resourceLogs")


def _whole(value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError) as error:
        raise BadLogs(f"{value!r} is not a valid whole number") from error


def _severity_number(value: int | str) -> int:
    """A number, or the name of the enumeration, such as `SEVERITY_NUMBER_INFO2`."""
    if isinstance(value, int) or value.isdigit():
        return int(value)
    name = value.removeprefix("SEVERITY_NUMBER_")
    level, step = name.rstrip("234"), name[-1:]
    return 4 * _SEVERITIES.index(level) + (int(step) if step in "234" else 1) if level in _SEVERITIES else 0


def _attributes_of_json(pairs: Sequence[Mapping[str, Any]], depth: int = 0) -> dict[str, Any]:
    return {str(pair.get("key", "")): _value_of_json(pair.get("value"), depth + 1) for pair in pairs if isinstance(pair, dict)}


def _value_of_json(value: Any, depth: int) -> Any:
    if not isinstance(value, dict) or not value:
        return None
    if depth > _MOST_DEPTH:
        raise BadLogs(f"values are nested more than {_MOST_DEPTH} deep")
    kind, held = next(iter(value.items()))
    match kind:
        case "intValue":
            return _whole(held)
        case "arrayValue":
            return [_value_of_json(each, depth + 1) for each in _listed(held)]
        case "kvlistValue":
            return _attributes_of_json(_listed(held), depth)
        case _:
            return held


def _listed(held: Any) -> list[Any]:
    values = held.get("values", []) if isinstance(held, dict) else []
    return values if isinstance(values, list) else []


# Protocol Buffers: each field is its number and wire type, then a value.


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """(number, value) of each field: an int for numbers of variable length, else bytes."""
    at, end = 0, len(data)
    while at < end:
        tag, at = _read_varint(data, at)
        match tag & 7:
            case 0:
                value, at = _read_varint(data, at)
                yield tag >> 3, value
                continue
            case 1:
                length = 8
            case 2:
                length, at = _read_varint(data, at)
            case 5:
                length = 4
            case other:
                raise BadLogs(f"the body is not OTLP logs in Protocol Buffers: wire type {other}")
        if at + length > end:
            raise BadLogs("the body is not OTLP logs in Protocol Buffers: it ends in a field")
        yield tag >> 3, data[at : at + length]
        at += length


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = data[at]
    if value < 0x80:
        return value, at + 1
    value &= 0x7F
    for shift in range(7, 70, 7):
        at += 1
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at + 1
    raise BadLogs("the body is not OTLP logs in Protocol Buffers: a number of more than 10 bytes")


def _varint(value: int) -> bytes:
    made = bytearray()
    while value >= 0x80:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


def _of_resource(data: bytes) -> Iterator[bytes]:
    resource: dict[str, Any] = {}
    groups = []
    for number, value in _fields(data):
        if number == 1:
            resource = _pairs(value, 1, 0)
        elif number == 2:
            groups.append(value)
    for group in groups:
        scope: dict[str, Any] = {}
        records = []
        for number, value in _fields(group):
            if number == 1:
                names = {1: "name", 2: "version"}
                scope = {names[key]: _text(each) for key, each in _fields(value) if key in names}
            elif number == 2:
                records.append(value)
        yield from (_log_record(record, resource, scope) for record in records)


def _log_record(data: bytes, resource: Mapping[str, Any], scope: Mapping[str, Any]) -> bytes:
    single: dict[int, Any] = {}
    attributes: dict[str, Any] = {}
    for number, value in _fields(data):
        if number == 6:
            key, held = _pair(value, 0)
            attributes[key] = held
        else:
            single[number] = value
    return _record(
        time=int.from_bytes(single.get(1, b""), "little"),
        observed=int.from_bytes(single.get(11, b""), "little"),
        severity=_text(single.get(3, b"")),
        number=single.get(2, 0),
        body=_any_value(single[5], 0) if 5 in single else None,
        attributes=attributes,
        trace_id=single.get(9, b"").hex(),
        span_id=single.get(10, b"").hex(),
        flags=int.from_bytes(single.get(8, b""), "little"),
        event=_text(single.get(12, b"")),
        resource=resource,
        scope=_kept(scope),
    )


def _pairs(data: bytes, wanted: int, depth: int) -> dict[str, Any]:
    return dict(_pair(value, depth) for number, value in _fields(data) if number == wanted)


def _pair(data: bytes, depth: int) -> tuple[str, Any]:
    key, held = "", None
    for number, value in _fields(data):
        if number == 1:
            key = _text(value)
        elif number == 2:
            held = _any_value(value, depth + 1)
    return key, held


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


_ANY: dict[int, Callable[[Any, int], Any]] = {
    1: lambda value, _: _text(value),
    2: lambda value, _: bool(value),
    3: lambda value, _: _signed(value),
    4: lambda value, _: struct.unpack("<d", value)[0],
    5: lambda value, depth: [_any_value(each, depth + 1) for number, each in _fields(value) if number == 1],
    6: lambda value, depth: _pairs(value, 1, depth),
    7: lambda value, _: base64.b64encode(value).decode(),
}


def _any_value(data: bytes, depth: int) -> Any:
    if depth > _MOST_DEPTH:
        raise BadLogs(f"values are nested more than {_MOST_DEPTH} deep")
    held = None
    for number, value in _fields(data):
        if number in _ANY:
            held = _ANY[number](value, depth)
    return held


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")
