"""Queries about flows and their states: a query as a record, and the table of all queries of this version.

A query is executed in the planner's process (`planner_process`), on a host that has the state. To add one: write its handler, add it to
`QUERIES`, and write its route and the client's call.
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  msgspec evaluates the annotations
from dataclasses import dataclass
from enum import Enum
from typing import Any

import msgspec

from scribengin.api.auth import Role
from scribengin.client.models import Submit  # noqa: TC001  msgspec evaluates the annotations
from scribengin.core.errors import Refused


class StateQuery(msgspec.Struct, frozen=True, rename={"verb": "what"}):
    """A query about a flow's state, in the same form in a master, between a master and a node, and in the planner's process.

    Attributes:
        verb: the name of the query.
        flow: the flow.
        arguments: the arguments of the handler.
        flows: the flows whose records it reads.
        versions: flow → a further version of it that is needed.
        submits: new versions that are planned.
        state: the root folder of states of new flows.
        revision: the records are read at this revision of the registry or a newer one.
    """

    verb: str
    flow: str
    arguments: Mapping[str, Any] = {}
    flows: tuple[str, ...] = ()
    versions: Mapping[str, int] = {}
    submits: tuple[Submit, ...] = ()
    state: str = ""
    revision: int = 0


class StateNeed(Enum):
    """The need of a query for a host that has the state of its flows."""

    YES = "yes"
    OPTIONAL = "optional"
    """it is executed without the state, if the node that may have it does not answer"""
    NO = "no"


@dataclass(frozen=True, slots=True)
class RegisteredQuery:
    """The declaration of a query.

    Attributes:
        name: its name.
        role: the lowest role of a caller.
        handler: `module:function`, imported in the planner's process only. It gets the flow, a `PreparedFlow`, and the arguments by name.
        needs_state: whether it must be executed on a host that has the state.
        plans: the handler gets a `PlanInput` instead of the flow, because it reads submissions or several versions. The time limit is then
            that of
            planning, and the query is a step of a request that its master answers itself.
    """

    name: str
    role: Role
    handler: str
    needs_state: StateNeed = StateNeed.YES
    plans: bool = False


_QUERIES = (
    RegisteredQuery("trace", Role.VIEWER, "scribengin.api.state_handlers:trace"),
    RegisteredQuery("audit", Role.VIEWER, "scribengin.api.state_handlers:audit"),
    RegisteredQuery("summary", Role.VIEWER, "scribengin.local.summaries:read_summaries"),
    RegisteredQuery("batches", Role.VIEWER, "scribengin.local.batches:last_batches"),
    RegisteredQuery("batch", Role.VIEWER, "scribengin.local.batches:describe_batch"),
    RegisteredQuery("backlogs", Role.VIEWER, "scribengin.api.state_handlers:backlogs"),
    RegisteredQuery("graph", Role.VIEWER, "scribengin.api.state_handlers:graph", StateNeed.NO),
    RegisteredQuery("preview", Role.OPERATOR, "scribengin.api.state_handlers:preview_node"),
    RegisteredQuery("graph-counts", Role.VIEWER, "scribengin.local.edge_counts:edge_counts"),
    RegisteredQuery("dead", Role.VIEWER, "scribengin.api.state_handlers:dead_letters"),
    RegisteredQuery("dead-counts", Role.VIEWER, "scribengin.api.state_handlers:dead_letter_counts"),
    RegisteredQuery("replay", Role.OPERATOR, "scribengin.api.state_handlers:replay_letters"),
    RegisteredQuery("repair", Role.OPERATOR, "scribengin.api.state_handlers:repair_letter"),
    RegisteredQuery("purge", Role.OPERATOR, "scribengin.api.state_handlers:purge_letters"),
    RegisteredQuery("undo-purge", Role.OPERATOR, "scribengin.api.state_handlers:undo_purge"),
    RegisteredQuery("offsets", Role.VIEWER, "scribengin.api.state_handlers:offsets", plans=True),
    RegisteredQuery("set", Role.OPERATOR, "scribengin.api.state_handlers:set_position", plans=True),
    RegisteredQuery("rewind", Role.OPERATOR, "scribengin.api.state_handlers:rewind", plans=True),
    RegisteredQuery("spread", Role.OPERATOR, "scribengin.api.state_handlers:spread", plans=True),
    RegisteredQuery("limit", Role.OPERATOR, "scribengin.api.state_handlers:limit_target", StateNeed.NO, plans=True),
    RegisteredQuery("rollback", Role.EDITOR, "scribengin.api.state_handlers:rollback", StateNeed.OPTIONAL, plans=True),
    RegisteredQuery("topology", Role.EDITOR, "scribengin.api.state_handlers:topology", StateNeed.OPTIONAL, plans=True),
    RegisteredQuery("text", Role.VIEWER, "scribengin.api.flow_text_handlers:version_text", StateNeed.NO, plans=True),
    RegisteredQuery("file", Role.VIEWER, "scribengin.api.flow_text_handlers:flow_file", StateNeed.NO, plans=True),
    RegisteredQuery("check-text", Role.EDITOR, "scribengin.api.flow_text_handlers:check_text", StateNeed.NO, plans=True),
    RegisteredQuery("pack", Role.EDITOR, "scribengin.api.state_handlers:pack_file", StateNeed.NO, plans=True),
)
QUERIES: dict[str, RegisteredQuery] = {query.name: query for query in _QUERIES}


def registered(verb: str) -> RegisteredQuery:
    """The declaration of the query of that name. Raises Refused `node-old` if this version does not have it."""
    query = QUERIES.get(verb)
    if query is None:
        raise Refused(
            f'"{verb}" is not known here: the request came from a master of a newer version',
            remedy="update Scribengin on the node that has the flow's state, then repeat the request",
            code="node-old",
        )
    return query


def role_of(verb: str) -> Role:
    """The lowest role of a caller of that query."""
    return registered(verb).role
