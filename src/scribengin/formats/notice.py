"""A notice on a source's columns, in a module without further imports."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(slots=True)
class FormatNotice:
    """A notice on a source's column or file. The place is the first one where it was seen.

    Kinds:

    - `new`: a column that the schema does not have.
    - `field`: the same for a field of an object in a column: `column.field`.
    - `missing`: a column that files do not have.
    - `renamed`: a column that is null in all records of a file; `type` is a field with a similar name.
    - `null`: a column that is null in all records of a Batch.
    - `nulled`: values that did not fit became null.
    - `lines`: a cell in quotes over several lines in a file with tabs; no column.
    - `empty`: a file with bytes and no record; no column.
    - `again`: a file that was rewritten and is read from its start; `column` is the source's name for it.

    Otherwise `type` is the type that was found for a new column, if it is known, and else the declared one.
    """

    source: str
    column: str
    kind: str
    type: str
    file: str
    line: int | None = None
    records: int = 0
    """for `nulled` the number of values, for `renamed` and `null` the number of records"""

    @property
    def key(self) -> tuple[str, str, str]:
        """The key: notices with the same key are reported once."""
        return self.source, self.column, self.kind

    def as_json(self) -> dict[str, Any]:
        """The form in a record."""
        return asdict(self)
