"""Client calls about nodes, workers and tokens; `client.Client` includes them."""

from __future__ import annotations

from typing import Any

import msgspec

from scribengin.client.host_models import (
    Binding,
    Bound,
    MadeToken,
    MasterRow,
    MasterView,
    NewToken,
    NodeChanged,
    NodeRow,
    NodeView,
    TokenRow,
)
from scribengin.client.models import LogLines, Written
from scribengin.client.transport import part
from scribengin.client.verb_client import VerbClient


class HostClient(VerbClient):
    """Calls about processes and people; the subclass sends the requests."""

    def masters_up(self) -> list[MasterRow]:
        """All masters, and which one leads."""
        return self._get("/v1/masters", list[MasterRow])

    def master(self) -> MasterView:
        """What the answering master reports about itself."""
        return self._get("/v1/master", MasterView)

    def nodes(self) -> list[NodeRow]:
        """The registered hosts."""
        return self._get("/v1/nodes", list[NodeRow])

    def node(self, name: str) -> NodeView:
        """A host, and what it reports about itself. Raises Refused if there is no host of that name."""
        return self._get(f"/v1/nodes/{part(name)}", NodeView)

    def bind(self, flow: str, tier: str, node: str, *, start: bool = False) -> Bound:
        """Run a tier on that node only; `start`: also set the desired state of its flow to running."""
        return self._write("PUT", f"/v1/flows/{part(flow)}/tiers/{part(tier)}/node", Binding(node, start), Bound, None)

    def unbind(self, flow: str, tier: str) -> Bound:
        """Allow a tier to run on any node."""
        return self._write("DELETE", f"/v1/flows/{part(flow)}/tiers/{part(tier)}/node", None, Bound, None)

    def decommission(self, node: str, *, undo: bool = False) -> NodeChanged:
        """Decommission a host, so that it gets no new workers and its workers move elsewhere; or let it take workers again."""
        return self._write("DELETE" if undo else "PUT", f"/v1/nodes/{part(node)}/decommissioned", None, NodeChanged, None)

    def forget_node(self, node: str) -> Written:
        """Remove a host whose machine is gone."""
        return self._write("DELETE", f"/v1/nodes/{part(node)}", None, Written, None)

    def worker(self, flow: str, worker: str) -> dict[str, Any]:
        """The status page of a worker, wherever it runs. Raises Unreachable if it, or its node, does not answer."""
        return self._get(f"/v1/flows/{part(flow)}/workers/{part(worker)}", dict[str, Any])

    def logs(self, name: str, *, tier: str | None = None, lines: int = 50) -> list[LogLines]:
        """The last output of the newest worker of each tier, on any host; if a host does not answer, the reason."""
        which = "" if tier is None else f"&tier={part(tier)}"
        return self._get(f"/v1/flows/{part(name)}/logs?lines={lines}{which}", list[LogLines])

    def tokens(self) -> list[TokenRow]:
        """The tokens. For admins, like the next two calls."""
        return self._get("/v1/tokens", list[TokenRow])

    def add_token(self, wanted: NewToken) -> MadeToken:
        """Make a token; it is shown only in this answer. If the master falls silent, the token may have been made: remove it then."""
        headers = {"Content-Type": "application/json"}
        answer = self._ask("POST", "/v1/tokens", content=msgspec.json.encode(wanted), headers=headers)
        return msgspec.json.decode(answer.content, type=MadeToken)

    def remove_token(self, name: str) -> Written:
        """Revoke a token at every master."""
        return self._write("DELETE", f"/v1/tokens/{part(name)}", None, Written, None)
