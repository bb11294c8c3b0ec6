"""The client's calls about nodes, workers and tokens; `client.Client` is the whole."""

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
    """What a client asks about processes and people; how it asks is its own."""

    def masters_up(self) -> list[MasterRow]:
        """The masters that there are, and which one leads."""
        return self._get("/v1/masters", list[MasterRow])

    def master(self) -> MasterView:
        """What the master that answers says of itself."""
        return self._get("/v1/master", MasterView)

    def nodes(self) -> list[NodeRow]:
        """The hosts that have registered."""
        return self._get("/v1/nodes", list[NodeRow])

    def node(self, name: str) -> NodeView:
        """A host, and what it says itself. Raises Refused where there is none of that name."""
        return self._get(f"/v1/nodes/{part(name)}", NodeView)

    def bind(self, flow: str, tier: str, node: str, *, start: bool = False) -> Bound:
        """Have a tier run on that node, and on no other; `start`: want its flow running, too."""
        return self._write("PUT", f"/v1/flows/{part(flow)}/tiers/{part(tier)}/node", Binding(node, start), Bound, None)

    def unbind(self, flow: str, tier: str) -> Bound:
        """Let a tier run on any node."""
        return self._write("DELETE", f"/v1/flows/{part(flow)}/tiers/{part(tier)}/node", None, Bound, None)

    def decommission(self, node: str, *, undo: bool = False) -> NodeChanged:
        """Give a host no new workers, those that it has go elsewhere; or let it take workers again."""
        return self._write("DELETE" if undo else "PUT", f"/v1/nodes/{part(node)}/decommissioned", None, NodeChanged, None)

    def forget_node(self, node: str) -> Written:
        """Forget a host whose machine is gone for good."""
        return self._write("DELETE", f"/v1/nodes/{part(node)}", None, Written, None)

    def worker(self, flow: str, worker: str) -> dict[str, Any]:
        """What a worker says on its own page, wherever it runs. Raises Unreachable where it, or its node, does not answer."""
        return self._get(f"/v1/flows/{part(flow)}/workers/{part(worker)}", dict[str, Any])

    def logs(self, name: str, *, tier: str | None = None, lines: int = 50) -> list[LogLines]:
        """What the newest worker of each tier has printed, on whichever host; where that does not answer, why."""
        which = "" if tier is None else f"&tier={part(tier)}"
        return self._get(f"/v1/flows/{part(name)}/logs?lines={lines}{which}", list[LogLines])

    def tokens(self) -> list[TokenRow]:
        """Whose tokens there are. For admins, as what follows."""
        return self._get("/v1/tokens", list[TokenRow])

    def add_token(self, wanted: NewToken) -> MadeToken:
        """Make a token: it can be had only now. Where the master falls silent it may be made: remove it then."""
        headers = {"Content-Type": "application/json"}
        answer = self._ask("POST", "/v1/tokens", content=msgspec.json.encode(wanted), headers=headers)
        return msgspec.json.decode(answer.content, type=MadeToken)

    def remove_token(self, name: str) -> Written:
        """From now on it opens nothing, at any master."""
        return self._write("DELETE", f"/v1/tokens/{part(name)}", None, Written, None)
