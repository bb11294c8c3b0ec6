"""Lookup tables (static sources) are read again by every Batch: which of their records are dead letters already.

A mark names a version of a part of the table (a file with its size and time of change, or a stream that is not a file), read by a version
of the query, and a step in which records of it became dead letters. All records of a table pass its steps in every Batch, so one mark
stands for all of the part.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from scribengin.core.records import canonical

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from scribengin.connectors.contract import SourceStream
    from scribengin.state.contract import Counts

_DIGITS = 16


def mark_of(query: str, source: str, stream: SourceStream, file: str, step: str) -> str:
    """The mark of a record that became a dead letter: `1f0c…/users`.

    Args:
        query: The fingerprint of the query.
        source: The static source.
        stream: The stream that contained the record.
        file: The file that contained the record, if the stream has several; otherwise it may be empty.
        step: The step in which the record became a dead letter.
    """
    # if one path ends in the name of another, the longer one is meant
    parts = [path for path in _parts(stream) if path and (file == path or file.endswith(f"/{path}"))]
    return f"{_version(query, source, stream, max(parts, key=len, default=''))}/{step}"


def versions_of(query: str, static: Mapping[str, Sequence[SourceStream]]) -> frozenset[str]:
    """The versions of all parts of the static sources; `query` is the fingerprint of the query."""
    return frozenset(
        _version(query, source, stream, part) for source, streams in static.items() for stream in streams for part in ("", *_parts(stream))
    )


def current(marks: Iterable[str], versions: Collection[str]) -> set[str]:
    """The marks of parts that still exist and are read in the same way."""
    return {mark for mark in marks if mark.partition("/")[0] in versions}


def count_as_filtered(counts: Mapping[str, Counts], again: Mapping[str, int], stateful: Iterable[str]) -> None:
    """Count records of static sources that are dead letters of an earlier Batch as filtered instead of dead. At a node that keeps state,
    whose balance has no filtered rows, they count as rows that came in.

    Args:
        counts: Node → its counts in this Batch, which are changed.
        again: Step or `step.utility` → number of such records.
        stateful: The nodes that keep state.
    """
    keeps_state = frozenset(stateful)
    for step, rows in again.items():
        id_, _, utility = step.partition(".")
        name = next(name for name in counts if id_ in name.split("+"))
        node = counts[name]
        node.dead -= rows
        if name in keeps_state:
            node.rows_in += rows
        else:
            node.filtered += rows
        part = node.parts.get(utility)
        if part is not None:
            part.dead -= rows
            part.filtered += rows


def _parts(stream: SourceStream) -> Mapping[str, list[Any]]:
    """Path → its pieces, for a stream of files; {} for others."""
    parts: dict[str, list[Any]] = {}
    for piece in stream.place.get("pieces", ()):
        parts.setdefault(piece[0], []).append(piece)
    return parts


def _version(query: str, source: str, stream: SourceStream, part: str) -> str:
    over = [stream.place["root"], _parts(stream)[part]] if part else stream.as_json()
    return hashlib.sha256(canonical([query, source, over])).hexdigest()[:_DIGITS]
