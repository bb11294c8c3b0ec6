"""`shelf` puts each write into one file of JSON lines, which is there at once; told a transaction, it leaves out a write that it has.

What `by` is one of, and the how manyth write it is (`turn`), are in the file's name. Of two drivers that bring the same the first one wins.
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
    """What one task has."""

    lines: list[str]


class DefaultSource(DataSource):
    """What Spark looks for."""

    @classmethod
    def name(cls) -> str:
        """What `format` is."""
        return "shelf"

    def writer(self, schema: StructType, overwrite: bool) -> ShelfWriter:  # noqa: ARG002 (Spark's)
        """Of one write."""
        return ShelfWriter(self.options)


class ShelfWriter(DataSourceArrowWriter):
    """Of one write. A row that is named `poison` fails it, and shows the option `password`, as a careless writer may."""

    def __init__(self, options: Any) -> None:
        self.options = dict(options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> ShelfMessage:
        """A task's rows."""
        lines = []
        for batch in iterator:
            for row in batch.to_pylist():
                if row.get("name") == "poison":
                    raise ValueError(f"no room for {row['id']}, says {self.options.get('password')}")
                lines.append(json.dumps(row, default=str))
        return ShelfMessage(lines)

    def commit(self, messages: Sequence[Any]) -> None:
        """All or nothing."""
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
