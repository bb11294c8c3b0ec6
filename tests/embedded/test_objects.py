"""A real object store: it starts, is killed, comes back with its objects, and ends; its keys are nobody else's to see."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.object_stores import opened, or_skipped
from scribengin.core.errors import EnvironmentFault
from scribengin.core.process import within
from scribengin.embedded import go_programs
from scribengin.embedded.objects import ObjectServer


def test_what_was_put_outlives_a_kill_and_a_stop(tmp_path: Path) -> None:
    with or_skipped(tmp_path) as server:
        store = opened(server)
        assert store.put("a", b"1")
        pid, address = server.pid, server.address
        server.kill()
        assert not server.answers()
        server.start()
        assert (server.address, server.pid != pid) == (address, True)
        assert store.get("a") == b"1"
        server.stop()
        server.start()
        assert opened(server).get("a") == b"1"
    assert server.pid is None


def test_one_that_was_released_is_found_again(tmp_path: Path) -> None:
    first = or_skipped(tmp_path)
    first.start()
    first.release()
    second = ObjectServer(tmp_path)
    try:
        assert second.pid == first.pid
        assert second.answers()
    finally:
        second.stop()
    assert within(60.0, lambda: first.pid is None)


def test_its_keys_stand_in_a_file_for_this_user_and_in_no_list_of_processes_or_log(tmp_path: Path) -> None:
    with or_skipped(tmp_path) as server:
        assert server.credentials.parent.stat().st_mode & 0o077 == 0
        keys = [line.partition(" = ")[2] for line in server.credentials.read_text().splitlines()[1:]]
        opened(server).put("a", b"1")
        command = Path(f"/proc/{server.pid}/cmdline")
        shown = (command.read_text() if command.exists() else "") + server.log.read_text()
        assert [key for key in keys if key in shown] == []
        assert all(len(key) >= 20 for key in keys)


def test_without_go_and_without_the_program_it_says_what_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCRIBENGIN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", os.devnull)
    monkeypatch.setattr(go_programs, "_INSTALLED", os.devnull)
    with pytest.raises(EnvironmentFault, match="there is no `go` on the PATH") as told:
        ObjectServer(tmp_path / "server").start()
    assert "install Go" in told.value.remedy
