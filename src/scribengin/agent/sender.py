"""Sends the frames of one lane to a gateway, in order, one request at a time, and learns what is stored and committed."""

from __future__ import annotations

import time
from dataclasses import dataclass
from threading import Event, Thread
from typing import TYPE_CHECKING

from scribengin.agent.answers import SentFrames, judge_answer
from scribengin.agent.connection import GatewayConnection, GatewayFault
from scribengin.core import faults
from scribengin.wire.protocol import AGENT_HEADER, COMMITTED_HEADER, FRAMES_TYPE, INCARNATION_HEADER, PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable

    from scribengin.agent.answers import FramesVerdict
    from scribengin.agent.buffers import FramesPiece, LaneBuffer
    from scribengin.agent.gateways import GatewayChain
    from scribengin.agent.log import AgentLog
    from scribengin.agent.settings import AgentSettings
    from scribengin.wire.protocol import FramesAnswer

BODY_BYTES = 4 * 2**20
_SETBACKS = 3
"""how often a gateway may send the lane back without storing anything"""
_GROW_IN = 200
"""requests after which a body that was too large is tried again"""
_IDLE_S = 5.0
_TOKEN_S = 1.0
"""how often an agent whose token was refused reads it again"""
_RESEND_S = 60.0
_MOST_RESEND_S = 3600.0


@dataclass(frozen=True, slots=True)
class SenderSurroundings:
    """What the senders of an agent have in common."""

    settings: AgentSettings
    log: AgentLog
    lane_unknown: Callable[[], None]
    """called when a gateway does not know a lane: the configuration may be old"""


class FramesSender:
    """One thread that sends what a buffer holds.

    Args:
        lane: `FLOW.SOURCE`.
        buffer: What to send.
        chain: The gateways of this lane; the sender reports their health to it.
        surroundings: Of the agent.
        probe_s: Send the newest frames again after as long without news of commits; 0: never. For a buffer that is in no report.
    """

    def __init__(
        self, lane: str, buffer: LaneBuffer, chain: GatewayChain, surroundings: SenderSurroundings, *, probe_s: float = 0.0
    ) -> None:
        self.lane = lane
        self.buffer = buffer
        self.chain = chain
        self.connection = GatewayConnection(surroundings.settings)
        self.position = buffer.first
        """the number of the next record to be sent; all before it are stored, as the last answer says"""
        self.stored = buffer.first
        self.waiting = False
        """True while no gateway takes frames"""
        self.message = ""
        self._settings = surroundings.settings
        self._log = surroundings.log
        self._lane_unknown = surroundings.lane_unknown
        self._probe_s = probe_s
        self._most_sent = buffer.sendable
        self._body_bytes = BODY_BYTES
        self._grow_in = _GROW_IN
        self._setbacks = 0
        self._refused = False
        self._news = Event()
        self._stopping = Event()
        self._url = ""
        self._moved_at = time.monotonic()
        self._resend_s = _RESEND_S
        self._back_to: int | None = None
        self._thread = Thread(target=self._run, name=f"send {lane}", daemon=True)

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def wake(self) -> None:
        """There may be more to send."""
        self._news.set()

    def stop(self, timeout_s: float = 10.0) -> None:
        """Send no more; a request under way is cut."""
        self._stopping.set()
        self._news.set()
        self.connection.close()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def handed_over(self) -> bool:
        """True if gateways have stored all that can be sent."""
        return self.position >= self.buffer.sendable

    def learn(self, answer: FramesAnswer) -> None:
        """Take in what a report was answered with. Numbers that cannot be are left out, with a message.

        A gateway that gives frames out for stored which it then loses would keep the log waiting forever: where commits do not come, and
        the gateway knows of less than was sent, the rest is sent again, more and more rarely.
        """
        if not 0 <= answer.committed <= self._most_sent or not answer.stored >= 0:
            self._log.error(
                f"{self.lane}: a gateway reports records up to {max(answer.committed, answer.stored):,} as committed or stored; only "
                f"{self._most_sent:,} were sent. The report is ignored; check that all gateways use one channel"
            )
            return
        self._commit(answer.committed)
        idle_s = time.monotonic() - self._moved_at
        if answer.stored < self.position and self.handed_over() and self.buffer.first < self.position and idle_s > self._resend_s:
            self._resend_s = min(_MOST_RESEND_S, 2 * self._resend_s)
            self._moved_at = time.monotonic()
            self._back_to = max(answer.stored, self.buffer.first)
            self.wake()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._step()
            except Exception as error:  # a fault of the agent: the lane must not fall silent
                self._log.error(f"{self.lane}: sending failed: {type(error).__name__}: {error}. It is tried again")
                self._pause(5.0)
        self.connection.disconnect()

    def _step(self) -> None:
        self._news.clear()
        if self._back_to is not None:
            self.position, self._back_to = self._back_to, None
        self.position = max(self.position, self.buffer.first)
        piece = self.buffer.piece(self.position, self._body_bytes)
        if piece is None:
            # what is committed was stored, whatever the last answer was
            self.waiting, self.message, self.stored = False, "", max(self.stored, self.buffer.first)
            self._news.wait(min(_IDLE_S, self._probe_s or _IDLE_S))
            if self._probe_s and self.buffer.first < self.position and time.monotonic() - self._moved_at > self._probe_s:
                self._moved_at = time.monotonic()
                self.position = max(self.buffer.first, self.position - 1)
            return
        url = self.chain.choose()
        if url is None:
            self.waiting = True
            self.buffer.gateways_failed()
            self._pause(min(self.chain.wait_s(), _TOKEN_S) if self._refused else self.chain.wait_s())
            if self._refused and self.connection.token_changed():
                self._refused = False
                self._log.info(f"{self.lane}: there is another token: all gateways are tried again")
                self.chain.forgive()
            return
        self._send(url, piece)

    def _pause(self, delay_s: float) -> None:
        """Wait, also while there is more to send; not when the agent stops."""
        self._stopping.wait(delay_s)

    def _send(self, url: str, piece: FramesPiece) -> None:
        headers = {
            "Content-Type": FRAMES_TYPE,
            AGENT_HEADER: self._settings.name,
            INCARNATION_HEADER: self.buffer.incarnation,
            COMMITTED_HEADER: str(self.buffer.first),
        }
        sent = SentFrames(sequence=piece.sequence, next=piece.next, most=max(self._most_sent, piece.next))
        self._most_sent = sent.most
        faults.reached("agent.post.before")
        try:
            reply = self.connection.request(url, "POST", f"{PREFIX}/lanes/{self.lane}/frames", body=piece.data, headers=headers)
        except GatewayFault as fault:
            if not self._stopping.is_set():
                self._failed(url, str(fault))
            return
        faults.reached("agent.post.after")
        self._act(url, piece, judge_answer(reply.status, reply.retry_after, reply.body, sent))

    def _act(self, url: str, piece: FramesPiece, verdict: FramesVerdict) -> None:
        match verdict.outcome:
            case "stored":
                self._setbacks = 0
                self._grow_in -= 1
                if self._grow_in <= 0:
                    self._body_bytes, self._grow_in = min(BODY_BYTES, 2 * self._body_bytes), _GROW_IN
                self._healthy(url)
                self._go_on(verdict.stored, verdict.committed)
            case "go_on_at":
                self._go_on_at(url, piece, verdict)
            case "busy":
                self.message = f"{url}: {verdict.message}"
                self._log.info(f"{self.lane}: {self.message}")
                self.chain.busy(url, verdict.delay_s)
            case "too_large" if len(piece.data) > 8 + int.from_bytes(piece.data[4:8], "little"):  # more than one frame
                self._body_bytes = len(piece.data) // 2
                self._grow_in = _GROW_IN
                self.chain.busy(url, 0.0)
            case "refused" if self.connection.token_changed():
                self._log.info(f"{self.lane}: the token is read again")
                self.chain.busy(url, 0.0)
            case "refused":
                self._refused = True
                self._failed(url, verdict.message, verdict.delay_s)
            case "unknown_lane":
                self._failed(url, verdict.message, verdict.delay_s)
                self._lane_unknown()
            case _:
                self._failed(url, verdict.message, verdict.delay_s)

    def _go_on_at(self, url: str, piece: FramesPiece, verdict: FramesVerdict) -> None:
        first = self.buffer.first
        target = max(verdict.stored, verdict.committed, first)
        self._log.debug(
            f"{self.lane}: {url} asks for records from {verdict.stored:,} on; sent were {piece.sequence:,} to {piece.next - 1:,}"
        )
        self._setbacks += target <= self.position
        if target == piece.sequence or self._setbacks >= _SETBACKS:
            self._setbacks = 0
            gone = f", of which those before {first:,} are committed and no longer kept" if verdict.stored < first else ""
            self._failed(
                url,
                f"it does not take records {piece.sequence:,} to {piece.next - 1:,}: it asks for those from {verdict.stored:,} on{gone}. "
                "All others are kept. Check that its channel was not emptied, and is the one of the other gateways",
            )
        else:
            self._healthy(url)
        if target > self.position:
            self.buffer.stored(target)
        self.position, self.stored = target, target
        self._commit(verdict.committed)

    def _go_on(self, stored: int, committed: int) -> None:
        # the gateway may know of later commits, of records that were sent before this process began
        self.position = max(stored, committed)
        self.stored = self.position
        self._moved_at = time.monotonic()
        self.buffer.stored(self.position)
        self._commit(committed)

    def _commit(self, committed: int) -> None:
        if committed > self.buffer.first:
            self._moved_at = time.monotonic()
            self._resend_s = _RESEND_S
        self.buffer.committed(committed)

    def _healthy(self, url: str) -> None:
        was_failed = self.chain.succeeded(url)
        if url != self._url or was_failed:
            self._log.info(f"{self.lane}: sends to {url}")
        self._url, self.waiting, self.message, self._refused = url, False, "", False
        self.buffer.gateways_work()

    def _failed(self, url: str, text: str, at_least_s: float = 0.0) -> None:
        delay = self.chain.failed(url, at_least_s=at_least_s)
        self.message = f"{url}: {text}"
        self._log.warning(f"{self.lane}: {self.message}", again_in=f"{delay:.1f}s")
