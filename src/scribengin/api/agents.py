"""`/v1/agents` and `/v1/gateways`: what collects records on hosts, and what takes them from there."""

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response

from scribengin.api.auth import Role
from scribengin.api.plane import ApiRequest
from scribengin.client.agent_models import AgentBound, AgentChanged, AgentSummary, AgentView, ChainSettings, GatewaySummary
from scribengin.client.models import Written
from scribengin.control import agents
from scribengin.registry.contract import Registry

_LONGEST = 200


def agent_routes(may: Callable[[Role], Any]) -> APIRouter:
    """The routes; `may` returns the dependency that admits callers with a role."""
    routes = APIRouter(prefix="/v1", tags=["agents"])

    @routes.get("/agents", response_model=list[AgentSummary])
    def list_agents(asked: Annotated[ApiRequest, may(Role.VIEWER)], group: Annotated[str | None, Query()] = None) -> Response:
        """The agents that have reported to gateways: their state, backlog, and the age of their last report."""
        asked.check_all()
        return asked.answer(asked.view.agents(group))

    @routes.get("/agents/{agent}", response_model=AgentView)
    def show_agent(agent: str, asked: Annotated[ApiRequest, may(Role.VIEWER)]) -> Response:
        """An agent: the tiers that run there and their roll-out, its lanes, and the gateways in the order in which it tries them."""
        asked.check_all()
        return asked.answer(asked.view.agent(agent))

    @routes.delete("/agents/{agent}", response_model=Written)
    def remove_agent(agent: str, asked: Annotated[ApiRequest, may(Role.OPERATOR)]) -> Response:
        """Remove an agent that is away."""

        def act(registry: Registry) -> Written:
            asked.check_all()
            agents.remove_agent(registry, agent)
            return Written(asked.plane.revision())

        return asked.write("remove agent", agent[:_LONGEST], act)

    @routes.put("/agents/{agent}/decommissioned", response_model=AgentChanged)
    def decommission_agent(agent: str, asked: Annotated[ApiRequest, may(Role.OPERATOR)]) -> Response:
        """Decommission an agent: it hands over what it has read, and reads nothing more."""

        def act(registry: Registry) -> AgentChanged:
            asked.check_all()
            changed = agents.decommission_agent(registry, agent, by=asked.who.name)
            return AgentChanged(agent, changed, decommissioned=True, lanes=agents.unfinished_lanes(registry, agent))

        return asked.write("decommission agent", agent[:_LONGEST], act)

    @routes.delete("/agents/{agent}/decommissioned", response_model=AgentChanged)
    def recommission_agent(agent: str, asked: Annotated[ApiRequest, may(Role.OPERATOR)]) -> Response:
        """Allow an agent to read again."""

        def act(registry: Registry) -> AgentChanged:
            asked.check_all()
            changed = agents.recommission_agent(registry, agent)
            return AgentChanged(agent, changed, decommissioned=False, lanes=agents.unfinished_lanes(registry, agent))

        return asked.write("recommission agent", agent[:_LONGEST], act)

    @routes.put("/flows/{flow}/tiers/{tier}/agents/{agent}", response_model=AgentBound)
    def bind_agent(
        flow: str, tier: str, agent: str, asked: Annotated[ApiRequest, may(Role.OPERATOR)], start: Annotated[bool, Query()] = False
    ) -> Response:
        """Run a tier of agents at that agent too, whatever its group is. `start`: also set the desired state of its flow to running."""

        def act(registry: Registry) -> AgentBound:
            asked.check_flow(flow)
            changed = agents.bind_agent(registry, f"{flow}.{tier}", agent, by=asked.who.name, start=start)
            return AgentBound(f"{flow}.{tier}", agent, changed)

        return asked.write(f"{'spawn' if start else 'map'} {tier} at agent {agent}"[:_LONGEST], flow, act)

    @routes.delete("/flows/{flow}/tiers/{tier}/agents/{agent}", response_model=AgentBound)
    def unbind_agent(flow: str, tier: str, agent: str, asked: Annotated[ApiRequest, may(Role.OPERATOR)]) -> Response:
        """Remove the binding of a tier to an agent; an agent of the tier's group continues to run it."""

        def act(registry: Registry) -> AgentBound:
            asked.check_flow(flow)
            return AgentBound(f"{flow}.{tier}", agent, agents.unbind_agent(registry, f"{flow}.{tier}", agent))

        return asked.write(f"unmap {tier} at agent {agent}"[:_LONGEST], flow, act)

    @routes.get("/gateways", response_model=list[GatewaySummary])
    def list_gateways(asked: Annotated[ApiRequest, may(Role.VIEWER)]) -> Response:
        """The gateways that are up: their addresses, groups and costs."""
        asked.check_all()
        return asked.answer(asked.view.gateways())

    @routes.put("/gateways/{group}/chain", response_model=Written)
    def set_chain(group: str, to: ChainSettings, asked: Annotated[ApiRequest, may(Role.OPERATOR)]) -> Response:
        """Set the costs of the gateways of a group, or the order in which agents use them. `default`: the gateways without a group."""

        def act(registry: Registry) -> Written:
            asked.check_all()
            agents.set_chain(registry, group, to, by=asked.who.name)
            return Written(asked.plane.revision())

        return asked.write("set chain of gateways", group[:_LONGEST], act, to)

    return routes
