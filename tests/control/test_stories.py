"""What a master decides, story by story."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.control.story import Story

STORIES = sorted((Path(__file__).parent / "stories").glob("*.txt"))


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_a_master_decides_as_the_story_tells(path: Path) -> None:
    told = path.read_text()
    assert Story().retell(told) == told
