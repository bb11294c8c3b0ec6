"""One run over every kind of bad input at once: nobody's bad day may cost another's good record."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from scribengin.state.dead_letters import read_letters
from scribengin.state.folder import StateFolder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from scribengin.local.contract import RunResult
    from scribengin.state.contract import DeadLetter
    from tests.conftest import FlowFolder as Folder

FLOW = """\
version: 1
name: bad
sources:
  rows: {type: files, path: data, format: json, schema: "id BIGINT NOT NULL, small INT, word STRING, at TIMESTAMP"}
steps:
  checked: {from: rows, python: {function: "steps:check", time_limit: 1s}}
  cast: {from: rows, select: {id: id, number: cast(word AS INT)}}
sinks:
  kept: {from: checked, type: files, path: out/kept, format: json}
  numbers: {from: cast, type: files, path: out/numbers, format: json}
"""
STEPS = """\
def check(row):
    if row["id"] == 1001:
        raise ValueError("I do not like 1001")
    if row["id"] == 1002:
        return "a text"
    if row["id"] == 1003:
        while True:
            pass
    if row["id"] == 1004:
        return {**row, "colour": "red"}
    if row["id"] == 1005:
        return {**row, "small": "seven"}
    return row
"""
LONG = 50 * 2**20


@dataclass
class BadRun:
    folder: Folder
    result: RunResult
    good: list[int]
    """ids that every part of the flow can take"""

    def letters(self, query: str) -> list[DeadLetter]:
        return list(read_letters(StateFolder(self.folder.path / ".scribengin", "bad").query(query)))

    def letters_of(self, query: str, file: str) -> list[DeadLetter]:
        return [letter for letter in self.letters(query) if letter.file.endswith(file)]


def good(*ids: int) -> str:
    return "".join(json.dumps({"id": id_, "small": 1, "word": str(id_), "at": "2026-01-01T00:00:00Z"}) + "\n" for id_ in ids)


@pytest.fixture(scope="session")
def bad_run(spark: SparkSession, flow_folder: type[Folder], tmp_path_factory: pytest.TempPathFactory) -> BadRun:
    path = tmp_path_factory.mktemp("bad")
    folder = flow_folder(path, spark).flow(FLOW).steps(STEPS)
    data = path / "data"
    data.mkdir()
    ids: list[int] = []

    def file(name: str, bad: str | bytes) -> None:
        """Bad records between two good ones."""
        first = len(ids)
        ids.extend((first, first + 1))
        middle = bad if isinstance(bad, bytes) else bad.encode()
        (data / name).write_bytes(good(first).encode() + middle + good(first + 1).encode())

    file("malformed.jsonl", '{"id": 1, "word": \n')
    file("trailing.jsonl", '{"id": 1} {"id": 2}\n')
    file("wrong_type.jsonl", '{"id": "one"}\n')
    file("out_of_range.jsonl", '{"id": 1, "small": 3000000000}\n')
    file("missing.jsonl", '{"word": "no id"}\n')
    file("not_utf8.jsonl", b'{"id": 1, "word": "\xff\xfe"}\n')
    file("long_line.jsonl", b'{"id": 1, "word": "' + b"x" * LONG + b'"}\n')
    file("steps.jsonl", "".join(good(id_) for id_ in range(1001, 1006)))
    file("cast.jsonl", good(2000).replace('"2000"', '"two thousand"'))
    (data / "empty.jsonl").write_bytes(b"")
    packed = gzip.compress(good(*range(5000, 7000)).encode() * 5, mtime=0)
    (data / "truncated.jsonl.gz").write_bytes(packed[: len(packed) // 2])
    return BadRun(folder, folder.run(), ids)
