from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.agent.inputs.tailing import Tailing, lane_config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def start_tail(tmp_path: Path) -> Iterator[Callable[..., Tailing]]:
    """Starts a tail of patterns; all are closed at the end."""
    started: list[Tailing] = []

    def start(*patterns: Path | str, **options: Any) -> Tailing:
        started.append(Tailing(lane_config(*patterns, **options), tmp_path / "agent"))
        return started[-1]

    yield start
    for each in started:
        each.close()


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """The folder of the files that are followed."""
    folder = tmp_path / "logs"
    folder.mkdir()
    return folder
