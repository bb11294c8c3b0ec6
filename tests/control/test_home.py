"""The folder of a control plane: what runs in it is there once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scribengin.control.home import Home
from scribengin.core.errors import Refused

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(("lock", "what"), [("lock", "a control plane"), ("node.lock", "a node process")])
def test_who_comes_second_is_told_what_runs_there(tmp_path: Path, lock: str, what: str) -> None:
    home = Home(tmp_path)
    with home.held(lock):
        with pytest.raises(Refused) as refused, home.held(lock):
            pass
        assert (refused.value.code, refused.value.message) == ("already-up", f"{what} already runs in {tmp_path}: another process")
    with home.held(lock):
        pass
