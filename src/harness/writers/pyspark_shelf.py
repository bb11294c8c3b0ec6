"""A Spark writer named `shelf`: each write becomes one file of JSON lines, which appears as a whole. With a transaction, a write that
exists already is skipped.

The name of a file contains the transaction's application (`by`) and number (`turn`). If two drivers write the same, the first one wins.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType


@dataclass
class ShelfMessage(WriterCommitMessage):
    """What one task has written."""

    lines: list[str]


class DefaultSource(DataSource):
    """The class that Spark looks for."""

    @classmethod
    def name(cls) -> str:
        """The name for `format`."""
        return "shelf"

    def writer(self, schema: StructType, overwrite: bool) -> ShelfWriter:  # noqa: ARG002 (Spark's)
        """A writer for one write."""
        return ShelfWriter(self.options)


class ShelfWriter(DataSourceArrowWriter):
    """The writer of one write. A row named `poison` fails it, with the option `password` in the message, as a careless writer might show
    it."""

    def __init__(self, options: Any) -> None:
        self.options = dict(options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> ShelfMessage:
        """Write the rows of a task."""
        lines = []
        for batch in iterator:
            for row in batch.to_pylist():
                if row.get("name") == "poison":
                    raise ValueError(f"no room for {row['id']}, says {self.options.get('password')}")
                lines.append(json.dumps(row, default=str))
        return ShelfMessage(lines)

    def commit(self, messages: Sequence[Any]) -> None:
        """Make all rows visible, or none."""
        folder = Path(self.options["path"])
        folder.mkdir(parents=True, exist_ok=True)
        app, turn = self.options.get("by"), int(self.options.get("turn", "0"))
        name = uuid4().hex
        draft = folder / f".{name}"
        draft.write_text("".join(line + "\n" for part in messages for line in part.lines))
        if app is not None:
            prefix = f"{app.replace(' ', '-')}@"
            name = f"{prefix}{turn}"
            done = [int(path.name.removeprefix(prefix)) for path in folder.glob(f"{prefix}*")]
            if done and max(done) > turn:
                draft.unlink()
                return
        with suppress(FileExistsError):
            os.link(draft, folder / name)
        draft.unlink()
