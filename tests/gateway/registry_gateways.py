"""A registry with a flow that collects from agents, and directories of gateways on it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from scribengin.control import flow_requests
from scribengin.control.submission import submission_of
from scribengin.core.errors import Unreachable
from scribengin.gateway.registry_directory import RegistryDirectory
from scribengin.local.prepare import prepare
from scribengin.plan.agent_lanes import lanes_of
from scribengin.wire.protocol import AgentReport, LaneReport

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from scribengin.plan.agent_lanes import AgentLane
    from scribengin.registry.contract import Registry
    from scribengin.registry.records import Spec

FLOW = """\
version: 1
name: logs
sources:
  access: {type: agents, input: tail, path: "/var/log/nginx/*.log", format: json, schema: "id BIGINT", channel: {path: PLACE}, LINGER}
sinks: {kept: {from: access, type: files, path: out, format: json}}
tiers:
  edge: {agents: web, gateways: dmz}
  core: {steps: [kept]}
"""
LANE, NODE = "logs.access", "logs.edge"


@dataclass
class LogsFlow:
    """A flow in a folder, submitted to a registry; versions differ in how long records wait for others."""

    registry: Registry
    folder: Path
    faults: dict[int, str] = field(default_factory=dict)
    """version → why a gateway cannot plan it"""
    planned: list[int] = field(default_factory=list)

    def apply(self, linger: str = "200ms", *, flow: str = "logs") -> int:
        """Submit it; returns the version."""
        file = self._file(flow, linger)
        plan = prepare(file, state=self.folder / "state").plan
        submission = submission_of(plan, f"{abs(hash((flow, linger))):064x}", file.name, str(self.folder))
        applied = flow_requests.apply(self.registry, submission, state=lambda _: str(self.folder / "state"), by="me")
        return applied.version

    def plan(self, _flow: str, version: int, spec: Spec, /) -> Mapping[str, AgentLane]:
        """A `LanePlanner`."""
        if version in self.faults:
            raise Unreachable(self.faults[version])
        self.planned.append(version)
        return lanes_of(prepare(self.folder / spec.path, state=self.folder / "state").plan, version=version)

    def directory(self, name: str = "g1", registry: Registry | None = None, **more: Any) -> RegistryDirectory:
        return RegistryDirectory(registry or self.registry, self.plan, name=name, **{"group": "dmz", "asks_tokens": False, **more})

    def _file(self, flow: str, linger: str) -> Path:
        file = self.folder / f"{flow}-{linger}.yaml"
        text = FLOW.replace("LINGER", f"linger: {linger}").replace("name: logs", f"name: {flow}").replace("PLACE", f"channel-{flow}")
        file.write_text(text.replace("path: out", f"path: out-{flow}"))
        return file


def report_of(agent: str, version: int = 1, *, group: str = "web", state: str = "running", message: str = "", read: int = 5) -> AgentReport:
    lane = LaneReport(incarnation="i1", state=state, version=version, read=read, stored=4, committed=3, files=2, message=message)
    return AgentReport(agent=agent, host=f"{agent}.example", group=group, release="1.0", since_ms=1_000, lanes={LANE: lane})
