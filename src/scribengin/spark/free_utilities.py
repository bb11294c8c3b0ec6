"""Utilities of `order: free` in a task: tests that look at a record, asked in the order that costs least.

A record that every test keeps goes on. One that any test drops is dropped. Of the others, on which at least one has raised, the first of
these in the written order is the reason of the dead letter. So a test that raises ends nothing: the others are still asked, and what
comes out is the same in any order. Only the counts of each test are those of the order in which they ran.

A block goes through each test as a whole, in one list; which record raised, and where it stood, is worked out only where one did.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from itertools import compress
from typing import TYPE_CHECKING, Any, Literal

from scribengin.spark.ordering import Chooser
from scribengin.spark.read_only import READ_ONLY, view_of
from scribengin.spark.time_limit import StepTimeout, TimeLimit, checksum_of, hung_error, stopped
from scribengin.spark.work_clock import WorkClock
from scribengin.state.contract import Counts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from scribengin.core.types import Schema
    from scribengin.spark.chunk import Chunk
    from scribengin.spark.hangs import Watchpoint
    from scribengin.spark.letters import DeadLetterWriter
    from scribengin.spark.looking import CompiledPredicate

_RAISED = (Exception, StepTimeout, SystemExit, KeyboardInterrupt)
_WRITERS = ("clear", "pop", "popitem", "setdefault", "update")
_WROTE = ("'mappingproxy' object does not support item", *(f"'mappingproxy' object has no attribute '{name}'" for name in _WRITERS))


@dataclass(frozen=True, slots=True)
class Utility:
    """One utility: its function, the same for Structs where it can be had, and its counts."""

    name: str
    id: str
    """`step.name`"""
    function: Callable[[Any], Any]
    looking: CompiledPredicate | None
    counts: Counts
    hangs: Watchpoint


class Free:
    """The step of one task."""

    def __init__(
        self,
        utilities: Sequence[Utility],
        schema: Schema,
        letters: DeadLetterWriter,
        learned: Mapping[str, Any],
        *,
        chooser: Chooser | None = None,
        clock_ns: Callable[[], int] | None = None,
    ) -> None:
        """`learned` as `orders.carried` gives it; `schema`: the columns of what comes in, which are those of what goes out."""
        self._utilities = utilities
        self._schema = schema
        self._letters = letters
        self._view = view_of(schema)
        self._clock_ns = clock_ns or WorkClock()
        self._seen = 0
        self._out = 0
        self.chooser = chooser or Chooser.of([test.name for test in utilities], learned, clock_ns=self._clock_ns)
        self.form: Literal["structs", "rows", "columns"] = "rows" if all(test.looking is None for test in utilities) else "structs"

    def __call__(self, chunk: Chunk) -> Iterator[tuple[str, Chunk]]:
        """("", rows) for the step's readers."""
        first, size = self._seen, len(chunk)
        self._seen += size
        hung = [test.hangs.hung(first, size) for test in self._utilities]
        if chunk.is_arrow:
            _ = chunk.rows  # made once, and no test's cost
        if not any(each is not None for each in hung):
            self._sample(chunk, first)
        raised: dict[int, dict[int, BaseException]] = {}
        masks: list[list[bool]] = []
        kept = chunk
        timed = self.chooser.times(size)
        begun_ns = self._clock_ns() if timed else 0
        for place, index in enumerate(self.chooser.order):
            asked = len(kept)
            if not asked:
                break
            utility = self._utilities[index]
            answers, errors = self._asked(utility, kept, first, size, hung[index], masks)
            if not all(answers):
                kept = kept.selected(answers)
            if errors:
                where = _standing(size, masks)
                for row, error in errors.items():
                    raised.setdefault(where[row], {})[index] = error
            masks.append(answers)
            stay = len(kept)
            utility.counts.rows_in += asked
            utility.counts.filtered += asked - stay
            utility.counts.out += stay
            spent_ns = None
            if timed:
                now_ns = self._clock_ns()
                spent_ns, begun_ns = now_ns - begun_ns, now_ns
            self.chooser.passed(place, asked, stay, spent_ns)
        self.chooser.block_is_through()
        if raised and len(kept):
            kept = self._without_dead(chunk, kept, masks, raised)
        self._out += len(kept)
        if len(kept):
            yield "", kept

    def total(self, parts: dict[str, Counts]) -> Counts:
        """The step's own counts; what its utilities dropped and buried is theirs."""
        dropped, dead = (sum(getattr(part, name) for part in parts.values()) for name in ("filtered", "dead"))
        return Counts(self._seen, self._out, dropped, dead, parts=parts)

    def figures(self) -> dict[str, Any]:
        """Of this task: see `orders`."""
        return self.chooser.figures()

    # --- asking ---

    def _asked(
        self, test: Utility, kept: Chunk, first: int, size: int, hung: Mapping[int, int] | None, masks: list[list[bool]]
    ) -> tuple[list[bool], dict[int, BaseException]]:
        """What the test says of each row, True where it raises, and row → what it raised."""
        structs = kept.structs(self._schema) if test.looking is not None else None
        if structs is not None and hung is None and test.looking is not None and test.looking.many is not None:
            with suppress(Exception):  # which record it was is found one by one
                return test.looking.many(structs), {}
        function, rows, view = self._form_of(test, structs, kept)
        errors: dict[int, BaseException] = {}
        if hung is not None:
            at = [first + index for index in _standing(size, masks)]
            rows = rows if view is None else list(map(view, rows))
            return [self._alone(test, function, row, index, at[index], hung, errors) for index, row in enumerate(rows)], errors
        answers: list[Any] = []
        remaining = iter(rows)
        with TimeLimit(test.hangs, first, size, remaining=remaining):
            records = remaining if view is None else map(view, remaining)
            while True:
                try:
                    answers.extend(map(function, records))
                    if len(answers) == len(rows):
                        break
                    row = rows[len(answers)]
                    error: BaseException = stopped(function, row if view is None else view(row))
                except _RAISED as raised:
                    error = raised
                # extend keeps what it had: the record that raised is the one after it
                errors[len(answers)] = error
                answers.append(True)
        return _as_bools(answers, errors), errors

    def _form_of(self, test: Utility, structs: list[Any] | None, kept: Chunk) -> tuple[Callable[[Any], Any], list[Any], Any]:
        """(what to call, with which rows, what makes them read-only)"""
        if structs is not None and test.looking is not None:
            return test.looking.one, structs, None
        return test.function, kept.rows, self._view

    def _alone(
        self, test: Utility, function: Any, row: Any, index: int, at: int, hung: Mapping[int, int], errors: dict[int, BaseException]
    ) -> bool:
        """What the test says of a record near which an earlier try hung."""
        checksum = checksum_of(row)
        try:
            if hung.get(at) == checksum:
                raise hung_error(test.hangs)
            with TimeLimit(test.hangs, at, 1, checksum=checksum):
                found = [function(row)]
        except _RAISED as error:
            errors[index] = error
            return True
        wrong: dict[int, BaseException] = {}
        (answer,) = _as_bools(found, wrong)
        if wrong:
            errors[index] = wrong[0]
        return answer

    def _sample(self, chunk: Chunk, first: int) -> None:
        """Ask every test of a few records, to learn what it costs and how they go together. Changes nothing else: they are asked again
        with the others of their block."""
        indexes = self.chooser.sample(len(chunk))
        if not indexes:
            return
        begun_all_ns = self._clock_ns()
        few = chunk.taken(indexes)
        answers: list[list[bool]] = []
        spent_ns: list[int] = []
        for test in self._utilities:
            begun_ns = self._clock_ns()
            try:
                found, _ = self._asked(test, few, first, len(chunk), None, [])
            except _RAISED:
                return  # interrupted between two records
            spent_ns.append(self._clock_ns() - begun_ns)
            answers.append(found)
        self.chooser.sampled(answers, spent_ns, begun_all_ns)

    # --- the dead ---

    def _without_dead(self, chunk: Chunk, kept: Chunk, masks: list[list[bool]], raised: dict[int, dict[int, BaseException]]) -> Chunk:
        """The rows that all tests keep; those of the others on which one has raised are buried, in the order of the block."""
        where = _standing(len(chunk), masks)
        for row in where:
            if row in raised:
                index = min(raised[row])
                test, error = self._utilities[index], raised[row][index]
                reason = "time-limit" if isinstance(error, StepTimeout) else "raised"
                self._letters.bury(test.id, chunk, row, reason, _said(error), error=error, came=self._schema)
                test.counts.dead += 1
                test.counts.out -= 1
        return kept.selected([row not in raised for row in where])


def _standing(size: int, masks: list[list[bool]]) -> list[int]:
    """Where in the block each row stands that all `masks` have kept, each over what the one before it left."""
    where = list(range(size))
    for mask in masks:
        where = list(compress(where, mask))
    return where


def _as_bools(answers: list[Any], errors: dict[int, BaseException]) -> list[bool]:
    """None drops, as it does in a python step; anything else that is no bool is as if the test had raised."""
    kinds = set(map(type, answers))
    if kinds <= {bool}:
        return answers
    for index, answer in enumerate(answers):
        if answer is not None and not isinstance(answer, bool):
            errors[index] = TypeError(f"the function is annotated -> bool and returned {type(answer).__name__}")
    return [index in errors or answer is True for index, answer in enumerate(answers)]


def _said(error: BaseException) -> str:
    text = f"{type(error).__name__}: {error}"
    wrote = isinstance(error, TypeError | AttributeError) and any(sign in text for sign in _WROTE)
    return f"{type(error).__name__}: {READ_ONLY}" if wrote else text
