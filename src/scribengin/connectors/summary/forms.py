"""The two forms of a summary, SQL and Python: their partial results, and how these are read from JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from scribengin.connectors.summary.question import read_question

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    from scribengin.formats.contract import Bad

    Load = Callable[[str], Any]


class SummaryPart(Protocol):
    """A partial result: that of the rows of a task, of a Batch, or of all rows."""

    rows: int

    @property
    def left_out(self) -> bool:
        """True if there were more groups than are kept."""

    @property
    def rows_left_out(self) -> int:
        """The number of rows in groups that are not kept."""

    @property
    def size(self) -> int:
        """The number of rows in the table, before LIMIT."""

    def add(self, batch: pa.RecordBatch) -> Sequence[Bad]:
        """Add rows; returns those that cannot be added, by their index."""

    def goes_with(self, part: Mapping[str, Any]) -> bool:
        """True if another partial result of the same form, as `as_json` returned it, can be merged with this one."""

    def merge(self, other: Any) -> None:
        """Merge another partial result of the same form."""

    def result(self) -> list[dict[str, Any]]:
        """The table."""

    def outputs(self, rows: list[dict[str, Any]]) -> list[str]:
        """The column names of the table `rows`."""

    def as_json(self, most_bytes: int | None = None) -> dict[str, Any]:
        """The partial result as JSON: `form`, `rows` and data of the form. If the form has no bound `keep`, at most `most_bytes` bytes."""


@dataclass(frozen=True, slots=True)
class SummaryForm:
    """The definition of a summary. Partial results with another `form` belong to another definition."""

    form: str
    keep: int
    empty: Callable[[], SummaryPart]
    read: Callable[[Mapping[str, Any]], SummaryPart]


def asked_of(options: Mapping[str, Any], load: Load) -> SummaryForm:
    """The definition in a sink's options. `load` returns the object that `module:name` refers to."""
    keep = int(options.get("keep") or 1000)
    if options.get("sql"):
        from scribengin.connectors.summary.table import SummaryTable

        question = read_question(options["sql"])
        return SummaryForm(
            question.form, keep, lambda: SummaryTable(question, keep), lambda data: SummaryTable.from_json(data, question, keep)
        )
    from scribengin.connectors.summary.reduced import Reduced, form_of

    reference: str = options["python"]
    make = load(reference)
    return SummaryForm(
        form_of(reference),
        keep,
        lambda: Reduced(reference, make, keep),
        lambda data: Reduced.from_json(data, reference, make, keep),
    )
