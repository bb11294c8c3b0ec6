"""The columns that a source has learned under `evolve: add`: one record a column, put if absent, beside the flow's state.

They belong to the source, not to a lineage: after a rewind, and where another Query reads the source, they are the same.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scribengin.core.records import seal, unseal
from scribengin.core.storage import names_in, put_if_absent
from scribengin.core.types import Field, SchemaSyntaxError, parse_schema

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.formats.notice import FormatNotice

FOLDER = "_learned"
_KIND, _FORMAT = "learned-column", 1


@dataclass(frozen=True, slots=True)
class Learned:
    """`at` is when the Batch that saw it first was decided, ISO 8601; `file` where it stood."""

    field: Field
    at: str
    file: str


def column_of(notice: FormatNotice) -> Field | None:
    """The new column as a field; None where its name or type can be no column's."""
    try:
        (field,) = parse_schema(f"`{notice.column.replace('`', '``')}` {notice.type}").fields
    except (SchemaSyntaxError, ValueError):
        return None
    return field


def may_not_learn(name: str) -> bool:
    """True of names like those of the columns that rows carry for Scribengin itself."""
    return name.lower().startswith("_sg_")


def learn(root: Path, flow: str, notice: FormatNotice, at: str) -> bool:
    """Keep a new column durably; False where the source has it already, or where its name or type can be no column's."""
    field = column_of(notice)
    return field is not None and keep_learned(root, flow, notice.source, Learned(field, at, notice.file))


def keep_learned(root: Path, flow: str, source: str, learned: Learned) -> bool:
    """`learn`, of what is a column already."""
    field = learned.field
    if may_not_learn(field.name):
        return False
    name = hashlib.sha256(field.name.lower().encode()).hexdigest()[:32] + ".json"
    body = {"column": str(field), "at": learned.at, "file": learned.file}
    return put_if_absent(_folder(root, flow, source) / name, seal(_KIND, _FORMAT, body))


def read_learned(root: Path, flow: str, source: str) -> list[Learned]:
    """In the order in which they were seen. Raises StateError for a record that is damaged."""
    folder = _folder(root, flow, source)
    learned = []
    for name in names_in(folder):
        body = unseal((folder / name).read_bytes(), _KIND, _FORMAT, folder / name)
        learned.append(Learned(parse_schema(body["column"]).fields[0], body["at"], body["file"]))
    return sorted(learned, key=lambda each: (each.at, each.field.name))


def _folder(root: Path, flow: str, source: str) -> Path:
    return root / FOLDER / flow / source
