"""Positions of sources, set by hand while nothing runs: forward only, over what shall never be read."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from scribengin.core.errors import Refused
from scribengin.local.prepare import limits_of, open_sources, source_place
from scribengin.state.decisions import Decisions
from scribengin.state.source_log import SourceLog

if TYPE_CHECKING:
    from scribengin.spec.model import Flow
    from scribengin.state.folder import QueryFolder


@dataclass(frozen=True, slots=True)
class Moved:
    """A position before and after, in entries of the source's log, and what the skipped entries held."""

    query: str
    source: str
    before: int
    after: int
    files: int
    bytes: int
    rows: int | None

    def as_json(self) -> dict[str, Any]:
        """One object."""
        return asdict(self)


def decided_ends(query: QueryFolder) -> dict[str, int]:
    """Source → entries that decided Batches are through with."""
    newest = Decisions(query.decisions).newest()
    return {taken.source: taken.end for taken in newest.sources} if newest else {}


def move_forward(flow: Flow, query: QueryFolder, source: str, position: int | None) -> Moved:
    """Under the lease: let the entries from the present position to `position` be passed over; None means all that is there now.

    The next run goes through them as empty Batches, so that nothing else in the state changes. Raises Refused for a way back, which
    would write again what is written, and for a position that the source cannot reach yet.
    """
    before = decided_ends(query).get(source, 0)
    if position is not None and position < before:
        raise Refused(
            f'query "{query.name}": source "{source}" is committed up to position {before}; going back to {position} would write the '
            "same records again beside what stands there",
            remedy="to read everything again, begin anew: scribengin reset FLOW --outputs --yes",
            code="position-back",
        )
    log = SourceLog(query.sources, source)
    reader = open_sources(flow)[source].reader()
    reader.restore(log.entries())
    limits = limits_of(source_place(flow, source).options)
    skipped = []
    number = before
    while position is None or number < position:
        streams = log.read(number) if number < log.length() else reader.split(limits, final=True)
        if not streams and number >= log.length():
            break
        passed = [replace(stream, skipped=True) for stream in streams]
        if number < log.length():
            log.amend(number, passed)
        else:
            log.append(number, passed)
        skipped += passed
        number += 1
    if position is not None and number < position:
        raise Refused(
            f'query "{query.name}": source "{source}" has no entry {position} yet; what is there now ends at {number}, and was skipped',
            remedy="see: scribengin source show FLOW",
            code="position-unknown",
        )
    rows = [stream.rows for stream in skipped]
    return Moved(
        query.name,
        source,
        before,
        number,
        sum(stream.files for stream in skipped),
        sum(stream.bytes for stream in skipped),
        None if None in rows else sum(row for row in rows if row is not None),
    )
