"""A task output that commits by itself on the executor: fence, commit marker, messages, commit. See `harness.kafka_model`, steps 1 to 5."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from scribengin.connectors.contract import AlreadyCommitted, Receipt
from scribengin.connectors.kafka.message_stream import MessageStream
from scribengin.connectors.kafka.sink_stream import staged_messages
from scribengin.connectors.kafka.transaction import Superseded
from scribengin.core import faults
from scribengin.core.errors import FencedError, Unreachable
from scribengin.core.storage import make_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from scribengin.connectors.kafka.markers import Marker, MarkerTopic
    from scribengin.connectors.kafka.outgoing import Outgoing
    from scribengin.connectors.kafka.sink_stream import StagedMessages
    from scribengin.connectors.kafka.transaction import Transaction

_WAITING_ROWS = 16_384
"""number of messages that are kept back before the transaction begins: a transaction that is open for long blocks readers and may time
out"""
_LOOK_S = 0.05
_OVERDUE_S = 1.0
"""seconds to wait for another attempt to commit a timed-out task output: most likely there is none"""
_PATIENT_S = 3600.0
"""seconds for which all task outputs of the flow are treated as slow after one of them was"""


@dataclass(frozen=True, slots=True)
class UnitPlace:
    """A task output and its Batch.

    Attributes:
        node: The id of the sink.
        slot: The slot of the task output.
        mine: Its commit marker, without the report.
        after: The number of the commit marker that the fence must find; None if there must be none.
        limit_s: The time limit of the transaction, in seconds.
        slow: A file that exists if a task output took longer than that.
    """

    node: str
    slot: int
    mine: Marker
    after: int | None
    limit_s: float
    slow: Path


class UnitMessages(MessageStream):
    """A UnitStream of the contract. The fence runs while the first rows are processed.

    `spool` stages the messages of a task output that is too slow for its transaction: they are sent together at its end.
    """

    def __init__(self, place: UnitPlace, markers: MarkerTopic, transaction: Transaction, spool: StagedMessages) -> None:
        super().__init__(spool.maker)
        self._place = place
        self._markers = markers
        self._transaction = transaction
        self._spool = spool
        self._waiting: list[Outgoing] = []
        self._waiting_rows = 0
        self._rows = 0
        self._bytes = 0
        self._begun_s = time.monotonic()
        self.sending = False
        """True from the moment its transaction is opened"""
        self._patient = place.slow.exists() and time.time() - place.slow.stat().st_mtime < _PATIENT_S
        self._failed: BaseException | None = None
        self._fence = threading.Thread(target=self._begin, name="fence", daemon=True)
        self._fence.start()

    def keep(self, messages: Outgoing) -> None:
        """Send the messages. The first ones are kept back until there are enough of them; those of a slow task output until its end."""
        self._rows += messages.rows_inside()
        if self._spool.rows or self._is_slow():
            self._spool_all(messages)
        else:
            self._waiting.append(messages)
            self._waiting_rows += len(messages)
            if self.sending or self._waiting_rows >= _WAITING_ROWS:
                self._guarded(self._send_waiting)

    def close(self) -> Receipt:
        """Wait until the brokers have all messages. The transaction stays open."""
        segment = self._guarded(self._finish)
        return Receipt(self._place.node, self._place.slot - 1, self._rows, self._bytes, (segment,), self.digest)

    def commit(self, report: Mapping[str, Any]) -> None:
        """Write the commit marker with the report, and commit."""
        marker = replace(self._place.mine, said=report)
        self._guarded(lambda: self._transaction.commit(self._markers.name, self._place.slot, marker))

    def abort(self) -> None:
        """Abort the transaction, and delete staged messages."""
        self._fence.join()
        self._transaction.abort()
        self._spool.abort()

    # --- the protocol ---

    def _begin(self) -> None:
        """Fence and check the commit marker (steps 1 and 2), in a separate thread."""
        try:
            self._transaction.fence()
            self._check_not_committed(self._markers.newest(self._place.slot))
            faults.reached("marker.read")
        except BaseException as error:
            self._failed = error

    def _check_not_committed(self, newest: Marker | None) -> None:
        """Return if the task output still has to be written. Raises AlreadyCommitted if it is committed, FencedError if other writers have
        continued."""
        place, mine = self._place, self._place.mine
        if newest is None and place.after is None:
            return
        if newest is not None and newest.same_place(mine.owner, mine.lineage):
            if (newest.number, newest.hash) == (mine.number, mine.hash):
                raise AlreadyCommitted(newest.said)
            if newest.number == place.after != mine.number:
                return
        found = "no commit marker" if newest is None else f"batch {newest.number} of lineage {newest.lineage}"
        expected = "none" if place.after is None else f"batch {place.after} of lineage {mine.lineage}"
        raise FencedError(
            f'sink "{place.node}" writes nothing of batch {mine.number}: expected {expected} in {self._markers.name}-{place.slot}, found '
            f"{found}",
            remedy="another driver writes here, or the state folder or the topic of commit markers was restored; stop this driver",
        )

    def _guarded(self, act: Callable[[], Any]) -> Any:
        """Run `act` after the fence. If a newer attempt has fenced this one, wait for its commit, which raises AlreadyCommitted."""
        self._fence.join()
        try:
            if self._failed is not None:
                raise self._failed
            return act()
        except Superseded as error:
            self._wait_for_the_other(error)

    def _wait_for_the_other(self, error: Superseded) -> None:
        """Wait for the commit of a newer attempt, without another fence (step 5). Raises AlreadyCommitted, FencedError, or Unreachable
        after the time limit."""
        if error.overdue:
            # the brokers have aborted it, without another writer: the next attempt sends everything at its end
            make_folder(self._place.slow.parent)
            self._place.slow.touch()
        patience_s = _OVERDUE_S if error.overdue else self._place.limit_s
        give_up_s = time.monotonic() + patience_s
        while time.monotonic() < give_up_s:
            newest = self._markers.newest(self._place.slot)
            if newest is not None or self._place.after is not None:
                self._check_not_committed(newest)
            time.sleep(_LOOK_S)
        raise Unreachable(
            f'sink "{self._place.node}": the brokers rejected task output {self._place.slot - 1} of batch {self._place.mine.number}, and '
            f"no other attempt committed it within {patience_s:g} s ({error})",
            remedy="it is retried; a task output that took longer than transaction_timeout then sends all of its messages at its end",
            node=self._place.node,
        )

    # --- messages ---

    def _is_slow(self) -> bool:
        """True if the first rows took so long that the transaction might time out at this pace, or if a task output of the flow was slow
        recently."""
        late = time.monotonic() - self._begun_s > self._place.limit_s / 10
        return not self.sending and (self._patient or late)

    def _spool_all(self, messages: Outgoing) -> None:
        waiting, self._waiting, self._waiting_rows = [*self._waiting, messages], [], 0
        for each in waiting:
            self._spool.keep(each)

    def _send_waiting(self) -> None:
        self.sending = True
        waiting, self._waiting, self._waiting_rows = self._waiting, [], 0
        for messages in waiting:
            self._send(messages)

    def _send(self, messages: Outgoing) -> None:
        self._bytes += messages.size_bytes()
        self._transaction.send(messages)

    def _finish(self) -> dict[str, Any]:
        if self._spool.rows:
            kept = self._spool.close()
            for messages in staged_messages(self._spool.folder, kept.segments[0]):
                self._send(messages)
            self._spool.abort()
        self._send_waiting()
        return {"slot": self._place.slot, "messages": self._transaction.flush()}
