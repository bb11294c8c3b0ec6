"""Whether the newest Batch of a query is published, if Spark's log of the query is not in the state."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from flow_states import INPUT, Stage, file_entry

from scribengin.core.errors import Refused
from scribengin.core.storage import make_folder, names_in
from scribengin.state.channel_acks import DecisionCursor
from scribengin.state.folder import StateFolder
from scribengin.state.ledger import is_published, note_published
from scribengin.state.lineage import open_lineage

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    folder = StateFolder(tmp_path, "flow").query("q")
    make_folder(folder.ledger)
    stage = Stage(folder)
    for number in range(3):
        stage.batch({INPUT: file_entry(f"{number}")}, committed=False)
    return stage


def published(stage: Stage) -> int:
    assert stage.lineage is not None
    cursor = DecisionCursor(stage.folder, stage.lineage.id, {}, [], waits=False)
    cursor.read_new(jump=False)
    return cursor.published()


def test_the_newest_batch_is_published_when_a_record_shows_it(stage: Stage) -> None:
    assert stage.lineage is not None
    assert published(stage) == 1, "those before the newest one are"
    note_published(stage.folder, stage.lineage.id, 2)
    assert published(stage) == 2
    assert not is_published(stage.folder, "another lineage", 2)


def test_a_driver_that_was_overtaken_does_not_remove_the_record_of_its_successor(stage: Stage) -> None:
    assert stage.lineage is not None
    for number in (1, 2, 1):
        note_published(stage.folder, stage.lineage.id, number)
    assert is_published(stage.folder, stage.lineage.id, 2)
    note_published(stage.folder, stage.lineage.id, 3)
    assert len(names_in(stage.folder.ledger)) == 1, "older ones are of no use"


def test_a_query_that_gets_state_is_refused_by_its_decisions_too(stage: Stage) -> None:
    assert stage.lineage is not None
    assert not stage.folder.checkpoint.exists()
    with pytest.raises(Refused, match="a stateful step or its input has changed"):
        open_lineage(stage.folder, owner="me", fingerprint="f", state_fingerprint="s", sources=[INPUT])
