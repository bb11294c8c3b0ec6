"""Messages as they are really sent: the examples of the RFCs, and those of devices and programs, from public reports."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scribengin.agent.inputs.syslog_message import parse_syslog

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
KEYS = ["facility", "severity", "timestamp", "host", "app", "proc_id", "msg_id", "structured", "message", "sender"]


def parsed(text: str | bytes, *, now: datetime = NOW, zone: str = "UTC") -> dict[str, Any]:
    raw = text if isinstance(text, bytes) else text.encode()
    return parse_syslog(raw, "192.0.2.7", now=now, zone=ZoneInfo(zone))


def check(text: str | bytes, **expected: Any) -> None:
    found = parsed(text)
    assert "parse_error" not in found, found
    assert list(found) == KEYS
    assert {name: found[name] for name in expected} == expected


# RFC 5424, 6.5.


def test_the_first_example_of_rfc_5424() -> None:
    check(
        "<34>1 2003-10-11T22:14:15.003Z mymachine.example.com su - ID47 - \ufeff'su root' failed for lonvick on /dev/pts/8",
        facility=4,
        severity=2,
        timestamp="2003-10-11T22:14:15.003Z",
        host="mymachine.example.com",
        app="su",
        proc_id=None,
        msg_id="ID47",
        structured={},
        message="'su root' failed for lonvick on /dev/pts/8",
        sender="192.0.2.7",
    )


def test_the_second_example_of_rfc_5424_has_an_offset() -> None:
    check(
        "<165>1 2003-08-24T05:14:15.000003-07:00 192.0.2.1 myproc 8710 - - %% It's time to make the do-nuts.",
        facility=20,
        severity=5,
        timestamp="2003-08-24T12:14:15.000003Z",
        host="192.0.2.1",
        app="myproc",
        proc_id="8710",
        message="%% It's time to make the do-nuts.",
    )


def test_the_third_example_of_rfc_5424_has_structured_data() -> None:
    check(
        "<165>1 2003-10-11T22:14:15.003Z mymachine.example.com evntslog - ID47 "
        '[exampleSDID@32473 iut="3" eventSource="Application" eventID="1011"] \ufeffAn application event log entry...',
        structured={"exampleSDID@32473": {"iut": "3", "eventSource": "Application", "eventID": "1011"}},
        message="An application event log entry...",
    )


def test_the_fourth_example_of_rfc_5424_has_no_message() -> None:
    check(
        "<165>1 2003-10-11T22:14:15.003Z mymachine.example.com evntslog - ID47 "
        '[exampleSDID@32473 iut="3" eventSource="Application" eventID="1011"][examplePriority@32473 class="high"]',
        structured={
            "exampleSDID@32473": {"iut": "3", "eventSource": "Application", "eventID": "1011"},
            "examplePriority@32473": {"class": "high"},
        },
        message="",
    )


def test_escapes_and_repeated_names_of_structured_data() -> None:
    check(
        r'<165>1 - - - - - [a x="say \"hi\"" y="C:\\" z="a\]b]c"][origin ip="192.0.2.1" ip="192.0.2.129"] m',
        timestamp=None,
        host=None,
        structured={"a": {"x": 'say "hi"', "y": "C:\\", "z": "a]b]c"}, "origin": {"ip": "192.0.2.1, 192.0.2.129"}},
        message="m",
    )


@pytest.mark.parametrize(
    "text",
    [
        "<134>1 2025-08-07T00:00:02.096000+01:00 wemos5 tasmota - - HTP: Web server active on wemos5",  # Tasmota, no structured data
        "<34>1 2003-10-11T22:14:15.003Z host",
        '<34>1 2003-10-11T22:14:15.003Z h a - - [x y="1] cut off',
        "<34>1 2003-13-11T22:14:15.003Z h a - - - the thirteenth month",
        "<14>1 2017-01-14-14T13:49:17Z h pg - - - a time that a release of pg_logforward sent",
    ],
)
def test_a_message_that_is_not_wholly_rfc_5424_keeps_its_text_and_priority(text: str) -> None:
    found = parsed(text)
    assert found["message"] == text
    assert found["parse_error"]
    assert found["severity"] is not None


# RFC 3164, 5.4.


def test_the_first_example_of_rfc_3164() -> None:
    check(
        "<34>Oct 11 22:14:15 mymachine su: 'su root' failed for lonvick on /dev/pts/8",
        facility=4,
        severity=2,
        timestamp="2025-10-11T22:14:15Z",
        host="mymachine",
        app="su",
        proc_id=None,
        message="'su root' failed for lonvick on /dev/pts/8",
    )


def test_the_second_example_of_rfc_3164_is_no_message_of_it() -> None:
    found = parsed("Use the BFG!")
    assert found["message"] == "Use the BFG!"
    assert found["parse_error"] == "it begins with no priority; expected <0> to <191>"
    assert found["facility"] is None


def test_the_third_example_of_rfc_3164_has_a_zone_and_a_year_behind_its_time() -> None:
    check(
        "<165>Aug 24 05:34:00 CST 1987 mymachine myproc[10]: %% It's time to make the do-nuts.  %%  Ingredients: Mix=OK, Jelly=OK #",
        timestamp="1987-08-24T05:34:00Z",
        host="mymachine",
        app="myproc",
        proc_id="10",
        structured={"timeQuality": {"zone": "CST"}},
        message="%% It's time to make the do-nuts.  %%  Ingredients: Mix=OK, Jelly=OK #",
    )


def test_the_fourth_example_of_rfc_3164_keeps_all_of_its_text() -> None:
    text = "<0>1990 Oct 22 10:52:01 TZ-6 scapegoat.dmz.example.org 10.1.2.3 sched[0]: That's All Folks!"
    found = parsed(text)
    assert found["message"] == text
    assert (found["facility"], found["severity"]) == (0, 0)
    assert "no time of RFC 3164" in found["parse_error"]


@pytest.mark.parametrize(
    ("now", "stamp", "expected"),
    [
        ("2026-01-01T00:00:05", "Dec 31 23:59:59", "2025-12-31T23:59:59Z"),  # it came in the new year
        ("2025-12-31T23:59:59", "Jan  1 00:00:02", "2026-01-01T00:00:02Z"),  # the sender's clock is ahead
        ("2026-03-01T00:00:05", "Feb 28 23:59:59", "2026-02-28T23:59:59Z"),
        ("2024-02-29T12:00:00", "Feb 29 11:59:59", "2024-02-29T11:59:59Z"),
        ("2025-03-01T00:00:05", "Feb 29 00:00:00", "2024-02-29T00:00:00Z"),  # the nearest year that has the day
    ],
)
def test_the_year_of_rfc_3164_is_the_nearest_to_the_receipt(now: str, stamp: str, expected: str) -> None:
    found = parsed(f"<13>{stamp} h a: m", now=datetime.fromisoformat(now).replace(tzinfo=UTC))
    assert found["timestamp"] == expected


def test_the_zone_of_rfc_3164_is_that_of_the_option() -> None:
    assert parsed("<13>Feb 28 12:00:00 h a: m", zone="Europe/Berlin")["timestamp"] == "2026-02-28T11:00:00Z"


# What is really sent.

SENT: list[tuple[str, dict[str, Any]]] = [
    # rsyslog, RSYSLOG_ForwardFormat and RSYSLOG_SyslogProtocol23Format
    (
        "<38>2017-09-06T04:20:49.407993+01:00 localhost sshd[2763]: Received disconnect from 89.45.226.95: 11: Bye Bye [preauth]",
        {
            "timestamp": "2017-09-06T03:20:49.407993Z",
            "host": "localhost",
            "app": "sshd",
            "proc_id": "2763",
            "message": "Received disconnect from 89.45.226.95: 11: Bye Bye [preauth]",
        },
    ),
    (
        "<38>1 2017-09-06T04:20:49.407993+01:00 localhost sshd 2763 - -  Received disconnect from 89.45.226.95: 11: Bye Bye [preauth]",
        {"proc_id": "2763", "message": " Received disconnect from 89.45.226.95: 11: Bye Bye [preauth]"},
    ),
    # logger(1) of util-linux 2.38
    (
        '<13>1 2026-02-28T10:00:00.123456+01:00 host root - - [timeQuality tzKnown="1" isSynced="1" syncAccuracy="292500"] hello',
        {"app": "root", "structured": {"timeQuality": {"tzKnown": "1", "isSynced": "1", "syncAccuracy": "292500"}}, "message": "hello"},
    ),
    ("<13>Feb 28 10:00:00 host root: hello", {"host": "host", "app": "root", "message": "hello"}),
    # Cisco IOS, with each setting of `service timestamps log`
    (
        "<189>82: 00:20:10: %SYS-5-CONFIG_I: Configured from console by cisco on vty0 (192.168.200.1)",
        {
            "timestamp": None,
            "msg_id": "SYS-5-CONFIG_I",
            "structured": {"meta": {"sequenceId": "82"}},
            "message": "00:20:10: %SYS-5-CONFIG_I: Configured from console by cisco on vty0 (192.168.200.1)",
        },
    ),
    (
        "<189>83: *Feb 28 00:20:10: %SYS-5-CONFIG_I: Configured from console by cisco",
        {
            "timestamp": "2026-02-28T00:20:10Z",
            "structured": {"meta": {"sequenceId": "83"}, "timeQuality": {"isSynced": "0"}},
            "message": "%SYS-5-CONFIG_I: Configured from console by cisco",
        },
    ),
    ("<189>90: *Feb 28 2010 00:20:10.663: %SYS-5-CONFIG_I: Configured", {"timestamp": "2010-02-28T00:20:10.663Z"}),
    ("<189>93: *Feb 28 00:20:10.663 UTC: %SYS-5-CONFIG_I: Configured", {"timestamp": "2026-02-28T00:20:10.663Z"}),
    (
        "<190>2361044: sw01: Jan  6 2022 22:11:43.398 UTC: %FOO-6-BAR: Test date format.",
        {"host": "sw01", "timestamp": "2022-01-06T22:11:43.398Z", "msg_id": "FOO-6-BAR"},
    ),
    (
        "<180>782431: machine1: .Nov 18 21:03:22.631 GMT: %CDP-4-NATIVE_VLAN_MISMATCH: Native VLAN mismatch discovered.",
        {
            "host": "machine1",
            "timestamp": "2025-11-18T21:03:22.631Z",
            "structured": {"meta": {"sequenceId": "782431"}, "timeQuality": {"isSynced": "0"}},
        },
    ),
    ("<187>00:00:46: %LINK-3-UPDOWN: Interface Port-channel1, changed state to up", {"msg_id": "LINK-3-UPDOWN", "timestamp": None}),
    # Cisco ASA and ISE
    (
        "<166>Jul 15 2014 21:14:15 myasa : %ASA-6-302013: Built outbound TCP connection 1 for outside:192.0.2.1/80",
        {"host": "myasa", "app": None, "msg_id": "ASA-6-302013", "timestamp": "2014-07-15T21:14:15Z"},
    ),
    (
        "<166>Jul 15 2014 21:14:15 myasa: %ASA-6-302013: Built",
        {"host": "myasa", "app": None, "message": "%ASA-6-302013: Built"},
    ),
    ("<166>Oct 10 2018 12:34:56 localhost CiscoASA[999]: %ASA-6-305011: Built dynamic", {"app": "CiscoASA", "proc_id": "999"}),
    ("<166>Jan 01 2024 10:00:00: %ASA-6-302013: Built", {"timestamp": "2024-01-01T10:00:00Z", "message": "%ASA-6-302013: Built"}),
    (
        "<181> Sep 8 18:11:57 ISE-1 CISE_Failed_Attempts 000231543 1 0 2019-09-08 18:11:57.232 -07:00 0003426523 5400 NOTICE",
        {
            "host": "ISE-1",
            "app": None,
            "message": "CISE_Failed_Attempts 000231543 1 0 2019-09-08 18:11:57.232 -07:00 0003426523 5400 NOTICE",
        },
    ),
    # Kubernetes: a sink of PKS, and the kubelet by way of journald and rsyslog
    (
        "<14>1 2018-10-19T12:30:47.614468+00:00 7d551d68-9559-4645-980a-d93c72f7cccb default/pod/wildfly-54bf7c95bd-jxbgl/wildfly - - - "
        "  JBoss Bootstrap Environment",
        {
            "host": "7d551d68-9559-4645-980a-d93c72f7cccb",
            "app": "default/pod/wildfly-54bf7c95bd-jxbgl/wildfly",
            "message": "  JBoss Bootstrap Environment",
        },
    ),
    (
        '<30>Feb 28 02:31:55 node-1 kubelet[1234]: I0228 02:31:55.123456    1234 kubelet.go:1961] "SyncLoop ADD" source="api"',
        {"app": "kubelet", "proc_id": "1234", "message": 'I0228 02:31:55.123456    1234 kubelet.go:1961] "SyncLoop ADD" source="api"'},
    ),
    # others
    ("<134>Feb 19 12:02:54 192.168.40.94 CEF:0|Check Point|VPN-1|1|Log|src=10.0.0.1", {"host": "192.168.40.94", "app": None}),
    ("<13>Feb 28 10:00:00 su: no host at all", {"host": None, "app": "su", "message": "no host at all"}),
    ("<13>Feb 28 10:00:00 fe80::1 su: hello", {"host": "fe80::1", "app": "su"}),
    ("<46>Feb 28 10:00:00 MYPC last message repeated 2 times", {"host": "MYPC", "app": None, "message": "last message repeated 2 times"}),
    ("<13>Feb 28 10:00:00 SU: in capitals", {"app": "SU", "host": None}),
    ("<13>Feb 28 10:00:00 h a: ", {"message": ""}),
]


@pytest.mark.parametrize(("text", "expected"), SENT, ids=[text[:40] for text, _ in SENT])
def test_a_message_that_is_really_sent(text: str, expected: dict[str, Any]) -> None:
    check(text, **expected)
    check(f"{text}\n\0", **expected)


def test_bytes_that_are_no_utf_8_are_escaped() -> None:
    found = parsed(b"<13>Feb 28 10:00:00 h a: caf\xe9")
    assert found["message"] == "caf\\xe9"


@pytest.mark.parametrize("priority", ["<192>", "<>", "<1234>", "< 1>", "<-1>", "1>", ""])
def test_a_priority_that_is_not_valid_keeps_the_text(priority: str) -> None:
    found = parsed(f"{priority}Feb 28 10:00:00 h a: m")
    assert found["message"] == f"{priority}Feb 28 10:00:00 h a: m"
    assert "priority" in found["parse_error"]


# Any bytes.

_TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\n\r\0\ufeff"))
_PIECES = st.sampled_from(
    [
        *[
            "<34>1 ",
            "<13>",
            "Feb 28 10:00:00 ",
            "*Feb 29 ",
            "2026-02-28T10:00:00Z ",
            "host ",
            "app[1]: ",
            "app: ",
            "- ",
            "- - - ",
            '[a b="c"] ',
            "[",
            "]",
            '"',
            "\\",
            ": ",
            "%SYS-5-X: ",
            "82: ",
            "sw01: ",
            "UTC: ",
            "CST 1987 ",
            "99:99:99 ",
            "0000-00-00T00:00:00+99:99 ",
            "0001-01-01T00:00:00+23:59 ",
            "9999-12-31T23:59:59-23:59 ",
        ]
    ]
)


@given(st.one_of(st.binary(), _TEXTS.map(str.encode), st.lists(st.one_of(_PIECES, _TEXTS)).map(lambda parts: "".join(parts).encode())))
def test_any_bytes_become_one_object_and_lose_no_text(raw: bytes) -> None:
    found = parse_syslog(raw, "s", now=NOW, zone=UTC)
    assert [key for key in found if key != "parse_error"] == KEYS
    line = msgspec.json.encode(found)
    assert b"\n" not in line
    assert json.loads(line) == found
    text = raw.rstrip(b"\n\r\0").decode("utf-8", "backslashreplace").removeprefix("\ufeff")
    if "parse_error" in found:
        assert found["message"] == text
    else:
        assert text.endswith(found["message"])
        header = text[: len(text) - len(found["message"])]
        for name in ("host", "app", "proc_id", "msg_id"):
            assert found[name] is None or found[name] in text
        for each in header.split(">", 1)[1].split():
            # what is in the header is in a field: a time, a name, or structured data
            assert found["structured"] or each[0] in "-*.:%\ufeff" or any(char.isdigit() for char in each) or _in_field(each, found), each


def _in_field(word: str, found: dict[str, Any]) -> bool:
    months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec", "UTC:", "GMT:", "UTC", "GMT"]
    fields = [found[name] or "" for name in ("host", "app", "proc_id", "msg_id")]
    return word in months or any(word.rstrip(":").startswith(field) for field in fields if field)


_NAMES = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=20).filter(lambda name: name != "-")
_SD_NAMES = st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters='="] '), min_size=1, max_size=10)


@given(
    st.integers(0, 191),
    st.datetimes(timezones=st.just(UTC)),
    st.tuples(_NAMES, _NAMES, _NAMES, _NAMES),
    st.dictionaries(_SD_NAMES, st.dictionaries(_SD_NAMES, _TEXTS, max_size=3), max_size=3),
    _TEXTS.filter(lambda text: "\ufeff" not in text),
)
def test_what_was_written_as_rfc_5424_is_read_as_written(
    priority: int, moment: datetime, names: tuple[str, str, str, str], structured: dict[str, dict[str, str]], message: str
) -> None:
    escaped = {
        element: {name: value.replace("\\", r"\\").replace('"', r"\"").replace("]", r"\]") for name, value in of.items()}
        for element, of in structured.items()
    }
    data = "".join(f"[{element}{_parameters(of)}]" for element, of in escaped.items()) or "-"
    stamp = moment.strftime("%H:%M:%S.%fZ")
    text = f"<{priority}>1 {moment.date().isoformat()}T{stamp} {' '.join(names)} {data} {message}"
    found = parsed(text)
    assert "parse_error" not in found, found
    assert (found["facility"], found["severity"]) == divmod(priority, 8)
    assert found["timestamp"] == f"{moment.date().isoformat()}T{stamp}"
    assert tuple(found[name] for name in ("host", "app", "proc_id", "msg_id")) == names
    assert found["structured"] == structured
    assert found["message"] == message


def _parameters(of: dict[str, str]) -> str:
    return "".join(f' {name}="{value}"' for name, value in of.items())
