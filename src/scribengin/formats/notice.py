"""What was noticed of a source's columns, as a value that loads nothing else."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(slots=True)
class FormatNotice:
    """`kind` is `new` (a column that the schema has not), `field` (the same of an object in a column: `column.field`), `missing` (one that
    files lack), `renamed` (one that is null in all records of a file, whose `type` is a field that is called nearly so), `null` (one that
    is null in all records of a Batch), `nulled` (values that did not fit became null), `lines` (a cell in quotes over several lines in a
    file with tabs), `empty` (a file with bytes and no record; these two have no column) or `again` (a file that was written again and is
    read from its start; `column` is what the source calls that). `type` is what was seen of a new one, as far as
    that says it, and else what is declared. The place is that of the first."""

    source: str
    column: str
    kind: str
    type: str
    file: str
    line: int | None = None
    records: int = 0
    """of `nulled`: how many values; of `renamed` and `null`: in how many records"""

    @property
    def key(self) -> tuple[str, str, str]:
        """What is told once."""
        return self.source, self.column, self.kind

    def as_json(self) -> dict[str, Any]:
        """The form in a record."""
        return asdict(self)
