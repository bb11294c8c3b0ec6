"""What can be read of a real worker from outside: its command lines, its environment, what it writes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from farm import FLOW, STEPS, until

from scribengin.control import admin
from scribengin.control.home import Home
from scribengin.control.submit import submission
from scribengin.hosts.up import House
from scribengin.launch.marks import marked_processes
from scribengin.registry.access import Address
from scribengin.registry.entrance import Entrance

if TYPE_CHECKING:
    from collections.abc import Iterator

TOKEN = "the-token-of-the-master"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    monkeypatch.setenv("SCRIBENGIN_TOKEN", TOKEN)
    monkeypatch.setenv("SCRIBENGIN_REGISTRY_LOGIN", f"other:{TOKEN}")
    flow = tmp_path / "flow"
    (flow / "data").mkdir(parents=True)
    (flow / "data" / "0.jsonl").write_text('{"id": 1}\n')
    (flow / "flow.yaml").write_text(FLOW)
    (flow / "steps.py").write_text(STEPS)
    home = Home(tmp_path / "home")
    with House(home), home.registry() as registry:
        made, _ = submission(flow / "flow.yaml", home.packages, home.state)
        admin.apply(registry, made, state=lambda _: str(home.state), by="me")
        until(lambda: list((flow / "out").glob("part-*")), "the first Batch")
        yield home
        admin.want(registry, "numbers", "stopped", by="me")


@pytest.mark.timeout(600)
def test_nothing_secret_is_on_a_command_line_or_in_a_log_and_nothing_of_the_masters_is_inherited(home: Home) -> None:
    password = home.login().secret.reveal().partition(":")[2].encode()
    entrance = Entrance(Address(("127.0.0.1:1",), "/any"), home.login())
    login = entrance.worker_login("numbers", "main")
    assert login is not None
    own = login.secret.reveal().partition(":")[2].encode()
    (processes,) = marked_processes(home.workers.resolve()).values()
    words = {process.pid: Path(f"/proc/{process.pid}/cmdline").read_bytes() for process in processes}
    given = {process.pid: Path(f"/proc/{process.pid}/environ").read_bytes() for process in processes}
    assert len(processes) >= 3, "Python, a JVM, Python again"
    for pid in given:
        assert own not in words[pid]
        assert password not in words[pid] + given[pid]
        assert TOKEN.encode() not in words[pid] + given[pid], words[pid]
    # its own login the worker's first process alone was given: what runs below it, and the flow's own code there, is without
    assert [words[pid].split(b"\0")[2] for pid in given if own in given[pid]] == [b"scribengin.worker"]
    written = [path for path in home.folder.rglob("*") if path.is_file() and path.name != "registry.login"]
    assert any(path.name == "spark.properties" for path in written)
    for path in written:
        if path.suffix in (".log", ".json", ".properties") or "logs" in path.parts:
            assert password not in path.read_bytes(), path
            assert own not in path.read_bytes(), path
            assert TOKEN.encode() not in path.read_bytes(), path
