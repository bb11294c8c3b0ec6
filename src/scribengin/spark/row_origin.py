"""Finds the record of a hidden AT value: its stream, its number in the stream, its place and its bytes.

AT packs three numbers into one BIGINT: source index (7 bits), index of the stream in the Batch (20 bits), sequence number in the stream (36
bits). For a dead letter after Spark SQL steps the stream's blocks are read again to find the record; only dead letters cause this cost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from scribengin.connectors.abilities import is_handed_over
from scribengin.connectors.contract import SourceStream
from scribengin.formats.contract import RecordPlace, is_traced
from scribengin.formats.origins import Origins
from scribengin.spark.chunk import Origin
from scribengin.spark.offset_log import batch_of_task, end_of
from scribengin.spark.replay_input import LetterBlock, letters_in
from scribengin.state.dead_letter_input import origins_of
from scribengin.state.source_log import SourceLog, is_replay

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from scribengin.connectors.contract import SourceConnector
    from scribengin.formats.contract import Block
    from scribengin.formats.row_ids import Trail
    from scribengin.state.contract import DeadLetter


_INDEX_BITS = 20
_SEQUENCE_BITS = 36


def pack_at(source_index: int, index: int) -> int:
    """The AT value of the stream's first record; add the sequence number for the others. Raises ValueError if a number is out of range."""
    if not (0 <= source_index < 128 and 0 <= index < 1 << _INDEX_BITS):
        raise ValueError(
            f"source {source_index} or index {index} is out of range (128 sources, {1 << _INDEX_BITS} streams of one source in a Batch)"
        )
    return (source_index << _INDEX_BITS | index) << _SEQUENCE_BITS


def unpack_at(at: int) -> tuple[int, int, int]:
    """(source index, index of the stream, sequence number in the stream)"""
    return at >> _SEQUENCE_BITS + _INDEX_BITS, at >> _SEQUENCE_BITS & (1 << _INDEX_BITS) - 1, at & (1 << _SEQUENCE_BITS) - 1


@dataclass(slots=True)
class _Walk:
    """Reads the blocks of a stream forwards. Dead letters come in order, so each block is read once for all of them."""

    stream: tuple[str, int]
    blocks: Iterator[Block]
    first: int = 0
    """the sequence number of the first record of `block`"""
    block: Block | None = None

    def to(self, sequence: int) -> Block | None:
        """The block of that record, which is not before `first`; None if the stream ends before it."""
        while self.block is None or sequence >= self.first + len(self.block):
            self.first += 0 if self.block is None else len(self.block)
            self.block = next(self.blocks, None)
            if self.block is None:
                return None
        return self.block


class ReplayOrigin(Origin):
    """The origin of rows with AT values, which are its ordinals. Sources are opened, and blocks found, for the first dead letter."""

    def __init__(
        self, sources: Mapping[str, SourceConnector], indexes: Mapping[int, str], streams: Mapping[str, Sequence[SourceStream]], dead: Path
    ) -> None:
        """Create the origin.

        Args:
            sources: Source → its connector.
            indexes: Source index → source.
            streams: Source → its streams in the Batch.
            dead: The folder of the query's dead letters, which contains those that are replayed.
        """
        self._dead = dead
        self._letters: dict[tuple[str, int], list[DeadLetter]] = {}
        self._sources = sources
        self._indexes = indexes
        self._streams = streams
        self._walk: _Walk | None = None
        self._known: dict[tuple[str, int], Origins | None] = {}
        """the origins in the blocks of the stream used last; None if its blocks have none"""

    def place(self, ordinal: int) -> RecordPlace:
        """See `Origin.place`; reads the stream again up to the record's block."""
        found = self._find(ordinal)
        return RecordPlace("") if found is None else found[0].place(found[1])

    def payload(self, ordinal: int) -> bytes | None:
        """See `Origin.payload`; reads the stream again up to the record's block."""
        found = self._find(ordinal)
        return None if found is None else found[0].payload(found[1])

    def block_at(self, ordinal: int) -> tuple[Block, int] | None:
        """See `Origin.block_at`; reads the stream again up to the record's block."""
        return self._find(ordinal)

    def letter(self, ordinal: int) -> DeadLetter | None:
        """See `Origin.letter`."""
        source, index, sequence = unpack_at(ordinal)
        letters = self._replayed(self._indexes.get(source, ""), index)
        return None if letters is None else letters[sequence]

    def stream(self, ordinal: int) -> tuple[str, SourceStream] | None:
        """See `Origin.stream`; found by the AT value."""
        number, index, _ = unpack_at(ordinal)
        source = self._indexes.get(number, "")
        streams = self._streams.get(source, ())
        return (source, streams[index]) if index < len(streams) else None

    @cached_property
    def has_replays(self) -> bool:
        """True if the Batch has a stream of a replay."""
        return any(is_replay(stream) for streams in self._streams.values() for stream in streams)

    def replayed(self, ordinals: Sequence[int] | NDArray[np.int64]) -> NDArray[np.bool_]:
        """See `Origin.replayed`: the records of a replay's streams."""
        streams = np.asarray(ordinals, np.int64) >> _SEQUENCE_BITS
        return np.isin(streams, [each for each in np.unique(streams).tolist() if self._is_replay(each)])

    def _is_replay(self, packed: int) -> bool:
        source, index, _ = unpack_at(packed << _SEQUENCE_BITS)
        streams = self._streams.get(self._indexes.get(source, ""), ())
        return index < len(streams) and is_replay(streams[index])

    def _replayed(self, source: str, index: int) -> list[DeadLetter] | None:
        """The dead letters of a replay's stream; None for other streams."""
        streams = self._streams.get(source, ())
        if index >= len(streams) or not is_replay(streams[index]):
            return None
        if (source, index) not in self._letters:
            self._letters = {(source, index): letters_in(self._dead, streams[index], source)}
        return self._letters[source, index]

    def ids(self, ordinals: Sequence[int]) -> list[str]:
        """`source/stream+17`; reads only dead letters that are replayed."""
        if any(self.letter(at) is not None for at in ordinals[:1]):
            return self.origins(ordinals).ids()
        names: dict[int, str] = {}
        ids = []
        for at in ordinals:
            stream, sequence = at >> _SEQUENCE_BITS, at & (1 << _SEQUENCE_BITS) - 1
            if stream not in names:
                source, index, _ = unpack_at(at)
                name = self._indexes[source]
                names[stream] = f"{name}/{self._streams[name][index].label}+"
            ids.append(f"{names[stream]}{sequence}")
        return ids

    def way(self, ordinal: int) -> tuple[str, Trail]:
        """See `Origin.way`; empty if the stream is no longer known."""
        source, index, _ = unpack_at(ordinal)
        known = index < len(self._streams.get(self._indexes.get(source, ""), ()))
        return super().way(ordinal) if known else ("", ())

    def origins(self, ordinals: Sequence[int]) -> Origins:
        """The origins of the rows; for a channel, its blocks are read again, which contain them."""
        ats = np.asarray(ordinals, np.int64)
        streams = ats >> _SEQUENCE_BITS
        found = []
        cuts = np.flatnonzero(np.diff(streams)) + 1
        for part in np.split(ats, cuts):
            source, index, _ = unpack_at(int(part[0]))
            name, sequences = self._indexes[source], part & (1 << _SEQUENCE_BITS) - 1
            found.append(self._traced(name, index, sequences) or Origins.of(f"{name}/{self._streams[name][index].label}+", sequences))
        return Origins.joined(found)

    def _traced(self, source: str, index: int, sequences: NDArray[np.int64]) -> Origins | None:
        """The origins in the blocks of a stream; None if its blocks have none of their own."""
        key = (source, index)
        if key not in self._known:
            letters, parts = self._replayed(source, index), list[Origins]()
            if letters is not None:
                label = f"{source}/{self._streams[source][index].label}+"
                parts = [origins_of(letter) or Origins.of(label, np.array([number])) for number, letter in enumerate(letters)]
            elif is_handed_over(opened := self._sources[source]):
                blocks = opened.read(self._streams[source][index])
                parts = [block.origins(range(len(block))) for block in blocks if is_traced(block)]
            self._known = {key: Origins.joined(parts) if parts else None}
        known = self._known[key]
        return None if known is None else known.taken(sequences)

    def _find(self, at: int) -> tuple[Block, int] | None:
        source, index, sequence = unpack_at(at)
        self.source = self._indexes.get(source, "")
        if (letters := self._replayed(self.source, index)) is not None:
            return LetterBlock(letters[sequence]), 0
        if self._walk is None or self._walk.stream != (self.source, index) or sequence < self._walk.first:
            streams = self._streams.get(self.source, ())
            if index >= len(streams):
                return None
            self._walk = _Walk((self.source, index), iter(self._sources[self.source].read(streams[index])))
        block = self._walk.to(sequence)
        return None if block is None else (block, sequence - self._walk.first)


@dataclass(frozen=True)
class LoggedStreams(Mapping[str, tuple[SourceStream, ...]]):
    """Source → its streams in the Batch of the calling task, from Spark's offset log and the sources' own logs.

    A stage of the streaming part is created once for all Batches. `folder` is the query's; the streams of `static` sources are the same in
    all Batches.
    """

    sources: tuple[str, ...]
    folder: Path
    static: Mapping[str, tuple[SourceStream, ...]] = field(default_factory=dict)

    def __getitem__(self, source: str) -> tuple[SourceStream, ...]:
        if source in self.static:
            return self.static[source]
        if source not in self.sources:
            raise KeyError(source)
        number, log = batch_of_task(), self.folder / "checkpoint" / "offsets"
        start, end = (end_of(log, batch, source) for batch in (number - 1, number))
        return tuple(SourceLog(self.folder / "sources", source).range(start, end))

    def __contains__(self, source: object) -> bool:
        return source in self.sources or source in self.static

    def __iter__(self) -> Iterator[str]:
        yield from (*self.sources, *self.static)

    def __len__(self) -> int:
        return len(self.sources) + len(self.static)
