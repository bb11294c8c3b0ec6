"""The ways of chosen records, written where they reach a sink outside the flow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.state.trails import TracedArrival, TrailWriter, hop_as_json

if TYPE_CHECKING:
    from collections.abc import Collection

    from scribengin.formats.origins import Origins
    from scribengin.spark.letters import LetterRules
    from scribengin.state.contract import LineSegment


class Trails:
    """Those of one task. `close` makes them durable; an attempt that fails calls `abort`."""

    def __init__(self, rules: LetterRules, batch: int, attempt: str) -> None:
        self._rules = rules
        self._batch = batch
        self._writer = TrailWriter(rules.folder.with_name("trails"), attempt)

    @property
    def wanted(self) -> bool:
        """False where no record is chosen at all."""
        return self._rules.trace > 0

    def note(self, sink: str, origins: Origins, besides: Collection[int] = ()) -> None:
        """These rows have reached the sink, but for those with the indexes `besides`."""
        indexes = [index for index in origins.chosen(self._rules.trace).tolist() if index not in besides]
        if not indexes:
            return
        chosen = origins.taken(indexes)
        own = hop_as_json(self._rules.stop(self._batch))
        for id_, stream in zip(chosen.ids(), chosen.streams.tolist(), strict=True):
            hops = (*(hop_as_json(hop) for hop in chosen.trails[stream]), own)
            self._writer.write(self._batch, TracedArrival(id_, sink, hops))

    def close(self) -> LineSegment | None:
        """Make them durable; None where there were none."""
        return self._writer.close()

    def keep(self, *, kept: bool = True) -> None:
        """See LineWriter."""
        self._writer.keep(kept=kept)

    def abort(self) -> None:
        """See LineWriter."""
        self._writer.abort()
