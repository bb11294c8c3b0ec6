"""A sink for a group: each Batch goes to one member, which is stored in the decision record before anything is written.

Every member is a complete sink, with its claim, its commit records or commit markers, and its part of the work folder. Health is checked
only between Batches: a decided Batch waits for its member, even if others are healthy.
"""

from __future__ import annotations

import heapq
import time
from contextlib import ExitStack
from dataclasses import asdict, replace
from datetime import UTC, datetime
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Any
from uuid import uuid4

import msgspec

from scribengin.connectors.abilities import (
    buffers_batches,
    chains_batches,
    checks_place,
    compares_columns,
    finds_unaccounted,
    is_audited_in_state,
    refuses_rows,
)
from scribengin.connectors.contract import BatchId, Decided, Receipt, Unaccounted
from scribengin.connectors.group.contract import DOWN
from scribengin.connectors.group.health import GroupHealth, MemberOverrides
from scribengin.core.errors import FencedError, Refused, SinkError, StateError, Unreachable, text_of
from scribengin.core.storage import make_folder, put_if_absent, read_or_none

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    from pathlib import Path

    from scribengin.connectors.contract import ConnectorContext, Published, RefusedRow
    from scribengin.connectors.group.contract import MemberSink
    from scribengin.connectors.group.health import MemberSeen
    from scribengin.core.types import Schema


# The audit of a group's sink: the decisions are distributed to the members, and their results are merged in Batch order.


def audit_members(
    sinks: Mapping[str, MemberSink], decided: Iterable[Decided], *, lineage: str, member_of: Callable[[Decided], str]
) -> Iterator[Published]:
    """Audit all members, and merge the results in the order of the Batches. The decisions are read once and may be many: each member's part
    is kept in an unnamed temporary file.

    Args:
        sinks: Member → its sink.
        decided: The decisions, in order.
        lineage: The lineage.
        member_of: Returns the member of a decision.
    """
    with ExitStack() as stack:
        parts: dict[str, IO[bytes]] = {name: stack.enter_context(TemporaryFile()) for name in sinks}
        first: int | None = None
        for each in decided:
            first = each.batch.number if first is None else first
            parts[member_of(each)].write(_encoded(each))
        told = [_named(name, sink.audit(lineage=lineage, decided=_read(parts[name]), since=first)) for name, sink in sinks.items()]
        yield from heapq.merge(*told, key=lambda published: published.number if published.number >= 0 else float("inf"))


def _named(name: str, told: Iterable[Published]) -> Iterator[Published]:
    for each in told:
        yield replace(each, violations=tuple(f"member {name}: {text}" for text in each.violations))


def _encoded(decided: Decided) -> bytes:
    receipts = [receipt.as_json() for receipt in decided.receipts]
    return msgspec.json.encode([asdict(decided.batch), decided.input_hash, receipts, decided.behind["behind"]]) + b"\n"


def _read(file: IO[bytes]) -> Iterator[Decided]:
    file.seek(0)
    for line in file:
        batch, hash_, receipts, behind = msgspec.json.decode(line)
        yield Decided(BatchId(**batch), hash_, tuple(Receipt.from_json(each) for each in receipts), behind)


class GroupSink:
    """The sink of a group, see `contract.ChoosingSink`. Stays in the driver: executors get the chosen member's sink. `sinks`: member → its
    sink."""

    def __init__(self, place: ConnectorContext, sinks: Mapping[str, MemberSink], *, now: Callable[[], float] = time.monotonic) -> None:
        self.node = place.node
        self.exactly_once = all(sink.exactly_once for sink in sinks.values())
        self.turns: Callable[[], MemberOverrides] = MemberOverrides
        """returns the operators' settings of the group; read before each Batch"""
        self._sinks = dict(sinks)
        self._work = place.work
        self._health = GroupHealth({name: cost for name, cost, _ in place.members})
        self._batches: dict[str, int] = dict.fromkeys(self._sinks, 0)
        self._now = now
        self._claim: tuple[str, str] | None = None
        """owner and lineage, after `prepare` was called"""
        self._before: int | None = None
        self._ready: set[str] = set()
        """members that this process has claimed and cleaned up"""
        self._owed: Decided | None = None
        """a Batch that was decided before this process started, and is not published yet because its member was unavailable"""
        self._last = ""
        self._told: list[str] = []
        if all(map(finds_unaccounted, self._sinks.values())):
            self.unaccounted = self._unaccounted

    # --- the start ---

    def prepare(self, *, owner: str, lineage: str, adopt: bool = False) -> None:
        """Claim every member's place; an unavailable member is claimed when it is first used. With `adopt` all members must answer: a
        member that was left out would refuse the new lineage later. Raises Unreachable then."""
        self._claim, self._before, self._owed = (owner, lineage), None, None
        self._ready.clear()
        for name in self._sinks:
            try:
                self._make_ready(name, adopt=adopt)
            except DOWN as error:
                if adopt:
                    raise Unreachable(
                        f'sink "{self.node}": member "{name}" does not answer, but every member must record the new lineage: '
                        f"{text_of(error)}",
                        remedy="make it available, and repeat the command",
                        node=self.node,
                    ) from error
                self._health.failed(name, self._now(), text_of(error))

    def check_place(self) -> None:
        """See PlaceChecking: checks every member. Raises the error of the first one that cannot accept writes."""
        for sink in self._sinks.values():
            if checks_place(sink):
                sink.check_place()

    def unlike(self, schema: Schema) -> list[str]:
        """See ComparingSink: compares the columns of the members that answer. The columns of the others are compared before their first
        Batch."""
        found = []
        for name, sink in self._sinks.items():
            try:
                found += [f"member {name}: {text}" for text in sink.unlike(schema)] if compares_columns(sink) else []
            except DOWN as error:
                self._health.failed(name, self._now(), text_of(error))
        return found

    def recover(self, decided: Decided | None, *, lineage: str, before: int) -> None:
        """Publish the newest decision at its member, and delete leftovers of older Batches at all members that answer. Raises Unreachable
        if that member is unavailable and may not have the Batch: the Batch is then still pending, and precedes any other."""
        self._before = before
        mine = "" if decided is None else str(decided.behind.get("member"))
        self._last = mine
        self._health.took(mine)
        for name in [name for name in self._ready if name != mine]:
            try:
                self._sinks[name].recover(None, lineage=lineage, before=before)
            except DOWN as error:
                self._lost(name, error)
        if decided is not None:
            self._owed = decided
            self._at_its_member(decided, lambda sink: sink.recover(_inner(decided), lineage=lineage, before=before))

    # --- a Batch ---

    def behind(self, units: int) -> Mapping[str, Any]:  # noqa: ARG002 (a Batch to a group commits as a whole)
        """Choose the member of the next Batch, and check that it answers. Raises Unreachable if none does."""
        if self._owed is not None:
            self.publish(self._owed)
        self._health.heed(self.turns())
        while (choice := self._health.choose(self._now())) is not None:
            name = choice.member
            try:
                self._make_ready(name)
                sink = self._sinks[name]
                newest = sink.behind(0) if chains_batches(sink) else {}
            except DOWN as error:
                self._lost(name, error)
                continue
            self._health.succeeded(name)
            self._tell(name, choice.why)
            return {"member": name, "cost": choice.cost, "why": choice.why, "behind": newest}
        seen = self._health.seen(self._now(), {})
        taken = [f"{each.member} (disabled): {each.reason}" for each in seen if each.state == "out"]
        failed = [f"{each.member} (retried in {each.again_s:.0f} s): {each.reason}" for each in seen if each.state == "failed"]
        out = "; ".join([*failed, *taken])
        raise Unreachable(
            f'sink "{self.node}": no member of its group is healthy: {out}',
            remedy="make one available; nothing is lost, and the Batch is run when one answers",
            code="group-down",
            node=self.node,
        )

    def chosen(self, behind: Mapping[str, Any]) -> MemberSink:
        """The sink of the chosen member."""
        return self._sinks[behind["member"]]

    def blame(self, behind: Mapping[str, Any], error: Exception) -> None:
        """Raise Unreachable if the member became unavailable while the Batch ran: nothing of it is decided, and it is run again at another
        member."""
        name = behind["member"]
        try:
            self._sinks[name].check_ready(claimed=True)
        except DOWN as away:
            self._lost(name, away)
            raise Unreachable(
                f'sink "{self.node}": member "{name}" became unavailable while a Batch was staged; the Batch is run again: {text_of(away)}',
                remedy="the Batch is retried automatically, at another member if there is one",
                node=self.node,
            ) from error

    def publish(self, decided: Decided) -> None:
        """Publish at the member that the decision names, and nowhere else. Raises Unreachable if it is unavailable."""
        self._at_its_member(decided, lambda sink: sink.publish(_inner(decided)))
        self._last = decided.behind["member"]
        self._batches[self._last] = self._batches.get(self._last, 0) + 1

    def upkeep(self) -> list[str]:
        """See `BufferingSink`. Reports to which member Batches go from now on, and why; and the members' own sentences."""
        told, self._told = self._told, []
        for name, sink in self._sinks.items():
            told += [f"member {name}: {sentence}" for sentence in sink.upkeep()] if buffers_batches(sink) else []
        return told

    def members(self) -> tuple[MemberSeen, ...]:
        """The state of each member; thread-safe."""
        return self._health.seen(self._now(), self._batches)

    # --- afterwards ---

    def audit(self, *, lineage: str, decided: Iterable[Decided]) -> Iterator[Published]:
        """Each member's own audit of the Batches that were decided for it, in Batch order. Raises Unreachable if a member that must be read
        is unavailable."""
        for name, sink in self._sinks.items():
            if is_audited_in_state(sink):
                continue
            try:
                sink.check_ready(claimed=self._is_claimed(name))
            except DOWN as error:
                raise Unreachable(
                    f'sink "{self.node}": an audit needs every member, and "{name}" does not answer: {text_of(error)}',
                    remedy="make it available, and audit again",
                    node=self.node,
                ) from error
        return audit_members(self._sinks, decided, lineage=lineage, member_of=self._member_of)

    def _unaccounted(self, known: Collection[str]) -> list[Unaccounted]:
        """See `CountingSink`: sums the results of all members by lineage and sink."""
        sums: dict[str, Unaccounted] = {}
        for each in (each for sink in self._sinks.values() if finds_unaccounted(sink) for each in sink.unaccounted(known)):
            before = sums.get(each.what)
            sums[each.what] = each if before is None else _sum(before, each)
        return list(sums.values())

    def clear(self, *, owner: str, flow: str, dry_run: bool = False) -> int:
        """Clear every member; all members are checked before anything is deleted."""
        found = [sink.clear(owner=owner, flow=flow, dry_run=True) for sink in self._sinks.values()]
        return sum(found) if dry_run else sum(sink.clear(owner=owner, flow=flow) for sink in self._sinks.values())

    def release(self, *, lineage: str, through: int) -> None:
        """For a channel in folders: let every member delete the files that all readers have acknowledged. The error of an unavailable
        member is raised at the end; the call is repeated later."""
        missed: list[Exception] = []
        for name, sink in self._sinks.items():
            if self._is_claimed(name):
                try:
                    sink.check_ready(claimed=True)
                    sink.release(lineage=lineage, through=through)  # type: ignore[attr-defined]
                except DOWN as error:
                    missed.append(error)
        if missed:
            raise missed[0]

    # --- pieces ---

    def _at_its_member(self, decided: Decided, act: Callable[[MemberSink], None], *, publishes: bool = True) -> None:
        """Run `act` with the sink of the Batch's member. `publishes`: `act` publishes the Batch; False if it precedes that. Raises if the
        member is unavailable or disabled, unless the Batch is known to be complete."""
        through = self._was_published(decided)
        name = str(decided.behind.get("member")) if through else self._member_of(decided)
        if name in self._sinks:
            try:
                self._make_ready(name)
                act(self._sinks[name])
            except (*DOWN, StateError) as error:
                reason = self._away(name, error)
                if reason is None:
                    raise
                self._lost(name, reason)
                if not through:
                    help_ = reason.remedy if isinstance(reason, SinkError) and reason.remedy else f"make {name} available"
                    raise Unreachable(
                        f'sink "{self.node}": batch {decided.batch.number} is decided for member "{name}" and waits for it: '
                        f"{text_of(reason)}",
                        remedy=f"{help_}; a decided Batch never changes its member; later Batches may go to others",
                        code="group-waits",
                        node=self.node,
                    ) from error
            else:
                self._health.succeeded(name)
                if publishes:
                    self._note_published(decided)
        if publishes:
            self._owed = None

    def _away(self, name: str, error: Exception) -> Exception | None:
        """Why the member cannot accept the Batch; None if the member answers: then `error` is the cause."""
        if isinstance(error, FencedError):
            return None
        if not isinstance(error, StateError):
            return error
        # a folder that disappears during renames looks as if its files were missing; only an existing folder can prove that they are
        try:
            self._sinks[name].check_ready(claimed=self._is_claimed(name))
        except DOWN as away:
            return away
        return None

    def _make_ready(self, name: str, *, adopt: bool = False) -> None:
        """Check the member, and claim and clean it up if this process has not done so. Raises one of DOWN, or an error that must not be
        ignored."""
        sink = self._sinks[name]
        sink.check_ready(claimed=self._is_claimed(name))
        if name in self._ready:
            return
        assert self._claim is not None, "a sink must be prepared before it is written to"
        owner, lineage = self._claim
        sink.prepare(owner=owner, lineage=lineage, adopt=adopt)
        if (mark := self._mark(name)) is not None:
            put_if_absent(mark, b"")
        if self._before is not None:
            # staged data of the pending Batch is not a leftover
            before = self._before if self._owed is None else min(self._before, self._owed.batch.number)
            sink.recover(None, lineage=lineage, before=before)
        self._ready.add(name)

    def _mark(self, name: str) -> Path | None:
        """The file that records that the member was claimed once."""
        return None if self._work is None else self._work / f"{name}.claimed"

    def _is_claimed(self, name: str) -> bool:
        mark = self._mark(name)
        return mark is not None and mark.exists()

    def _note_published(self, decided: Decided) -> None:
        """Store which Batch is complete. Not durable: if it is lost, the next process waits until the member itself reports the Batch."""
        if self._work is not None:
            make_folder(self._work)
            draft = self._work / f".published.{uuid4().hex}"
            draft.write_bytes(_published(decided))
            draft.replace(self._work / "published")

    def _was_published(self, decided: Decided) -> bool:
        """True if the Batch is known to be complete, so that no request to an unavailable member is needed."""
        return self._work is not None and read_or_none(self._work / "published") == _published(decided)

    def _lost(self, name: str, error: Exception) -> None:
        self._health.failed(name, self._now(), text_of(error))

    def _tell(self, name: str, why: str) -> None:
        before, self._last = self._last, name
        alike = self._health.has_turn(before) and self._health.cost(before) == self._health.cost(name)
        if before in ("", name) or (alike and self._health.is_healthy(before)):
            return
        time_of_day = datetime.now(UTC).strftime("%H:%M:%S")
        cost = f"{self._health.cost(name):g}"
        self._told.append(f"sink {self.node}: since {time_of_day} UTC Batches go to member {name} (cost {cost}) instead of {before}: {why}")

    def _member_of(self, decided: Decided) -> str:
        """The member that the Batch was decided for. Raises Refused if it is not in the group now."""
        name = decided.behind.get("member")
        number = decided.batch.number
        if name is None:
            raise Refused(
                f'sink "{self.node}": batch {number} was decided before the sink used a group; the rows at its earlier place are not '
                "checked any more",
                remedy="give the sink with the group another id; or remove `to` again",
                code="group-changed",
                node=self.node,
            )
        if name not in self._sinks:
            raise Refused(
                f'sink "{self.node}": batch {number} was decided for member "{name}", which is not in its group any more',
                remedy=f"add {name} to the group again, with the highest cost; remove it after a Batch went to another member",
                code="group-changed",
                node=self.node,
            )
        return str(name)


class OfferingGroupSink(GroupSink):
    """The sink of a group whose members accept or refuse rows one by one, after the decision. See OfferingSink."""

    def __init__(self, place: ConnectorContext, sinks: Mapping[str, MemberSink], *, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__(place, sinks, now=now)
        self.on_error = place.on_error

    def offer(self, decided: Decided, refuse: Callable[[RefusedRow], None]) -> None:
        """Offer the rows to the member that the decision names. Raises Unreachable if it is unavailable."""

        def refused(refusal: RefusedRow) -> None:
            try:
                refuse(refusal)
            except DOWN as error:
                raise _OfARow(error) from error

        def act(sink: MemberSink) -> None:
            if refuses_rows(sink):
                sink.offer(_inner(decided), refused)

        try:
            self._at_its_member(decided, act, publishes=False)
        except _OfARow as stopped:
            raise stopped.error from None


class _OfARow(Exception):
    """Wraps an `error` about a row that a member refused, which does not depend on the member's health."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


def _sum(one: Unaccounted, other: Unaccounted) -> Unaccounted:
    rows = None if one.rows is None or other.rows is None else one.rows + other.rows
    return Unaccounted(one.what, rows, one.items + other.items)


def _published(decided: Decided) -> bytes:
    return f"{decided.batch.lineage} {decided.batch.number} {decided.input_hash}\n".encode()


def _inner(decided: Decided) -> Decided:
    """The decision as the member itself needs it."""
    return replace(decided, behind=decided.behind["behind"])
