"""Replays dead letters: each enters, with its origin, the decoder of its source or the step that rejected it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from scribengin.formats.blocks import DamageBlock
from scribengin.formats.contract import RecordPlace
from scribengin.spark.chunk import BlockOrigin, Chunk
from scribengin.spark.compiled_query import Tail
from scribengin.spark.program import ParseNode, PythonNode, SinkNode, StreamsEntry, UtilitiesNode
from scribengin.state.dead_letter_input import letter_decoder, origins_of, record_block, row_block, row_decoder
from scribengin.state.folder import QueryFolder
from scribengin.state.replays import read_entering
from scribengin.state.source_log import REPLAY, is_replay

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from pyspark.sql import SparkSession

    from scribengin.connectors.contract import SourceStream
    from scribengin.core.types import Schema
    from scribengin.formats.contract import Block, Decoder
    from scribengin.formats.origins import Origins
    from scribengin.spark.compiled_query import Compiled
    from scribengin.spark.dead_letter_writer import DeadLetterWriter
    from scribengin.spark.program import Program, StageNode
    from scribengin.state.contract import Counts, DeadLetter


REFUSED = "replay-refused"
"""the reason code of a dead letter whose replay point no longer exists in the flow"""


@dataclass(frozen=True, slots=True)
class LetterBlock:
    """A dead letter as a block with one record."""

    letter: DeadLetter

    def place(self, ordinal: int) -> RecordPlace:  # noqa: ARG002 (there is one record)
        """The place of its record."""
        letter = self.letter
        return RecordPlace(letter.file, letter.line, letter.row, letter.offset)

    def payload(self, ordinal: int) -> bytes:  # noqa: ARG002
        """The bytes of the record, repaired if it was repaired."""
        return self.letter.payload

    def __len__(self) -> int:
        """1: a dead letter is one record."""
        return 1


class LetterOrigin(BlockOrigin):
    """The origin of one dead letter: all values are those of the first time that its record was read."""

    def __init__(self, letter: DeadLetter, first_at: int, block: Block | None = None) -> None:
        """`block`: the block that a decoder reads for it; None: a block with its record."""
        super().__init__(letter.source, block or LetterBlock(letter), first_at)
        self._letter = letter

    def place(self, ordinal: int) -> RecordPlace:
        """The original place of its record."""
        return LetterBlock(self._letter).place(ordinal)

    def payload(self, ordinal: int) -> bytes:  # noqa: ARG002
        """The bytes of its record, repaired if it was repaired."""
        return self._letter.payload

    def letter(self, ordinal: int) -> DeadLetter:  # noqa: ARG002
        """The dead letter."""
        return self._letter

    @property
    def has_replays(self) -> bool:
        """True: it is a replay."""
        return True

    def replayed(self, ordinals: Sequence[int] | NDArray[np.int64]) -> NDArray[np.bool_]:
        """True for each ordinal: all records are replayed."""
        return np.ones(len(ordinals), bool)

    def ids(self, ordinals: Sequence[int]) -> list[str] | None:
        """The id of its record; None if it does not come from a single record."""
        found = self.origins(ordinals)
        return None if found is None else found.ids()

    def origins(self, ordinals: Sequence[int]) -> Origins | None:
        """The origin of its record; None if it does not come from a single record."""
        found = origins_of(self._letter)
        return None if found is None else found.taken([0] * len(ordinals))


def letters_in(dead: Path, stream: SourceStream, source: str) -> list[DeadLetter]:
    """The dead letters of a replay's stream in the log of `source`. `dead` is the folder of the query's dead letters."""
    return read_entering(QueryFolder(dead.parent), stream.place, source)


def input_schema_of(node: StageNode) -> Schema | None:
    """The columns of an input row of a stage's node; None if a replay cannot enter there."""
    match node:
        case PythonNode() | UtilitiesNode() | ParseNode():
            return node.schema_in
        case SinkNode():
            return node.schema
    return None


@dataclass(frozen=True, slots=True)
class ReplayNode:
    """A node at which a replay can enter. `named`: True if its rows come by a named input."""

    node: str
    schema: Schema
    take: Callable[..., None]
    named: bool

    @staticmethod
    def of(node: StageNode, take: Callable[..., None]) -> dict[str, ReplayNode]:
        """Node → its replay point; empty if a replay cannot enter there."""
        schema = input_schema_of(node)
        named = isinstance(node, SinkNode) and len(node.inputs) > 1
        return {} if schema is None else {node.node: ReplayNode(node.node, schema, take, named)}

    def enter(self, letters: Sequence[DeadLetter], counts: Counts, buried: DeadLetterWriter, way: str) -> None:
        """Pass the dead letters' input rows to the node; each is counted as replayed. One that is no longer a valid row becomes a dead
        letter again.

        Args:
            `letters`: The dead letters.
            counts: The node's counts.
            buried: Takes new dead letters.
            way: The input by which the rows reach the node, if `named`.
        """
        decoder = row_decoder(self.schema)
        for letter in letters:
            origin = LetterOrigin(letter, 0)
            found = decoder.columns(row_block(letter, letter.came.encode()))
            counts.replayed += 1
            if found.batch.num_rows == 1:
                self.take(Chunk(origin, [0], batch=found.batch), **({"way": way} if self.named else {}))
                continue
            reason, message = (found.bad[0].reason, found.bad[0].message) if found.bad else ("malformed", "it is not a valid row")
            counts.rows_in += 1
            counts.dead += 1
            buried.write(self.node, origin, 0, letter.payload, reason, f"input row of the step: {message}", row=letter.came, way=way)


def refuse(letters: Sequence[DeadLetter], at: str, counts: Counts, buried: DeadLetterWriter) -> None:
    """Write a new dead letter for each replay whose replay point no longer exists.

    Args:
        `letters`: The dead letters.
        at: The step that no longer exists; empty: it is their source.
        counts: The counts of the source that has read them.
        buried: Takes the new dead letters.
    """
    for letter in letters:
        counts.rows_in += 1
        counts.replayed += 1
        counts.dead += 1
        message = f'its replay point is step "{at}", which no longer exists; replay it with --from-start'
        if not at:
            message = f'its replay point is source "{letter.source}", which the query no longer reads'
        buried.write(at or letter.source, LetterOrigin(letter, 0), 0, letter.payload, REFUSED, message, row=letter.came)


def source_blocks(letters: Sequence[DeadLetter], first_at: int, decoder: Decoder) -> Iterator[tuple[LetterOrigin, Decoder]]:
    """For each dead letter that is replayed from its source: (the origin, with the block for its decoder; the decoder)."""
    for number, letter in enumerate(letters):
        block, by = record_block(letter, decoder), letter_decoder(letter, decoder)
        if block is None:
            message = f'the source no longer reads such records; repair it as a row, or read "{letter.file}" again'
            by, block = row_decoder(decoder.schema), DamageBlock(letter.file, REFUSED, message, 0, head=letter.payload)
        yield LetterOrigin(letter, first_at + number, block), by


def with_letters(spark: SparkSession, compiled: Compiled, streams: Mapping[str, Sequence[SourceStream]]) -> Compiled:
    """`compiled` with one more task pipeline for each node at which dead letters enter, unless a stage that starts at their source reads
    them: nodes after Spark SQL steps."""
    entering: dict[str, list[tuple[str, int]]] = {}
    for source, listed in streams.items():
        for index, stream in enumerate(listed):
            if is_replay(stream) and stream.place[REPLAY]["at"]:
                entering.setdefault(stream.place[REPLAY]["at"], []).append((source, index))
    tails = list(compiled.tails)
    for at, units in entering.items():
        program = next((tail.program for tail in compiled.tails if any(node.node == at for node in tail.program.nodes)), None)
        own = [unit for unit in units if program is not None and not _reads(program, unit)]
        if program is None or not own:
            continue
        taken = {source: tuple(streams[source]) for source, _ in own}
        index = max(tail.program.index for tail in tails) + 1
        entry = StreamsEntry({}, tuple(own), taken)
        tails.append(Tail(spark.range(0, len(own), 1, len(own)), replace(program, index=index, entry=entry, nodes=_behind(program, at))))
    return replace(compiled, tails=tuple(tails))


def _reads(program: Program, unit: tuple[str, int]) -> bool:
    return isinstance(program.entry, StreamsEntry) and unit in program.entry.units


def _behind(program: Program, at: str) -> tuple[StageNode, ...]:
    """The node, and the nodes of the stage that its rows reach."""
    reached = {at}
    for node in program.nodes:  # in the plan's order
        if any(input_.partition(".")[0] in reached for input_ in node.inputs):
            reached.add(node.node)
    return tuple(node for node in program.nodes if node.node in reached)
