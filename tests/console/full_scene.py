"""A master whose every page has something to show, without a process of a worker."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from scribengin.connectors.contract import BatchId
from scribengin.state.contract import DeadLetter, Decision
from scribengin.state.dead_letters import DeadWriter
from scribengin.state.decisions import Decisions
from scribengin.state.folder import StateFolder
from scribengin.state.lineage import open_lineage
from tests.console.scene import BEHIND, Scene
from tests.console.test_plane_pages import fill

if TYPE_CHECKING:
    from tests.api.conftest import Bench, Served

FLOW = "numbers"
LETTER = "kept:0:0"
BUSY = replace(BEHIND, batches=7, slowest=("odd", 0.81), sources={FLOW: BEHIND.sources["orders"]})

ADDRESSES = {
    "/": ("/", "Fleet", "Fleet"),
    "/flows/:flow": (f"/flows/{FLOW}", FLOW, f"{FLOW}, Graph"),
    "/flows/:flow/node/:node": (f"/flows/{FLOW}/node/odd", FLOW, f"odd, {FLOW}, Node"),
    "/flows/:flow/batches": (f"/flows/{FLOW}/batches", FLOW, f"{FLOW}, Batches"),
    "/flows/:flow/workers": (f"/flows/{FLOW}/workers", FLOW, f"{FLOW}, Workers"),
    "/flows/:flow/dead": (f"/flows/{FLOW}/dead", FLOW, f"{FLOW}, Dead letters"),
    "/flows/:flow/dead/:letter": (f"/flows/{FLOW}/dead/{LETTER}", FLOW, f"{LETTER}, {FLOW}, Dead letter"),
    "/flows/:flow/trace": (f"/flows/{FLOW}/trace", FLOW, f"{FLOW}, Trace"),
    "/flows/:flow/positions": (f"/flows/{FLOW}/positions", FLOW, f"{FLOW}, Positions"),
    "/flows/:flow/versions": (f"/flows/{FLOW}/versions?from=1&to=2", FLOW, f"{FLOW}, Versions"),
    "/flows/:flow/operations": (f"/flows/{FLOW}/operations", FLOW, f"{FLOW}, Operations"),
    "/flows/:flow/logs": (f"/flows/{FLOW}/logs", FLOW, f"{FLOW}, Logs"),
    "/apply": ("/apply", "Apply a flow file", "Apply"),
    "/workflows": ("/workflows", "Workflows", "Workflows"),
    "/workflows/:workflow": ("/workflows/orders", "orders", "orders, Workflow"),
    "/operations": ("/operations", "Operations", "Operations"),
    "/groups": ("/groups", "Groups", "Groups"),
    "/agents": ("/agents", "Agents", "Agents"),
    "/agents?show=gateways": ("/agents?show=gateways", "Agents", "Agents"),
    "/agents/:agent": ("/agents/web1", "web1", "web1, Agent"),
    "/hosts": ("/hosts", "Hosts", "Hosts"),
    "/hosts/:node": ("/hosts/host1", "host1", "host1, Node"),
    "/quotas": ("/quotas", "Quotas", "Quotas"),
    "/peers": ("/peers", "Peers", "Peers"),
    "/registry": ("/registry", "Registry", "Registry"),
    "/registry/:path": ("/registry/groups%2Fdisks", "disks", "groups/disks, Registry"),
    "/tokens": ("/tokens", "Tokens", "Tokens"),
    "/audit": ("/audit", "Audit log", "Audit"),
}
"""pattern of a page in main.js → its address here, its heading, the title of its document without the name of the product"""


def full_scene(bench: Bench, master: Served, token: str | None = None) -> Scene:
    """Fill the master: a flow with versions, figures, Batches and dead letters; a workflow, agents, gateways, hosts, a group.

    Args:
        bench: has the master.
        master: the first one.
        token: of an admin, if the master requires tokens.
    """
    fill(bench, token)
    scene = Scene(bench, master, token)
    scene.numbers()
    scene.submit(bench.flow.replace("id % 2", "id % 3"))
    scene.status(FLOW, "running")
    bury(master, b'{"id": "one"}', b'{"id": "<b>two</b>"}')
    scene.reports(FLOW, BUSY)
    return scene


def bury(master: Served, *records: bytes, came: str = "") -> None:
    """One Batch of the flow, with a dead letter of each record. `came`: the row as it came to the step."""
    folder = StateFolder(master.plane.packages.folder.parent / "state", FLOW)
    part = folder.query("kept")
    lineage = open_lineage(part, owner=folder.read_owner(), fingerprint="f", state_fingerprint="", sources=["numbers"])
    writer = DeadWriter(part.dead, "attempt0")
    for number, record in enumerate(records, start=1):
        came_from = {"source": "numbers", "file": "a.jsonl", "line": number, "record": f"numbers/a.jsonl+{number}"}
        failed = {"exception": "ValueError", "code_line": "steps.py:6", "payload": record, "form": "bytes", "alone": True, "came": came}
        id_ = f"numbers/a.jsonl:{number}#numbers"
        writer.write(DeadLetter(id_, "kept", 0, "numbers", "malformed", "id is not a BIGINT", **came_from, **failed))  # type: ignore[arg-type]
    segment = writer.close()
    batch = BatchId(FLOW, "kept", lineage.id, 0, 1)
    Decisions(part.decisions).decide(
        Decision(batch, "hash", "f", (), (), (segment,) if segment else (), decided_at="2026-11-29T08:00:00+00:00")
    )
