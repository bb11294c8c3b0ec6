"""The replay point of a dead letter in its Query, and whether the flow accepts it there. Does not need Spark."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scribengin.core.remedies import flow_command
from scribengin.formats.added_columns import AddedColumns, own_decoder
from scribengin.formats.lenient import LenientDecoder
from scribengin.formats.noticing import Noticer
from scribengin.local.prepare import open_sources, source_place
from scribengin.plan.graph import base
from scribengin.spec.model import Join, Merge, Python, Step, Utilities
from scribengin.state.letter_blocks import letter_decoder, record_block, row_block, row_decoder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyarrow import RecordBatch

    from scribengin.connectors.contract import SourceConnector
    from scribengin.core.types import Schema
    from scribengin.formats.contract import Block, Decoder
    from scribengin.local.prepare import Prepared
    from scribengin.plan.model import PlannedNode, QueryPlan
    from scribengin.spec.model import Action
    from scribengin.state.contract import DeadLetter


@dataclass(frozen=True, slots=True)
class ReplayPoint:
    """`at` is the step that had refused the dead letter, or empty: its source. `carrier`: the source in whose log the replay stands."""

    at: str
    carrier: str


@dataclass(frozen=True, slots=True)
class Cannot:
    """Why a dead letter is not replayed, and what a person can do."""

    why: str
    remedy: str


EXPORT = flow_command("dead-letter export", "--to", "FILE")


@dataclass
class Entrances:
    """The replay points of one Query of the present flow."""

    prepared: Prepared
    query: QueryPlan
    _decoders: dict[str, Decoder] = field(default_factory=dict)
    _opened: Mapping[str, SourceConnector] = field(default_factory=dict)

    def of(self, letter: DeadLetter, *, from_start: bool) -> ReplayPoint | Cannot:
        """The replay point of a dead letter: its step if the input row is known; else its source, if that has the same result."""
        known = bool(letter.file) and (bool(letter.form) or not letter.truncated)
        if letter.source in self.query.static_sources:
            return Cannot(
                f"source {letter.source} is static: it is read as a whole when the Query starts", "correct the file, then run the flow"
            )
        if known and letter.source not in self.query.sources:
            known = False
            if not letter.came:
                return Cannot(f'the Query no longer reads source "{letter.source}"', f"export it: {EXPORT}")
        start = ReplayPoint("", letter.source)
        if from_start or letter.step == letter.source:
            if not known:
                return Cannot("it does not come from a single record of a source", "omit --from-start, or repair its input data")
            return start
        node = next((node for node in self.query.nodes if node.id == base(letter.step)), None)  # `step.name` of a utility
        if node is None:
            remedy = "replay it with --from-start" if known else f"export it: {EXPORT}"
            return Cannot(f'the Query no longer has step "{letter.step}"', remedy)
        if node.stage in ("tail", "sink") and letter.came:
            carrier = letter.source if letter.source in self.query.sources else self._source_above(node)
            return ReplayPoint(node.id, carrier)
        if not known:
            return Cannot("neither its source record nor the input row of the step is known", "repair its input data")
        why = self._apart(letter, node)
        if not why:
            return start
        return Cannot(
            f"{why}, and the input row of the step is not known", "if its rows may be processed again, replay it with --from-start"
        )

    def taken(self, letter: DeadLetter, entrance: ReplayPoint, key: str) -> Cannot | RecordBatch | None:
        """The one row that the flow makes of the record, or row, there, as far as can be said without running its steps; None if only
        Spark knows; or why it does not take it. `key` is what a person types for the dead letter."""
        block: Block | None
        if entrance.at:
            schema = self.columns_at(entrance.at)
            if schema is None:
                return None  # only Spark knows: what is no such row dies again
            block, decoder = row_block(letter, letter.came.encode()), row_decoder(schema)
        else:
            if letter.truncated:
                remedy = f"pass the whole record: {flow_command('dead-letter edit', key, '--with', 'FILE')}"
                return Cannot("its payload was truncated to 64 KiB", remedy)
            block, decoder = self._record(letter)
        if block is None:
            return Cannot(f"source {letter.source} no longer reads such records", f"export it: {EXPORT}")
        found = decoder.columns(block)
        if len(found.ordinals) == 1 and not found.bad:
            return found.batch
        where = f"step {entrance.at}" if entrance.at else f"source {letter.source}"
        what = (
            found.bad[0].message if found.bad else f"found {len(found.ordinals)} records, expected one" if found.ordinals else "it is empty"
        )
        return Cannot(f"{where} rejects it: {what}", f"repair it: {flow_command('dead-letter edit', key)}")

    def _record(self, letter: DeadLetter) -> tuple[Block | None, Decoder]:
        decoder = self.decoder(letter.source)
        return record_block(letter, decoder), letter_decoder(letter, decoder)

    def at(self, step: str, letter: DeadLetter) -> ReplayPoint:
        """The replay point at that step, or at its source."""
        return ReplayPoint(step, letter.source)

    def decoder(self, source: str) -> Decoder:
        """The decoder of the source. Raises SourceError."""
        if source not in self._decoders:
            self._opened = self._opened or open_sources(self.prepared.plan.flow)
            self._opened[source].resolve_schema()
            decoder, declared = self._opened[source].decoder(), self.prepared.plan.flow.sources[source]
            if declared.schema is not None and declared.schema.evolve == "lenient":
                options = source_place(self.prepared.plan.flow, source).options
                own = own_decoder(decoder)
                lenient = LenientDecoder(own, Noticer(source, own.schema, options.get("format") or ""), options)
                decoder = decoder.over(lenient) if isinstance(decoder, AddedColumns) else lenient
            self._decoders[source] = decoder
        return self._decoders[source]

    def columns_at(self, step: str) -> Schema | None:
        """The input columns of a step or sink, if they are known without Spark."""
        node = self.query.node(step)
        return self.prepared.plan.schemas.get(base(node.inputs[0])) if node.inputs else None

    def _source_above(self, node: PlannedNode) -> str:
        waiting = list(node.inputs)
        while waiting:
            id_ = base(waiting.pop(0))
            if id_ in self.query.sources:
                return id_
            waiting += self.query.node(id_).inputs
        return self.query.sources[0]

    def _apart(self, letter: DeadLetter, node: PlannedNode) -> str:
        """What parts a replay from the start from one from the step; empty if both come to the same: one way from the source to the
        step, on which nothing branches off, nothing is kept, and no step makes several rows of one."""
        above = self._above(node)
        below = self.below(letter.source)
        way = above & below
        if not letter.alone:
            return "an earlier step has made several rows of the record"
        for id_ in way:
            each = self.query.node(id_)
            if each.stateful and id_ != node.id:
                return f'step "{id_}" keeps state and may already contain it'
            if id_ != node.id and isinstance(self._action(id_), Join):
                return f'join "{id_}" may have made several rows from it'
            if sum(base(input_) in way for input_ in each.inputs) > 1 or len(self._ways(each, way)) > 1:
                return f'it reaches "{id_}" on two paths'
            # a stage knows of its own steps whether they had made several rows; Spark's steps end it
            behind = way & self.below(id_) - ({id_} if id_ != node.id or letter.reason != "require" else set())
            if self._is_python(id_) and any(self.query.node(other).stage == "native" or other == id_ for other in behind):
                return f'Python step "{id_}" may have made several rows from it'
            others = [other.id for other in self.query.nodes if id_ in map(base, other.inputs) and other.id not in way and id_ != node.id]
            if others:
                return f'it has already reached "{others[0]}"'
        return ""

    def _ways(self, node: PlannedNode, way: set[str]) -> list[str]:
        single = not isinstance(self._action(node.id), Merge)
        return [input_ for input_ in node.inputs if base(input_) in way][: 1 if single else None]

    def _is_python(self, id_: str) -> bool:
        action = self._action(id_)
        return isinstance(action, Python) or (isinstance(action, Utilities) and action.order == "fixed")

    def _action(self, id_: str) -> Action | None:
        step = self.prepared.plan.flow.node(id_)
        return step.action if isinstance(step, Step) else None

    def _above(self, node: PlannedNode) -> set[str]:
        found, waiting = {node.id}, [node]
        while waiting:
            for input_ in map(base, waiting.pop().inputs):
                if input_ not in found:
                    found.add(input_)
                    waiting.append(self.query.node(input_))
        return found

    def below(self, id_: str) -> set[str]:
        """The node and all nodes that its rows reach."""
        found = {id_}
        for node in self.query.nodes:  # in topological order
            if any(base(input_) in found for input_ in node.inputs):
                found.add(node.id)
        return found
