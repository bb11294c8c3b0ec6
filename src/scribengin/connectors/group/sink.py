"""A sink that goes to a group: each Batch to one member, which stands in the decision record before anything is written.

Every member is a whole sink of its own, with its claim, its commit records or markers, and its part of the work folder. Health is looked
at between Batches only: a Batch that is decided waits for its member, however many others are healthy.
"""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from scribengin.connectors.abilities import (
    can_be_looked_at,
    compares_columns,
    counts_others,
    is_audited_in_state,
    is_chained,
    keeps_batches,
    offers,
)
from scribengin.connectors.contract import Unaccounted
from scribengin.connectors.group.audit import audit_members
from scribengin.connectors.group.contract import DOWN, said
from scribengin.connectors.group.health import GroupHealth, MemberOverrides
from scribengin.core.errors import FencedError, Refused, SinkError, StateError, Unreachable
from scribengin.core.storage import make_folder, put_if_absent, read_or_none

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    from pathlib import Path

    from scribengin.connectors.contract import ConnectorContext, Decided, Published, RefusedRow
    from scribengin.connectors.group.contract import MemberSink
    from scribengin.connectors.group.health import MemberSeen
    from scribengin.core.types import Schema


class GroupSink:
    """See `contract.ChoosingSink`. Stays in the driver: executors get the chosen member's sink. `sinks`: member → its sink."""

    def __init__(self, place: ConnectorContext, sinks: Mapping[str, MemberSink], *, now: Callable[[], float] = time.monotonic) -> None:
        self.node = place.node
        self.exactly_once = all(sink.exactly_once for sink in sinks.values())
        self.turns: Callable[[], MemberOverrides] = MemberOverrides
        """what somebody says of the group, asked before each Batch"""
        self._sinks = dict(sinks)
        self._work = place.work
        self._health = GroupHealth({name: cost for name, cost, _ in place.members})
        self._batches: dict[str, int] = dict.fromkeys(self._sinks, 0)
        self._now = now
        self._claim: tuple[str, str] | None = None
        """owner and lineage, once `prepare` was called"""
        self._before: int | None = None
        self._ready: set[str] = set()
        """members that are claimed and cleared by this process"""
        self._owed: Decided | None = None
        """decided in an earlier life, and not published yet, for its member was away"""
        self._last = ""
        self._told: list[str] = []
        if all(map(counts_others, self._sinks.values())):
            self.unaccounted = self._unaccounted

    # --- the start ---

    def prepare(self, *, owner: str, lineage: str, adopt: bool = False) -> None:
        """Claim every member's place; one that is away is claimed when it is first taken. With `adopt` all must answer: one that was left
        out would refuse the new lineage later."""
        self._claim, self._before, self._owed = (owner, lineage), None, None
        self._ready.clear()
        for name in self._sinks:
            try:
                self._make_ready(name, adopt=adopt)
            except DOWN as error:
                if adopt:
                    raise Unreachable(
                        f'sink "{self.node}": member "{name}" does not answer, and each must hear of the new lineage: {said(error)}',
                        remedy="bring it back, and say it again",
                        node=self.node,
                    ) from error
                self._health.failed(name, self._now(), said(error))

    def look_at_place(self) -> None:
        """See LookedAtSink: of every member. Raises what the first says that does not take writes."""
        for sink in self._sinks.values():
            if can_be_looked_at(sink):
                sink.look_at_place()

    def unlike(self, schema: Schema) -> list[str]:
        """See ComparingSink: of the members that answer. Of one that does not, its own first Batch tells."""
        found = []
        for name, sink in self._sinks.items():
            try:
                found += [f"member {name}: {text}" for text in sink.unlike(schema)] if compares_columns(sink) else []
            except DOWN as error:
                self._health.failed(name, self._now(), said(error))
        return found

    def recover(self, decided: Decided | None, *, lineage: str, before: int) -> None:
        """Publish the newest decision at its member, and clear away at all that answer what older Batches have left. Raises Unreachable
        where the newest's member is away and may not have it: then that Batch is still owed, and goes before any other."""
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
        """The member that the next Batch goes to, having looked that it answers. Raises Unreachable where none does."""
        if self._owed is not None:
            self.publish(self._owed)
        self._health.heed(self.turns())
        while (choice := self._health.choose(self._now())) is not None:
            name = choice.member
            try:
                self._make_ready(name)
                sink = self._sinks[name]
                newest = sink.behind(0) if is_chained(sink) else {}
            except DOWN as error:
                self._lost(name, error)
                continue
            self._health.succeeded(name)
            self._tell(name, choice.why)
            return {"member": name, "cost": choice.cost, "why": choice.why, "behind": newest}
        seen = self._health.seen(self._now(), {})
        taken = [f"{each.member} (taken out): {each.reason}" for each in seen if each.state == "out"]
        failed = [f"{each.member} (tried again in {each.again_s:.0f} s): {each.reason}" for each in seen if each.state == "failed"]
        out = "; ".join([*failed, *taken])
        raise Unreachable(
            f'sink "{self.node}": no member of its group is healthy: {out}',
            remedy="bring one back; nothing is lost, the Batch is run when one answers",
            code="group-down",
            node=self.node,
        )

    def chosen(self, behind: Mapping[str, Any]) -> MemberSink:
        """The member's sink."""
        return self._sinks[behind["member"]]

    def blame(self, behind: Mapping[str, Any], error: Exception) -> None:
        """Raise Unreachable where the member has gone while the Batch ran: nothing of it is decided, and it is run again, elsewhere."""
        name = behind["member"]
        try:
            self._sinks[name].look(claimed=True)
        except DOWN as away:
            self._lost(name, away)
            raise Unreachable(
                f'sink "{self.node}": member "{name}" went away while a Batch was staged, which is run again: {said(away)}',
                remedy="it is tried again by itself, at another member where there is one",
                node=self.node,
            ) from error

    def publish(self, decided: Decided) -> None:
        """At the member that the decision names, and nowhere else. Raises Unreachable where it is away."""
        self._at_its_member(decided, lambda sink: sink.publish(_inner(decided)))
        self._last = decided.behind["member"]
        self._batches[self._last] = self._batches.get(self._last, 0) + 1

    def upkeep(self) -> list[str]:
        """See `KeptSink`: says where the Batches go from now on, and why; and what members say."""
        told, self._told = self._told, []
        for name, sink in self._sinks.items():
            told += [f"member {name}: {sentence}" for sentence in sink.upkeep()] if keeps_batches(sink) else []
        return told

    def members(self) -> tuple[MemberSeen, ...]:
        """How each member stands; may be asked by any thread."""
        return self._health.seen(self._now(), self._batches)

    # --- afterwards ---

    def audit(self, *, lineage: str, decided: Iterable[Decided]) -> Iterator[Published]:
        """Each member's own audit of the Batches that were decided for it, in the order of all. Raises Unreachable where one is away that
        has to be read."""
        for name, sink in self._sinks.items():
            if is_audited_in_state(sink):
                continue
            try:
                sink.look(claimed=self._is_claimed(name))
            except DOWN as error:
                raise Unreachable(
                    f'sink "{self.node}": an audit needs every member, and "{name}" does not answer: {said(error)}',
                    remedy="bring it back, and audit again",
                    node=self.node,
                ) from error
        return audit_members(self._sinks, decided, lineage=lineage, member_of=self._member_of)

    def _unaccounted(self, known: Collection[str]) -> list[Unaccounted]:
        """See `CountingSink`: of all members, what is of one lineage in one sum."""
        sums: dict[str, Unaccounted] = {}
        for each in (each for sink in self._sinks.values() if counts_others(sink) for each in sink.unaccounted(known)):
            before = sums.get(each.what)
            sums[each.what] = each if before is None else _sum(before, each)
        return list(sums.values())

    def clear(self, *, owner: str, flow: str, dry_run: bool = False) -> int:
        """At every member; looked at in all before anything is deleted in one."""
        found = [sink.clear(owner=owner, flow=flow, dry_run=True) for sink in self._sinks.values()]
        return sum(found) if dry_run else sum(sink.clear(owner=owner, flow=flow) for sink in self._sinks.values())

    def release(self, *, lineage: str, through: int) -> None:
        """Of a channel in folders: let every member delete what all readers have acknowledged; done again where one was away, which is
        raised at the end."""
        missed: list[Exception] = []
        for name, sink in self._sinks.items():
            if self._is_claimed(name):
                try:
                    sink.look(claimed=True)
                    sink.release(lineage=lineage, through=through)  # type: ignore[attr-defined]
                except DOWN as error:
                    missed.append(error)
        if missed:
            raise missed[0]

    # --- pieces ---

    def _at_its_member(self, decided: Decided, act: Callable[[MemberSink], None], *, publishes: bool = True) -> None:
        """`act`, which publishes, or comes before that. Raises where the member is away, or taken out, unless the Batch is known to be
        through."""
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
                    help_ = reason.remedy if isinstance(reason, SinkError) and reason.remedy else f"bring {name} back"
                    raise Unreachable(
                        f'sink "{self.node}": batch {decided.batch.number} is decided for member "{name}", and waits for it: '
                        f"{said(reason)}",
                        remedy=f"{help_}; a Batch never changes its member, those behind it may go to others",
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
        """Why the member does not take the Batch; None where it answers, and what it raised stands."""
        if isinstance(error, FencedError):
            return None
        if not isinstance(error, StateError):
            return error
        # a folder that vanishes while files are renamed looks as if they were gone; only one that is there can say so
        try:
            self._sinks[name].look(claimed=self._is_claimed(name))
        except DOWN as away:
            return away
        return None

    def _make_ready(self, name: str, *, adopt: bool = False) -> None:
        """Look at the member; claim and clear it where this process has not yet. Raises one of DOWN, or what must not be passed over."""
        sink = self._sinks[name]
        sink.look(claimed=self._is_claimed(name))
        if name in self._ready:
            return
        assert self._claim is not None, "a sink is prepared before it is written to"
        owner, lineage = self._claim
        sink.prepare(owner=owner, lineage=lineage, adopt=adopt)
        if (mark := self._mark(name)) is not None:
            put_if_absent(mark, b"")
        if self._before is not None:
            # what a Batch that is still owed has staged there is no leftover
            before = self._before if self._owed is None else min(self._before, self._owed.batch.number)
            sink.recover(None, lineage=lineage, before=before)
        self._ready.add(name)

    def _mark(self, name: str) -> Path | None:
        """A file that says that the member was claimed once."""
        return None if self._work is None else self._work / f"{name}.claimed"

    def _is_claimed(self, name: str) -> bool:
        mark = self._mark(name)
        return mark is not None and mark.exists()

    def _note_published(self, decided: Decided) -> None:
        """Not durable: where it is lost, the next process waits until the member says so itself."""
        if self._work is not None:
            make_folder(self._work)
            draft = self._work / f".published.{uuid4().hex}"
            draft.write_bytes(_published(decided))
            draft.replace(self._work / "published")

    def _was_published(self, decided: Decided) -> bool:
        """True where that Batch is known to be through: so it need not be asked of a member that is away."""
        return self._work is not None and read_or_none(self._work / "published") == _published(decided)

    def _lost(self, name: str, error: Exception) -> None:
        self._health.failed(name, self._now(), said(error))

    def _tell(self, name: str, why: str) -> None:
        before, self._last = self._last, name
        alike = self._health.has_turn(before) and self._health.cost(before) == self._health.cost(name)
        if before in ("", name) or (alike and self._health.is_healthy(before)):
            return
        time_of_day = datetime.now(UTC).strftime("%H:%M:%S")
        cost = f"{self._health.cost(name):g}"
        self._told.append(f"sink {self.node}: from {time_of_day} UTC on to member {name} (cost {cost}) in place of {before}: {why}")

    def _member_of(self, decided: Decided) -> str:
        """Raises Refused where the Batch was decided for no member that there is now."""
        name = decided.behind.get("member")
        number = decided.batch.number
        if name is None:
            raise Refused(
                f'sink "{self.node}": batch {number} was decided before the sink went to a group; what stands where it wrote then is not '
                f"looked at any more",
                remedy="give the sink that goes to the group another id; or take `to` out again",
                code="group-changed",
                node=self.node,
            )
        if name not in self._sinks:
            raise Refused(
                f'sink "{self.node}": batch {number} was decided for member "{name}", which its group does not have any more',
                remedy=f"put {name} back and give it the highest cost; once a Batch went to another member it may be taken out",
                code="group-changed",
                node=self.node,
            )
        return str(name)


class OfferingGroupSink(GroupSink):
    """Of members that take or refuse rows one by one, behind the decision. See OfferingSink."""

    def __init__(self, place: ConnectorContext, sinks: Mapping[str, MemberSink], *, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__(place, sinks, now=now)
        self.on_error = place.on_error

    def offer(self, decided: Decided, refuse: Callable[[RefusedRow], None]) -> None:
        """At the member that the decision names. Raises Unreachable where it is away."""

        def refused(refusal: RefusedRow) -> None:
            try:
                refuse(refusal)
            except DOWN as error:
                raise _OfARow(error) from error

        def act(sink: MemberSink) -> None:
            if offers(sink):
                sink.offer(_inner(decided), refused)

        try:
            self._at_its_member(decided, act, publishes=False)
        except _OfARow as stopped:
            raise stopped.error from None


class _OfARow(Exception):
    """`error` is about a row that a member refused, and says nothing of the member."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


def _sum(one: Unaccounted, other: Unaccounted) -> Unaccounted:
    rows = None if one.rows is None or other.rows is None else one.rows + other.rows
    return Unaccounted(one.what, rows, one.items + other.items)


def _published(decided: Decided) -> bytes:
    return f"{decided.batch.lineage} {decided.batch.number} {decided.input_hash}\n".encode()


def _inner(decided: Decided) -> Decided:
    """What the member itself is told."""
    return replace(decided, behind=decided.behind["behind"])
