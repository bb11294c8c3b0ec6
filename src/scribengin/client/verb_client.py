"""Client calls that change running flows; `client.Client` includes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.client.models import Written
from scribengin.client.peer_models import AllEnds, PeerRow, SetPeer
from scribengin.client.transport import Transport, part
from scribengin.client.verb_models import (
    AppliedTopology,
    Going,
    Happened,
    Limits,
    OperationRow,
    Position,
    QuotaRow,
    Rewind,
    Scale,
    Scaled,
    SetLimit,
    SetOffset,
    SetQuota,
    Topology,
)
from scribengin.client.workflow_models import WantWorkflow, WorkflowBegun, WorkflowRow, WorkflowView
from scribengin.core.errors import ScribenginError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from scribengin.registry.kinds import Goal


_ENDS_S = 10.0
"""a longer wait counts as no answer: a link between two sites may drop what is sent"""


class VerbClient(Transport):
    """Calls that change running flows."""

    def plan_topology(self, wanted: Topology, packages: Mapping[str, bytes]) -> AppliedTopology:
        """The changes that submitting these flows would make; `packages`: id → bytes of all packages that contain them."""
        return self._topology("/v1/topology/plan", wanted, packages)

    def apply_topology(self, wanted: Topology, packages: Mapping[str, bytes]) -> AppliedTopology:
        """Make each the next version of its flow, all or none. Raises InputError with every problem of every flow, Refused: `plan-stale`,
        `plan-refused`, `plan-unsaid`, `tier-two-flows`, `operation-under-way`."""
        return self._topology("/v1/topology", wanted, packages)

    def _topology(self, path: str, wanted: Topology, packages: Mapping[str, bytes]) -> AppliedTopology:
        for left in reversed(range(len(self.masters) + 1)):
            for id_, data in packages.items():
                if not self.has_package(id_):
                    self.upload(id_, data)
            try:
                return self._write("POST", path, wanted, AppliedTopology, None)
            except ScribenginError as error:
                if error.code != "package-missing" or not left:  # else the master that has it fell silent, and another one was asked
                    raise
        raise AssertionError

    def happened(self, name: str) -> list[Happened]:
        """The event history of a flow, newest first."""
        return self._get(f"/v1/flows/{part(name)}/happened", list[Happened])

    def operations(self, name: str | None = None) -> list[OperationRow]:
        """The operations of a flow, or of all flows, newest first."""
        return self._get("/v1/operations" if name is None else f"/v1/flows/{part(name)}/operations", list[OperationRow])

    def cancel(self, name: str, id_: str) -> Written:
        """Cancel an operation that has not changed anything yet."""
        return self._write("DELETE", f"/v1/flows/{part(name)}/operations/{part(id_)}", None, Written, None)

    def offsets(self, name: str) -> list[Position]:
        """How far each Query has read each source."""
        return self._get(f"/v1/flows/{part(name)}/offsets", list[Position])

    def set_offset(self, name: str, to: SetOffset) -> Going:
        """Set the position of a source while the flow is stopped; without `to.yes`, only report what that would mean."""
        return self._write("POST", f"/v1/flows/{part(name)}/offsets", to, Going, None)

    def rewind(self, name: str, to: Rewind) -> Going:
        """Rewind a flow; without `to.yes`, only report what that would mean."""
        return self._write("POST", f"/v1/flows/{part(name)}/rewind", to, Going, None)

    def scale(self, name: str, to: Scale) -> Scaled:
        """Give a flow or a tier other resources; positions and state are kept."""
        return self._write("POST", f"/v1/flows/{part(name)}/scale", to, Scaled, None)

    def limits(self, name: str) -> Limits:
        """The rate limits of a flow, its sources and its edges."""
        return self._get(f"/v1/flows/{part(name)}/limit", Limits)

    def limit(self, name: str, to: SetLimit) -> Limits:
        """Set rate limits, from the next Batch on."""
        return self._write("PUT", f"/v1/flows/{part(name)}/limit", to, Limits, None)

    def workflows(self) -> list[WorkflowRow]:
        """The workflows, each under the name of its first flow."""
        return self._get("/v1/workflows", list[WorkflowRow])

    def workflow(self, name: str) -> WorkflowView:
        """The workflow of a flow as a graph."""
        return self._get(f"/v1/workflows/{part(name)}", WorkflowView)

    def want_workflow(self, name: str, goal: Goal) -> WorkflowBegun:
        """Set the desired state of all flows of a flow's workflow, one after the other."""
        return self._write("PUT", f"/v1/workflows/{part(name)}/wanted", WantWorkflow(goal), WorkflowBegun, None)

    def quotas(self) -> list[QuotaRow]:
        """The shared quotas of flows with a label, and their use."""
        return self._get("/v1/quotas", list[QuotaRow])

    def set_quota(self, quota: str, to: SetQuota) -> QuotaRow:
        """Create or update a quota; `quota` is `label=value`. Raises Refused: `quota-name`, `quota-value`."""
        return self._write("PUT", f"/v1/quotas/{part(quota)}", to, QuotaRow, None)

    def ends(self, flows: Collection[str] = ()) -> AllEnds:
        """Where flows read and write, and their states; for named flows also their backlogs, and how far they are acknowledged."""
        query = "&".join(f"flow={part(flow)}" for flow in flows)
        return self._get(f"/v1/ends{'?' * bool(query)}{query}", AllEnds, read_s=_ENDS_S)

    def peers(self) -> list[PeerRow]:
        """Other control planes whose flows are connected to those here."""
        return self._get("/v1/peers", list[PeerRow])

    def set_peer(self, peer: str, to: SetPeer) -> PeerRow:
        """Set the addresses of a peer. Raises Refused: `peer-name`, `master-address`, `master-missing`."""
        return self._write("PUT", f"/v1/peers/{part(peer)}", to, PeerRow, None)

    def remove_peer(self, peer: str) -> Written:
        """Remove a peer. Raises Refused `peer-unknown`."""
        return self._write("DELETE", f"/v1/peers/{part(peer)}", None, Written, None)

    def remove_quota(self, quota: str) -> Written:
        """Remove a quota. Raises Refused `quota-unknown`."""
        return self._write("DELETE", f"/v1/quotas/{part(quota)}", None, Written, None)
