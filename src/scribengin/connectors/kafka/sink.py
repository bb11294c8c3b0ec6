"""The Kafka sink: writes messages and their commit marker in one transaction. `harness.kafka_model` describes the protocol and its
assumptions.

Either each task output commits on its executor, or the whole Batch commits in the driver: then tasks stage messages, the decision
determines which of them count, and the driver sends those. The second way works for every flow, even with shuffles and random steps before
the sink; the first avoids writing messages to disk. The engine chooses the way that the flow allows. Each commit uses a slot: a partition
of the topic of commit markers, and a transactional.id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scribengin.connectors.kafka.avro_values import AvroValues
from scribengin.connectors.kafka.client import KafkaBrokers
from scribengin.connectors.kafka.markers import OPENING, SLOTS, Marker, MarkerTopic
from scribengin.connectors.kafka.options import SINK
from scribengin.connectors.kafka.outgoing import MessageMaker
from scribengin.connectors.kafka.publications import published_log
from scribengin.connectors.kafka.scan import PartitionScan, id_of
from scribengin.connectors.kafka.sink_audit import TopicsAudit
from scribengin.connectors.kafka.sink_stream import StagedMessages, staged_messages
from scribengin.connectors.kafka.sink_unit import UnitMessages, UnitPlace
from scribengin.connectors.kafka.topics import TopicBook
from scribengin.connectors.kafka.transaction import Superseded, Transaction
from scribengin.core import faults
from scribengin.core.errors import FencedError, Refused, StateError, Unreachable
from scribengin.core.remedies import add_to_outputs, start_over
from scribengin.core.storage import names_in, remove_tree
from scribengin.formats.row_ids import is_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from pathlib import Path

    from scribengin.connectors.contract import BatchId, ConnectorContext, Decided, Published
    from scribengin.connectors.kafka.message_stream import OriginMaker, RowMaker
    from scribengin.core.numbered_log import NumberedLog
    from scribengin.core.types import Schema

_OPENING_TRIES = 5
"""maximum attempts to open a slot, against a driver of an older lineage that resumes at the same time; each of its tasks fences once"""
_LOOK_S = 3.0
"""seconds that the brokers have for a readiness check"""
_WHOLE = 0
"""the slot of Batches that commit as a whole, and of the claim"""


class KafkaSink:
    """A `type: kafka` sink. Executors get a pickled copy, from which they create streams."""

    exactly_once = True
    units = SLOTS - 1

    def __init__(self, place: ConnectorContext) -> None:
        self.node = place.node
        self._options = SINK.filled(place.options)
        self._flow = place.flow
        self._version = place.version
        self._work = place.work
        self._earlier = place.earlier
        self._topics = TopicBook(self.node, self._options)
        self._avro = AvroValues(self.node, place.code_folder, self._options) if self._options["format"] == "avro" else None
        self._markers = MarkerTopic(self.node, self._options, self._options["markers"] or f"scribengin-{place.flow}-{self.node}-markers")
        self._owner = ""
        self._lineage = ""
        self._after: dict[int, int | None] = {}
        """slot → the number of its newest commit marker, as far as this process has read it; None if there is none"""
        self._gaps = bool(place.member)
        self._near = KafkaBrokers(self.node, self._options | {"timeout": min(_LOOK_S, self._options["timeout"])}, "sink")

    # --- the claim ---

    def check_place(self) -> None:
        """See PlaceChecking."""
        self._topics.check_target(str(self._options["topic"]))

    def prepare(self, *, owner: str, lineage: str, adopt: bool = False) -> None:
        """Claim the sink's commit markers; see the contract. The topic is checked too, so that a missing one is reported at the start."""
        if self._avro is not None:
            self._avro.load_schemas()
        if "{" not in self._options["topic"]:
            self._topics.get(self._options["topic"])
        self._markers.ensure()
        self._owner, self._lineage = owner, lineage
        newest = self._newest_claim(lineage)
        if newest is None or (adopt and not newest.same_place(owner, lineage)):
            newest = self._open(owner, lineage, adopt=adopt)
        if not newest.same_place(owner, lineage) or newest.sink != self.node:
            raise self._foreign(newest)
        self._after = {_WHOLE: newest.number}

    def _newest_claim(self, lineage: str) -> Marker | None:
        """The newest commit marker of slot 0. Raises StateError if it is older than the newest Batch that the sink's own log records as
        published."""
        log, topic = self._published(lineage), self._markers.name
        known = log.newest()
        if known is None:
            return self._markers.newest(_WHOLE)
        # if task outputs commit one by one, slot 0 lags behind; `recover` reads the other slots
        least = OPENING if log.read(known)["units"] else known  # type: ignore[index]
        newest = self._markers.known_to_be(_WHOLE, least)
        if newest is None or (newest.lineage == lineage and newest.number < least):
            found = "no commit marker" if newest is None else f"batch {newest.number}"
            raise StateError(
                f'sink "{self.node}": batch {known} is published, but the newest in {topic} is {found}: the topic was recreated',
                remedy=f"restore it; or {start_over(outputs=False)}, with other topics (topic, markers)",
            )
        return newest

    def _open(self, owner: str, lineage: str, *, adopt: bool) -> Marker:
        """Begin the lineage. Returns the newest commit marker of slot 0 afterwards; without `adopt` that may be an existing one of another
        lineage.

        The claim is written last: an interrupted start is repeated, because the old lineage's claim still exists.
        """
        mine = Marker(owner, self._flow, self.node, lineage, OPENING, "", 0)
        for slot in (*range(1, SLOTS), _WHOLE) if adopt else (_WHOLE,):
            # also in slots that were never used, so that suspended tasks of an older lineage detect their successor
            found = self._open_slot(slot, mine, adopt=adopt)
        return found

    def _open_slot(self, slot: int, mine: Marker, *, adopt: bool) -> Marker:
        for _ in range(_OPENING_TRIES):
            with _Ended(self._transaction(slot)) as transaction:
                try:
                    transaction.fence()
                    newest = self._markers.newest(slot)
                    if newest is not None and not adopt:
                        return newest
                    transaction.commit(self._markers.name, slot, mine)
                    return mine
                except Superseded as error:
                    superseded = error
        raise Unreachable(
            f'sink "{self.node}" cannot begin its lineage: another driver writes to {self._markers.name} again and again ({superseded})',
            remedy="stop the other driver",
            node=self.node,
        )

    def behind(self, units: int) -> Mapping[str, Any]:
        """The state that the next Batch must find: `units`, and `after`, the number of the newest commit marker of each slot that the Batch
        will use."""
        slots = range(1, units + 1) if units else (_WHOLE,)
        return {"units": units, "after": {str(slot): self._newest_known(slot) for slot in slots}}

    def _newest_known(self, slot: int) -> int | None:
        """The number of a slot's newest commit marker. An unknown one is read without a fence: if it is outdated by the time of the commit,
        the fence of the task detects that, and nothing is written."""
        if slot not in self._after:
            newest = self._markers.newest(slot)
            if newest is not None and not newest.same_place(self._owner, self._lineage):
                raise FencedError(
                    f'sink "{self.node}": {_whose(newest)} wrote the newest commit marker of {self._markers.name}-{slot}',
                    remedy="stop this driver; another driver writes there now",
                )
            self._after[slot] = None if newest is None else newest.number
        return self._after[slot]

    def check_ready(self, *, claimed: bool) -> None:  # noqa: ARG002 (brokers tell another topic from the one that was claimed)
        """See `group.contract.MemberSink`."""
        self._near.topics([self._markers.name])

    # --- a Batch ---

    def stream(self, batch: BatchId, unit: int, attempt: str, schema: Schema) -> StagedMessages:
        """A stream that stages one task output; it creates no file before its first row."""
        return StagedMessages(
            self.node, unit, attempt, self._staged(batch.lineage) / f"{batch.number:010d}", self._maker(schema, batch, unit)
        )

    def unit_stream(
        self, batch: BatchId, unit: int, attempt: str, schema: Schema, *, input_hash: str, behind: Mapping[str, Any]
    ) -> UnitMessages:
        """A stream that commits its task output by itself, in slot `unit` + 1; see the contract."""
        slot = unit + 1
        mine = Marker(self._owner, batch.flow, self.node, batch.lineage, batch.number, input_hash, batch.term)
        spool = self.stream(batch, unit, attempt, schema)
        after, limit_s = behind["after"][str(slot)], float(self._options["transaction_timeout"])
        place = UnitPlace(self.node, slot, mine, after, limit_s, self._folder / "a-unit-was-slower-than-its-transaction")
        return UnitMessages(place, self._markers, self._transaction(slot), spool)

    def publish(self, decided: Decided) -> None:
        """Fence, check the commit marker, send the staged messages and commit. If the task outputs have committed already, only the log is
        written. Raises FencedError or StateError if another commit is found."""
        batch = decided.batch
        if batch.lineage != self._lineage:
            raise FencedError(
                f'''sink "{self.node}" refuses batch {batch.number} of lineage {batch.lineage}: the sink's lineage is {self._lineage}'''
            )
        if decided.behind["units"]:
            segments = [segment for receipt in decided.receipts for segment in receipt.segments]
            self._after |= {segment["slot"]: batch.number for segment in segments}
            messages = [each for segment in segments for each in segment["messages"]]
            rows = sum(receipt.rows for receipt in decided.receipts)
            self._log(batch, {"hash": decided.input_hash, "units": decided.behind["units"], "rows": rows, "messages": messages})
            return
        with _Ended(self._transaction(_WHOLE)) as transaction:
            try:
                transaction.fence()
                newest = self._continues(decided, self._markers.newest(_WHOLE))
                if newest.number != batch.number:
                    faults.reached("publish.record.before")
                    newest = self._send(decided, transaction)
                    faults.reached("publish.record.after")
            except Superseded as error:
                if error.overdue:
                    raise Unreachable(
                        f'sink "{self.node}": the brokers aborted the transaction of batch {batch.number}, which took longer than '
                        f"{self._options['transaction_timeout']:g} s; the next attempt checks whether it was committed, and sends it if "
                        f"not ({error})",
                        remedy="check the load of the brokers; or raise the limit: transaction_timeout: 5m",
                        node=self.node,
                    ) from error
                raise FencedError(
                    f'sink "{self.node}" cannot publish batch {batch.number}: another driver has started to write ({error})',
                    remedy="stop this driver; the other one continues",
                ) from error
        self._log(batch, {"hash": newest.hash, "units": 0, **newest.said})
        self._after[_WHOLE] = batch.number
        remove_tree(self._staged(batch.lineage) / f"{batch.number:010d}")

    def _log(self, batch: BatchId, body: Mapping[str, Any]) -> None:
        log = self._published(batch.lineage)
        log.put(batch.number, dict(body))
        if log.wants_folding(batch.number, gaps=self._gaps):
            log.fold(_summarize)

    def _send(self, decided: Decided, transaction: Transaction) -> Marker:
        batch = decided.batch
        folder = self._staged(batch.lineage) / f"{batch.number:010d}"
        for receipt in decided.receipts:
            for segment in receipt.segments:
                for messages in staged_messages(folder, segment):
                    transaction.send(messages)
        said = {"rows": sum(receipt.rows for receipt in decided.receipts), "messages": transaction.flush()}
        marker = Marker(self._owner, batch.flow, self.node, batch.lineage, batch.number, decided.input_hash, batch.term, said)
        transaction.commit(self._markers.name, _WHOLE, marker)
        return marker

    def _continues(self, decided: Decided, newest: Marker | None) -> Marker:
        """The newest commit marker, if it is that of this Batch or of the one before it. Raises FencedError or StateError otherwise."""
        batch, after = decided.batch, decided.behind["after"][str(_WHOLE)]
        if newest is None:
            raise StateError(
                f'sink "{self.node}" refuses batch {batch.number}: {self._markers.name} holds no commit marker any more',
                remedy=f"restore it; or {start_over(outputs=False)}, with other topics (topic, markers)",
            )
        if not newest.same_place(self._owner, batch.lineage):
            raise FencedError(
                f'sink "{self.node}" refuses batch {batch.number}: {_whose(newest)} wrote the newest commit marker ({self._markers.name})',
                remedy="stop this driver; another driver writes there now",
            )
        own = newest.number == batch.number and newest.hash == decided.input_hash
        if own or (newest.number == after and newest.term <= batch.term):
            return newest
        found = f"batch {newest.number} under Term {newest.term}"
        if newest.number == batch.number:
            found = f"batch {newest.number}, decided with other input,"
        kind = StateError if newest.number < after else FencedError
        raise kind(
            f'sink "{self.node}" refuses batch {batch.number} under Term {batch.term}: {found} is the newest there; expected batch '
            f"{after} ({self._markers.name})",
            remedy="another driver writes here, or the state folder or the topic of commit markers was restored; stop this driver",
        )

    # --- afterwards ---

    def recover(self, decided: Decided | None, *, lineage: str, before: int) -> None:
        """Publish the newest decision, then delete the staged data of decided Batches."""
        if decided is not None:
            if not decided.behind:
                raise Refused(
                    f'sink "{self.node}": batch {decided.batch.number} was written with delivery: at_least_once; its duplicates are not '
                    "known, and exactly-once cannot continue from there",
                    remedy=f"write delivery: at_least_once again; or {start_over(outputs=False)}, with other topics (topic, markers)",
                    code="delivery-changed",
                )
            for slot in decided.behind["after"] if decided.behind["units"] else ():
                self._check_slot(int(slot), decided)
            self.publish(decided)
        staged = self._staged(lineage)
        for name in names_in(staged):
            if name.isdigit() and int(name) < before:
                remove_tree(staged / name)

    def _check_slot(self, slot: int, decided: Decided) -> None:
        """Raise StateError if a slot's commit marker is older than the decision: then the topic was replaced or restored."""
        newest = self._markers.known_to_be(slot, decided.batch.number)
        if newest is None or (newest.same_place(self._owner, decided.batch.lineage) and newest.number < decided.batch.number):
            found = "no commit marker" if newest is None else f"batch {newest.number}"
            raise StateError(
                f'sink "{self.node}": batch {decided.batch.number} is decided, but the newest in {self._markers.name}-{slot} is {found}',
                remedy=f"the topic was recreated: restore it; or {start_over(outputs=False)}, with other topics (topic, markers)",
            )

    def audit(self, *, lineage: str, decided: Iterable[Decided], since: int | None = None) -> Iterator[Published]:  # noqa: ARG002
        """Count the messages again; see `sink_audit`. `since` has no effect: only decided Batches are checked for publication."""
        flow = f"{self._flow}@" if self._options["record_id"] == "header" else None
        return TopicsAudit(self.node, self._options, flow, self._logs(), self._rows_in).run(lineage, decided)

    def places_of(self, lineage: str, number: int, records: Collection[str]) -> Iterator[str]:
        """See the contract's TracingSink."""
        log = self._logs().get(lineage)
        published = None if log is None or self._options["record_id"] != "header" else log.read(number)
        ranges: dict[tuple[str, int], list[int]] = {}  # task outputs of one Batch are interleaved
        for each in () if published is None else published["messages"]:
            ranges.setdefault((each["topic"], each["partition"]), []).extend((each["first"], each["last"]))
        for (topic, partition), offsets in ranges.items():
            with PartitionScan(self.node, self._options, topic, partition, "sink") as scan:
                for message in scan.messages(min(offsets), max(offsets) + 1):
                    flow, _, id_ = id_of(message).partition(" ")
                    if flow.rpartition("@")[0] == self._flow and any(is_of(id_, record) for record in records):
                        yield f"{topic}-{partition}@{message.offset()}"

    def _logs(self) -> dict[str, NumberedLog]:
        """Lineage → the log of its published Batches, including earlier folders of the sink."""
        works = dict.fromkeys((*self._earlier, self._folder))
        return {name: published_log(work, name) for work in works for name in names_in(work) if (work / name).is_dir()}

    def clear(self, *, owner: str, flow: str, dry_run: bool = False) -> int:
        """Delete the claim, so that the flow can start from the beginning. Messages cannot be removed: raises Refused if the topics contain
        any, or if the claim belongs to another flow."""
        if not self._markers.exists():
            return 0
        newest = self._markers.newest(_WHOLE)
        if newest is None:
            return 0
        if (newest.owner, newest.flow, newest.sink) != (owner, flow, self.node):
            raise self._foreign(newest)
        self._take_back(dry_run=dry_run)
        if not dry_run:
            self._markers.delete()
        return 0

    def _take_back(self, *, dry_run: bool) -> None:  # noqa: ARG002 (a subclass's may)
        """Remove the contents of the topics, for `clear`. Raises Refused if they cannot be removed."""
        self._topics.refuse_filled(besides=self._markers.name)

    # --- pieces ---

    def _rows_in(self, message: Any) -> int:  # noqa: ARG002 (a subclass's may hold several)
        """The number of rows in a message, for `audit`; 0 if the message is not this sink's."""
        return 1

    def _maker(self, schema: Schema, batch: BatchId, unit: int) -> RowMaker | OriginMaker:  # noqa: ARG002 (a subclass's messages name it)
        return MessageMaker(self.node, self._options, schema, self._topics, f"{self._flow}@{self._version[:8]}", unit, self._avro)

    def _transaction(self, slot: int) -> Transaction:
        fixed = "{" not in self._options["topic"] and self._topics.find(self._options["topic"])
        sizes = {"max_bytes": fixed.max_bytes} if fixed else {}
        return Transaction(self.node, self._options, f"{self._markers.name}-{slot}", **sizes)

    @property
    def _folder(self) -> Path:
        assert self._work is not None, "a sink opened without the state folder can neither write nor report what it wrote"
        return self._work

    def _staged(self, lineage: str) -> Path:
        return self._folder / lineage / "staged"

    def _published(self, lineage: str) -> NumberedLog:
        """The log of published Batches with the positions of their messages: the topic of commit markers keeps only the newest ones."""
        return published_log(self._folder, lineage)

    def _foreign(self, newest: Marker) -> Refused:
        return Refused(
            f'sink "{self.node}": {self._markers.name} holds commit markers of {_whose(newest)}',
            remedy=f"start over with other topics (topic, markers); or {add_to_outputs()}",
            code="output-foreign",
        )


class _Ended:
    """A context manager that aborts a transaction, unless it was committed."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def __enter__(self) -> Transaction:
        return self._transaction

    def __exit__(self, *_: object) -> None:
        self._transaction.abort()


def _summarize(summary: Any | None, records: Iterable[Any]) -> dict[str, int]:
    so_far = summary or {"batches": 0, "rows": 0}
    for record in records:
        so_far = {"batches": so_far["batches"] + 1, "rows": so_far["rows"] + record["rows"]}
    return so_far


def _whose(marker: Marker) -> str:
    return f'the flow "{marker.flow}" (sink "{marker.sink}", lineage {marker.lineage})'
