"""The upkeep of a sink's folder by another than who writes there."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from file_sinks import LINEAGE, SCHEMA, batch, decide, ids, internal, rows, stage

from scribengin.connectors.contract import ConnectorContext, Decided
from scribengin.connectors.files.maintenance import OLD_S, MaintenanceRun, keep_folder
from scribengin.connectors.files.options import SINK
from scribengin.connectors.files.sink import FilesSink
from scribengin.core import numbered_log
from scribengin.core.errors import FencedError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from scribengin.connectors.contract import Receipt


def kept(folder: Path, *, lineage: str = LINEAGE) -> FilesSink:
    """A sink that leaves its folder's upkeep to another."""
    place = ConnectorContext(
        "kept", folder, SINK.filled({"path": "out", "format": "json"}), kept_elsewhere=frozenset({str(folder / "out")})
    )
    sink = FilesSink(place)
    sink.prepare(owner="me", lineage=lineage, adopt=lineage != LINEAGE)
    return sink


def may() -> None:
    """The right is held."""


def publish(sink: FilesSink, numbers: range) -> list[Decided]:
    decided = [decide(sink, number, rows(number)) for number in numbers]
    for each in decided:
        sink.publish(each)
    return decided


def late(sink: FilesSink, number: int) -> Receipt:
    """What a task stages that was late, or whose attempt had failed."""
    return stage(sink, batch(number), rows(99), attempt="late")


def test_who_writes_leaves_it_and_the_keeper_folds_what_is_old_beside_him(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbered_log, "CHUNK", 5)
    sink = kept(tmp_path)
    decided = publish(sink, range(20))
    assert len(internal(tmp_path, "batches")) == 20
    assert keep_folder(tmp_path / "out", may) == MaintenanceRun(folded=15)
    assert keep_folder(tmp_path / "out", may) == MaintenanceRun()
    assert len([path for path in internal(tmp_path, "batches") if path.suffix == ".json"]) == 5
    decided += publish(sink, range(20, 23))
    assert all(each.violations == () for each in sink.audit(lineage=LINEAGE, decided=decided))
    assert ids(tmp_path) == list(range(23))


def test_what_attempts_have_left_goes_and_what_a_batch_under_way_has_staged_stays(tmp_path: Path) -> None:
    sink = kept(tmp_path)
    publish(sink, range(3))
    for number in (0, 2):
        late(sink, number)
    under_way = decide(sink, 3, rows(3))
    committed = decide(sink, 4, rows(4))
    sink.recover(None, lineage=LINEAGE, before=3)
    assert len(internal(tmp_path, "staged")) == 4, "all of it is the keeper's"
    done = keep_folder(tmp_path / "out", may)
    assert (done.folded, done.files) == (0, 2)
    assert done.bytes > 0
    assert {path.parent.name for path in internal(tmp_path, "staged")} == {"0000000003", "0000000004"}
    assert not (tmp_path / "out/_scribengin" / LINEAGE / "staged/0000000000").exists()
    sink.publish(under_way)
    sink.publish(committed)
    assert ids(tmp_path) == list(range(5))


def test_a_lineage_that_commits_no_more_keeps_only_what_its_last_batch_needs(tmp_path: Path) -> None:
    old = kept(tmp_path)
    publish(old, range(2))
    (undecided,) = late(old, 2).segments
    sink = kept(tmp_path, lineage="l2")
    staged = tmp_path / "out/_scribengin" / LINEAGE / "staged/0000000002" / undecided["staged"]
    draft = tmp_path / "out/_scribengin" / f".owner.json.{'0' * 32}"
    draft.write_bytes(b"half")
    assert keep_folder(tmp_path / "out", may) == MaintenanceRun(), "somebody may still be at it"
    for path in (staged, draft):
        os.utime(path, (path.stat().st_mtime - OLD_S - 60,) * 2)
    mine = sink.stream(replace(batch(0), lineage="l2"), 0, "a", SCHEMA)
    mine.write(rows(5))
    mine.close()
    assert keep_folder(tmp_path / "out", may).files == 2
    assert not staged.exists()
    assert not draft.exists()
    assert len(list((tmp_path / "out/_scribengin/l2/staged").rglob("*-a-*"))) == 1


@pytest.mark.parametrize("steps", [0, 1, 4, 9, 24])
def test_each_step_asks_first_and_what_is_left_undone_anybody_can_do_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    monkeypatch.setattr(numbered_log, "CHUNK", 5)
    sink = kept(tmp_path)
    decided = publish(sink, range(20))
    for number in range(3):
        late(sink, number)
    asked = 0

    def check() -> None:
        nonlocal asked
        asked += 1
        if asked > steps:
            raise FencedError("the right is over")

    def there() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    before = there()
    with pytest.raises(FencedError):
        keep_folder(tmp_path / "out", check)
    changed = before.keys() ^ there().keys()
    if steps < 20:
        assert len(changed) == steps, "each step was asked for"
    else:  # two summaries came and went
        assert len(changed) == steps - 4
        assert len(internal(tmp_path, "staged")) == 2
    keep_folder(tmp_path / "out", may)
    assert all(each.violations == () for each in sink.audit(lineage=LINEAGE, decided=decided))
    assert internal(tmp_path, "staged") == []
    assert len([path for path in internal(tmp_path, "batches") if path.suffix == ".json"]) == 5


def test_a_folder_that_nobody_has_written_to_is_none_to_keep(tmp_path: Path) -> None:
    assert keep_folder(tmp_path / "out", may) == MaintenanceRun()
    assert list(tmp_path.iterdir()) == []


def test_who_writes_who_keeps_and_who_counts_do_it_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbered_log, "CHUNK", 5)
    sink, over = kept(tmp_path), threading.Event()
    decided: list[Decided] = []
    wrong: list[object] = []

    def again(what: Callable[[], object]) -> None:
        while not over.is_set():
            try:
                what()
            except Exception as error:
                wrong.append(error)

    def count() -> None:
        known = [*decided]  # published, too: what comes meanwhile is not counted
        found = kept(tmp_path).audit(lineage=LINEAGE, decided=known)
        wrong.extend(said for each in found for said in each.violations if 0 <= each.number < len(known))

    threads = [threading.Thread(target=again, args=(what,)) for what in (lambda: keep_folder(tmp_path / "out", may), count)]
    for thread in threads:
        thread.start()
    for number in range(80):
        each = decide(sink, number, rows(number))
        sink.publish(each)
        decided.append(each)
        with suppress(FileNotFoundError):  # its folder was just taken away: it comes too late anyhow
            late(sink, number)
    over.set()
    for thread in threads:
        thread.join()
    keep_folder(tmp_path / "out", may)
    assert wrong == []
    assert ids(tmp_path) == list(range(80))
    assert internal(tmp_path, "staged") == []
    assert len([path for path in internal(tmp_path, "batches") if path.suffix == ".json"]) == 5
