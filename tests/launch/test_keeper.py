"""The keeper by itself: it says births as the launchers do, and costs little."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from scribengin.core import process
from scribengin.launch import keeper

if TYPE_CHECKING:
    import pytest


def test_it_says_the_birth_of_a_process_as_the_launchers_do(monkeypatch: pytest.MonkeyPatch) -> None:
    assert keeper.born(os.getpid()) == process.birth_of(os.getpid())
    assert keeper.born(1) == process.birth_of(1) != keeper.born(os.getpid())

    def no_proc(name: str) -> None:
        raise FileNotFoundError(name)

    monkeypatch.setattr(sys, "platform", "darwin")  # where `ps` has to say it
    monkeypatch.setattr(keeper, "open", no_proc, raising=False)
    assert keeper.born(os.getpid()) == process._birth_by_ps(os.getpid())


def test_it_needs_nothing_of_scribengin_nor_of_any_package() -> None:
    program = f"import sys; exec(open({keeper.__file__!r}).read(), {{'__name__': 'keeper'}}); print(*sys.modules)"
    said = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert not [name for name in said if name.partition(".")[0] in ("scribengin", "site", "typing", "pathlib", "subprocess", "asyncio")]
