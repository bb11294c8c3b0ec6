"""The records beside the objects, which say which objects are committed.

    <url>/_scribengin/owners/…                        the installations and lineages that write here; only the newest may write
    <url>/_scribengin/<lineage>/batches/…             one manifest a Batch, put-if-absent; see `core.numbered_log`
    <url>/_scribengin/<lineage>/staged/<batch>/<key>  an empty object: a task is about to write the key, or has written it

All are written once and never changed: the store needs no compare-and-swap.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from scribengin.connectors.staged_commit import CLOSED_BY, is_closed
from scribengin.core.errors import FencedError, Refused, SinkError
from scribengin.core.log_storage import StoreShelf
from scribengin.core.numbered_log import NumberedLog
from scribengin.core.remedies import add_to_outputs, beside_flow, beside_installation, beside_sink, start_over
from scribengin.core.time_text import now_text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from scribengin.core.store import Store

INTERNAL = "_scribengin"
TRASH = "_scribengin_trash"
"""Prefix of the objects that a reset has removed, see `objects.trash`."""
CLAIMS = f"{INTERNAL}/owners/"
DATA = "data"
"""Prefix of the objects for readers that use manifests, not a listing."""


class Manifests:
    """The manifests of one lineage at one place."""

    def __init__(self, store: Store, lineage: str) -> None:
        top = f"{INTERNAL}/{lineage}"
        self.commits = NumberedLog(Path(top, "batches"), "commit", StoreShelf(store))
        self.notes = Notes(store, f"{top}/staged")
        """the keys that tasks have announced, by Batch"""

    def committed(self, number: int = 0) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """(number, manifest) from `number` on, without the record that closes the lineage."""
        return ((n, record) for n, record in self.commits.since(number) if not is_closed(record))

    def close(self, heir: str) -> None:
        """Close the lineage: the next number is occupied by a record that names `heir`, so that no Batch of this lineage is committed from
        now on."""
        while True:
            newest = self.commits.newest()
            if newest is not None and is_closed(self.commits.read(newest) or {}):
                return
            try:
                self.commits.put(0 if newest is None else newest + 1, {CLOSED_BY: heir})
            except FencedError:  # another process has folded the records in the meantime
                continue


class Notes:
    """Announcements that processes write before they write objects, by number, below one folder. With them the leftovers of dead processes
    are found without a listing of all objects."""

    def __init__(self, store: Store, folder: str) -> None:
        self._store = store
        self._folder = folder

    def stage(self, number: int, key: str) -> None:
        """Announce that the object is about to be written for that number."""
        self._store.put(self._note(number, key), b"")

    def staged(self, number: int | None = None) -> Iterator[tuple[int, str]]:
        """(number, key) of the announcements, in the order of the numbers; of one number if it is given."""
        for entry in self._store.list(self._folder if number is None else f"{self._folder}/{number:010d}"):
            said, _, key = entry.key.removeprefix(f"{self._folder}/").partition("/")
            if said.isdigit() and key:
                yield int(said), key

    def sweep(self, number: int, keys: Iterable[str], kept: Collection[str] = ()) -> int:
        """Delete a number's objects, except those that are kept, and all of its announcements.

        Args:
            number: The number.
            keys: The announced keys of that number.
            kept: The keys of the objects to keep.

        Returns:
            The number of deleted objects, complete or partial.
        """
        keys = list(keys)
        lost = [key for key in keys if key not in kept]
        for key in lost:
            self._store.abandon(key)
        self._store.delete(*(self._note(number, key) for key in keys))
        return len(lost)

    def _note(self, number: int, key: str) -> str:
        return f"{self._folder}/{number:010d}/{key}"


def is_internal(key: str) -> bool:
    """True if an object is one of Scribengin's own records, or is in the trash."""
    return key.startswith((f"{INTERNAL}/", f"{TRASH}/"))


def lineages(store: Store) -> list[str]:
    """All lineages that have claimed the place, oldest first."""
    return list(dict.fromkeys(claim["lineage"] for claim in Owners(store).claims()))


class Owners:
    """The claims of a place: the lineage of the last claim may write."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._log = NumberedLog(Path(INTERNAL, "owners"), "owner", StoreShelf(store))

    def is_claimed(self) -> bool:
        """True if the place was ever claimed."""
        return self._log.newest() is not None

    def claims(self) -> list[Mapping[str, Any]]:
        """All claims, oldest first."""
        return [claim for _, claim in self._log.since()]

    def claim(self, *, owner: str, lineage: str, sink: str, flow: str, where: str, adopt: bool, looked: bool = False) -> None:
        """Claim the place for a lineage, or confirm its claim.

        Args:
            owner: The installation.
            lineage: The lineage.
            sink: The id of the sink.
            flow: The flow.
            where: The name of the place, for messages.
            adopt: Claim it even if others have claimed it, or it contains objects of others.
            looked: The caller knows that the existing objects are allowed: they are not listed.

        Raises:
            Refused: Without `adopt`: another flow, lineage or sink has claimed the place, or it contains objects of others. Always: a newer
                lineage has claimed it.
            SinkError: The store would let two writers commit.
        """
        mine = {"owner": owner, "lineage": lineage, "sink": sink}
        while True:
            claims = self.claims()
            if claims and _same(claims[-1], mine):
                return
            if any(_same(each, mine) for each in claims):
                raise Refused(
                    f'sink "{sink}": a newer lineage has taken {where} over',
                    remedy="run the flow that writes there now",
                    code="output-foreign",
                )
            if not claims:
                check_create_only(self._store, sink, where)
            if not adopt:
                self._refuse_others(claims, mine | {"flow": flow}, where, looked=looked)
            if claims:
                # from here on nothing more of the previous lineage can be committed, even by suspended processes
                Manifests(self._store, claims[-1]["lineage"]).close(lineage)
            self._log.put(len(claims), mine | {"flow": flow, "since": now_text()})

    def check(self, *, owner: str, lineage: str, sink: str, where: str) -> None:
        """Check that the lineage may still write.

        Args:
            owner: The installation.
            lineage: The lineage.
            sink: The id of the sink.
            where: The name of the place, for messages.

        Raises:
            FencedError: Another lineage has claimed the place since.
        """
        newest = self._log.newest()
        claim = None if newest is None else self._log.read(newest)
        if claim is None or not _same(claim, {"owner": owner, "lineage": lineage, "sink": sink}):
            found = "nobody's" if claim is None else f"that of {_owner_text(claim)}"
            raise FencedError(f'sink "{sink}": {where} is now {found}', remedy="stop this driver; another driver writes there now")

    def check_clear(self, *, owner: str, flow: str, sink: str, where: str) -> None:
        """Check that this installation may delete the place. Data of an installation to whose lineage another one was added is deleted with
        the rest.

        Args:
            owner: The installation.
            flow: The flow.
            sink: The id of the sink.
            where: The name of the place, for messages.

        Raises:
            Refused: The installation's claim is not the newest, or another flow or sink has claimed the place.
        """
        claims = self.claims()
        for each in claims:
            if each["flow"] != flow:
                raise another_flow(sink, where, each["flow"])
            if each["sink"] != sink or claims[-1]["owner"] != owner:
                raise _another_claim(sink, where, each if claims[-1]["owner"] == owner else claims[-1], owner)

    def _refuse_others(self, claims: list[Mapping[str, Any]], mine: Mapping[str, str], where: str, *, looked: bool) -> None:
        sink = mine["sink"]
        if claims and claims[-1]["flow"] != mine["flow"]:
            raise another_flow(sink, where, claims[-1]["flow"])
        if claims and (claims[-1]["owner"] != mine["owner"] or claims[-1]["sink"] != sink):
            raise _another_claim(sink, where, claims[-1], mine["owner"])
        if claims:
            raise Refused(
                f'sink "{sink}": {where} holds objects of another lineage ({_owner_text(claims[-1])})',
                remedy=f"{start_over()}; or {add_to_outputs()}",
                code="output-foreign",
            )
        if looked:
            return
        strange = next((entry.key for entry in self._store.list() if not is_internal(entry.key)), None)
        if strange is not None:
            raise Refused(
                f'sink "{sink}": {where} holds {strange}, written by an unknown writer',
                remedy=beside_installation("prefix"),
                code="output-foreign",
            )


def check_create_only(store: Store, sink: str, where: str) -> None:
    """Check that the store does not overwrite existing objects in a conditional write; otherwise two drivers could both commit.

    Args:
        store: The store; a small object is written and deleted.
        sink: The id of the sink, for messages.
        where: The name of the place, for messages.

    Raises:
        SinkError: The store ignores the condition.
    """
    probe = f"{INTERNAL}/probe-{uuid4().hex}"
    try:
        if not store.put(probe, b"1") or store.put(probe, b"2"):
            raise SinkError(
                f'sink "{sink}": the store of {where} ignores If-None-Match: two drivers could both commit',
                remedy="use a store that supports it",
                code="objects-unable",
                node=sink,
            )
    finally:
        store.delete(probe)


def another_flow(sink: str, where: str, flow: str) -> Refused:
    """The error for a place that another flow has written to."""
    return Refused(
        f'sink "{sink}": {where} holds objects of the flow "{flow}"',
        remedy=beside_flow("prefix", flow),
        code="output-foreign",
    )


def _another_claim(sink: str, where: str, claim: Mapping[str, Any], owner: str) -> Refused:
    """The error for objects of another installation, or of another sink of this flow, which this sink must not delete."""
    theirs = claim["owner"] != owner
    return Refused(
        f'sink "{sink}": {where} holds objects of another {"installation" if theirs else "sink"} ({_owner_text(claim)})',
        remedy=beside_installation("prefix", same_flow=True) if theirs else beside_sink("prefix", claim["sink"]),
        code="output-foreign",
    )


def _same(claim: Mapping[str, Any], mine: Mapping[str, str]) -> bool:
    return all(claim[name] == value for name, value in mine.items())


def _owner_text(claim: Mapping[str, Any]) -> str:
    return f'sink "{claim["sink"]}", lineage {claim["lineage"]}, since {claim["since"]}'
