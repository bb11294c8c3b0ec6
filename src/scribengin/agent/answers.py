"""What an answer of a gateway to frames means: a pure function, because what a gateway may answer has no limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import msgspec

from scribengin.wire.protocol import FramesAnswer

MOST_ANSWER_BYTES = 64 * 1024
MOST_DELAY_S = 300.0
REFUSED_DELAY_S = 15.0
"""an operator has to issue another token; to ask more often only adds load"""
UNKNOWN_DELAY_S = 2.0
_decode = msgspec.json.Decoder(FramesAnswer).decode

Outcome = Literal["stored", "go_on_at", "busy", "unavailable", "refused", "unknown_lane", "too_large", "nonsense"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SentFrames:
    """A request: records from `sequence` to before `next`; no number at or above `most` was ever given to a record that could be sent."""

    sequence: int
    next: int
    most: int


@dataclass(frozen=True, slots=True)
class FramesVerdict:
    """What follows from an answer.

    `stored`: go on at (and all before it are stored, as this gateway knows); `committed`: free up to there. Both only if `outcome` is
    `stored` or `go_on_at`. `delay_s`: leave the gateway alone for at least as long. `message`: for people, empty if all is well.
    """

    outcome: Outcome
    stored: int = 0
    committed: int = 0
    delay_s: float = 0.0
    message: str = ""


def judge_answer(status: int, retry_after: str | None, body: bytes, sent: SentFrames) -> FramesVerdict:
    """What a gateway's answer to frames means.

    Args:
        status: The HTTP status.
        retry_after: The header of this name.
        body: The body, at most MOST_ANSWER_BYTES of it.
        sent: What was sent.
    """
    match status:
        case 200 | 409:
            return _positions(status, body, sent)
        case 401 | 403:
            return FramesVerdict(
                "refused",
                delay_s=REFUSED_DELAY_S,
                message=f"the token or certificate of this agent is not, or no longer, valid ({status}{_quoted(body)}); all records are "
                "kept. Issue a token with `scribengin token add`, and put it into the token file",
            )
        case 404:
            return FramesVerdict(
                "unknown_lane",
                delay_s=UNKNOWN_DELAY_S,
                message=f"no flow there has this lane{_quoted(body)}; its records are kept. Submit the flow again, or check its `agents:`",
            )
        case 413:
            return FramesVerdict(
                "too_large",
                delay_s=REFUSED_DELAY_S,
                message=f"{sent.next - sent.sequence:,} records are more than it, or a proxy, takes{_quoted(body)}; they are kept. "
                "Allow bodies of 8 MiB there, or lower `frame_bytes` of the source, which holds for later records",
            )
        case 429:
            return FramesVerdict("busy", delay_s=_delay(retry_after), message=f"the channel is full{_quoted(body)}; records are kept")
        case 503:
            message = f"it cannot store records now{_quoted(body)}; they are kept"
            return FramesVerdict("unavailable", delay_s=_delay(retry_after), message=message)
        case _ if status >= 500:
            return FramesVerdict("unavailable", message=f"it answered {status}{_quoted(body)}; records are kept")
        case _:
            return _nonsense(f"status {status}{_quoted(body)}")


def _positions(status: int, body: bytes, sent: SentFrames) -> FramesVerdict:
    try:
        answer = _decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        return _nonsense(f"{status} with a body that is not an answer to frames: {error}")
    if answer.stored < 0 or answer.committed < 0:
        return _nonsense(f"negative numbers: stored {answer.stored:,}, committed {answer.committed:,}")
    if max(answer.stored, answer.committed) > sent.most:
        return _nonsense(
            f"stored {answer.stored:,}, committed {answer.committed:,}, but no record from {sent.most:,} on was ever sent. If the folder "
            "of this agent was restored from a copy, remove the folder of the lane in it: the agent then numbers its records anew"
        )
    if status == 200:
        if not sent.sequence <= answer.stored <= sent.next:
            return _nonsense(f"200 for records {sent.sequence:,} to {sent.next - 1:,}, but stored up to {answer.stored:,}")
        if answer.stored == sent.sequence:
            return FramesVerdict("unavailable", message=f"it answered 200 and stored nothing{_quoted(body)}")
        return FramesVerdict("stored", answer.stored, answer.committed)
    return FramesVerdict("go_on_at", answer.stored, answer.committed, message=answer.message)


def _nonsense(text: str) -> FramesVerdict:
    return FramesVerdict(
        "nonsense",
        delay_s=UNKNOWN_DELAY_S,
        message=f"not a valid answer of a gateway: {text}. Records are kept; check that the address leads to a gateway",
    )


def _delay(retry_after: str | None) -> float:
    """The seconds of `Retry-After`; one if it is missing, a date, or not a number."""
    try:
        return min(MOST_DELAY_S, max(0.05, float(retry_after or "1")))
    except ValueError:
        return 1.0


def _quoted(body: bytes) -> str:
    try:
        text = _decode(body).message
    except (msgspec.MsgspecError, UnicodeDecodeError):
        text = body[:120].decode("utf-8", "replace")
    shown = "".join(character if character.isprintable() else " " for character in text[:300]).strip()
    return f", {shown!r}" if shown else ""
