"""A control plane with gateways and agents as processes: from the flow of a package to the records in its channel, over two gateways."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from plane import clean, until

from scribengin.control import flow_requests
from scribengin.control.home import Home
from scribengin.control.submission import submission_of
from scribengin.local.prepare import prepare
from scribengin.packages.make import make_package
from scribengin.registry.contract import RegistryEntry
from scribengin.registry.record_io import Stored, read_record
from scribengin.registry.tree import GATEWAY, NODE_STATE

if TYPE_CHECKING:
    from plane import Plane

pytestmark = pytest.mark.timeout(300)
FLOW = """\
version: 1
name: logs
sources:
  access: {type: agents, input: tail, path: "LOGS/*.log", format: json, schema: "id BIGINT", channel: {path: channel}, linger: LINGER}
sinks: {kept: {from: access, type: files, path: out, format: json}}
tiers:
  edge: {agents: web, gateways: dmz}
  core: {steps: [kept]}
"""


class Edge:
    """Processes of gateways and agents beside a plane."""

    def __init__(self, plane: Plane) -> None:
        self.plane = plane
        self.folder = plane.folder / "flow"
        self.logs = plane.folder / "logs"
        for each in (self.folder, self.logs):
            each.mkdir()

    def apply(self, linger: str = "100ms") -> int:
        """Submit the flow; the package is in the homes of the gateways."""
        (self.folder / "flow.yaml").write_text(FLOW.replace("LOGS", str(self.logs)).replace("LINGER", linger))
        packed = make_package(self.folder, {}).package
        for name in ("m1", "g1", "g2"):
            Home(self.plane.folder / name).packages.put([packed.data], packed.id)
        plan = prepare(self.folder / "flow.yaml", state=self.plane.folder / "state").plan
        submission = submission_of(plan, packed.id, "flow.yaml", str(self.folder))
        return flow_requests.apply(self.plane.registry, submission, state=lambda _: str(self.plane.folder / "state"), by="me").version

    def gateway(self, name: str, cost: float = 1.0) -> str:
        """`scribengin server gateway`, until it is there; returns its URL."""
        words = ["server", "gateway", *self.plane.entrance, "--name", name, "--home", str(self.plane.folder / name)]
        words += ["--listen", "127.0.0.1:0", "--group", "dmz", "--cost", str(cost)]
        self.plane._begin(name, [sys.executable, "-m", "scribengin.cli", *words], GATEWAY(name).path)
        there = self.plane.registry.read(GATEWAY(name).path)
        assert isinstance(there, RegistryEntry)
        return str(there.value["url"])

    def agent(self, name: str, url: str, token: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "scribengin.agent", "--name", name, "--group", "web", "--gateway", url]
        command += ["--data", str(self.plane.folder / name)]
        environment = clean() | {"SCRIBENGIN_AGENT_TOKEN": token}
        with (self.plane.folder / f"{name}.log").open("a") as log:
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, text=True)
        self.plane.processes[name] = process
        return process

    def row(self, name: str) -> dict[str, Any]:
        rows: list[dict[str, Any]] = self.plane.says("agent", "list")
        return next((row for row in rows if row["agent"] == name), {})

    def stored(self) -> int:
        """The bytes in the channel."""
        return sum(path.stat().st_size for path in (self.folder / "channel").rglob("*") if path.is_file())


def test_an_agent_works_for_a_flow_of_the_registry_and_fails_over_to_another_gateway(plane: Plane) -> None:
    edge = Edge(plane)
    plane.master("m1")
    plane.node("host1")
    (edge.logs / "a.log").write_text("".join(json.dumps({"id": number}) + "\n" for number in range(100)))
    edge.apply()
    token = plane.says("token", "add", "web-hosts", "--role", "agent", "--label", "agent=web*")["token"]
    first, second = edge.gateway("g1"), edge.gateway("g2", 5.0)
    assert {row["gateway"]: row["url"] for row in plane.says("gateway", "list")} == {"g1": first, "g2": second}
    agent = edge.agent("web1", first, token)
    row = until(lambda: (row := edge.row("web1")) and row["backlog"] == 100 and row, "it is listed with what is not committed")
    assert (row["group"], row["gateway"], row["state"]) == ("web", "g1", "running"), plane.log("web1")
    before = until(edge.stored, "its records are in the channel")
    view = plane.says("agent", "describe", "web1")
    assert [each["tier"] for each in view["tiers"]] == ["logs.edge"]
    assert [each["gateway"] for each in view["chain"]] == ["g1", "g2"]
    assert view["lanes"][0]["files"] == 1
    plane.comes_to("logs", "running")
    node = read_record(plane.registry, NODE_STATE("logs.edge"))
    assert isinstance(node, Stored)
    assert (node.record.state, node.record.agents) == ("running", 1)
    assert [each["node"] for each in plane.says("node", "list")] == ["host1"], "an agent is no host of workers"

    plane.kill("g1")
    with (edge.logs / "a.log").open("a") as log:
        log.write("".join(json.dumps({"id": number}) + "\n" for number in range(100, 200)))
    until(lambda: edge.stored() > before, "the other gateway takes them")
    until(lambda: edge.row("web1")["gateway"] == "g2", "and its reports")

    plane.says("agent", "drain", "web1")
    until(lambda: edge.row("web1")["state"] == "decommissioned", "it is drained")
    plane.says("agent", "undrain", "web1")
    until(lambda: edge.row("web1")["state"] == "running", "it runs again")

    plane.says("token", "remove", "web-hosts")
    until(lambda: "token" in plane.log("web1"), "it is told that its token is revoked")
    agent.send_signal(signal.SIGSTOP)
    until(lambda: plane.state("logs") == "degraded", "the flow misses it")
    assert "agents do not report: web1" in plane.says("status", "logs")["status"]["reason"]
    agent.send_signal(signal.SIGCONT)
    agent.terminate()
    assert agent.wait(60) == 0
    plane.says("agent", "remove", "web1")
    plane.comes_to("logs", "running")
    assert plane.says("agent", "list") == []
