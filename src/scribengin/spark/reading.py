"""What a stage reads of a stream: a source's blocks, or letters that are replayed, those at least that begin at their source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scribengin.connectors.catalog import open_source
from scribengin.spark.chunk import BlockOrigin
from scribengin.spark.noticed import noticing
from scribengin.spark.origin import pack_at
from scribengin.spark.replayed import letters_in, refuse, source_blocks
from scribengin.state.source_log import REPLAY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from scribengin.connectors.contract import SourceStream
    from scribengin.formats.contract import Block, DecodedColumns, DecodedRows, Decoder, Structs
    from scribengin.formats.noticing import Noticer
    from scribengin.spark.letters import DeadLetterWriter, LetterRules
    from scribengin.spark.program import SourceRef
    from scribengin.spark.replayed import ReplayNode
    from scribengin.state.contract import Counts

    Decode = Callable[[Block], DecodedRows | Structs | DecodedColumns]


@dataclass(frozen=True, slots=True)
class StageReading:
    """Of one stage. `noticers` gets who looks at a source's blocks, `entrances` are the stage's nodes where letters enter."""

    rules: LetterRules
    entrances: Mapping[str, ReplayNode]
    counted: Callable[[str], Counts]
    letters: DeadLetterWriter
    noticers: dict[str, Noticer]
    decode_as: Callable[[str, Decoder], Decode]

    def blocks(
        self, ref: SourceRef | None, node: str, index: int, stream: SourceStream
    ) -> Iterator[tuple[BlockOrigin, Decode, Noticer | None]]:
        """What is to be decoded here, how, and who looks at it: nobody at letters. Those that enter at a step are let in there; then, and
        then alone, there may be no `ref`."""
        said = stream.place.get(REPLAY)
        letters = [] if said is None else letters_in(self.rules.folder, stream, node)
        at = "" if said is None else said["at"]
        if said is not None and at in self.entrances:
            self.entrances[at].enter(letters, self.counted(at), self.letters, said["way"])
        elif at and at not in self.rules.tail:  # else a tail of its own reads them
            refuse(letters, at, self.counted(node), self.letters)
        if at:
            return
        if said is not None and (gone := [letter for letter in letters if letter.source != node]):
            letters = [letter for letter in letters if letter.source == node]
            refuse(gone, "", self.counted(node), self.letters)
        assert ref is not None
        source = open_source(ref.type, ref.place)
        noticer, decoder = noticing(ref, source, self.noticers)
        first_at, sequence = pack_at(ref.index, index), 0
        if said is not None:
            for letter, by in source_blocks(letters, first_at, decoder):
                yield letter, self.decode_as(node, by), None
            return
        decode = self.decode_as(node, decoder)
        for block in source.read(stream):
            yield BlockOrigin(node, block, first_at + sequence, stream.label, sequence, stream), decode, noticer
            sequence += len(block)
