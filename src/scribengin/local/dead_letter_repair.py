"""Purge, export, import and repair of dead letters."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from scribengin.core import faults
from scribengin.core.errors import Refused
from scribengin.core.problems import did_you_mean
from scribengin.core.remedies import flow_command
from scribengin.formats.csv_records import RFC_4180, join_cells, split_cells
from scribengin.local.dead_letter_replay import Cannot, ExportedLetter, ReplayPoints, with_repair
from scribengin.local.dead_letters import LetterStates, Which, key_text, place_of
from scribengin.state.dead_letters import (
    Repair,
    dated_letters,
    drop_repair,
    letter_as_json,
    letter_from_json,
    purge_places,
    put_repair,
    read_expired,
    read_places,
    read_purged,
    read_repair,
    repair_body,
    restore_places,
    write_repair,
)
from scribengin.state.lineage import read_lineage
from scribengin.state.trash import KeptLetter

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from scribengin.local.prepare import Prepared, PreparedFlow
    from scribengin.plan.model import QueryPlan
    from scribengin.state.contract import DeadLetter, LineSegment
    from scribengin.state.folder import QueryFolder
    from scribengin.state.replays import Key
    from scribengin.state.trash import Discarded, Trash


# Purging dead letters: they are deleted, stay counted in the ledger, and are kept in the trash for a week.


@dataclass
class PurgeSelection:
    """Dead letters that are selected for a purge: their number for each query, how many of them were not replayed, and their places."""

    count: int = 0
    unreplayed: int = 0
    by_query: Counter[str] = field(default_factory=Counter)
    places: dict[tuple[QueryFolder, int], tuple[tuple[LineSegment, ...], set[int]]] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The selection as one JSON object."""
        return {"purged": self.count, "unreplayed": self.unreplayed, "queries": dict(self.by_query)}


def select_for_purge(queries: Sequence[QueryFolder], which: Which, *, replayed: bool) -> PurgeSelection:
    """Select dead letters.

    Args:
        queries: The folders of the queries.
        which: The selection.
        replayed: True to select only those whose replay is known to be committed.
    """
    found = PurgeSelection()
    for query in queries:
        states = LetterStates(query)
        for batch, place, letter in dated_letters(query, wanted=which.fits_batch):
            key = (batch.batch, place)
            done = states.is_replayed(key)
            if which.fits(letter) and which.fits_key(query.name, key) and (done or not replayed):
                found.count += 1
                found.unreplayed += not done
                found.by_query[query.name] += 1
                found.places.setdefault((query, batch.batch), (batch.segments, set()))[1].add(place)
    return found


def purge(doomed: PurgeSelection, trash: Trash) -> Discarded | None:
    """Delete the selected dead letters, after copying them to the trash; returns the removal, None if there is nothing to delete. The
    caller holds the leases.

    A replay that was requested takes place all the same. Idempotent: it may be interrupted at any point and repeated; each dead letter is
    either in its place or in the trash.
    """
    trash.drop_expired()
    if not doomed.count:
        return None
    discarded = trash.begin("", [{"query": query, "dead_letters": count} for query, count in doomed.by_query.items()])
    for kept in discarded.letters:  # a purge that was interrupted after its dead letters, before their repairs
        with suppress(Refused):  # its query has started over
            query = trash.query_of(kept)
            mark = read_purged(query, kept.batch)
            for place in () if mark is None else trash.letters(discarded, kept).keys() - set(mark.places):
                drop_repair(query, (kept.batch, place))
    for (query, batch), (segments, places) in doomed.places.items():
        lines = read_places(query, batch, segments)
        copies = {place: KeptLetter(lines[place], repair_body(query, (batch, place))) for place in sorted(places)}
        discarded = trash.keep_letters(discarded, query, batch, copies)
    trash.record(discarded)
    faults.reached("purge.kept")
    for (query, batch), (segments, places) in doomed.places.items():
        purge_places(query, batch, segments, places)
        for place in places:
            drop_repair(query, (batch, place))
    return trash.complete(discarded)


@dataclass(frozen=True, slots=True)
class UndonePurge:
    """The result of an undo: the number of dead letters for each query. The `expired` ones have outlived `retain` meanwhile, and are
    not restored."""

    discarded: Discarded
    by_query: Mapping[str, int]
    expired: int

    def as_json(self) -> dict[str, Any]:
        """The result of the undo as one JSON object."""
        count = sum(self.by_query.values())
        return {"id": self.discarded.id, "restored": count, "expired": self.expired, "queries": dict(self.by_query)}


def undo_purge(trash: Trash, id_: str = "") -> UndonePurge:
    """Restore what a purge has deleted: the newest one, or the one with that id. The caller holds the leases.

    Idempotent: it may be interrupted at any point and repeated. Raises Refused if there is no such purge, or if a query has started over
    since.
    """
    found = trash.find(id_)
    back: set[tuple[str, int, int]] = set()
    late: set[tuple[str, int, int]] = set()
    # find each query before anything is written
    for query, kept in [(trash.query_of(each), each) for each in found.letters]:
        letters = trash.letters(found, kept)
        expired = kept.batch <= read_expired(query).through
        (late if expired else back).update((kept.name, kept.batch, place) for place in letters)
        if expired:
            continue
        for place, letter in letters.items():
            if letter.repair is not None:
                put_repair(query, (kept.batch, place), letter.repair)
        restore_places(query, kept.batch, {place: letter.line for place, letter in letters.items()})
        faults.reached("purge.undone")
    trash.forget(found)
    return UndonePurge(found, Counter(name for name, _, _ in back), len(late))


_BESIDE = ("key", "lineage", "state", "place", "decided_at")
"""the fields of a line of an exported file that do not belong to the dead letter"""


def exported_letters(queries: Sequence[QueryFolder], folder: Path, which: Which) -> Iterator[dict[str, Any]]:
    """The selected dead letters as lines of a file: all fields, `key` and `lineage`, which identify them, and their `state`.

    A dead letter that is repaired and not yet replayed has its repaired form.

    Args:
        queries: The folders of the queries.
        folder: The folder of the flow, to which places are relative.
        which: The selection.
    """
    for query in queries:
        states = LetterStates(query)
        for batch, place, letter in dated_letters(query, wanted=which.fits_batch):
            key = (batch.batch, place)
            if not which.fits(letter) or not which.fits_key(query.name, key):
                continue
            state = states.of(key)
            repair = read_repair(query, key) if state == "repaired" else None
            told = letter_as_json(letter if repair is None else with_repair(letter, repair))
            said = {"key": key_text(query.name, key), "lineage": states.lineage, "state": state}
            yield {**said, **told, "place": place_of(letter, folder), "decided_at": batch.decided_at}


def parse_exported_letters(lines: Iterable[bytes], name: str) -> dict[tuple[str, Key], ExportedLetter]:
    """(query, key) → what an exported file contains for that dead letter. Raises Refused for a line that is not an exported dead letter;
    `name` is the name of the file."""
    found: dict[tuple[str, Key], ExportedLetter] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            data = msgspec.json.decode(line)
            query, batch, place = data["key"].split(":")
            key, lineage = (query, (int(batch), int(place))), str(data["lineage"])
            letter = letter_from_json({field: value for field, value in data.items() if field not in _BESIDE})
            came = letter.came if isinstance(letter.came, str) else msgspec.json.encode(letter.came).decode()
        except (msgspec.DecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise Refused(
                f"{name}:{number}: not an exported dead letter: {type(error).__name__}: {error}",
                remedy=f"change only `payload` or `came` in lines written by: {flow_command('dead-letter export', '--to', 'FILE')}",
                code="letters-file",
            ) from None
        found[key] = ExportedLetter(lineage, letter.payload, came)
    return found


@dataclass(frozen=True, slots=True)
class Editing:
    """A dead letter that is to be repaired. `text` is its record, or its input row at step `at`, with an earlier repair applied."""

    tier: Prepared
    query: QueryPlan
    folder: QueryFolder
    key: Key
    letter: DeadLetter
    at: str
    text: bytes
    is_repaired: bool

    @property
    def is_row(self) -> bool:
        """True if `text` is a row as JSON."""
        return bool(self.at) or self.letter.form == "row"

    @property
    def digest(self) -> str:
        """The SHA-256 of the dead letter's id, the step at which it enters, and the text."""
        return hashlib.sha256(msgspec.json.encode((self.letter.id, self.at, self.text))).hexdigest()

    def as_json(self) -> dict[str, Any]:
        """`text`, or `text_base64` if it is not valid UTF-8; `row`, True for a row; and the `digest`."""
        told = {"text_base64": None, "row": self.is_row, "digest": self.digest}
        try:
            return told | {"text": self.text.decode()}
        except UnicodeDecodeError:
            return told | {"text": None, "text_base64": base64.b64encode(self.text).decode()}

    def with_columns(self, values: Mapping[str, str]) -> bytes:
        """The text with other values of columns. A value is JSON if it can be parsed as such and the column is not a STRING, otherwise
        text. Raises Refused if the text has no such columns."""
        extra = self.letter.extra
        if not self.at and "delimiter" in extra:
            return self._csv(values, extra["header"])
        try:
            row = msgspec.json.decode(self.text)
            if not isinstance(row, dict):
                raise msgspec.DecodeError("not a JSON object")
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Refused(
                f"{self.letter.id} is not a JSON object, so no column can be set: {error}",
                remedy="pass the whole record: --with FILE, or edit it without --set",
                code="letter-columns",
            ) from None
        entrances = ReplayPoints(self.tier, self.query)
        schema = entrances.columns_at(self.at) if self.at else entrances.decoder(self.letter.source).schema
        fields = () if schema is None else schema.fields
        known = {*row, *(field.name for field in fields)}
        for name in values:
            if name not in known and (near := did_you_mean(name, known)):
                raise Refused(f'{self.letter.id} has no column "{name}"', remedy=near, code="letter-columns")
        texts = {field.name for field in fields if field.type.name == "STRING"}
        return msgspec.json.encode(row | {name: value if name in texts else _json_or_text(value) for name, value in values.items()})

    def _csv(self, values: Mapping[str, str], header: Sequence[str] | None) -> bytes:
        decoder = ReplayPoints(self.tier, self.query).decoder(self.letter.source)
        dialect = getattr(getattr(decoder, "strict", decoder), "dialect", RFC_4180)
        names = header or decoder.schema.names
        try:
            text = self.text.decode()
        except UnicodeDecodeError:
            raise Refused(
                f"{self.letter.id} is not valid UTF-8", remedy="pass the whole record: --with FILE", code="letter-columns"
            ) from None
        cells = split_cells(text, dialect) or []
        unknown = [name for name in values if name not in names]
        if unknown or len(cells) != len(names):
            what = f'no column "{unknown[0]}"; it has {", ".join(names)}' if unknown else f"{len(cells)} cells under {len(names)} columns"
            raise Refused(f"{self.letter.id} has {what}", remedy="pass the whole record: --with FILE", code="letter-columns")
        record = join_cells([values.get(name, cell) for name, cell in zip(names, cells, strict=True)], dialect)
        if record is None:
            raise Refused(
                f"a value of {self.letter.id} cannot be written in this CSV format",
                remedy="pass the whole record: --with FILE",
                code="letter-columns",
            )
        return record.encode()

    def keep(self, text: bytes) -> bool:
        """Store this text as the repair of the dead letter; False if nothing was changed. Raises Refused if the flow does not accept it."""
        repair = self.repair(text)
        if repair is not None:
            write_repair(self.folder, self.key, repair)
        return repair is not None

    def repair(self, text: bytes) -> Repair | None:
        """The repair that `keep` would store for this text; None if nothing was changed."""
        text = text.removesuffix(b"\n")
        if text == self.text:
            return None
        try:
            repair = Repair(came=text.decode().strip()) if self.at else Repair(payload=text)
        except UnicodeDecodeError:
            why = f"{self.letter.id} was not changed: the row is not valid UTF-8"
            raise Refused(why, remedy="write it as JSON in UTF-8", code="letter-refused") from None
        entrances = ReplayPoints(self.tier, self.query)
        mended = with_repair(self.letter, repair)
        cannot = entrances.taken(mended, entrances.at(self.at, mended), key_text(self.query.name, self.key))
        if isinstance(cannot, Cannot):
            raise Refused(
                f"{self.letter.id} was not changed: {cannot.why}",
                remedy="change the row so that it fits the columns",
                code="letter-refused",
            )
        return repair


def new_text(editing: Editing, columns: Mapping[str, str], text: str | None, text_base64: str | None) -> bytes | None:
    """The new text of a dead letter, as a client requests it; None if it requests no change. Raises Refused.

    Args:
        editing: The dead letter.
        columns: New values of columns.
        text: The whole text.
        text_base64: The whole text in base64. Only one of the three may be given.
    """
    if (text is not None) + (text_base64 is not None) + bool(columns) > 1:
        raise Refused("columns, text and text_base64 exclude each other", remedy="send only one of them", code="body")
    if columns:
        return editing.with_columns(columns)
    if text_base64 is None:
        return None if text is None else text.encode(errors="surrogateescape")
    try:
        return base64.b64decode(text_base64, validate=True)
    except ValueError as error:
        raise Refused(f"text_base64 is not valid base64: {error}", remedy="send the bytes in base64", code="body") from None


def keep_all(found: Sequence[Editing], text: bytes) -> list[str]:
    """Store this text as the repair of one dead letter in all its queries, or, if one of them does not accept it, in none. Returns the
    queries in which it changed something. Raises Refused as `Editing.keep`."""
    changed = [each for each in found if each.repair(text) is not None]
    for each in changed:
        each.keep(text)
    return [each.query.name for each in changed]


def repair_letter(prepared: PreparedFlow, said: Mapping[str, Any]) -> dict[str, Any]:
    """Store a repair, which replaces an earlier one; or, if none is given, return what can be repaired.

    Args:
        prepared: The flow.
        said: The fields of a `RepairLetter`.

    Returns:
        The fields of a `LetterRepaired`.

    Raises:
        Refused: As for `find_to_edit`, `new_text` and `keep_all`.
    """
    which = Which(query=said["query"], prefix=said["letter"])
    found = find_to_edit(prepared, which, record=said["from_start"], digest=said["digest"])
    first = found[0]
    text = new_text(first, said["columns"], said["text"], said["text_base64"])
    queries = [] if text is None else keep_all(found, text)
    return {"flow": prepared.name, "id": first.letter.id, "at": first.at or first.letter.source, "queries": queries, **first.as_json()}


def find_to_edit(prepared: PreparedFlow, which: Which, *, record: bool, digest: str = "") -> list[Editing]:
    """Find the dead letter to repair, in each query that has rejected it.

    Args:
        prepared: The flow.
        which: Selects it by its id, the beginning of its id, or its key.
        record: True to edit the record of its source, which is then replayed from the start.
        digest: If given, the `Editing.digest` of the text that the editor has read: only that one may be changed.

    Raises:
        Refused: There is no such dead letter, several have such an id, its replay was requested or is not possible, or its queries need
            different texts: it enters them at different steps, or was repaired for one of them only. With `digest`, also if the dead letter
            has changed since it was read.
    """
    found: list[Editing] = []
    replayed = ""
    ids: dict[str, None] = {}
    for tier in prepared.tiers:
        for query in tier.plan.queries:
            folder = tier.folder.query(query.name)
            if which.query not in ("", query.name) or read_lineage(folder) is None:
                continue
            states, entrances = LetterStates(folder), ReplayPoints(tier, query)
            for batch, place, letter in dated_letters(folder):
                key = (batch.batch, place)
                if not which.fits(letter) or not which.fits_key(query.name, key):
                    continue
                if states.asked(key):
                    replayed = letter.id
                    continue
                ids[letter.id] = None
                at = _at(entrances, letter, record=record)
                repair = read_repair(folder, key)
                counts = repair is not None and (repair.came is not None) == bool(at)
                now = with_repair(letter, repair) if counts and repair is not None else letter
                text = now.came.encode() if at else now.payload
                found.append(Editing(tier, query, folder, key, letter, at, text, is_repaired=counts))
    exact = [each for each in found if each.letter.id == which.prefix] or found
    if digest:
        exact = [each for each in found if each.digest == digest]
        if not exact:
            why = f"{which.prefix} has changed since it was read: it was repaired, or its replay was requested"
            raise Refused(why, remedy="read it again", code="letter-changed")
    if not exact:
        why = f"no dead letter has the id or key {which.prefix}"
        if replayed:
            why = f"the replay of {replayed} is requested: if it fails again, it becomes a new dead letter"
        raise Refused(why, remedy=f"see: {flow_command('dead-letter show')}", code="letter-unknown")
    different = {each.letter.id for each in exact}
    if len(different) > 1:
        some = ", ".join(sorted(different)[:3])
        raise Refused(
            f"{len(different)} dead letters begin with that prefix: {some}",
            remedy="pass the whole id, or the key of one dead letter",
            code="letter-unknown",
        )
    by_query = {each.query.name for each in exact}
    if len(by_query) < len(exact):
        keys = ", ".join(key_text(each.query.name, each.key) for each in exact[:5])
        raise Refused(f"{len(exact)} dead letters have this id", remedy=f"pass the key of one: {keys}", code="letter-unknown")
    _check_alike(exact)
    return exact


def _check_alike(found: Sequence[Editing]) -> None:
    """Raise Refused if one text does not fit a dead letter in all its queries."""
    if len({(each.at, each.text) for each in found}) == 1:
        return
    each_alone = "; ".join(flow_command("dead-letter edit", key_text(each.query.name, each.key)) for each in found)
    remedy = f"edit it for each query with its key: {each_alone}"
    if len({each.at for each in found}) > 1:
        ways = ", ".join(f"{each.query.name} at {each.at or each.letter.source}" for each in found)
        why = f"a replay of {found[0].letter.id} enters its queries at different steps: {ways}"
        remedy += f"; or edit the source record for all of them: {flow_command('dead-letter edit', found[0].letter.id, '--from-start')}"
    else:
        ways = ", ".join(f"{each.query.name} ({'repaired' if each.is_repaired else 'not repaired'})" for each in found)
        why = f"{found[0].letter.id} was repaired differently for its queries: {ways}"
    raise Refused(why, remedy=remedy, code="letter-unknown")


def _at(entrances: ReplayPoints, letter: DeadLetter, *, record: bool) -> str:
    """The step whose input row is edited; empty for the record. Raises Refused if a replay can begin at neither."""
    entrance = entrances.of(letter, from_start=record)
    if isinstance(entrance, Cannot):
        remedy = entrance.remedy.replace("replay it with --from-start", "edit it with --from-start, then replay it with --from-start")
        raise Refused(f"{letter.id} cannot be replayed: {entrance.why}", remedy=remedy, code="letter-refused")
    return entrance.at


def _json_or_text(value: str) -> Any:
    try:
        return msgspec.json.decode(value.encode())
    except msgspec.DecodeError:
        return value
