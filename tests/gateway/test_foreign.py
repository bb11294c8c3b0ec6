"""Bodies of other clients, as their documentation shows them, and how their records are stored."""

from __future__ import annotations

import gzip
import json
import struct
import threading
import zlib
from typing import TYPE_CHECKING, Any

import pytest

from scribengin.core.zstd import compress as zstd
from scribengin.gateway import foreign
from scribengin.gateway.directory import AgentTokens
from scribengin.gateway.foreign import BadRecords, decompressed, otlp_records_of, pieces_of, records_of
from tests.gateway.gateways import LANE, DirectoryInMemory, StoreInMemory, gateway, lane_of
from tests.looking import look_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.gateway.gateways import RunningGateway

A, B = b'{"message":"a","n":1}', b'{"message":"b","n":2}'


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


BODIES: dict[str, tuple[str, bytes, list[bytes]]] = {
    "NDJSON": ("application/x-ndjson", A + b"\n" + B + b"\n", [A, B]),
    "NDJSON without a last line feed": ("application/x-ndjson; charset=utf-8", A + b"\n\n" + B, [A, B]),
    "Vector: codec json": ("application/json", b"[" + A + b"," + B + b"]", [A, B]),
    "Vector: codec json, framing newline_delimited": ("application/x-ndjson", A + b"\n" + B, [A, B]),
    "Vector: codec text": ("text/plain", b"one line\nanother\r\n", [b"one line", b"another"]),
    "Fluent Bit: format json": ("application/json", b'[{"date":1600000000.5,"log":"a"}]', [b'{"date":1600000000.5,"log":"a"}']),
    "Fluent Bit: format json_lines": ("application/json", A + b"\n" + B + b"\n", [A, B]),
    "Fluent Bit: format json_stream": ("application/json", A + B, [A, B]),
    "rsyslog: one message": ("application/json; charset=utf-8", A, [A]),
    "rsyslog: batch.format newline": ("application/json; charset=utf-8", A + b"\n" + B, [A, B]),
    "rsyslog: batch.format jsonarray": ("application/json; charset=utf-8", b"[" + A + b", " + B + b"]", [A, B]),
    "curl -d": ("application/x-www-form-urlencoded", A, [A]),
    "one object over several lines": ("application/json", b'{\n  "a": [1,\n 2]\n}\n', [b'{"a":[1,2]}']),
    "an array over several lines": ("application/json", b'[\n{"a":\n1},\n{"b":2}\n]', [b'{"a":1}', b'{"b":2}']),
    "nothing": ("application/json", b"", []),
    "an empty array": ("application/json", b"[]", []),
}


@pytest.mark.parametrize("kind", BODIES)
def test_a_body_becomes_its_records(kind: str) -> None:
    content_type, body, records = BODIES[kind]
    assert records_of(content_type, body) == records


def test_the_message_pack_of_fluent_bit_becomes_json() -> None:
    time = b"\xd7\x00" + struct.pack(">II", 1_600_000_000, 500_000_000)
    record = b"\x83\xa3log\xa1a\xa1n\xcd\x01\x00\xa4list\x93\xc0\xc3\xcb" + struct.pack(">d", 1.5)
    old, new = b"\x92" + time + record, b"\x92\x92" + time + b"\x80" + record
    records = records_of("application/msgpack", old + new)
    assert [json.loads(each) for each in records] == [{"date": 1600000000.5, "log": "a", "n": 256, "list": [None, True, 1.5]}] * 2


RECORDED = bytes.fromhex("9292d7006b0b960309b4b4678083a76d657373616765a26869a16ecb3ff8000000000000a46c6973749201c0")
"""what Fluent Bit 5.1.1 posted: `-i dummy -p dummy={"message":"hi","n":1.5,"list":[1,null]} -o http -p format=msgpack`"""
RECORDED_LOGS = bytes.fromhex("0a170a0012130a00120f0903355 85f0565ec182a040a026869".replace(" ", ""))
"""what it posted with `-i dummy -p dummy={"message":"hi","n":1.5} -o opentelemetry`"""


def test_what_fluent_bit_has_posted_is_read() -> None:
    (record,) = records_of("application/msgpack", RECORDED)
    assert json.loads(record) == {"date": pytest.approx(1795921411.162837, abs=1e-5), "message": "hi", "n": 1.5, "list": [1, None]}
    (log,) = otlp_records_of("application/x-protobuf", RECORDED_LOGS)
    assert json.loads(log)["body"] == "hi"


def test_all_forms_of_message_pack_are_read() -> None:
    values: dict[bytes, Any] = {
        b"\x05": 5,
        b"\xff": -1,
        b"\xcc\xff": 255,
        b"\xd0\x80": -128,
        b"\xd3" + struct.pack(">q", -(2**40)): -(2**40),
        b"\xcf" + struct.pack(">Q", 2**63): 2**63,
        b"\xca" + struct.pack(">f", 0.5): 0.5,
        b"\xd9\x03abc": "abc",
        b"\xda\x00\x03abc": "abc",
        b"\xc4\x02\xff\x00": "\ufffd\x00",
        b"\xdc\x00\x01\x01": [1],
        b"\xde\x00\x01\x01\x02": {"1": 2},
        b"\xcb" + struct.pack(">d", float("nan")): None,
    }
    for packed, value in values.items():
        (record,) = records_of("application/msgpack", packed)
        assert json.loads(record) == value


@pytest.mark.parametrize(
    ("content_type", "body", "why"),
    [
        ("application/json", b"[1,", "is not a valid JSON array"),
        ("application/json", b'{"a":1} nonsense', "is not valid JSON"),
        ("application/json", b"\xff\xff", "is not valid UTF-8"),
        ("application/msgpack", b"\x92\x01", "ends in a value"),
        ("application/msgpack", b"\xc1", "0xC1"),
        ("application/msgpack", b"\x91" * 100, "nested more than"),
        ("application/json", b"[" * 100_000, "is not a valid JSON array"),
        ("application/pdf", b"", "is not supported"),
    ],
)
def test_a_body_that_is_not_valid_says_why(content_type: str, body: bytes, why: str) -> None:
    with pytest.raises(BadRecords, match=why):
        records_of(content_type, body)


def bare_deflate(body: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(body) + packer.flush()


PACKED = {
    "identity": lambda body: body,
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "zstd": zstd,
    "GZIP": lambda body: gzip.compress(body[:10]) + gzip.compress(body[10:]),
}


@pytest.mark.parametrize("encoding", PACKED)
def test_a_compressed_body_is_decompressed(encoding: str) -> None:
    body = A * 1000
    assert decompressed(encoding, PACKED[encoding](body)) == body


def test_deflate_may_be_the_bare_stream() -> None:
    assert decompressed("deflate", bare_deflate(A * 100)) == A * 100


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd"])
def test_a_small_body_does_not_become_gigabytes(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign, "MOST_RECORDS_BYTES", 1000)
    assert len(decompressed(encoding, PACKED[encoding](bytes(1000)))) == 1000
    with pytest.raises(foreign.LargeBody):
        decompressed(encoding, PACKED[encoding](bytes(1001)))


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd", "br"])
def test_a_body_that_is_not_of_its_encoding_says_so(encoding: str) -> None:
    with pytest.raises(BadRecords, match=r"is not valid|is not supported"):
        decompressed(encoding, b"hello, hello")
    if encoding != "br":
        with pytest.raises(BadRecords, match="ends too early"):
            decompressed(encoding, PACKED[encoding](A * 50)[:-9])


def test_records_are_cut_into_frames() -> None:
    records = [b"1", b"22", b"x" * 50, b"3", b"4", b"5", b"line\nfeed"]
    pieces = pieces_of(records, most_rows=2, most_bytes=100, max_record=20)
    assert [(piece.kind, piece.count) for piece in pieces] == [("records", 2), ("too_long", 1), ("records", 2), ("records", 2)]
    assert pieces[0].payload == b"1\n22\n"
    assert pieces[1].payload == b"x" * 20
    assert pieces[3].payload == b"5\x1eline\nfeed\x1e"
    assert [piece.count for piece in pieces_of([b"12345"] * 5, most_rows=100, most_bytes=10, max_record=20)] == [2, 2, 1]
    assert pieces_of([], most_rows=1, most_bytes=1, max_record=1) == []


# Stored by a gateway.


def test_records_are_stored_under_a_name_of_the_gateway_before_the_answer(one: RunningGateway, store: StoreInMemory) -> None:
    answer = one.records(A + b"\n" + B)
    assert (answer.status_code, answer.json()) == (200, {"records": 2, "stored": 2, "committed": 0})
    assert one.records(A).json()["stored"] == 3
    assert store.records(once=True) == [A, B, A]
    assert {each.agent for each in store.arrivals} == {"gateway/client"}
    assert len({each.incarnation for each in store.arrivals}) == 1


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd"])
def test_compressed_records_are_stored(one: RunningGateway, store: StoreInMemory, encoding: str) -> None:
    assert one.records(PACKED[encoding](A), content_encoding=encoding).status_code == 200
    assert store.records() == [A]


@pytest.mark.parametrize(
    ("body", "content_type", "encoding", "status"),
    [
        (b"[1,", "application/json", "", 400),
        (b"x", "application/pdf", "", 415),
        (b"x", "text/plain", "br", 415),
        (b"x", "text/plain", "gzip", 400),
        (gzip.compress(bytes(65 * 2**20)), "text/plain", "gzip", 413),
        (bytes(17 * 2**20), "text/plain", "", 413),
    ],
)
def test_what_cannot_be_read_is_refused(
    one: RunningGateway, store: StoreInMemory, body: bytes, content_type: str, encoding: str, status: int
) -> None:
    more = {"content_encoding": encoding} if encoding else {}
    answer = one.records(body, content_type, **more)
    assert answer.status_code == status
    assert answer.json()["message"]
    assert not store.arrivals


def test_a_record_that_is_too_long_is_counted_and_its_first_bytes_are_kept(store: StoreInMemory, directory: DirectoryInMemory) -> None:
    directory.known[LANE] = lane_of(max_record=30)
    with gateway(store, directory) as one:
        answer = one.records(A + b"\n" + b"x" * 99 + b"\n" + B)
    assert answer.json() == {"records": 3, "stored": 3, "committed": 0, "too_long": 1}


def test_a_request_that_is_repeated_under_its_key_is_stored_once(one: RunningGateway, store: StoreInMemory) -> None:
    first = one.records(A, idempotency_key="k1")
    again = one.records(A, idempotency_key="k1")
    assert first.json() == {"records": 1, "stored": 1, "committed": 0}
    assert again.json() == {"records": 1, "stored": 1, "committed": 0, "duplicate": True}
    assert one.records(A, idempotency_key="k2").json()["stored"] == 2
    other = one.records(B, idempotency_key="k1")
    assert (other.status_code, other.json()["message"]) == (422, 'the idempotency key "k1" was used for other records')
    assert store.records() == [A, A]


@pytest.mark.parametrize("stored", [True, False])
def test_a_request_that_failed_is_stored_once_when_it_is_repeated_under_its_key(
    one: RunningGateway, store: StoreInMemory, stored: bool
) -> None:
    """An append that failed may have stored: the same frame is stored again under its number, before any other."""
    one.records(B)
    store.after_append, store.fault = ("lost", "") if stored else ("", "full")
    assert one.records(A, idempotency_key="k1").status_code == 503
    assert one.records(B).status_code == 503
    store.after_append = store.fault = ""
    assert one.records(A, idempotency_key="k1").json()["stored"] == 2
    assert one.records(B).json()["stored"] == 3
    assert store.records(once=True) == [B, A, B]


def test_records_whose_append_failed_are_stored_although_nobody_repeats_them(one: RunningGateway, store: StoreInMemory) -> None:
    store.fault = "full"
    assert one.records(A).status_code == 503
    store.fault = ""
    look_until(lambda: store.records(once=True) == [A], "they are stored", 60)


def test_what_failed_is_stored_at_the_end_if_it_can_be(store: StoreInMemory) -> None:
    with gateway(store) as one:
        store.fault = "full"
        assert one.records(A).status_code == 503
        store.fault = ""
    assert store.records(once=True) == [A]


def test_requests_of_many_clients_at_once_have_numbers_without_gaps(one: RunningGateway, store: StoreInMemory) -> None:
    def post(client: int) -> None:
        for number in range(10):
            body = f'{{"c":{client},"n":{number}}}'.encode()
            assert one.records(body, scribengin_agent=f"c{client % 3}").status_code == 200

    threads = [threading.Thread(target=post, args=(client,)) for client in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(store.records(once=True))) == 80
    assert {each.agent for each in store.arrivals} == {"gateway/c0", "gateway/c1", "gateway/c2"}


def test_a_client_may_wait_for_the_commit(one: RunningGateway, store: StoreInMemory) -> None:
    late = one.records(A, query="?wait=committed&deadline=50ms")
    assert (late.status_code, late.json()["stored"]) == (504, 1)
    answers = []
    thread = threading.Thread(target=lambda: answers.append(one.records(B, query="?wait=committed&deadline=60s")))
    thread.start()
    look_until(lambda: len(store.arrivals) == 2, "it is stored", 60)
    store.committed[store.arrivals[1].agent, store.arrivals[1].incarnation] = 2
    thread.join()
    assert answers[0].json() == {"records": 1, "stored": 2, "committed": 2}


def test_the_client_is_who_holds_the_token(store: StoreInMemory, directory: DirectoryInMemory) -> None:
    directory.tokens = AgentTokens.of_text("shop: one\nweb-*: many", "t")
    with gateway(store, directory) as one:
        assert one.records(A).status_code == 401
        assert one.records(A, authorization="Bearer one").status_code == 200
        assert one.http.post(f"/edge/v1/lanes/{LANE}/records", content=B, auth=("anyone", "one")).status_code == 200
        assert one.records(A, authorization="Bearer many").status_code == 200
        assert one.records(A, authorization="Bearer many", scribengin_agent="web-7").status_code == 200
        assert one.records(A, authorization="Bearer many", scribengin_agent="db").status_code == 403
    assert [each.agent for each in store.arrivals] == ["gateway/shop", "gateway/shop", "gateway/web", "gateway/web-7"]


def test_a_full_channel_and_a_paused_lane_refuse_records_too(store: StoreInMemory, directory: DirectoryInMemory) -> None:
    directory.known[LANE] = lane_of(capacity_bytes=10)
    with gateway(store, directory) as one:
        assert one.records(A).status_code == 200
        assert (one.records(A).status_code, one.records(A).headers["retry-after"]) == (429, "2")
        directory.known[LANE] = lane_of(paused=True)
        assert one.records(A).status_code == 503
