"""`type: http` against a server, without Spark: the contract, what a request is, what its answers come to, crashes between."""

from __future__ import annotations

import datetime as dt
import subprocess
import time
from email.utils import format_datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from scribengin.connectors.contract import BatchId, ConnectorContext, Decided
from scribengin.connectors.http.options import SINK
from scribengin.connectors.http.sending import NAME
from scribengin.connectors.http.sink import HttpSink
from scribengin.core import faults
from scribengin.core.errors import FencedError, SinkError, StateError, Unreachable
from scribengin.core.secret import Secret
from scribengin.core.types import arrow_schema, parse_schema
from scribengin.testing.conformance import check_sink
from tests.connectors.group.alternating import Driver, OfferingAlternating
from tests.connectors.group.disks import Clock
from tests.connectors.plain.web_server import Answer, Came, WebServer
from tests.looking import look_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

SCHEMA = parse_schema("id BIGINT NOT NULL, name STRING, at TIMESTAMP")
NOON = dt.datetime(2026, 1, 1, 12, 0, 0, 123456, tzinfo=dt.UTC)
ROWS = [{"id": n, "name": None if n == 2 else f'a "quoted"\nn{n}', "at": NOON} for n in range(6)]


@pytest.fixture
def server() -> Iterator[WebServer]:
    with WebServer() as started:
        yield started


def place(server: WebServer, folder: Path, **options: Any) -> ConnectorContext:
    given = SINK.filled({"url": f"{server.url}/orders", "patience": 5.0} | options)
    return ConnectorContext("kept", folder, given, flow="flow", work=folder / "work")


class Writer:
    """A driver with one sink."""

    def __init__(self, place: ConnectorContext, *, term: int = 1) -> None:
        self.sink = HttpSink(place)
        self.sink.prepare(owner="me", lineage="one")
        self.refused: list[tuple[str, str, str]] = []
        self._term = term

    def stage(self, number: int, *units: Sequence[dict[str, Any]], schema: Any = SCHEMA, hash: str = "") -> Decided:
        batch = BatchId("flow", "query", "one", number, self._term)
        receipts = []
        for unit, rows in enumerate(units):
            stream = self.sink.stream(batch, unit, f"attempt{number}{unit}", schema)
            for first in range(0, len(rows), 3):  # as tasks do, some rows at a time
                some = list(rows[first : first + 3])
                bad = stream.write(pa.RecordBatch.from_pylist(some, schema=arrow_schema(schema)), [f"a+{row['id']}" for row in some])
                self.refused += [(f"a+{some[each.ordinal]['id']}", each.reason, each.message) for each in bad]
            receipts.append(stream.close())
        return Decided(batch, hash or f"hash {number}", tuple(receipts))

    def publish(self, decided: Decided) -> None:
        refused: list[tuple[str, str, str]] = []
        self.sink.offer(decided, lambda refusal: refused.append((refusal.id, refusal.reason, refusal.message)))
        self.refused += refused
        self.sink.publish(Decided(decided.batch, decided.input_hash, decided.receipts, refused=len(refused)))

    def write(self, number: int, *units: Sequence[dict[str, Any]]) -> None:
        self.publish(self.stage(number, *units))


def numbered(rows: int) -> list[dict[str, Any]]:
    return [{"id": n, "name": f"n{n}", "at": NOON} for n in range(rows)]


# --- the contract, and what a request is ---


@pytest.mark.parametrize("options", [{}, {"body": "array", "rows": 2}, {"body": "lines", "compression": "zstd"}])
def test_it_keeps_the_contract_of_at_least_once(server: WebServer, tmp_path: Path, options: dict[str, Any]) -> None:
    secret = Secret("s3cr3t-t0k3n", "${secret:env/TOKEN}")
    where = place(server, tmp_path, headers={"authorization": secret}, **options)
    wider = (parse_schema(f"{SCHEMA}, colour STRING"), [row | {"colour": "red"} for row in ROWS])

    def seen() -> list[dict[str, Any]]:
        rows = [row for came in server.taken for row in came.rows]
        return [{**row, "at": dt.datetime.fromisoformat(row["at"])} for row in rows]

    check_sink(
        lambda: HttpSink(where),
        seen,
        schema=SCHEMA,
        rows=ROWS,
        wider=wider,
        secret=secret.reveal(),
        folders=[tmp_path],
        declared=SINK,
        options=where.options,
    )
    assert {came.headers["authorization"] for came in server.taken} == {secret.reveal()}
    assert not HttpSink(where).exactly_once


def test_a_group_of_two_servers_keeps_the_contract_of_one(server: WebServer, tmp_path: Path) -> None:
    with WebServer() as other:
        given = tuple(place(each, tmp_path).options for each in (server, other))

        def seen() -> list[dict[str, Any]]:
            rows = [row for each in (server, other) for came in each.taken for row in came.rows]
            return [{**row, "at": dt.datetime.fromisoformat(row["at"])} for row in rows]

        check_sink(lambda: OfferingAlternating("http", given, tmp_path), seen, schema=SCHEMA, rows=ROWS)
        assert server.taken
        assert other.taken


def test_a_batch_waits_for_the_server_that_it_was_decided_for_and_later_ones_go_to_the_other(server: WebServer, tmp_path: Path) -> None:
    clock = Clock()
    with WebServer() as near:
        members = {"near": place(near, tmp_path, patience=0.0).options, "far": place(server, tmp_path).options}
        driver = Driver("http", members, tmp_path, clock, SCHEMA)
        driver.recover()
        assert driver.put(numbered(1)) == "near"
        owed = driver.decide(numbered(2))
    with pytest.raises(Unreachable, match='batch 1 is decided for member "near" and waits for it'):
        driver.publish(owed)
    with WebServer(near.port) as again:
        driver.start()
        driver.recover()
        assert again.ids() == {0: 1, 1: 1}
    assert driver.put(numbered(3)) == "far"
    assert server.ids() == {0: 1, 1: 1, 2: 1}
    assert near.ids() == {0: 1}
    assert [(each.rows, each.violations) for each in driver.audit()] == [(1, ()), (2, ()), (3, ())], "it asks no server"


def test_a_request_is_a_row_and_its_address_names_the_row(server: WebServer, tmp_path: Path) -> None:
    url = f"{server.url}/a/{{name}}/b?n={{id}}"
    writer = Writer(place(server, tmp_path, url=url, method="PUT", headers={"content-type": "application/vnd.x+json"}, query={"v": "1"}))
    names = ["ada", "../x/y?z#ü", "..", "", None]
    writer.write(0, [{"id": n, "name": name, "at": NOON} for n, name in enumerate(names)])
    assert sorted(came.path for came in server.taken) == ["/a/..%2Fx%2Fy%3Fz%23%C3%BC/b?n=1&v=1", "/a/ada/b?n=0&v=1"]
    assert {(came.method, came.headers["content-type"]) for came in server.taken} == {("PUT", "application/vnd.x+json")}
    assert [(id_, reason) for id_, reason, _ in writer.refused] == [("a+2", "url-value"), ("a+3", "url-value"), ("a+4", "url-value")]
    assert 'the column "name" is ".."' in writer.refused[0][2]


@pytest.mark.parametrize("compression", ["none", "gzip", "zstd"])
@pytest.mark.parametrize("body", ["array", "lines"])
def test_a_request_has_as_many_rows_as_it_may(server: WebServer, tmp_path: Path, body: str, compression: str) -> None:
    writer = Writer(place(server, tmp_path, body=body, rows=4, compression=compression, connections=1))
    writer.write(0, numbered(10))
    assert [[row["id"] for row in came.rows] for came in server.taken] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert server.taken[0].rows[0] == {"id": 0, "name": "n0", "at": "2026-01-01T12:00:00.123456Z"}


def test_a_request_is_as_large_as_it_may_be_and_a_row_that_is_larger_goes_alone(server: WebServer, tmp_path: Path) -> None:
    writer = Writer(place(server, tmp_path, body="lines", bytes=200, connections=1))
    rows = [{"id": n, "name": "x" * (300 if n == 3 else 1), "at": NOON} for n in range(7)]
    writer.write(0, rows)
    assert [[row["id"] for row in came.rows] for came in server.taken] == [[0, 1, 2], [3], [4, 5, 6]]


def test_no_more_requests_are_under_way_than_may_be(server: WebServer, tmp_path: Path) -> None:
    def slowly(_: Came) -> Answer:
        look_until(lambda: server.most_at_once >= 3, "three are under way", 60, 0.01)
        return Answer()

    server.answers = slowly
    Writer(place(server, tmp_path, connections=3)).write(0, numbered(12))
    assert server.most_at_once == 3


def test_keys_are_the_same_at_each_try_and_no_two_requests_have_the_same(server: WebServer, tmp_path: Path) -> None:
    lost = iter([True, False, True])
    server.answers = lambda _: Answer(hang_up=next(lost, False))
    writer = Writer(place(server, tmp_path, body="array", rows=2))
    writer.write(0, numbered(6), numbered(6))
    writer.write(1, numbered(6))
    bodies: dict[str, set[bytes]] = {}
    for came in server.came:
        bodies.setdefault(came.key, set()).add(came.body)
    assert len(bodies) == 9
    assert all(len(each) == 1 for each in bodies.values())
    assert len(server.came) == 11
    assert server.ids_once() == dict.fromkeys(range(6), 3)


# --- answers ---


def test_a_server_that_is_busy_is_left_alone_as_long_as_it_asks(server: WebServer, tmp_path: Path) -> None:
    at: list[float] = []

    def busy(_: Came) -> Answer:
        at.append(time.monotonic())
        return Answer(429, {"Retry-After": "1"}) if len(at) == 1 else Answer()

    server.answers = busy
    Writer(place(server, tmp_path, connections=1)).write(0, numbered(3))
    assert at[1] - at[0] >= 1.0
    assert server.ids() == dict.fromkeys(range(3), 1)


def test_one_that_asks_for_longer_than_our_patience_is_asked_by_no_later_try_before_that(server: WebServer, tmp_path: Path) -> None:
    until = dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)
    server.answers = lambda _: Answer(503, {"Retry-After": format_datetime(until, usegmt=True)}, "closed for the night")
    writer = Writer(place(server, tmp_path, connections=1))
    decided = writer.stage(0, numbered(2))
    for _ in range(2):
        with pytest.raises(Unreachable, match=r"asked to wait for another 3[56]\d\d s"):
            writer.publish(decided)
    assert len(server.came) == 1


@pytest.mark.parametrize("status", [408, 500, 503, 507])
def test_what_fails_for_now_is_tried_again_until_it_comes_through(server: WebServer, tmp_path: Path, status: int) -> None:
    server.answers = lambda _: Answer(status) if len(server.came) <= 3 else Answer()
    writer = Writer(place(server, tmp_path, connections=1))
    writer.write(0, numbered(3))
    assert [row["id"] for came in server.taken for row in came.rows] == [0, 1, 2], "in order, also behind one that is tried again"
    assert writer.refused == []


def test_a_server_that_is_away_ends_our_patience_with_its_last_words_and_later_only_the_rest_is_sent(
    server: WebServer, tmp_path: Path
) -> None:
    server.answers = lambda came: Answer(502, text="<html>bad gateway</html>") if came.rows[0]["id"] >= 4 else Answer()
    writer = Writer(place(server, tmp_path, connections=1, patience=0.5))
    decided = writer.stage(0, numbered(8))
    with pytest.raises(Unreachable, match=r"answered 502 Bad Gateway \(no request succeeded for"):
        writer.publish(decided)
    server.answers = lambda _: Answer()
    again = Writer(place(server, tmp_path))
    again.publish(decided)
    assert server.ids() == dict.fromkeys(range(8), 1)
    assert "resumes after 4 answered requests" in again.sink.upkeep()[0]


def test_a_full_disk_at_the_server_is_told_and_no_row_is_refused(server: WebServer, tmp_path: Path) -> None:
    server.answers = lambda came: Answer(507, text="no room") if came.rows[0]["id"] >= 2 else Answer()
    writer = Writer(place(server, tmp_path, connections=1, patience=0.2))
    decided = writer.stage(0, numbered(5))
    with pytest.raises(Unreachable, match=r"answered 507 Insufficient Storage: no room \(no request succeeded for") as told:
        writer.publish(decided)
    assert (told.value.code, told.value.remedy) == (
        "http-away",
        "check that the server is up and healthy; a running flow retries automatically",
    )
    server.answers = lambda _: Answer()
    again = Writer(place(server, tmp_path))
    again.publish(decided)
    assert server.ids() == dict.fromkeys(range(5), 1)
    assert again.refused == []


def test_nobody_there_is_no_end_of_the_flow(server: WebServer, tmp_path: Path) -> None:
    nowhere = place(server, tmp_path, url="http://127.0.0.1:9/x", patience=0.1)
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:9/x does not answer"):
        Writer(nowhere).write(0, numbered(1))


@pytest.mark.parametrize("status", [400, 413, 422])
def test_of_a_request_that_is_refused_the_rows_at_fault_are_found(server: WebServer, tmp_path: Path, status: int) -> None:
    server.answers = lambda came: (
        Answer(status, text='{"code": 7, "detail": "no such country"}') if {3, 11} & {row["id"] for row in came.rows} else Answer()
    )
    writer = Writer(place(server, tmp_path, body="lines", rows=8))
    writer.write(0, numbered(20))
    assert server.ids() == {n: 1 for n in range(20) if n not in (3, 11)}
    assert sorted(writer.refused)[0][:2] == ("a+11", "too-large" if status == 413 else "refused")
    assert all(message.endswith(": no such country") for _, _, message in writer.refused)
    assert len(writer.refused) == 2


def test_a_key_that_is_in_use_is_tried_again_and_then_refused(server: WebServer, tmp_path: Path) -> None:
    server.answers = lambda came: Answer(409, text="conflict") if came.rows[0]["id"] == 1 or len(server.came) == 1 else Answer()
    writer = Writer(place(server, tmp_path, connections=1, patience=60.0))
    writer.write(0, numbered(3))
    assert [(id_, reason) for id_, reason, _ in writer.refused] == [("a+1", "refused")]
    assert server.ids() == {0: 1, 2: 1}


@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [
        (Answer(401, text="no"), "http-login", "answered 401"),
        (Answer(403), "http-login", "answered 403"),
        (Answer(404), "http-refused", "correct `url`"),
        (Answer(405), "http-refused", "method"),
        (Answer(415), "http-refused", "compression"),
        (Answer(302, {"Location": "http://127.0.0.1:9/elsewhere"}), "http-redirect", "it redirects to http://127.0.0.1:9/elsewhere"),
    ],
)
def test_what_would_be_so_for_all_rows_stops_the_flow_and_refuses_none(
    server: WebServer, tmp_path: Path, answer: Answer, code: str, said: str
) -> None:
    server.answers = lambda _: answer
    writer = Writer(place(server, tmp_path, connections=1))
    with pytest.raises(SinkError) as told:
        writer.write(0, numbered(3))
    assert told.value.code == code
    assert said in f"{told.value.message}; {told.value.remedy}"
    assert (len(server.came), writer.refused) == (1, [])


def test_a_row_whose_address_is_not_there_is_refused_by_itself(server: WebServer, tmp_path: Path) -> None:
    server.answers = lambda came: Answer(404) if came.path.endswith("/1") else Answer()
    writer = Writer(place(server, tmp_path, url=f"{server.url}/orders/{{id}}"))
    writer.write(0, numbered(3))
    assert [id_ for id_, _, _ in writer.refused] == ["a+1"]
    assert server.ids() == {0: 1, 2: 1}


# --- secrets and trust ---


def test_a_secret_reaches_the_server_and_nobody_else(server: WebServer, tmp_path: Path) -> None:
    secret, reference = "hunter2", "${secret:env/T}"
    options = {"headers": {"Authorization": Secret(f"Bearer {secret}", reference)}, "query": {"key": Secret(secret, reference)}}
    server.answers = lambda came: Answer(403, text=f"no entry for {came.headers['authorization']} at {came.path}")
    writer = Writer(place(server, tmp_path, **options))
    with pytest.raises(SinkError) as told:
        writer.write(0, numbered(1))
    assert server.came[0].headers["authorization"] == "Bearer hunter2"
    assert server.came[0].path == "/orders?key=hunter2"
    assert secret not in f"{told.value} {told.value.remedy} {writer.sink}"
    assert not [path for path in tmp_path.glob("**/*") if path.is_file() and secret.encode() in path.read_bytes()]


def test_a_password_in_the_address_and_a_header_that_cannot_be_are_refused(server: WebServer, tmp_path: Path) -> None:
    with pytest.raises(SinkError) as told:
        Writer(place(server, tmp_path, url="http://me:hunter2@127.0.0.1/x"))
    assert told.value.code == "secret-in-plain"
    assert "hunter2" not in f"{told.value} {told.value.remedy}"
    with pytest.raises(SinkError, match='the header "X-A" has characters'):
        Writer(place(server, tmp_path, headers={"X-A": "a\r\nb: c"}))


def test_a_server_that_nobody_vouches_for_gets_nothing(tmp_path: Path) -> None:
    both, own = tmp_path / "both.pem", tmp_path / "own.pem"
    subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", *subject]
    subprocess.run([*command, "-keyout", str(tmp_path / "key.pem"), "-out", str(own)], check=True, capture_output=True)
    both.write_text((tmp_path / "key.pem").read_text() + own.read_text())
    with WebServer(certificate=both) as server:
        with pytest.raises(SinkError) as told:
            Writer(place(server, tmp_path)).write(0, numbered(1))
        assert (told.value.code, server.came) == ("http-trust", [])
        assert "ca:" in told.value.remedy
        Writer(place(server, tmp_path, ca="own.pem")).write(1, numbered(2))
        assert server.ids() == {0: 1, 1: 1}
        with pytest.raises(SinkError, match=r"gone\.pem"):
            Writer(place(server, tmp_path, ca="gone.pem"))


# --- crashes and rivals ---


class Died(BaseException):
    """A kill."""


def test_a_driver_that_dies_anywhere_loses_nothing_and_sends_again_only_what_was_under_way(
    server: WebServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = place(server, tmp_path, body="array", rows=2, connections=2)
    server.answers = lambda came: Answer(422, text="poison") if 5 in {row["id"] for row in came.rows} else Answer()
    writer = Writer(where)
    decided = writer.stage(0, numbered(15), numbered(9))
    deaths = 0
    reached = faults.reached

    def die(point: str) -> None:
        nonlocal left
        left -= point == "offer.sent"
        if not left:
            raise Died
        reached(point)

    monkeypatch.setattr(faults, "reached", die)
    while True:
        left = 2  # of each life: the second answer is its last
        try:
            again = Writer(where)
            again.publish(decided)
            break
        except Died:
            deaths += 1
            assert deaths < 20
    assert deaths >= 3, "12 requests, and of each life at most three answers: the two, and the one under way beside the second"
    assert server.ids_once() == {n: 2 if n < 9 else 1 for n in range(15) if n != 5}
    # of each life at most one more answer was heard than noted, and what was under way was heard before the end
    assert server.ids() == server.ids_once()
    assert [id_ for id_, _, _ in again.refused] == ["a+5", "a+5"], "the refused are told at each try: the letters of one that died are lost"


def test_a_note_that_was_cut_off_is_a_request_that_is_sent_again(server: WebServer, tmp_path: Path) -> None:
    writer = Writer(place(server, tmp_path, connections=1))
    decided = writer.stage(0, numbered(3))
    writer.sink.offer(decided, lambda refusal: None)
    notes = next(tmp_path.glob(f"work/**/{NAME}"))
    notes.write_bytes(notes.read_bytes()[:-4])
    Writer(place(server, tmp_path)).publish(decided)
    assert server.ids() == {0: 1, 1: 1, 2: 2}
    assert server.ids_once() == dict.fromkeys(range(3), 1)


def test_a_driver_that_slept_is_stopped(server: WebServer, tmp_path: Path) -> None:
    writer = Writer(place(server, tmp_path))
    first, other = writer.stage(0, numbered(1)), Writer(place(server, tmp_path)).stage(1, numbered(2))
    writer.publish(first)
    writer.publish(other)
    with pytest.raises(FencedError, match="batch 1 is already marked"):
        Writer(place(server, tmp_path)).publish(first)
    with pytest.raises(FencedError, match="with another decision"):
        writer.publish(Decided(other.batch, "another", other.receipts))
    assert sum(server.ids().values()) == 3


def test_staged_rows_that_were_changed_are_not_sent(server: WebServer, tmp_path: Path) -> None:
    writer = Writer(place(server, tmp_path))
    decided = writer.stage(0, numbered(3))
    (file,) = (path for path in tmp_path.glob("work/**/00000-attempt*"))
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.raises(StateError, match="was changed"):
        writer.publish(decided)
    assert server.came == []
