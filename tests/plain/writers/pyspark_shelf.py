"""A writer that is not ours: `shelf` puts each write into one file of JSON lines, and, told a transaction, leaves out what it has.

Spark finds it by the name of this module, which begins with pyspark_, where it is on the path.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage


@dataclass
class Part(WriterCommitMessage):
    lines: list


class DefaultSource(DataSource):
    @classmethod
    def name(cls):
        return "shelf"

    def writer(self, schema, overwrite):
        return ShelfWriter(self.options)


class ShelfWriter(DataSourceArrowWriter):
    def __init__(self, options):
        self.options = dict(options)

    def write(self, iterator):
        lines = []
        for batch in iterator:
            for row in batch.to_pylist():
                if row.get("name") == "poison":
                    raise ValueError(f"no room for {row['id']}, says {self.options.get('password')}")
                lines.append(json.dumps(row, default=str))
        return Part(lines)

    def commit(self, messages):
        folder = Path(self.options["path"])
        folder.mkdir(parents=True, exist_ok=True)
        app, version = self.options.get("by"), self.options.get("turn")
        if app is not None:
            done = [int(path.name.split("@")[1]) for path in folder.glob(f"{app.replace(' ', '-')}@*")]
            if done and max(done) >= int(version):
                return
        name = uuid4().hex if app is None else f"{app.replace(' ', '-')}@{version}"
        (folder / name).write_text("".join(line + "\n" for part in messages for line in part.lines))
