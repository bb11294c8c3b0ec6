"""`Client`: the REST API as typed calls, over any number of masters; raises the errors that the same call would raise in the master."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote, urlencode

import httpx2
import msgspec

from scribengin.client import problems
from scribengin.client.agent_models import AgentBound, AgentChanged, AgentSummary, AgentView, ChainSettings, GatewaySummary
from scribengin.client.change_models import (
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
from scribengin.client.models import (
    AllEnds,
    AppliedFlow,
    AuditEntries,
    Binding,
    Bound,
    FlowEvent,
    FlowRow,
    FlowView,
    GroupRow,
    Health,
    LogLines,
    MadeToken,
    MasterRow,
    MasterView,
    NewToken,
    NodeChanged,
    NodeRow,
    NodeView,
    PeerRow,
    RecordView,
    RecordWrite,
    Rollback,
    SetPeer,
    Submit,
    SubmitFlow,
    TaskRow,
    TokenRow,
    VersionRow,
    Want,
    WantWorkflow,
    WentBack,
    WorkflowBegun,
    WorkflowRow,
    WorkflowView,
    Written,
)
from scribengin.client.state_models import (
    Batches,
    BatchView,
    FlowGraph,
    GraphCounts,
    LetterCounts,
    LetterPage,
    LetterRepaired,
    LettersPurged,
    NodeSample,
    PurgeLetters,
    PurgeUndone,
    RepairLetter,
    ReplayLetters,
    Summaries,
    UndoPurge,
)
from scribengin.client.transport import Transport, number_in, part
from scribengin.core.errors import ScribenginError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from scribengin.client.models import SetMember
    from scribengin.client.state_models import Letter
    from scribengin.registry.records import Goal


# Client calls about the state of a flow, its records, its graph, and groups.


_PAGE = 100


class AnswerClient(Transport):
    """Calls about the state of a flow, its records, its graph, and groups. Each may raise Refused: `state-elsewhere`, `state-missing`,
    `answer-late`, `too-many`."""

    def dead_letter_counts(self, name: str, **which: str) -> LetterCounts:
        """The number of dead letters of a flow by query, step and reason; `which` as in `dead_letter_page`."""
        return self._get(f"/v1/flows/{part(name)}/dead-letters/counts?{_query_string(**which)}", LetterCounts)

    def replay_letters(
        self, name: str, which: Mapping[str, str], *, from_start: bool, as_is: bool, dry_run: bool, repaired: str | None
    ) -> dict[str, Any]:
        """Request replays of dead letters.

        Args:
            name: the flow.
            which: the selection, as in `dead_letter_page`.
            from_start: replay through all steps again.
            as_is: replay unchanged.
            dry_run: report only.
            repaired: the content of an exported file; only its dead letters are replayed.

        Raises:
            Refused: `letters-file` if `repaired` is not an exported file.
        """
        asked = ReplayLetters(**which, from_start=from_start, as_is=as_is, dry_run=dry_run, repaired=repaired)
        return self._write("POST", f"/v1/flows/{part(name)}/dead-letters/replays", asked, dict[str, Any], None)

    def repair_letter(self, name: str, repair: RepairLetter) -> LetterRepaired:
        """Repair a dead letter, or show the effect of a repair. Raises Refused: `letter-unknown`, `letter-refused`, `letter-columns`,
        `letter-changed` if the dead letter no longer matches `digest`."""
        return self._write("POST", f"/v1/flows/{part(name)}/dead-letters/repairs", repair, LetterRepaired, None)

    def purge_letters(self, name: str, which: Mapping[str, str], *, replayed: bool, dry_run: bool) -> LettersPurged:
        """Delete dead letters.

        Args:
            name: the flow.
            which: the selection, as in `dead_letter_page`.
            replayed: those that were processed again.
            dry_run: report only.

        Raises:
            Refused: `flow-not-stopped`.
        """
        asked = PurgeLetters(**which, replayed=replayed, dry_run=dry_run)
        return self._write("POST", f"/v1/flows/{part(name)}/dead-letters/purges", asked, LettersPurged, None)

    def undo_purge(self, name: str, id_: str = "") -> PurgeUndone:
        """Restore the dead letters deleted by the newest purge, or by the purge of that id. Raises Refused: `flow-not-stopped`,
        `trash-missing`, `trash-taken`."""
        return self._write("POST", f"/v1/flows/{part(name)}/dead-letters/purges/undo", UndoPurge(id_), PurgeUndone, None)

    def dead_letter_page(self, name: str, after: str = "", *, limit: int = 100, **which: str) -> LetterPage:
        """One page of dead letters.

        Args:
            name: the flow.
            after: the value from the previous page; empty for the first one.
            limit: the most dead letters of the page.
            which: the selection: `query`, `step`, `reason`, `prefix`, `since`, `until`.
        """
        return self._get(f"/v1/flows/{part(name)}/dead-letters?{_query_string(after=after, limit=str(limit), **which)}", LetterPage)

    def dead_letters(self, name: str, **which: str) -> Iterator[Letter]:
        """All dead letters of a selection, read page by page; see `dead_letter_page`."""
        after = ""
        while True:
            page = self.dead_letter_page(name, after, limit=_PAGE, **which)
            yield from page.letters
            after = page.after
            if not after:
                return

    def trace(self, name: str, record: str) -> dict[str, Any]:
        """Trace the record of that id, or all records whose id has this prefix."""
        return self._get(f"/v1/flows/{part(name)}/trace?{_query_string(record=record)}", dict[str, Any])

    def audit(self, name: str) -> dict[str, Any]:
        """Check whether outputs, dead letters and ledger balance."""
        return self._get(f"/v1/flows/{part(name)}/audit", dict[str, Any])

    def summary(self, name: str, sink: str = "") -> Summaries:
        """The tables of a flow's summary sinks, or of one. Raises Refused: `summary-missing` too."""
        return self._get(f"/v1/flows/{part(name)}/summary?{_query_string(sink=sink)}", Summaries)

    def batches(self, name: str, query: str = "", *, limit: int = 10) -> Batches:
        """The last decided Batches of a flow, or of one of its queries, newest first. Raises Refused: `query-unknown` too."""
        return self._get(f"/v1/flows/{part(name)}/batches?{_query_string(query=query, limit=str(limit))}", Batches)

    def batch(self, name: str, batch: int, query: str = "") -> BatchView:
        """One decided Batch of a query of a flow. Raises Refused: `query-unknown`, `query-needed`, `batch-unknown` too."""
        return self._get(f"/v1/flows/{part(name)}/batches/{batch}?{_query_string(query=query)}", BatchView)

    def preview(self, name: str, node: str, *, rows: int = 20, sample: int = 20) -> NodeSample:
        """The columns and some rows of a node of a flow, from the first records of its sources. Raises InputError if it has no such
        node."""
        asked = _query_string(rows=str(rows), sample=str(sample))
        return self._get(f"/v1/flows/{part(name)}/nodes/{part(node)}/preview?{asked}", NodeSample)

    def graph(self, name: str) -> FlowGraph:
        """The nodes, arrows, tiers and channels of a flow, with their live figures."""
        return self._get(f"/v1/flows/{part(name)}/graph", FlowGraph)

    def graph_counts(self, name: str) -> GraphCounts:
        """The number of rows along the arrows of a flow's graph in its last run."""
        return self._get(f"/v1/flows/{part(name)}/graph/counts", GraphCounts)

    def groups(self) -> list[GroupRow]:
        """The groups that flows name, their members, and the state of these members at the flows' sinks."""
        return self._get("/v1/groups", list[GroupRow])

    def group(self, name: str) -> GroupRow:
        """The group of that name. Raises Refused if there is none."""
        return self._get(f"/v1/groups/{part(name)}", GroupRow)

    def set_member(self, group: str, member: str, to: SetMember) -> GroupRow:
        """Disable a member, enable it, or set its cost, from the next Batch on. Raises Refused: `group-last`, `member-unknown`,
        `group-cost`."""
        return self._write("PUT", f"/v1/groups/{part(group)}/members/{part(member)}", to, GroupRow, None)


def _query_string(**given: str) -> str:
    """The values that are not empty, as the query of a URL."""
    return urlencode({name: value for name, value in given.items() if value})


# Client calls that change running flows.


_ENDS_S = 10.0
"""seconds; a peer that takes longer counts as silent: a link between two sites may drop packets"""


class VerbClient(Transport):
    """Calls that change running flows."""

    def plan_topology(self, wanted: Topology, packages: Mapping[str, bytes]) -> AppliedTopology:
        """The changes that submitting these flows would make. `packages`: id → bytes, for all packages that contain them."""
        return self._topology("/v1/topology/plan", wanted, packages)

    def apply_topology(self, wanted: Topology, packages: Mapping[str, bytes]) -> AppliedTopology:
        """Submit flows: make each the next version of its flow, all or none.

        Args:
            wanted: the flows, and what was agreed to.
            packages: id → bytes, for all packages that contain them.

        Raises:
            InputError: every problem of every flow.
            Refused: `plan-stale`, `plan-refused`, `plan-unsaid`, `tier-two-flows`, `operation-under-way`.
        """
        return self._topology("/v1/topology", wanted, packages)

    def _topology(self, path: str, wanted: Topology, packages: Mapping[str, bytes]) -> AppliedTopology:
        for left in reversed(range(len(self.masters) + 1)):
            for id_, data in packages.items():
                if not self.has_package(id_):
                    self.upload(id_, data)
            try:
                return self._write("POST", path, wanted, AppliedTopology, None)
            except ScribenginError as error:
                # otherwise the master that has the package does not answer any more, and another one was asked
                if error.code != "package-missing" or not left:
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
        """How far each query has read each source."""
        return self._get(f"/v1/flows/{part(name)}/offsets", list[Position])

    def set_offset(self, name: str, to: SetOffset) -> Going:
        """Set the position of a source while the flow is stopped; without `to.yes`, only report the effect."""
        return self._write("POST", f"/v1/flows/{part(name)}/offsets", to, Going, None)

    def rewind(self, name: str, to: Rewind) -> Going:
        """Rewind a flow; without `to.yes`, only report the effect."""
        return self._write("POST", f"/v1/flows/{part(name)}/rewind", to, Going, None)

    def scale(self, name: str, to: Scale) -> Scaled:
        """Change the resources of a flow or a tier; positions and state are kept."""
        return self._write("POST", f"/v1/flows/{part(name)}/scale", to, Scaled, None)

    def limits(self, name: str) -> Limits:
        """The rate limits of a flow, its sources and its edges."""
        return self._get(f"/v1/flows/{part(name)}/limit", Limits)

    def limit(self, name: str, to: SetLimit) -> Limits:
        """Set rate limits, which apply from the next Batch on."""
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
        """The places where flows read and write, and their states; for named flows also their backlogs, and how far they are
        acknowledged."""
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


# Client calls about nodes, workers and tokens.


class HostClient(VerbClient):
    """Calls about masters, nodes, workers and tokens."""

    def masters_up(self) -> list[MasterRow]:
        """All running masters, and which one leads."""
        return self._get("/v1/masters", list[MasterRow])

    def master(self) -> MasterView:
        """The status of the answering master."""
        return self._get("/v1/master", MasterView)

    def nodes(self) -> list[NodeRow]:
        """The registered hosts."""
        return self._get("/v1/nodes", list[NodeRow])

    def node(self, name: str) -> NodeView:
        """A host and its own status. Raises Refused if there is no host of that name."""
        return self._get(f"/v1/nodes/{part(name)}", NodeView)

    def bind(self, flow: str, tier: str, node: str, *, start: bool = False) -> Bound:
        """Run a tier on one node only.

        Args:
            flow: the flow.
            tier: the tier.
            node: the node.
            start: also set the desired state of the flow to running.
        """
        return self._write("PUT", f"/v1/flows/{part(flow)}/tiers/{part(tier)}/node", Binding(node, start), Bound, None)

    def unbind(self, flow: str, tier: str) -> Bound:
        """Allow a tier to run on any node."""
        return self._write("DELETE", f"/v1/flows/{part(flow)}/tiers/{part(tier)}/node", None, Bound, None)

    def decommission(self, node: str, *, undo: bool = False) -> NodeChanged:
        """Decommission a host, so that it gets no new workers and its workers move elsewhere. `undo`: allow it to take workers again."""
        return self._write("DELETE" if undo else "PUT", f"/v1/nodes/{part(node)}/decommissioned", None, NodeChanged, None)

    def forget_node(self, node: str) -> Written:
        """Remove a host whose machine is gone."""
        return self._write("DELETE", f"/v1/nodes/{part(node)}", None, Written, None)

    def agents(self, group: str | None = None) -> list[AgentSummary]:
        """The agents by name. `group`: only those of this group."""
        return self._get(f"/v1/agents?{_query_string(group=group or '')}", list[AgentSummary])

    def agent(self, name: str) -> AgentView:
        """An agent: its lanes, the tiers that run there, its chain of gateways. Raises Refused if there is no agent of that name."""
        return self._get(f"/v1/agents/{part(name)}", AgentView)

    def bind_agent(self, flow: str, tier: str, agent: str, *, start: bool = False) -> AgentBound:
        """Run a tier of agents at an agent, whatever its group is. `start`: also set the desired state of its flow to running."""
        path = f"/v1/flows/{part(flow)}/tiers/{part(tier)}/agents/{part(agent)}" + ("?start=true" if start else "")
        return self._write("PUT", path, None, AgentBound, None)

    def unbind_agent(self, flow: str, tier: str, agent: str) -> AgentBound:
        """Remove the binding of a tier to an agent."""
        return self._write("DELETE", f"/v1/flows/{part(flow)}/tiers/{part(tier)}/agents/{part(agent)}", None, AgentBound, None)

    def decommission_agent(self, agent: str, *, undo: bool = False) -> AgentChanged:
        """Let an agent hand over what it has read, and read nothing more. `undo`: allow it to read again."""
        return self._write("DELETE" if undo else "PUT", f"/v1/agents/{part(agent)}/decommissioned", None, AgentChanged, None)

    def remove_agent(self, agent: str) -> Written:
        """Remove an agent that is away."""
        return self._write("DELETE", f"/v1/agents/{part(agent)}", None, Written, None)

    def gateways(self) -> list[GatewaySummary]:
        """The gateways that are up."""
        return self._get("/v1/gateways", list[GatewaySummary])

    def set_chain(self, group: str, chain: ChainSettings) -> Written:
        """Set the costs of the gateways of a group, or the order in which agents use them."""
        return self._write("PUT", f"/v1/gateways/{part(group)}/chain", chain, Written, None)

    def worker(self, flow: str, worker: str) -> dict[str, Any]:
        """The status page of a worker, wherever it runs. Raises Unreachable if it, or its node, does not answer."""
        return self._get(f"/v1/flows/{part(flow)}/workers/{part(worker)}", dict[str, Any])

    def logs(self, name: str, *, tier: str | None = None, lines: int = 50) -> list[LogLines]:
        """The last output of the newest worker of each tier, on any host; if a host does not answer, the reason.

        Args:
            name: the flow.
            tier: only this tier; None: all.
            lines: the most lines of each file.
        """
        which = "" if tier is None else f"&tier={part(tier)}"
        return self._get(f"/v1/flows/{part(name)}/logs?lines={lines}{which}", list[LogLines])

    def tokens(self) -> list[TokenRow]:
        """The tokens. This and the next two calls are for admins."""
        return self._get("/v1/tokens", list[TokenRow])

    def add_token(self, wanted: NewToken) -> MadeToken:
        """Make a token. The secret is only in this answer. If the master does not answer, the token may have been made: remove it then."""
        headers = {"Content-Type": "application/json"}
        answer = self._ask("POST", "/v1/tokens", content=msgspec.json.encode(wanted), headers=headers)
        return msgspec.json.decode(answer.content, type=MadeToken)

    def remove_token(self, name: str) -> Written:
        """Revoke a token at all masters."""
        return self._write("DELETE", f"/v1/tokens/{part(name)}", None, Written, None)

    def audit_log(self, *, limit: int = 100, who: str = "", flow: str = "") -> AuditEntries:
        """The newest lines of the audit log of the answering master, for admins. `who`, `flow`: only those of this caller or flow."""
        return self._get(f"/v1/audit?{_query_string(limit=str(limit), who=who, flow=flow)}", AuditEntries)


_AGAIN_S = 0.5
_PIECE_BYTES = 2**20
_SILENT_S = 45.0
"""seconds without data after which a stream of events counts as broken; the server sends a heartbeat every 15 s"""


class Client(AnswerClient, HostClient):
    """All calls of the API. `Transport` describes how requests are sent."""

    def flows(self, labels: Mapping[str, str] | None = None) -> list[FlowRow]:
        """All flows, by name; with `labels` only those that have all of these."""
        which = "&".join(f"label={quote(f'{name}={value}', safe='')}" for name, value in (labels or {}).items())
        return self._get(f"/v1/flows{'?' * bool(which)}{which}", list[FlowRow])

    def flow(self, name: str) -> FlowView:
        """A flow's desired state, status and workers. Raises Refused if there is no such flow."""
        return self._get(f"/v1/flows/{part(name)}", FlowView)

    def tasks(self, name: str) -> list[TaskRow]:
        """The tasks of a flow's tiers, as their workers last wrote them."""
        return self._get(f"/v1/flows/{part(name)}/tasks", list[TaskRow])

    def versions(self, name: str) -> list[VersionRow]:
        """The versions of a flow, newest first."""
        return self._get(f"/v1/flows/{part(name)}/versions", list[VersionRow])

    def submit(
        self,
        name: str,
        flow: Submit,
        *,
        plan: str = "",
        accept: Literal["again", "lost"] | None = None,
        columns: bool = False,
        expected: int | None = None,
    ) -> AppliedFlow:
        """Submit the flow's next version with the desired state running. Submitting the same again changes nothing. Its package must have
        been uploaded.

        Args:
            name: the flow.
            flow: its package and the path in it.
            plan: the hash of the plan that was reviewed, or its beginning.
            accept: the agreement for queries that need a new checkpoint.
            columns: agree that sinks whose folders hold files of other columns continue with those of the flow.
            expected: submit only if the desired state was written by this revision (`FlowView.wanted.revision`; 0: only if there is no such
                flow).
                Other calls have the same parameter.

        Raises:
            InputError: every problem of the flow.
            Refused: `plan-needed` if the flow exists and neither `plan` nor `accept` nor `expected` is given; and as `apply_topology`.
        """
        wanted = SubmitFlow(flow.package, flow.path, flow.base, plan, accept, columns)
        return self._write("PUT", f"/v1/flows/{part(name)}", wanted, AppliedFlow, expected)

    def want(self, name: str, goal: Goal, *, expected: int | None = None) -> Written:
        """Set the desired state of a flow; setting it again retries what has failed."""
        return self._write("PUT", f"/v1/flows/{part(name)}/wanted", Want(goal), Written, expected)

    def rollback(
        self,
        name: str,
        version: int,
        *,
        only: bool = False,
        accept: Literal["again", "lost"] | None = None,
        columns: bool = False,
        expected: int | None = None,
    ) -> WentBack:
        """Return to an earlier version, code and flow together. Raises Refused as `apply_topology`.

        Args:
            name: the flow.
            version: the version to return to.
            only: leave the flows unchanged that were submitted as one with it; without it they return too.
            accept: the agreement for queries that need a new checkpoint.
            columns: agree that sinks whose folders hold files of other columns continue with those of the flow.
            expected: see `submit`.
        """
        return self._write("POST", f"/v1/flows/{part(name)}/rollback", Rollback(version, only, accept, columns), WentBack, expected)

    def delete(self, name: str, *, expected: int | None = None) -> Written:
        """Delete a stopped flow."""
        return self._write("DELETE", f"/v1/flows/{part(name)}", None, Written, expected)

    def overview(self) -> list[dict[str, Any]]:
        """The metrics of all flows, as reported to the leading master: one entry for each."""
        return self._get("/v1/metrics", list[dict[str, Any]])

    def metrics(self, name: str, *, since: float | None = None, step_s: int = 1) -> dict[str, Any]:
        """The metrics of a flow, now and since a time. docs/monitor.md describes them.

        Args:
            name: the flow.
            since: in seconds since the epoch; None: ten minutes ago.
            step_s: the least seconds that a sample covers.
        """
        begin = "" if since is None else f"&since={since}"
        return self._get(f"/v1/flows/{part(name)}/metrics?step={step_s}{begin}", dict[str, Any])

    def attempts(self, name: str) -> list[dict[str, Any]]:
        """The processes that served the flow's tiers, newest first: where each ran, what it did, what failed in it, and why it ended."""
        return self._get(f"/v1/flows/{part(name)}/attempts", list[dict[str, Any]])

    def intake(self, name: str) -> dict[str, Any]:
        """The answer of a flow to its producers: `intake` is open, slow or refusing."""
        return self._get(f"/v1/flows/{part(name)}/intake", dict[str, Any])

    def alerts(self, name: str) -> list[dict[str, Any]]:
        """The alerts of a flow and their states."""
        return self._get(f"/v1/flows/{part(name)}/alerts", list[dict[str, Any]])

    def test_alerts(self, name: str, alert: str | None = None) -> list[dict[str, Any]]:
        """Send a test notice to the targets of all of a flow's alerts, or of one. Returns the result of each."""
        which = "" if alert is None else f"?alert={part(alert)}"
        answer = self._ask("POST", f"/v1/flows/{part(name)}/alerts/test{which}")
        return msgspec.json.decode(answer.content, type=list[dict[str, Any]])

    def apply(
        self,
        name: str,
        flow: Submit,
        data: bytes,
        *,
        plan: str = "",
        accept: Literal["again", "lost"] | None = None,
        expected: int | None = None,
    ) -> AppliedFlow:
        """Submit a flow with the bytes of its package, which are uploaded if the answering master does not have them. `data`: the package;
        for the other parameters see `submit`."""
        for _ in range(len(self.masters)):
            if not self.has_package(flow.package):
                self.upload(flow.package, data)
            try:
                return self.submit(name, flow, plan=plan, accept=accept, expected=expected)
            except ScribenginError as error:
                # otherwise the master that has the package does not answer any more, and another one was asked
                if error.code != "package-missing":
                    raise
        return self.submit(name, flow, plan=plan, accept=accept, expected=expected)

    def download(self, id: str) -> Iterator[bytes]:
        """The bytes of a package in pieces, for `PackageStore.put`, which verifies them. Raises Refused if the master does not have it."""
        with self._answer("GET", f"/v1/packages/{part(id)}") as answer:
            yield from answer.iter_bytes(_PIECE_BYTES)

    def events(self, after: int = 0) -> Iterator[Event]:
        """Yield changes of flows as they happen, without end: first the names of all (`flows`), then a `flow` or `deleted` event for each
        flow that has changed since `after`, the `id` of an event, and for each later change.

        If the master does not answer any more, another one is asked and the stream continues; some events may then come twice (compare
        `revision`). Raises the same errors as the other calls.
        """
        while True:
            headers = {"Accept": f"text/event-stream, {problems.MEDIA_TYPE}", "Last-Event-ID": str(after)}
            try:
                with self._answer("GET", "/v1/events", headers=headers, read_s=_SILENT_S) as answer:
                    for event in _events(answer.iter_lines()):
                        after = event.id
                        yield event
            except httpx2.TransportError:
                time.sleep(_AGAIN_S)

    def record(self, path: str = "") -> RecordView:
        """The value at a path of the registry, and the names below it."""
        return self._get(f"/v1/registry/{quote(path)}", RecordView)

    def write_record(self, path: str, value: dict[str, Any], *, version: int | None) -> Written:
        """Write a record that operators may write.

        Args:
            path: its path.
            value: its new value.
            version: the version that was read; None: the record must not exist.

        Raises:
            Refused: operators may not write it.
            ScribenginError: it has another version.
        """
        return self._write("PUT", f"/v1/registry/{quote(path)}", RecordWrite(value, version), Written, None)

    def ready(self) -> Health:
        """Check readiness. Raises Unreachable if no master is ready."""
        return self._get("/readyz", Health)


@dataclass(frozen=True, slots=True)
class Event:
    """One event of the stream. `flows` has the `names` of all flows; `flow` and `deleted` concern one. Pass `id` to continue after it."""

    kind: Literal["flows", "flow", "deleted"]
    id: int
    names: tuple[str, ...] = ()
    change: FlowEvent | None = None


def _events(lines: Iterable[str]) -> Iterator[Event]:
    """Parse server-sent events; events of unknown kinds are skipped."""
    fields: dict[str, str] = {}
    for line in lines:
        if line:
            name, _, value = line.partition(":")
            fields[name] = value.removeprefix(" ")
            continue
        kind, id_, data = fields.get("event"), number_in(fields.get("id")), fields.get("data", "").encode()
        if kind == "flows":
            yield Event("flows", id_, names=msgspec.json.decode(data, type=tuple[str, ...]))
        elif kind in ("flow", "deleted"):
            yield Event("flow" if kind == "flow" else "deleted", id_, change=msgspec.json.decode(data, type=FlowEvent))
        fields = {}
