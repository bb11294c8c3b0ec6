"""What a flow is done with goes away only where no reader of another flow can begin to read it at that moment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scribengin.connectors.files.pieces import FilePiece
from scribengin.connectors.files.retention import ReadLease
from scribengin.local import source_cleanup
from scribengin.local.source_cleanup import DoneFiles

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_who_comes_to_read_between_the_look_and_the_deletion_gives_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    internal, file = tmp_path / "_scribengin", tmp_path / "part-1.jsonl"
    internal.mkdir()
    (internal / "owner.json").touch()
    file.touch()
    done = DoneFiles(tmp_path, [], print, "mine")
    done._files[file] = source_cleanup._File(tmp_path, FilePiece(file.name, 0, 0, 0, 0, 0, 0), set())
    other, seen = ReadLease(tmp_path, "other"), list[set[str]]()

    def let_go(*_: Any) -> None:
        other.hold({file.name})  # after the last look
        seen.append(set(other.put_off))
        file.unlink()

    monkeypatch.setattr(done, "_let_go", let_go, raising=False)
    other.hold({file.name})
    done._release(tmp_path, [file])
    assert (seen, file.exists()) == ([], True), "it is held"
    other.let_go({file.name})
    done._release(tmp_path, [file])
    assert seen == [{file.name}]
    assert not file.exists()
    assert [path.name for path in (internal / "readers").iterdir()] == []
