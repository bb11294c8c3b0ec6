"""Runs Python steps on executors: a user's function over chunks, with counts, dead letters and a time limit per record.

The common results need no Python per record beyond the user's own call: a chunk is mapped in one C loop, its results are distinguished by
the set of their types, and filters select with `itertools.compress`.
"""

from __future__ import annotations

from types import GeneratorType
from typing import TYPE_CHECKING, Any

from scribengin.core.errors import StepError
from scribengin.formats.rows import settle_rows
from scribengin.plan.graph import base
from scribengin.spark.chunk import Chunk
from scribengin.spark.watchdog import StepTimeout, TimeLimit, checksum_of, hung_error, stopped
from scribengin.spec.functions import To

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from scribengin.core.types import Schema
    from scribengin.spark.dead_letter_writer import DeadLetterWriter
    from scribengin.spark.predicate_pushdown import CompiledPredicate
    from scribengin.spark.program import PythonNode
    from scribengin.spark.watchdog import Watchpoint
    from scribengin.state.contract import Counts

_NONE = type(None)


_RAISED = (Exception, StepTimeout, SystemExit, KeyboardInterrupt)
"""The exceptions that a record may cause in its step. Executors receive no signals, so SystemExit and KeyboardInterrupt come from the
user's code too."""


class _Dead:
    """Stands for the result of a record that has become a dead letter."""


_DEAD = _Dead()


class _Step:
    """The common state of both forms: the step's name, its counts and dead letters, and the number of rows that the task has processed in
    it."""

    _changes = True
    """True if the function may have changed a row's dict before it raised"""

    def __init__(self, node: str, came: Schema, counts: Counts, letters: DeadLetterWriter, hangs: Watchpoint) -> None:
        self._node = node
        # the input of a utility after another one is not an input row of the step
        self._came = came if base(node) == node else None
        self._arrived: pa.RecordBatch | None = None
        """the chunk's input rows, if they were Arrow"""
        self._counts = counts
        self._letters = letters
        self._hangs = hangs
        self._seen = 0

    def _bury(self, chunk: Chunk, index: int, error: BaseException) -> None:
        """Write the dead letter of a row on which the step raised or was interrupted."""
        reason = "time-limit" if isinstance(error, StepTimeout) else "raised"
        came = self._came if self._arrived is not None or chunk.form is not None or not self._changes else None
        self._letters.bury(
            self._node, chunk, index, reason, f"{type(error).__name__}: {error}", error=error, came=came, arrived=self._arrived
        )
        self._counts.dead += 1


class RecordStep(_Step):
    """A `@record` function: one dict in; a dict, True, False, None, or several dicts out; `to(branch, row)` for branches."""

    def __init__(
        self,
        node: PythonNode,
        function: Callable[[dict[str, Any]], Any],
        looking: CompiledPredicate | None,
        *,
        counts: Counts,
        letters: DeadLetterWriter,
        hangs: Watchpoint,
        settle: bool,
    ) -> None:
        """Create the step.

        Args:
            node: The step's node.
            function: The user's function.
            looking: The function for Structs of the step's input, if it can be compiled for them.
            counts: The step's counts.
            `letters`: Takes the dead letters.
            hangs: Detects a function that hangs.
            settle: True if a step of the same stage reads the rows: they are checked against the step's `schema:` here, otherwise where
                they leave the stage.
        """
        super().__init__(node.node, node.schema_in, counts, letters, hangs)
        self._changes = looking is None
        self._settle = node.schema_out if settle else None
        self._function = function
        self._looking = looking
        self._schema = node.schema_in
        self._branches = node.branches

    def __call__(self, chunk: Chunk) -> Iterator[tuple[str, Chunk]]:
        """(branch, rows) for the step's readers; the branch is empty for the step's own output."""
        structs = chunk.structs(self._schema) if self._looking is not None else None
        self._arrived = chunk.batch(self._schema)[0] if chunk.is_arrow else None
        self._seen += len(chunk)
        answers: list[Any] | None = self._tests(structs)
        kinds: set[type] = {bool}
        if answers is None:
            function, rows = (self._function, chunk.rows) if structs is None else (self._looking.one, structs)  # type: ignore[union-attr]
            answers = self._answers(chunk, function, rows)
            kinds = set(map(type, answers))
        self._counts.rows_in += len(answers)
        if kinds <= {bool, _NONE}:
            kept = chunk if kinds == {bool} and all(answers) else chunk.selected(answers)
            self._counts.filtered += len(answers) - len(kept)
            if self._changes:  # a function that receives dicts may have changed them and returned True
                kept = self._matching(kept)
        elif kinds == {dict}:
            kept = self._matching(Chunk(chunk.origin, chunk.ordinals, rows=answers))
        else:
            yield from self._mixed(chunk, answers)
            return
        self._counts.out += len(kept)
        if len(kept):
            yield "", kept

    def _tests(self, structs: list[Any] | None) -> list[bool] | None:
        """The results of a function that is only a test; None if it is more, or if a record raises."""
        if structs is None or self._looking is None or self._looking.many is None:
            return None
        try:
            return self._looking.many(structs)
        except Exception:  # `_answers` then finds the record
            return None

    def _answers(self, chunk: Chunk, function: Any, rows: list[Any]) -> list[Any]:
        answers: list[Any] = []
        remaining, first = iter(rows), self._seen - len(rows)
        if (hung := self._hangs.hung(first, len(rows))) is not None:
            return [self._alone(chunk, index, function, row, hung) for index, row in enumerate(rows)]
        with TimeLimit(self._hangs, first, len(rows), remaining=remaining):
            while True:
                try:
                    answers.extend(map(function, remaining))
                    if len(answers) == len(rows):
                        return answers
                    error: BaseException = stopped(function, rows[len(answers)])
                except _RAISED as raised:
                    error = raised
                # extend keeps the results so far: the record that raised is the next one
                self._bury(chunk, len(answers), error)
                answers.append(_DEAD)

    def _alone(self, chunk: Chunk, index: int, function: Any, row: Any, hung: Mapping[int, int]) -> Any:
        """The result of a record close to which an earlier attempt hung; a generator is run to its end."""
        at, checksum = self._seen - len(chunk) + index, checksum_of(row)
        try:
            if hung.get(at) == checksum:
                raise hung_error(self._hangs)
            with TimeLimit(self._hangs, at, 1, checksum=checksum):
                answer = function(row)
                return list(answer) if isinstance(answer, GeneratorType) else answer
        except _RAISED as error:
            self._bury(chunk, index, error)
            return _DEAD

    def _mixed(self, chunk: Chunk, answers: list[Any]) -> Iterator[tuple[str, Chunk]]:
        made: dict[str, tuple[list[dict[str, Any]], list[int | None]]] = {}
        for index, answer in enumerate(answers):
            if answer is _DEAD:
                continue
            try:
                results = [("", chunk.rows[index])] if answer is True else self._results(answer, self._seen - len(chunk) + index)
            except _RAISED as error:
                self._bury(chunk, index, error)
                continue
            self._counts.filtered += not results
            self._counts.made += max(0, len(results) - 1)
            for branch, row in results:
                kept, ordinals = made.setdefault(branch, ([], []))
                kept.append(row)
                ordinals.append(chunk.ordinal(index))
        for branch, (kept, ordinals) in made.items():
            known = [ordinal for ordinal in ordinals if ordinal is not None]
            out = self._matching(Chunk(chunk.origin, known if len(known) == len(kept) else None, rows=kept))
            self._counts.out += len(out)
            if len(out):
                yield branch, out

    def _matching(self, out: Chunk) -> Chunk:
        """The rows that match the step's `schema:`; the others become dead letters of this step."""
        if self._settle is None:
            return out
        rows, bad = settle_rows(out.rows, self._settle)
        if rows is out.rows:
            return out
        for each in bad:
            self._letters.bury(self._node, out, each.ordinal, each.reason, each.message)
        self._counts.dead += len(bad)
        dead = {each.ordinal for each in bad}
        ordinals = None if out.ordinals is None else [ordinal for index, ordinal in enumerate(out.ordinals) if index not in dead]
        return Chunk(out.origin, ordinals, rows=rows)

    def _results(self, answer: Any, at: int) -> list[tuple[str, dict[str, Any]]]:
        """The rows of one result, with their branches. Runs a generator to its end. Raises what the user's code raises."""
        if answer is None or answer is False:
            return []
        if isinstance(answer, dict | To):
            answer = (answer,)
        elif isinstance(answer, GeneratorType):
            with TimeLimit(self._hangs, at, 1):
                answer = list(answer)
        elif not isinstance(answer, list | tuple):
            found = f"{type(answer).__name__} ({_short(answer)})"
            raise TypeError(f"the function returned {found}; it must return a dict, True, False, None, or several dicts")
        results: list[tuple[str, dict[str, Any]]] = []
        for part in answer:
            if isinstance(part, To):
                if part.branch not in self._branches:
                    raise ValueError(
                        f'to("{part.branch}", …) does not name a branch of this step; its branches are '
                        f"{', '.join(self._branches) or 'none'}"
                    )
                results.append((part.branch, part.row))
            elif isinstance(part, dict):
                results.append(("", part))
            else:
                raise TypeError(f"the function returned a list that holds {type(part).__name__} ({_short(part)}); it must hold dicts")
        return results


class BatchStep(_Step):
    """A `@batch` function: Arrow in, Arrow out. A batch that raises is bisected to find the rows that cause it."""

    _changes = False

    def __init__(
        self,
        node: str,
        function: Callable[[pa.RecordBatch], Any],
        *,
        schema_in: Schema,
        schema_out: Schema,
        counts: Counts,
        letters: DeadLetterWriter,
        hangs: Watchpoint,
    ) -> None:
        super().__init__(node, schema_in, counts, letters, hangs)
        self._function = function
        self._schema_in = schema_in
        self._schema_out = schema_out

    def __call__(self, chunk: Chunk) -> Iterator[tuple[str, Chunk]]:
        """Yields ("", rows). They are not linked to source records, since the function may reorder rows."""
        batch, bad = chunk.batch(self._schema_in)
        self._counts.rows_in += len(chunk)
        self._seen += len(chunk)
        for each in bad:
            self._letters.bury(self._node, chunk, each.ordinal, each.reason, each.message, came=self._came)
        self._counts.dead += len(bad)
        good = sorted(set(range(len(chunk))) - {each.ordinal for each in bad}) if bad else range(len(chunk))
        hung = self._hangs.hung(self._seen - len(chunk), len(chunk))
        for out in self._pieces(chunk, batch, good) if hung is None else self._one_by_one(chunk, batch, good, hung):
            self._counts.out += out.num_rows
            if out.num_rows:
                yield "", Chunk(chunk.origin, None, batch=out)

    def _one_by_one(self, chunk: Chunk, batch: pa.RecordBatch, indexes: Sequence[int], hung: Mapping[int, int]) -> Iterator[pa.RecordBatch]:
        """Like `_pieces`, for rows close to which an earlier attempt hung."""
        for place, index in enumerate(indexes):
            one = batch.slice(place, 1)
            checksum = checksum_of(one.to_pylist())
            if hung.get(self._seen - len(chunk) + index) == checksum:
                self._bury(chunk, index, hung_error(self._hangs))
            else:
                yield from self._pieces(chunk, one, indexes[place : place + 1], checksum)

    def _pieces(self, chunk: Chunk, batch: pa.RecordBatch, indexes: Sequence[int], checksum: int = 0) -> Iterator[pa.RecordBatch]:
        if not batch.num_rows:
            return
        try:
            with TimeLimit(self._hangs, self._seen - len(chunk) + indexes[0], indexes[-1] + 1 - indexes[0], checksum=checksum):
                outs = [self._checked(out) for out in self._outs(batch)]
        except _RAISED as error:
            if batch.num_rows == 1:
                self._bury(chunk, indexes[0], error)
                return
            middle = batch.num_rows // 2
            yield from self._pieces(chunk, batch.slice(0, middle), indexes[:middle])
            yield from self._pieces(chunk, batch.slice(middle), indexes[middle:])
            return
        surplus = sum(out.num_rows for out in outs) - batch.num_rows
        self._counts.made += max(0, surplus)
        self._counts.filtered += max(0, -surplus)
        yield from outs

    def _outs(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        import pyarrow as pa

        answer = self._function(batch)
        return [answer] if isinstance(answer, pa.RecordBatch) else list(answer or ())

    def _checked(self, out: pa.RecordBatch) -> pa.RecordBatch:
        from scribengin.core.types import arrow_schema

        wanted = arrow_schema(self._schema_out)
        surplus = set(out.schema.names) - set(wanted.names)
        missing = set(wanted.names) - set(out.schema.names)
        if surplus or missing:
            raise TypeError(f"the function returned the columns {out.schema.names}; expected {wanted.names}; add `schema:` to the step")
        return out.select(wanted.names).cast(wanted)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def instantiate(target: Any, node: str) -> Callable[..., Any]:
    """The callable of a function or class. A class is instantiated, and its `open()` called if it has one. Raises StepError."""
    if not isinstance(target, type):
        function: Callable[..., Any] = target
        return function
    try:
        instance = target()
        if hasattr(instance, "open"):
            instance.open()
    except Exception as error:
        raise StepError(f'step "{node}": {target.__name__} could not be opened: {type(error).__name__}: {error}') from error
    called: Callable[..., Any] = instance
    return called
