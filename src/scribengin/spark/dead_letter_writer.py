"""Writes dead letters on executors: a chunk's row and an error become a durable dead letter or a dropped count, or end the task."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from socket import gethostname
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from scribengin.core.errors import StepError
from scribengin.formats.constants import PAYLOAD_BYTES
from scribengin.formats.json_out import json_lines
from scribengin.formats.row_ids import Hop
from scribengin.plan.graph import base
from scribengin.spark.chunk import Chunk, UnknownOrigin
from scribengin.spark.user_code import code_line
from scribengin.state.contract import DeadLetter
from scribengin.state.dead_letter_input import extra_of, form_of
from scribengin.state.dead_letters import DeadWriter, letter_as_json
from scribengin.state.decisions import Decisions
from scribengin.state.lookups import mark_of
from scribengin.state.provenance import TracedArrival, TrailWriter, hop_as_json

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from scribengin.connectors.contract import SourceStream
    from scribengin.core.types import Schema
    from scribengin.formats.contract import RecordPlace
    from scribengin.formats.origins import Origins
    from scribengin.formats.row_ids import Trail
    from scribengin.spark.chunk import Origin
    from scribengin.spec.model import OnError
    from scribengin.state.contract import LineSegment


# The input rows of a step as JSON, for many dead letters at once: for a single row it costs as much as for a batch.


LONGEST = 64 * 1024
_NOWHERE = UnknownOrigin()


class CameRows:
    """Input rows that no longer change, collected until `texts` is called. All are of one kind, which `takes` checks."""

    def __init__(self) -> None:
        self._schema: Schema | None = None
        self._kind: Any = None
        """the RecordBatch of the rows, or the form of their Structs; None before the first row"""
        self._rows: list[Any] = []
        """indexes in the RecordBatch, or Structs"""

    def __len__(self) -> int:
        return len(self._rows)

    def takes(self, rows: Chunk | pa.RecordBatch, schema: Schema) -> bool:
        """True if a row of `rows`, which no longer change, can be added to those already collected."""
        return not self._rows or (_kind(rows) is self._kind and schema is self._schema)

    def add(self, rows: Chunk | pa.RecordBatch, index: int, schema: Schema) -> None:
        """Add row `index`. `takes` must be True for it."""
        self._kind, self._schema = _kind(rows), schema
        if isinstance(rows, Chunk):
            structs = None if rows.form is None else rows.structs(rows.form.schema)
            self._rows.append(index if structs is None else structs[index])
        else:
            self._rows.append(index)

    def texts(self) -> list[str]:
        """The collected rows as JSON, for a replay; empty text if a row cannot be written or is longer than LONGEST. Clears the
        collection."""
        kind, schema, rows, self._rows = self._kind, self._schema, self._rows, []
        if not rows:
            return []
        assert schema is not None
        if isinstance(kind, pa.RecordBatch):
            return _texts(Chunk(_NOWHERE, None, batch=kind.take(pa.array(rows, pa.int64()))), schema)
        return _texts(Chunk(_NOWHERE, None, structs=(kind, rows)), schema)


def is_fixed(rows: Chunk | pa.RecordBatch) -> bool:
    """True if the rows no longer change. False for dicts: a later step may change them."""
    return _kind(rows) is not None


def text_of(chunk: Chunk, index: int, schema: Schema) -> str:
    """One row as JSON; see `CameRows.texts`."""
    return _texts(chunk.one(index), schema)[0]


def _kind(rows: Chunk | pa.RecordBatch) -> Any:
    if not isinstance(rows, Chunk):
        return rows
    return rows.arrow if rows.form is None else rows.form


def _texts(rows: Chunk, schema: Schema) -> list[str]:
    try:
        batch, bad = rows.batch(schema)
        lines = [] if bad else json_lines(batch).split(b"\n")[:-1]
    except Exception:  # a user's value that no column type can hold
        lines = []
    if len(lines) == len(rows):
        return [line.decode() if len(line) <= LONGEST else "" for line in lines]
    if len(rows) == 1:
        return [""]
    return [text for index in range(len(rows)) for text in _texts(rows.one(index), schema)]


# The provenance of sampled records, written when they reach a sink outside the flow.


class Trails:
    """The provenance records of one task. `close` makes them durable; an attempt that fails calls `abort`."""

    def __init__(self, rules: LetterRules, batch: int, attempt: str) -> None:
        self._rules = rules
        self._batch = batch
        self._writer = TrailWriter(rules.folder.with_name("trails"), attempt)

    @property
    def wanted(self) -> bool:
        """True if provenance is recorded for some records."""
        return self._rules.trace > 0

    def note(self, sink: str, origins: Origins, besides: Collection[int] = ()) -> None:
        """Record that these rows have reached the sink. Rows with the indexes in `besides` are left out."""
        indexes = [index for index in origins.chosen(self._rules.trace).tolist() if index not in besides]
        if not indexes:
            return
        chosen = origins.taken(indexes)
        own = hop_as_json(self._rules.stop(self._batch))
        for id_, stream in zip(chosen.ids(), chosen.streams.tolist(), strict=True):
            hops = (*(hop_as_json(hop) for hop in chosen.trails[stream]), own)
            self._writer.write(self._batch, TracedArrival(id_, sink, hops))

    def close(self) -> LineSegment | None:
        """Make the provenance records durable; None if there are none."""
        return self._writer.close()

    def keep(self, *, kept: bool = True) -> None:
        """See LineWriter."""
        self._writer.keep(kept=kept)

    def abort(self) -> None:
        """See LineWriter."""
        self._writer.abort()


_HELD, _HELD_BYTES = 256, 4 * 2**20
"""the most dead letters, and bytes of their records, that wait so that their input rows are written together"""


@dataclass(frozen=True, slots=True)
class LetterRules:
    """What is the same for all dead letters of a query: where they are written, and each node's `on_error`."""

    folder: Path
    query: str
    on_error: Mapping[str, OnError]
    tier: str = ""
    trace: float = 0.0
    """the share of records whose provenance is recorded when they reach a sink"""
    tail: frozenset[str] = frozenset()
    """the nodes of the task pipeline: a replay can start at them, besides sources"""
    static: frozenset[str] = frozenset()
    """sources that every Batch reads again: a record of theirs becomes a dead letter only once"""
    version: str = ""
    """the query's fingerprint: under another definition a record may fail for another reason"""

    def stop(self, batch: int) -> Hop:
        """The provenance hop of a Batch of this query, with this host and the current time."""
        return Hop(self.tier, self.query, batch, gethostname(), int(time.time() * 1000))


class DeadLetterWriter:
    """Writes the dead letters of one task. `close` makes them durable; an attempt that fails calls `abort`."""

    def __init__(self, rules: LetterRules, batch: int, attempt: str, alone: Callable[[], bool] = lambda: False) -> None:
        """`alone` returns the value of `DeadLetter.alone` for a record that becomes a dead letter now."""
        self._alone = alone
        self._written: dict[str, int] = {}
        """for the record whose dead letters are being written: node → how many"""
        self._at = ""
        self._rules = rules
        self._batch = batch
        self._held: list[tuple[dict[str, Any], bool]] = []
        """dead letters that wait, in order, each with True if the next row of `_rows` belongs to it"""
        self._held_bytes = 0
        self._rows = CameRows()
        self._writer = DeadWriter(rules.folder, attempt)
        self._marks: dict[tuple[int, str, str], tuple[SourceStream, str]] = {}
        """failed records of static sources: (id of the stream, file, node) → (the stream, kept alive so that its id is not reused, the
        mark)"""
        self.again: Counter[str] = Counter()
        """node → records of static sources that already have a dead letter of an earlier Batch; none is written again"""

    def marks(self) -> list[str]:
        """The marks of failed records of static sources; see `state.lookups`."""
        return sorted({mark for _, mark in self._marks.values()})

    def keeps(self, node: str) -> bool:
        """True if records that fail in the node become dead letters."""
        return self._rules.on_error.get(base(node), "dead_letter") == "dead_letter"

    def bury(
        self,
        node: str,
        chunk: Chunk,
        index: int,
        reason: str,
        message: str,
        *,
        error: BaseException | None = None,
        came: Schema | None = None,
        arrived: pa.RecordBatch | None = None,
        arrived_at: int | None = None,
        fate: OnError | None = None,
        remedy: str = "",
    ) -> None:
        """Handle row `index` of `chunk`, which failed in `node`: write a dead letter, drop it or fail, as `on_error` says. The dead letter
        is durable after `close`.

        Args:
            node: The step; `step.name` for a utility.
            chunk: The rows.
            index: The index of the row in `chunk`.
            reason: The dead letter's reason code.
            message: The message for people.
            error: The exception, if there is one.
            came: The columns of the input row, if a replay can start at the node with it; None: no input row is stored.
            arrived: The input rows, if those of `chunk` may have been changed; None: those of `chunk`.
            arrived_at: The index in `arrived`; None: `index`.
            fate: Replaces the node's `on_error`.
            remedy: The remedy of the StepError.

        Raises:
            StepError: `on_error` is `fail`.
        """
        ordinal = chunk.ordinal(index)
        payload = chunk.origin.payload(ordinal) if ordinal is not None else None
        if payload is None:
            payload = _as_json(chunk, index)
        letter = self._letter(node, chunk.origin, ordinal, payload, reason, message, error, chunk.way, fate, remedy)
        if letter is None:
            return
        if came is None:
            self._hold(letter)
            return
        rows, at = (chunk, index) if arrived is None else (arrived, index if arrived_at is None else arrived_at)
        if is_fixed(rows):
            if not self._rows.takes(rows, came):
                self._flush()
            self._rows.add(rows, at, came)
            self._hold(letter, has_row=True)
        else:
            assert isinstance(rows, Chunk)
            self._hold(letter, text_of(rows, at, came))

    def write(
        self,
        node: str,
        origin: Origin,
        ordinal: int | None,
        payload: bytes,
        reason: str,
        message: str,
        *,
        row: str = "",
        way: str = "",
    ) -> None:
        """Like `bury`, for a record that is not a row of a chunk.

        Args:
            node: The node in which the record failed.
            origin: The origin of the record.
            ordinal: The record's ordinal in `origin`; None if there is no single record.
            payload: The record's bytes.
            reason: The dead letter's reason code.
            message: The message for people.
            row: The input row as JSON, if a replay can start at the node with it.
            way: The input by which the record reached a sink that has several.

        Raises:
            StepError: The node's `on_error` is `fail`.
        """
        letter = self._letter(node, origin, ordinal, payload, reason, message, None, way)
        if letter is not None:
            self._hold(letter, row)

    def _letter(
        self,
        node: str,
        origin: Origin,
        ordinal: int | None,
        payload: bytes,
        reason: str,
        message: str,
        error: BaseException | None,
        way: str,
        fate: OnError | None = None,
        remedy: str = "",
    ) -> dict[str, Any] | None:
        """The dead letter as JSON, without the input row of the step; None if the node drops such records, or an earlier Batch has written
        it."""
        on_error = fate or self._rules.on_error.get(base(node), "dead_letter")
        static = self._of_static(origin, ordinal)
        if on_error == "drop" and static is None:
            return None
        place = None if ordinal is None else origin.place(ordinal)
        if on_error == "fail":
            at = "" if place is None or not place.file else f" at {show_place(place)}"
            line = code_line(error) if error is not None else ""
            raise StepError(
                f'step "{node}" failed on a record{at}: {message}' + (f" ({line})" if line else ""),
                remedy=remedy or "repair the record or the step, or set on_error: dead_letter",
            ) from error
        if static is not None and self._is_known(node, *static, "" if place is None else place.file):
            self.again[node] += 1
            return None
        if on_error == "drop":
            return None
        source = origin.source
        came: tuple[str, Trail] = ("", ()) if ordinal is None else origin.way(ordinal)
        form, extra = _form_of(origin, ordinal)
        before = None if ordinal is None else origin.letter(ordinal)
        file = place.file if place else ""
        spot = "" if place is None else f"{_first(place.offset, place.row, place.line)}"
        return letter_as_json(
            DeadLetter(
                id=self._numbered(f"{source or '?'}/{file}:{spot}", node, 0 if before is None else before.replays),
                query=self._rules.query,
                batch=self._batch,
                step=node,
                reason=reason,
                message=message,
                source=source,
                file=file,
                line=place.line if place else None,
                row=place.row if place else None,
                offset=place.offset if place else None,
                exception=type(error).__name__ if error is not None else "",
                code_line=code_line(error) if error is not None else "",
                payload=payload[:PAYLOAD_BYTES],
                # a source has cut a record that is "too-long" already
                truncated=len(payload) > PAYLOAD_BYTES or reason == "too-long" or (before is not None and before.truncated),
                record=came[0],
                trail=tuple(hop_as_json(hop) for hop in (*came[1], self._rules.stop(self._batch))),
                form=form if before is None else before.form,
                extra=extra if before is None else before.extra,
                alone=self._alone() and (before is None or before.alone),
                way=way,
                replays=0 if before is None else before.replays,
                replay_of="" if before is None else before.replay_of,
                repaired=before is not None and before.repaired,
            )
        )

    def _of_static(self, origin: Origin, ordinal: int | None) -> tuple[str, SourceStream] | None:
        """(source, stream) of a record of a static source; None for other records."""
        found = origin.stream(ordinal) if self._rules.static and ordinal is not None else None
        return found if found is not None and found[0] in self._rules.static else None

    def _is_known(self, node: str, source: str, stream: SourceStream, file: str) -> bool:
        """True if earlier Batches have a dead letter of this record of a static source."""
        made = self._marks.get((id(stream), file, node))
        if made is None:
            made = self._marks[id(stream), file, node] = stream, mark_of(self._rules.version, source, stream, file, node)
        return made[1] in self._known

    @cached_property
    def _known(self) -> frozenset[str]:
        before = Decisions(self._rules.folder.with_name("decisions")).read(self._batch - 1) if self._batch > 0 else None
        return frozenset() if before is None else frozenset(before.lookups)

    def _hold(self, letter: dict[str, Any], row: str = "", *, has_row: bool = False) -> None:
        """Append the dead letter to those that wait. `row`: its input row as JSON; `has_row`: its input row is the last one added to
        `_rows`."""
        if row:
            letter["came"] = row
        self._held.append((letter, has_row))
        self._held_bytes += len(letter.get("payload", ())) + len(letter.get("payload_base64", ()))
        if not len(self._rows) or len(self._held) >= _HELD or self._held_bytes >= _HELD_BYTES:
            self._flush()

    def _flush(self) -> None:
        """Write the dead letters that wait. Raises OSError."""
        held, self._held, self._held_bytes = self._held, [], 0
        texts = iter(self._rows.texts())
        for letter, has_row in held:
            if has_row and (text := next(texts)):
                letter["came"] = text
            self._writer.append(self._batch, letter)

    def _numbered(self, at: str, node: str, replays: int) -> str:
        """The dead letter's id, with a number if the record already has a dead letter of that node."""
        if at != self._at:
            self._at, self._written = at, {}
        nth = self._written.get(node, 0)
        self._written[node] = nth + 1
        return f"{at}#{node}" + (f".{nth}" if nth else "") + (f"~{replays}" if replays else "")

    def close(self) -> LineSegment | None:
        """Make the dead letters durable; None if there were none."""
        self._flush()
        return self._writer.close()

    def keep(self, *, kept: bool = True) -> None:
        """See LineWriter."""
        self._writer.keep(kept=kept)

    def abort(self) -> None:
        """See LineWriter."""
        self._writer.abort()


def show_place(place: RecordPlace) -> str:
    """`tweets-003.jsonl:1024`, `part-0.parquet row 17` or `a.jsonl.gz byte 4711`."""
    if place.line is not None:
        return f"{place.file}:{place.line}"
    if place.row is not None:
        return f"{place.file} row {place.row}"
    return f"{place.file} byte {place.offset}" if place.offset is not None else place.file


def _form_of(origin: Origin, ordinal: int | None) -> tuple[str, dict[str, Any]]:
    """The `form` and `extra` of a dead letter."""
    found = None if ordinal is None else origin.block_at(ordinal)
    return ("", {}) if found is None else (form_of(found[0]), extra_of(*found))


def _first(*values: int | None) -> int | str:
    return next((value for value in values if value is not None), "")


def _as_json(chunk: Chunk, index: int) -> bytes:
    try:
        return msgspec.json.encode(chunk.rows[index], enc_hook=str)
    except Exception:  # a user's object whose str() raises: the dead letter must still be written
        return repr(type(chunk.rows[index])).encode()
