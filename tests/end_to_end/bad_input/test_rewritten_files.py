"""A growing file that was edited comes again, and everyone who looks is told."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

from scribengin.local.prepare import prepare
from scribengin.local.status import read_standing

if TYPE_CHECKING:
    from tests.conftest import FlowFolder as Folder

FLOW = """\
version: 1
name: again
sources:
  rows: {type: files, path: data, format: json, growing: true, schema: "id INT"}
sinks:
  kept: {from: rows, type: files, path: out, format: json}
"""


def test_a_run_and_status_say_that_a_compressed_file_is_read_again(folder: Folder) -> None:
    (folder.path / "data").mkdir()
    file = folder.path / "data/a.jsonl.gz"
    file.write_bytes(gzip.compress(b'{"id": 1}\n'))
    folder.flow(FLOW).run()
    file.write_bytes(gzip.compress(b'{"id": 1}\n{"id": 2}\n'))
    (query,) = folder.run().queries
    text = f"source rows: {file} was rewritten, not appended to: it is read again from its start"
    assert [note for note in query.notes if note.startswith(text)]
    assert [row["id"] for row in folder.read("out")] == [1, 1, 2]
    (row,) = read_standing(prepare(folder.path / "flow.yaml", state=None))["noticed"]
    assert (row["kind"], row["file"], row["now"]) == ("again", str(file), "read again")
    (query,) = folder.run().queries
    assert not [note for note in query.notes if "written again" in note], "once"
