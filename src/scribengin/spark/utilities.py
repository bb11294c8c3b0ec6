"""A step of utilities in a task: Python steps one after the other, in the written order (here) or in any (`free_utilities`)."""

from __future__ import annotations

from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Literal

from scribengin.spark.free_utilities import Free, Utility
from scribengin.spark.looking import looking_form
from scribengin.spark.program import PythonNode
from scribengin.spark.python_step import BatchStep, RecordStep, instantiate
from scribengin.state.contract import Counts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from scribengin.spark.chunk import Chunk
    from scribengin.spark.hangs import Watchpoint
    from scribengin.spark.letters import DeadLetterWriter
    from scribengin.spark.program import UtilitiesNode
    from scribengin.spark.user_code import UserCode


def utilities_step(
    node: UtilitiesNode, code: UserCode, counts: Sequence[Counts], letters: DeadLetterWriter, hangs: Sequence[Watchpoint], *, settle: bool
) -> InARow | Free:
    """The step of one task, with instances of its own; `counts` and `hangs` are those of each utility. `settle` as in RecordStep."""
    functions = [instantiate(code.load(reference), node.node) for reference in node.references]
    if node.free:
        tests = [
            Utility(name, id_, function, looking_form(function, node.schema_in), count, point)
            for name, id_, function, count, point in zip(node.names, node.ids, functions, counts, hangs, strict=True)
        ]
        return Free(tests, node.schema_in, letters, node.learned)
    return InARow(node, functions, counts, letters, hangs, settle=settle)


class InARow:
    """As python steps that each read the one before. Those before the last give the step's own columns, as python steps without a
    `schema:` do."""

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
            looking = looking_form(function, node.schema_in)
            if index == 0:
                self.form = "rows" if looking is None else "structs"
            as_python = PythonNode(id_, (), reference, "record", node.schema_in, schema_out, (), node.limit_s)
            self._steps.append(RecordStep(as_python, function, looking, settle=settle or index < last, **own))

    def __call__(self, chunk: Chunk) -> Iterator[tuple[str, Chunk]]:
        """("", rows) for the step's readers."""
        chunks = [chunk]
        for index, step in enumerate(self._steps):
            begun_ns = perf_counter_ns()
            chunks = [out for each in chunks for _, out in step(each)]
            self._ns[index] += perf_counter_ns() - begun_ns
        for out in chunks:
            yield "", out

    def total(self, parts: dict[str, Counts]) -> Counts:
        """The step's own counts, of its utilities'."""
        each = list(parts.values())
        dropped, dead, made = (sum(getattr(part, name) for part in each) for name in ("filtered", "dead", "made"))
        return Counts(each[0].rows_in, each[-1].out, dropped, dead, made=made, parts=parts)

    def figures(self) -> dict[str, Any]:
        """Of this task: see `orders`."""
        return {"names": self._names, "asked": [counts.rows_in for counts in self._counts], "ns": self._ns}
