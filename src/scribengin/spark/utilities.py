"""A step of utilities in a task: Python steps one after the other, in the order of the flow file or, with `order: free`, in the cheapest
order."""

from __future__ import annotations

import resource
import time
from contextlib import suppress
from dataclasses import dataclass
from itertools import compress
from time import perf_counter_ns
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from scribengin.spark.predicate_pushdown import compile_predicate
from scribengin.spark.program import PythonNode
from scribengin.spark.python_step import BatchStep, RecordStep, instantiate
from scribengin.spark.step_ordering import Chooser
from scribengin.spark.watchdog import StepTimeout, TimeLimit, checksum_of, hung_error, stopped
from scribengin.state.contract import Counts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scribengin.core.types import Schema, Type

    Guard = Callable[[Any], Any]
    from collections.abc import Callable, Iterator, Sequence

    from scribengin.spark.chunk import Chunk
    from scribengin.spark.dead_letter_writer import DeadLetterWriter
    from scribengin.spark.predicate_pushdown import CompiledPredicate
    from scribengin.spark.program import UtilitiesNode
    from scribengin.spark.user_code import UserCode
    from scribengin.spark.watchdog import Watchpoint


# Read-only records, including the contents of their lists and structs.


READ_ONLY = "the record is read-only: utilities of `order: free` run in any order"


def view_of(schema: Schema) -> Callable[[dict[str, Any]], Mapping[str, Any]]:
    """A function that makes a read-only record of a row of `schema`; the row itself is never passed to the user's code. Lists, structs and
    maps are copied for it; a row of a flat schema is not."""
    guards = [(field.name, guard) for field in schema.fields if (guard := _guard(field.type)) is not None]
    if not guards:
        return MappingProxyType

    def view(row: dict[str, Any]) -> Mapping[str, Any]:
        seen = dict(row)
        for name, guard in guards:
            if name in seen:
                seen[name] = guard(seen[name])
        return MappingProxyType(seen)

    return view


def _guard(type_: Type) -> Guard | None:
    """A function that makes a value of that type read-only; None if it is immutable. A value of another type is returned as it is."""
    match type_.name:
        case "ARRAY":
            return _of_list(_guard(type_.parts[0]))
        case "MAP":
            return _of_map(_guard(type_.parts[1]))
        case "STRUCT":
            return _of_struct([(field.name, guard) for field in type_.fields if (guard := _guard(field.type)) is not None])
    return None


def _of_list(inner: Guard | None) -> Guard:
    def guard(value: Any) -> Any:
        if not isinstance(value, list | tuple) or (inner is None and isinstance(value, tuple)):
            return value
        return _List(value if inner is None else map(inner, value))

    return guard


def _of_map(inner: Guard | None) -> Guard:
    def guard(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return _Dict(value if inner is None else {key: inner(each) for key, each in value.items()})

    return guard


def _of_struct(inner: list[tuple[str, Guard]]) -> Guard:
    def guard(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return _Dict(value | {name: each(value[name]) for name, each in inner if name in value})

    return guard


def _refuse(*_: object, **__: object) -> NoReturn:
    raise TypeError(READ_ONLY)


class _List(list[Any]):
    """A read-only list. A copy of it, by `list`, `copy` or pickle, is a plain list."""

    append = extend = insert = remove = pop = clear = sort = reverse = _refuse
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)


class _Dict(dict[Any, Any]):
    """A read-only dict. A copy of it is a plain dict."""

    clear = pop = popitem = setdefault = update = _refuse
    __setitem__ = __delitem__ = __ior__ = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


# A clock for the cost of code on a machine with other load.


_THREAD: int | None = getattr(resource, "RUSAGE_THREAD", None)
"""Linux only"""


class WorkClock:
    """Measures the nanoseconds in which the calling thread worked, or waited by its own action (for an answer, a disk, a sleep).

    Time in which another thread had its core does not count: if the thread did not give up the core itself between two calls, only its CPU
    time counts. On systems without these figures all time counts. A call takes about 2 µs.
    """

    def __init__(self) -> None:
        self._ns = 0
        self._last = self._clocks()

    def __call__(self) -> int:
        """Nanoseconds since the clock was created."""
        now = self._clocks()
        wall_ns, cpu_ns, gave_up = (one - other for one, other in zip(now, self._last, strict=True))
        self._last = now
        self._ns += wall_ns if gave_up else cpu_ns
        return self._ns

    def _clocks(self) -> tuple[int, int, int]:
        if _THREAD is None:
            now = time.perf_counter_ns()
            return now, now, 0
        return time.perf_counter_ns(), time.thread_time_ns(), resource.getrusage(_THREAD).ru_nvcsw


# Utilities of `order: free` in a task: tests that read a record, run in the cheapest order. A record that every test keeps is passed on. A
# record that any test drops is dropped. For any other record at least one test has raised, and the first of these in the order of the flow
# file gives the reason of the dead letter. So the other tests still run after one that raises, and the output is the same in any order.
# Only the counts of each test depend on the order. A block passes through each test as a whole, in one list; which record raised, and its
# index in the block, is computed only if one did.


_RAISED = (Exception, StepTimeout, SystemExit, KeyboardInterrupt)
_WRITERS = ("clear", "pop", "popitem", "setdefault", "update")
_WROTE = ("'mappingproxy' object does not support item", *(f"'mappingproxy' object has no attribute '{name}'" for name in _WRITERS))


@dataclass(frozen=True, slots=True)
class Utility:
    """One utility: its function, the function for Structs if it can be compiled for them, and its counts."""

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
        """Create the step.

        Args:
            utilities: The utilities.
            schema: The columns of the input, which are those of the output too.
            `letters`: Takes the dead letters.
            learned: What earlier Batches recorded of the utilities; see `step_ordering.learned`.
            chooser: Chooses the order; None: one made from `learned`.
            clock_ns: Returns nanoseconds; None: a WorkClock.
        """
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
        """Yields ("", rows) for the step's readers."""
        first, size = self._seen, len(chunk)
        self._seen += size
        hung = [test.hangs.hung(first, size) for test in self._utilities]
        if chunk.is_arrow:
            _ = chunk.rows  # converted once, at no test's cost
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
                where = _kept_by_all(size, masks)
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
        """The step's own counts; rows that its utilities dropped or wrote as dead letters are counted there."""
        dropped, dead = (sum(getattr(part, name) for part in parts.values()) for name in ("filtered", "dead"))
        return Counts(self._seen, self._out, dropped, dead, parts=parts)

    def figures(self) -> dict[str, Any]:
        """The figures of this task; see `step_ordering`."""
        return self.chooser.figures()

    # --- asking ---

    def _asked(
        self, test: Utility, kept: Chunk, first: int, size: int, hung: Mapping[int, int] | None, masks: list[list[bool]]
    ) -> tuple[list[bool], dict[int, BaseException]]:
        """(the test's result for each row, True if it raised; row → what it raised)."""
        structs = kept.structs(self._schema) if test.looking is not None else None
        if structs is not None and hung is None and test.looking is not None and test.looking.many is not None:
            with suppress(Exception):  # the record that raised is found one by one
                return test.looking.many(structs), {}
        function, rows, view = self._form_of(test, structs, kept)
        errors: dict[int, BaseException] = {}
        if hung is not None:
            at = [first + index for index in _kept_by_all(size, masks)]
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
                # extend keeps the results so far: the record that raised is the next one
                errors[len(answers)] = error
                answers.append(True)
        return _as_bools(answers, errors), errors

    def _form_of(self, test: Utility, structs: list[Any] | None, kept: Chunk) -> tuple[Callable[[Any], Any], list[Any], Any]:
        """(the function to call, the rows, the function that makes them read-only; None if they need none)"""
        if structs is not None and test.looking is not None:
            return test.looking.one, structs, None
        return test.function, kept.rows, self._view

    def _alone(
        self, test: Utility, function: Any, row: Any, index: int, at: int, hung: Mapping[int, int], errors: dict[int, BaseException]
    ) -> bool:
        """The test's result for a record close to which an earlier attempt hung."""
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
        """Run every test on a few records, to measure its cost and how the tests depend on each other. This has no other effect: the
        records are tested again with the others of their block."""
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
        """The rows that all tests keep. Rows that no test drops, and on which one has raised, become dead letters, in the order of the
        block."""
        where = _kept_by_all(len(chunk), masks)
        for row in where:
            if row in raised:
                index = min(raised[row])
                test, error = self._utilities[index], raised[row][index]
                reason = "time-limit" if isinstance(error, StepTimeout) else "raised"
                self._letters.bury(test.id, chunk, row, reason, _text_of_error(error), error=error, came=self._schema)
                test.counts.dead += 1
                test.counts.out -= 1
        return kept.selected([row not in raised for row in where])


def _kept_by_all(size: int, masks: list[list[bool]]) -> list[int]:
    """The indexes in the block of the rows that all `masks` have kept; each mask is over the rows that the one before kept."""
    where = list(range(size))
    for mask in masks:
        where = list(compress(where, mask))
    return where


def _as_bools(answers: list[Any], errors: dict[int, BaseException]) -> list[bool]:
    """The results as bools. None drops, as in a python step; any other value that is not a bool counts as an error of the test."""
    kinds = set(map(type, answers))
    if kinds <= {bool}:
        return answers
    for index, answer in enumerate(answers):
        if answer is not None and not isinstance(answer, bool):
            errors[index] = TypeError(f"the function is annotated -> bool and returned {type(answer).__name__}")
    return [index in errors or answer is True for index, answer in enumerate(answers)]


def _text_of_error(error: BaseException) -> str:
    text = f"{type(error).__name__}: {error}"
    wrote = isinstance(error, TypeError | AttributeError) and any(sign in text for sign in _WROTE)
    return f"{type(error).__name__}: {READ_ONLY}" if wrote else text


def utilities_step(
    node: UtilitiesNode, code: UserCode, counts: Sequence[Counts], letters: DeadLetterWriter, hangs: Sequence[Watchpoint], *, settle: bool
) -> InARow | Free:
    """The step of one task, with its own instances of the user's functions.

    Args:
        node: The step's node.
        code: The user's code.
        counts: The counts of each utility.
        `letters`: Takes the dead letters.
        hangs: A watchpoint for each utility.
        settle: See `RecordStep`.
    """
    functions = [instantiate(code.load(reference), node.node) for reference in node.references]
    if node.free:
        tests = [
            Utility(name, id_, function, compile_predicate(function, node.schema_in), count, point)
            for name, id_, function, count, point in zip(node.names, node.ids, functions, counts, hangs, strict=True)
        ]
        return Free(tests, node.schema_in, letters, node.learned)
    return InARow(node, functions, counts, letters, hangs, settle=settle)


class InARow:
    """Python steps that each read the output of the one before. Those before the last have the step's own columns, like python steps
    without a `schema:`."""

    def __init__(
        self,
        node: UtilitiesNode,
        functions: Sequence[Callable[..., Any]],
        counts: Sequence[Counts],
        letters: DeadLetterWriter,
        hangs: Sequence[Watchpoint],
        *,
        settle: bool,
    ) -> None:
        self._names = node.names
        self._counts = list(counts)
        self._ns = [0] * len(functions)
        self._steps: list[RecordStep | BatchStep] = []
        self.form: Literal["structs", "rows", "columns"] = "columns"
        last = len(functions) - 1
        for index, (id_, reference, form, function) in enumerate(zip(node.ids, node.references, node.forms, functions, strict=True)):
            schema_out = node.schema_out if index == last else node.schema_in
            own: dict[str, Any] = {"counts": counts[index], "letters": letters, "hangs": hangs[index]}
            if form == "batch":
                self._steps.append(BatchStep(id_, function, schema_in=node.schema_in, schema_out=schema_out, **own))
                continue
            looking = compile_predicate(function, node.schema_in)
            if index == 0:
                self.form = "rows" if looking is None else "structs"
            as_python = PythonNode(id_, (), reference, "record", node.schema_in, schema_out, (), node.limit_s)
            self._steps.append(RecordStep(as_python, function, looking, settle=settle or index < last, **own))

    def __call__(self, chunk: Chunk) -> Iterator[tuple[str, Chunk]]:
        """Yields ("", rows) for the step's readers."""
        chunks = [chunk]
        for index, step in enumerate(self._steps):
            begun_ns = perf_counter_ns()
            chunks = [out for each in chunks for _, out in step(each)]
            self._ns[index] += perf_counter_ns() - begun_ns
        for out in chunks:
            yield "", out

    def total(self, parts: dict[str, Counts]) -> Counts:
        """The step's own counts, from those of its utilities."""
        each = list(parts.values())
        dropped, dead, made = (sum(getattr(part, name) for part in each) for name in ("filtered", "dead", "made"))
        return Counts(each[0].rows_in, each[-1].out, dropped, dead, made=made, parts=parts)

    def figures(self) -> dict[str, Any]:
        """The figures of this task; see `step_ordering`."""
        return {"names": self._names, "asked": [counts.rows_in for counts in self._counts], "ns": self._ns}
