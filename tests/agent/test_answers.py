"""What answers to frames mean."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scribengin.agent.answers import SentFrames, judge_answer

SENT = SentFrames(sequence=100, next=200, most=300)


def judged(status: int, body: object = None, retry_after: str | None = None, sent: SentFrames = SENT):
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return judge_answer(status, retry_after, raw, sent)


def test_stored_frames_go_on_behind_them() -> None:
    verdict = judged(200, {"stored": 200, "committed": 150})
    assert (verdict.outcome, verdict.stored, verdict.committed, verdict.message) == ("stored", 200, 150, "")


def test_a_gateway_may_store_a_part() -> None:
    assert judged(200, {"stored": 150}).stored == 150


def test_a_gateway_that_stores_nothing_has_failed() -> None:
    assert judged(200, {"stored": 100, "message": "later"}).outcome == "unavailable"


def test_a_gateway_says_where_to_go_on() -> None:
    for stored in (0, 50, 100, 250, 300):
        assert judged(409, {"stored": stored}) == judged(409, {"stored": stored, "committed": 0})
        assert (judged(409, {"stored": stored}).outcome, judged(409, {"stored": stored}).stored) == ("go_on_at", stored)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, b"<html>welcome</html>"),
        (200, b""),
        (200, b"\xff\xfe"),
        (200, b"[1, 2]"),
        (200, b'{"stored": "200"}'),
        (200, b'{"stored": 200.5}'),
        (200, b'{"stored": 1e300}'),
        (200, b'{"stored": -1}'),
        (200, b'{"stored": 200, "committed": -5}'),
        (200, b'{"stored": 201}'),
        (200, b'{"stored": 99}'),
        (200, b'{"stored": 200, "committed": 301}'),
        (409, b'{"stored": 301}'),
        (409, b'{"stored": 9223372036854775807}'),
        (409, b'{"stored": 10, "committed": 999999}'),
        (204, b""),
        (302, b""),
        (418, b"teapot"),
    ],
)
def test_an_answer_that_cannot_be_is_refused(status: int, body: bytes) -> None:
    verdict = judged(status, body)
    assert (verdict.outcome, verdict.stored, verdict.committed) == ("nonsense", 0, 0)
    assert "are kept" in verdict.message


@pytest.mark.parametrize(
    ("status", "outcome", "words"),
    [
        (401, "refused", "scribengin token add"),
        (403, "refused", "scribengin token add"),
        (404, "unknown_lane", "Submit the flow again"),
        (413, "too_large", "lower `frame_bytes`"),
        (429, "busy", "the channel is full"),
        (503, "unavailable", "cannot store records now"),
        (500, "unavailable", "answered 500"),
        (502, "unavailable", "answered 502"),
    ],
)
def test_a_refusal_says_what_to_do_and_that_records_are_kept(status: int, outcome: str, words: str) -> None:
    verdict = judged(status, {"message": "because of this"})
    assert verdict.outcome == outcome
    assert words in verdict.message
    assert "because of this" in verdict.message
    assert "kept" in verdict.message


@pytest.mark.parametrize(
    ("header", "delay"),
    [
        ("7", 7.0),
        ("0.5", 0.5),
        (None, 1.0),
        ("Wed, 21 Oct 2026 07:28:00 GMT", 1.0),
        ("-3", 0.05),
        ("1e9", 300.0),
        ("nan", 0.05),
        ("inf", 300.0),
    ],
)
def test_retry_after_is_followed_within_limits(header: str | None, delay: float) -> None:
    assert judged(429, {}, header).delay_s == delay
    assert judged(503, {}, header).delay_s == delay


@given(st.integers(100, 999), st.one_of(st.none(), st.text(max_size=9)), st.binary(max_size=300))
def test_any_answer_has_a_meaning_and_never_passes_what_was_sent(status: int, retry_after: str | None, body: bytes) -> None:
    verdict = judge_answer(status, retry_after, body, SENT)
    assert 0 <= verdict.stored <= SENT.most
    assert 0 <= verdict.committed <= SENT.most
    assert "\n" not in verdict.message
