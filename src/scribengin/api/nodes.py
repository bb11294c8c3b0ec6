"""`/v1/nodes`: hosts, and which tiers run where. `/v1/flows/{flow}/workers/{worker}`: a worker's status page, on any host."""

from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any

from fastapi import APIRouter
from starlette.responses import Response

from scribengin.api.auth import Role
from scribengin.api.plane import ApiRequest
from scribengin.client.models import Binding, Bound, NodeChanged, NodeRow, NodeView, Written
from scribengin.control import node_bindings
from scribengin.control.world import RunId
from scribengin.core.errors import Refused, ScribenginError
from scribengin.registry.contract import Registry
from scribengin.registry.record_io import Stored, read_record
from scribengin.registry.tree import HOST, RUN, SPARE


def node_routes(may: Callable[[Role], Any]) -> APIRouter:
    """The routes; `may` returns the dependency that admits callers with a role."""
    routes = APIRouter(prefix="/v1", tags=["nodes"])

    @routes.get("/nodes", response_model=list[NodeRow])
    def list_nodes(asked: Annotated[ApiRequest, may(Role.VIEWER)]) -> Response:
        """The registered hosts: whether each is up, its resources, its workers, and the tiers that are mapped to it."""
        asked.check_all()
        return asked.answer(asked.view.nodes())

    @routes.get("/nodes/{node}", response_model=NodeView)
    def show_node(node: str, asked: Annotated[ApiRequest, may(Role.VIEWER)]) -> Response:
        """A host, and what it reports about itself: its capacity, workers, packages, its lease, the last orders."""
        asked.check_all()
        row = asked.view.node(node)
        now, silent = None, ""
        try:
            now = asked.plane.nodes.status_of(node)
        except ScribenginError as error:
            silent = error.message
        return asked.answer(NodeView(row, now, silent))

    @routes.delete("/nodes/{node}", response_model=Written)
    def forget_node(node: str, asked: Annotated[ApiRequest, may(Role.OPERATOR)]) -> Response:
        """Remove a host whose machine is gone."""

        def act(registry: Registry) -> Written:
            asked.check_all()
            node_bindings.forget(registry, _known(node))
            return Written(asked.plane.revision())

        return asked.write("forget node", node, act)

    @routes.put("/nodes/{node}/decommissioned", response_model=NodeChanged)
    def decommission(node: str, asked: Annotated[ApiRequest, may(Role.OPERATOR)]) -> Response:
        """Decommission a host: it gets no new workers, and its workers move elsewhere after the current Batches."""

        def act(registry: Registry) -> NodeChanged:
            asked.check_all()
            changed = node_bindings.decommission(registry, _known(node), by=asked.who.name)
            return NodeChanged(node, decommissioned=True, changed=changed, workers=tuple(node_bindings.workers_on(registry, node)))

        return asked.write("decommission", node, act)

    @routes.delete("/nodes/{node}/decommissioned", response_model=NodeChanged)
    def recommission(node: str, asked: Annotated[ApiRequest, may(Role.OPERATOR)]) -> Response:
        """Allow a host to take workers again."""

        def act(registry: Registry) -> NodeChanged:
            asked.check_all()
            changed = node_bindings.recommission(registry, _known(node))
            return NodeChanged(node, decommissioned=False, changed=changed, workers=tuple(node_bindings.workers_on(registry, node)))

        return asked.write("recommission", node, act)

    @routes.put("/flows/{flow}/tiers/{tier}/node", response_model=Bound)
    def bind(flow: str, tier: str, to: Binding, asked: Annotated[ApiRequest, may(Role.OPERATOR)]) -> Response:
        """Run a tier on that node only."""

        def act(registry: Registry) -> Bound:
            asked.check_flow(flow)
            changed = node_bindings.bind(registry, f"{flow}.{tier}", _known(to.node), by=asked.who.name, start=to.start)
            return Bound(f"{flow}.{tier}", to.node, changed)

        return asked.write(f"{'spawn' if to.start else 'map'} {tier} on {to.node}"[:200], flow, act, to)

    @routes.delete("/flows/{flow}/tiers/{tier}/node", response_model=Bound)
    def unbind(flow: str, tier: str, asked: Annotated[ApiRequest, may(Role.OPERATOR)]) -> Response:
        """Allow a tier to run on any node; it stays where it is."""

        def act(registry: Registry) -> Bound:
            asked.check_flow(flow)
            return Bound(f"{flow}.{tier}", "", node_bindings.unbind(registry, f"{flow}.{tier}"))

        return asked.write(f"unmap {tier}"[:200], flow, act)

    @routes.get("/flows/{flow}/workers/{worker}", response_model=dict[str, Any])
    def show_worker(flow: str, worker: str, asked: Annotated[ApiRequest, may(Role.VIEWER)]) -> Response:
        """The status page of a worker, requested from the node on which it runs."""
        asked.check_flow(flow)
        id_ = RunId.parse(worker)
        if id_ is None or id_.flow != flow:
            raise Refused(f'"{worker[:200]}" is not a worker of flow {flow}', remedy="write FLOW.TIER-N", code="worker-unknown")
        return asked.answer(asked.plane.nodes.worker(node_of(asked.registry, id_), worker))

    return routes


def node_of(registry: Registry, id_: RunId) -> str:
    """The node where a worker runs, or last ran. Raises Refused if it is not known."""
    for branch in (RUN, SPARE):
        with suppress(ScribenginError):
            run = read_record(registry, branch(id_.flow, id_.tier))
            if isinstance(run, Stored) and run.record.number == id_.number:
                return run.record.node
    raise Refused(f"there is no worker {id_}", remedy=f"see: scribengin status {id_.flow}", code="worker-unknown")


def _known(node: str) -> str:
    """The text, if it is a valid name of a node. Raises Refused if it is not."""
    if not HOST.fits(node):
        raise Refused(f'"{node[:200]}" is not a valid name of a node', remedy="see: scribengin node list", code="node-unknown")
    return node
