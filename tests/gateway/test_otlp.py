"""Logs of OpenTelemetry: the example of its documentation in JSON, and the same in Protocol Buffers, written here by hand."""

from __future__ import annotations

import json
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scribengin.gateway.directory import AgentTokens
from scribengin.gateway.otlp import BadLogs, records_of_json, records_of_protobuf
from tests.gateway.gateways import LANE, DirectoryInMemory, StoreInMemory, gateway, lane_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.gateway.gateways import RunningGateway

REQUEST: dict[str, Any] = {
    "resourceLogs": [
        {
            "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "my.service"}}]},
            "scopeLogs": [
                {
                    "scope": {"name": "my.library", "version": "1.0.0"},
                    "logRecords": [
                        {
                            "timeUnixNano": "1544712660300000123",
                            "observedTimeUnixNano": "1544712660300000456",
                            "severityNumber": 10,
                            "severityText": "Information",
                            "traceId": "5B8EFFF798038103D269B633813FC60C",
                            "spanId": "EEE19B7EC3C1B174",
                            "flags": 1,
                            "body": {"stringValue": "Example log record"},
                            "attributes": [
                                {"key": "s", "value": {"stringValue": "some string"}},
                                {"key": "b", "value": {"boolValue": True}},
                                {"key": "i", "value": {"intValue": "-10"}},
                                {"key": "d", "value": {"doubleValue": 637.704}},
                                {"key": "a", "value": {"arrayValue": {"values": [{"stringValue": "many"}, {"intValue": "2"}]}}},
                                {"key": "m", "value": {"kvlistValue": {"values": [{"key": "k", "value": {"stringValue": "v"}}]}}},
                                {"key": "y", "value": {"bytesValue": "AAH/"}},
                            ],
                        }
                    ],
                }
            ],
        }
    ]
}
RECORD = {
    "timestamp": "2018-12-13T14:51:00.300000Z",
    "time_unix_nano": 1544712660300000123,
    "observed_time_unix_nano": 1544712660300000456,
    "severity": "Information",
    "severity_number": 10,
    "body": "Example log record",
    "attributes": {"s": "some string", "b": True, "i": -10, "d": 637.704, "a": ["many", 2], "m": {"k": "v"}, "y": "AAH/"},
    "resource": {"service.name": "my.service"},
    "scope": {"name": "my.library", "version": "1.0.0"},
    "trace_id": "5b8efff798038103d269b633813fc60c",
    "span_id": "eee19b7ec3c1b174",
    "flags": 1,
}


def varint(value: int) -> bytes:
    value &= 2**64 - 1
    made = b""
    while value > 0x7F:
        made += bytes([value & 0x7F | 0x80])
        value >>= 7
    return made + bytes([value])


def field(number: int, value: bytes | str | int) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def fixed(number: int, form: str, value: float) -> bytes:
    return varint(number << 3 | (1 if struct.calcsize(form) == 8 else 5)) + struct.pack(form, value)


def any_value(value: dict[str, Any]) -> bytes:
    ((kind, held),) = value.items()
    match kind:
        case "stringValue":
            return field(1, held)
        case "boolValue":
            return field(2, int(held))
        case "intValue":
            return field(3, int(held))
        case "doubleValue":
            return fixed(4, "<d", held)
        case "arrayValue":
            return field(5, b"".join(field(1, any_value(each)) for each in held["values"]))
        case "kvlistValue":
            return field(6, pairs(held["values"], 1))
        case _:
            return field(7, b"\x00\x01\xff")


def pairs(values: list[dict[str, Any]], number: int) -> bytes:
    return b"".join(field(number, field(1, each["key"]) + field(2, any_value(each["value"]))) for each in values)


def protobuf() -> bytes:
    (group,) = REQUEST["resourceLogs"]
    (scoped,) = group["scopeLogs"]
    (log,) = scoped["logRecords"]
    record = (
        fixed(1, "<Q", int(log["timeUnixNano"]))
        + field(2, log["severityNumber"])
        + field(3, log["severityText"])
        + field(5, any_value(log["body"]))
        + pairs(log["attributes"], 6)
        + field(7, 3)
        + fixed(8, "<I", 1)
        + field(9, bytes.fromhex(log["traceId"]))
        + field(10, bytes.fromhex(log["spanId"]))
        + fixed(11, "<Q", int(log["observedTimeUnixNano"]))
        + field(99, b"a field of a later version")
    )
    scope = field(1, "my.library") + field(2, "1.0.0")
    resource = pairs(group["resource"]["attributes"], 1)
    logs = field(1, scope) + field(2, record) + field(3, "https://schema")
    return field(1, field(2, logs) + field(1, resource))


def test_json_and_protocol_buffers_become_the_same_record() -> None:
    (of_json,) = records_of_json(json.dumps(REQUEST).encode())
    (of_protobuf,) = records_of_protobuf(protobuf())
    assert json.loads(of_json) == RECORD
    assert json.loads(of_protobuf) == RECORD


def test_what_is_not_said_is_left_out() -> None:
    logs = {"resourceLogs": [{"scopeLogs": [{"logRecords": [{"observedTimeUnixNano": "1000000000", "severityNumber": 17}]}]}]}
    (record,) = records_of_json(json.dumps(logs).encode())
    expected = {"timestamp": "1970-01-01T00:00:01.000000Z", "observed_time_unix_nano": 10**9, "severity": "ERROR", "severity_number": 17}
    assert json.loads(record) == {**expected, "body": None}
    assert records_of_json(b"{}") == records_of_protobuf(b"") == []


@pytest.mark.parametrize(("given_number", "number"), [("SEVERITY_NUMBER_WARN", 13), ("SEVERITY_NUMBER_INFO3", 11), ("9", 9), ("odd", 0)])
def test_a_severity_may_be_a_name(given_number: str, number: int) -> None:
    logs = {"resourceLogs": [{"scopeLogs": [{"logRecords": [{"timeUnixNano": 1, "severityNumber": given_number}]}]}]}
    assert json.loads(records_of_json(json.dumps(logs).encode())[0]).get("severity_number", 0) == number


@given(st.binary(max_size=200))
def test_bytes_that_are_no_logs_raise_nothing_else(data: bytes) -> None:
    for read in (records_of_json, records_of_protobuf):
        with suppress(BadLogs):
            read(data)


@given(st.integers(min_value=0), st.binary(min_size=1, max_size=3))
def test_damaged_logs_raise_nothing_else(at: int, instead: bytes) -> None:
    whole = protobuf()
    place = at % len(whole)
    with suppress(BadLogs):
        records_of_protobuf(whole[:place] + instead + whole[place + 1 :])


def test_values_that_are_nested_too_deep_are_refused() -> None:
    value: dict[str, Any] = {"stringValue": "x"}
    for _ in range(70):
        value = {"arrayValue": {"values": [value]}}
    logs = {"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": value}]}]}]}
    with pytest.raises(BadLogs, match="nested more than 64 deep"):
        records_of_json(json.dumps(logs).encode())
    deep = field(1, field(2, field(2, field(5, any_value(value)))))
    with pytest.raises(BadLogs, match="nested more than 64 deep"):
        records_of_protobuf(deep)


# Posted to a gateway.


@pytest.fixture
def store() -> StoreInMemory:
    return StoreInMemory()


@pytest.fixture
def directory() -> DirectoryInMemory:
    return DirectoryInMemory()


@pytest.fixture
def one(store: StoreInMemory, directory: DirectoryInMemory) -> Iterator[RunningGateway]:
    with gateway(store, directory) as running:
        yield running


def test_logs_are_stored_in_the_only_lane_with_input_http(one: RunningGateway, store: StoreInMemory) -> None:
    answer = one.http.post("/v1/logs", content=protobuf(), headers={"content-type": "application/x-protobuf"})
    assert (answer.status_code, answer.content, answer.headers["content-type"]) == (200, b"", "application/x-protobuf")
    of_json = one.http.post("/v1/logs", json=REQUEST)
    assert (of_json.status_code, of_json.json()) == (200, {})
    assert [json.loads(each) for each in store.records(once=True)] == [RECORD, RECORD]


def test_logs_that_are_sent_again_are_stored_once(one: RunningGateway, store: StoreInMemory) -> None:
    for _ in range(3):
        assert one.http.post("/v1/logs", json=REQUEST).status_code == 200
    assert len(store.records()) == 1


def test_the_lane_of_logs_may_be_named(one: RunningGateway, store: StoreInMemory, directory: DirectoryInMemory) -> None:
    directory.known = {LANE: lane_of(), "web.second": lane_of()}
    answer = one.http.post("/v1/logs", json=REQUEST)
    assert answer.status_code == 400
    assert "web.access, web.second" in answer.json()["message"]
    assert one.http.post("/v1/logs?lane=web.second", json=REQUEST).status_code == 200
    assert one.http.post("/v1/logs", json=REQUEST, headers={"Scribengin-Lane": LANE}).status_code == 200
    assert one.http.post("/v1/logs?lane=none", json=REQUEST).status_code == 404
    assert len(store.arrivals) == 2


def test_refused_logs_get_a_status_in_their_own_format(one: RunningGateway, directory: DirectoryInMemory) -> None:
    bad = one.http.post("/v1/logs", content=b"{", headers={"content-type": "application/json"})
    assert (bad.status_code, bad.json()["code"]) == (400, 3)
    directory.tokens = AgentTokens.of_text("web: one", "t")
    refused = one.http.post("/v1/logs", content=protobuf(), headers={"content-type": "application/x-protobuf"})
    assert refused.status_code == 401
    assert refused.content.startswith(b"\x08\x10\x12")
    assert b"a token is missing" in refused.content
    assert one.http.post("/v1/logs", content=b"x", headers={"content-type": "text/plain", "Authorization": "Bearer one"}).status_code == 415
