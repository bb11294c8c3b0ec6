"""Which of its two forms a summary has: what its parts are, and how they are read again."""

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
    """The rows of a task, of a Batch, of all: what they come to."""

    rows: int

    @property
    def left_out(self) -> bool:
        """Whether there was more than is kept."""

    @property
    def rows_left_out(self) -> int:
        """Rows of groups that are not kept."""

    @property
    def size(self) -> int:
        """How many rows the table has, before LIMIT."""

    def add(self, batch: pa.RecordBatch) -> Sequence[Bad]:
        """Take rows in; those that it cannot take, by their index."""

    def goes_with(self, part: Mapping[str, Any]) -> bool:
        """Whether a part that `as_json` wrote, of the same form, can be merged with this one."""

    def merge(self, other: Any) -> None:
        """Take another part of the same form in."""

    def result(self) -> list[dict[str, Any]]:
        """The table."""

    def outputs(self, rows: list[dict[str, Any]]) -> list[str]:
        """The columns of that table."""

    def as_json(self, most_bytes: int | None = None) -> dict[str, Any]:
        """`form`, `rows` and what else there is to say; of a form that `keep` does not bound, `most_bytes` at most."""


@dataclass(frozen=True, slots=True)
class SummaryForm:
    """What a summary asks. Parts of another `form` are of another question."""

    form: str
    keep: int
    empty: Callable[[], SummaryPart]
    read: Callable[[Mapping[str, Any]], SummaryPart]


def asked_of(options: Mapping[str, Any], load: Load) -> SummaryForm:
    """By a sink's options; `load` gives what `module:name` stands for."""
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
