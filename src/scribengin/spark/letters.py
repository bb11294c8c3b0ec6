"""Dead letters on executors: from a chunk's row and an error to a durable letter, or a dropped count, or the task's end."""

from __future__ import annotations

import time
from dataclasses import dataclass
from socket import gethostname
from typing import TYPE_CHECKING

import msgspec

from scribengin.core.errors import StepError
from scribengin.formats.origins import Hop
from scribengin.spark.user_code import code_line
from scribengin.state.contract import DeadLetter
from scribengin.state.dead import DeadWriter
from scribengin.state.trails import hop_as_json

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from scribengin.formats.contract import RecordPlace
    from scribengin.formats.origins import Trail
    from scribengin.spark.chunk import Chunk
    from scribengin.spec.model import OnError
    from scribengin.state.contract import LineSegment

PAYLOAD_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class LetterRules:
    """What is the same for all letters of a Query: where they go, and each node's `on_error`."""

    folder: Path
    query: str
    on_error: Mapping[str, OnError]
    tier: str = ""
    trace: float = 0.0
    """the share of records whose way is kept where they reach a sink"""

    def stop(self, batch: int) -> Hop:
        """The stop that a record makes here, now."""
        return Hop(self.tier, self.query, batch, gethostname(), int(time.time() * 1000))


class Letters:
    """The dead letters of one task. `close` makes them durable; an attempt that fails calls `abort`."""

    def __init__(self, rules: LetterRules, batch: int, attempt: str) -> None:
        self._rules = rules
        self._batch = batch
        self._writer = DeadWriter(rules.folder, attempt)

    def bury(self, node: str, chunk: Chunk, index: int, reason: str, message: str, *, error: BaseException | None = None) -> None:
        """Row `index` of `chunk` cannot pass `node`. Raises StepError where the node's `on_error` is `fail`."""
        ordinal = chunk.ordinal(index)
        payload = None
        place = None
        way: tuple[str, Trail] = ("", ())
        if ordinal is not None:
            place = chunk.origin.place(ordinal)
            payload = chunk.origin.payload(ordinal)
            way = chunk.origin.way(ordinal)
        if payload is None:
            payload = _as_json(chunk, index)
        self.write(node, chunk.origin.source, place, payload, reason, message, error=error, way=way)

    def write(
        self,
        node: str,
        source: str,
        place: RecordPlace | None,
        payload: bytes,
        reason: str,
        message: str,
        *,
        error: BaseException | None = None,
        way: tuple[str, Trail] = ("", ()),
    ) -> None:
        """As `bury`, for a record that is no row yet; `way` as `Origin.way` gives it."""
        match self._rules.on_error.get(node, "dead_letter"):
            case "drop":
                return
            case "fail":
                at = "" if place is None or not place.file else f" at {show_place(place)}"
                line = code_line(error) if error is not None else ""
                raise StepError(
                    f'step "{node}" failed on a record{at}: {message}' + (f" ({line})" if line else ""),
                    remedy="repair the record or the step, or set on_error: dead_letter",
                ) from error
        record, trail = way
        file = place.file if place else ""
        spot = "" if place is None else f"{_first(place.offset, place.row, place.line)}"
        self._writer.write(
            DeadLetter(
                id=f"{source or '?'}/{file}:{spot}#{node}",
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
                truncated=len(payload) > PAYLOAD_BYTES or reason == "too-long",
                record=record,
                trail=tuple(hop_as_json(hop) for hop in (*trail, self._rules.stop(self._batch))),
            )
        )

    def close(self) -> LineSegment | None:
        """Make the letters durable; None where there were none."""
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


def _first(*values: int | None) -> int | str:
    return next((value for value in values if value is not None), "")


def _as_json(chunk: Chunk, index: int) -> bytes:
    try:
        return msgspec.json.encode(chunk.rows[index], enc_hook=str)
    except Exception:  # a user's object whose str() raises: the letter must still be written
        return repr(type(chunk.rows[index])).encode()
