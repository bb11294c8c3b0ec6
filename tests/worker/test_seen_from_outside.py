"""What can be read of a real worker from outside: its page; its command lines, its environment, what it writes, where nothing secret is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from farm import FLOW, STEPS, until

from harness.submit import submission
from scribengin.cli.main import main
from scribengin.control import flow_records, flow_requests
from scribengin.control.home import Home
from scribengin.hosts.up import House
from scribengin.launch.marks import marked_processes
from scribengin.registry.access import RegistryAddress
from scribengin.registry.connection_settings import ConnectionSettings
from scribengin.registry.record_io import Stored, read_record
from scribengin.registry.tree import NODE_HTTP, NODE_JSON

if TYPE_CHECKING:
    from collections.abc import Iterator

TOKEN = "the-token-of-the-master"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    monkeypatch.setenv("SCRIBENGIN_WORKER_KEY", TOKEN)
    monkeypatch.setenv("SCRIBENGIN_REGISTRY_LOGIN", f"other:{TOKEN}")
    flow = tmp_path / "flow"
    (flow / "data").mkdir(parents=True)
    (flow / "data" / "0.jsonl").write_text('{"id": 1}\n')
    (flow / "flow.yaml").write_text(FLOW)
    (flow / "steps.py").write_text(STEPS)
    home = Home(tmp_path / "home")
    with House(home), home.registry() as registry:
        made, _ = submission(flow / "flow.yaml", home.packages, home.state)
        flow_requests.apply(registry, made, state=lambda _: str(home.state), by="me")
        until(lambda: list((flow / "out").glob("part-*")), "the first Batch")
        yield home
        flow_requests.want(registry, "numbers", "stopped", by="me")


@pytest.mark.timeout(600)
def test_a_worker_is_shown_by_its_own_page_and_when_it_is_gone_by_the_registry(home: Home, capfd: pytest.CaptureFixture[str]) -> None:
    def shows(*words: str) -> Any:
        with pytest.raises(SystemExit, match="0"):
            main([*words, "--home", str(home.folder), "--json"])
        return json.loads(capfd.readouterr().out)["result"]

    capfd.readouterr()
    own = shows("worker", "show", "numbers.main")
    assert (own["source"], own["worker"], own["version"], own["state"]) == ("worker", "numbers.main-1", 1, "running")
    assert own["lease"]["held"]
    assert own["master"]["id"] == "local"
    assert [(node["node"], node["from"]) for node in own["nodes"]] == [("numbers", []), ("odd", ["numbers"]), ("kept", ["odd"])]
    assert own["queries"][0]["rows_in"] == 1
    assert (own["gates"], own["hands_to"]) == ([], [])
    with home.registry() as registry:
        there = [read_record(registry, spot("numbers.main")) for spot in (NODE_HTTP, NODE_JSON)]
        assert [link.record.url for link in there if isinstance(link, Stored)] == [own["http"], f"{own['http']}/json"]
        flow_requests.want(registry, "numbers", "stopped", by="me")
        until(lambda: flow_records.read_flow(registry, "numbers").status.state == "stopped", "stopped")  # type: ignore[union-attr]
    known = shows("worker", "show", "numbers.main-1")
    assert (known["source"], known["worker"], known["state"]) == ("registry", "numbers.main-1", "ended")


@pytest.mark.timeout(600)
def test_nothing_secret_is_on_a_command_line_or_in_a_log_and_nothing_of_the_masters_is_inherited(home: Home) -> None:
    masters = home.login()
    own = ConnectionSettings(RegistryAddress(("127.0.0.1:1",), "/x"), masters).worker_login("numbers", "main")
    assert own is not None
    hidden, password = (login.secret.reveal().partition(":")[2].encode() for login in (masters, own))
    (processes,) = marked_processes(home.workers.resolve()).values()
    words = {process.pid: Path(f"/proc/{process.pid}/cmdline").read_bytes() for process in processes}
    given = {process.pid: Path(f"/proc/{process.pid}/environ").read_bytes() for process in processes}
    assert len(processes) >= 3, "Python, a JVM, Python again"
    for pid in given:
        assert password not in words[pid]
        for secret in (TOKEN.encode(), hidden):
            assert secret not in words[pid] + given[pid], words[pid]
    # its own login the worker's first process alone was given: what runs below it, and the flow's own code there, is without
    assert [words[pid].split(b"\0")[2] for pid in given if password in given[pid]] == [b"scribengin.worker"]
    written = [path for path in home.folder.rglob("*") if path.is_file() and path.name != "registry.login"]
    assert any(path.name == "spark.properties" for path in written)
    for path in written:
        if path.suffix in (".log", ".json", ".properties") or "logs" in path.parts:
            found = path.read_bytes()
            assert not any(secret in found for secret in (password, hidden, TOKEN.encode())), path
