"""The state of a flow, for commands that read or change it. Also works for a flow file with mistakes, as long as the flow's name can be
read."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scribengin.cli.flow_argument import flow_path
from scribengin.cli.settings import read_settings
from scribengin.core.errors import InputError, Refused
from scribengin.core.storage import shown_path

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from scribengin.local.prepare import PreparedFlow
    from scribengin.spec.model import Flow
    from scribengin.state.folder import QueryFolder, StateFolder
    from scribengin.state.lease import Lease


@dataclass(frozen=True, slots=True)
class TierState:
    """A tier: its part of the flow, including its channels, and the folder of its state, which need not exist."""

    flow: Flow
    folder: StateFolder


@dataclass(frozen=True, slots=True)
class FlowWithState:
    """A flow as it is declared, and the state of its tiers. A flow without tiers has one."""

    declared: Flow
    tiers: tuple[TierState, ...]

    @property
    def path(self) -> Path:
        """The folder that contains the state of all tiers."""
        first = self.tiers[0].folder
        return first.path if len(self.tiers) == 1 else first.root / first.flow

    def queries(self, name: str | None = None) -> list[tuple[TierState, QueryFolder]]:
        """The queries that have state, or the one of that name. Raises Refused if there is none."""
        there = [(tier, query) for tier in self.tiers for query in tier.folder.queries()]
        queries = [(tier, query) for tier, query in there if name in (None, query.name)]
        if not queries:
            have = ", ".join(query.name for _, query in there)
            wanted = f'query "{name}" of flow "{self.declared.name}"' if name else f'flow "{self.declared.name}"'
            remedy = (
                f"queries with state are {have}"
                if have
                else "run it first, or name its state folder with --state; for a submitted flow pass its name"
            )
            raise Refused(f"{wanted} has no state in {shown_path(self.path)}", remedy=remedy, code="state-missing")
        return queries

    def made(self) -> set[str]:
        """The names of the queries that the flow's sinks and channels have now."""
        from scribengin.plan.graph import query_sinks

        return {name for tier in self.tiers for name in query_sinks(tier.flow)}

    def leases(self) -> AbstractContextManager[Mapping[str, Lease]]:
        """Take the leases of all tiers; the value is tier → lease. Raises Refused if a tier runs."""
        from scribengin.state.lease import take_leases

        return take_leases(tier.folder for tier in self.tiers)


def prepared_flow(flow: str, state: Path | None) -> PreparedFlow:
    """The flow of a FLOW argument, checked and planned. `state` is the value of --state. Raises InputError."""
    from scribengin.local.prepare import prepare

    return prepare(flow_path(flow), state=read_settings({"state": state})["state"].value)


def open_state(flow: str, state: Path | None) -> FlowWithState:
    """The flow of a FLOW argument and its state, which may not exist. `state` is the value of --state.

    Raises InputError if no name can be read; for a flow with tiers, if it has any error.
    """
    from scribengin.local.prepare import prepare_valid, state_root
    from scribengin.plan.tiers import MAIN
    from scribengin.plan.validate import validate_file
    from scribengin.state.folder import StateFolder

    path = flow_path(flow)
    found, problems = validate_file(path, os.environ, execute=True)
    if found is None or not found.name:
        raise InputError(problems)
    root = read_settings({"state": state})["state"].value
    if found.tiers:
        prepared = prepare_valid(path, found, problems, state=root)
        return FlowWithState(found, tuple(TierState(tier.plan.flow, tier.folder) for tier in prepared.tiers))
    return FlowWithState(found, (TierState(found, StateFolder(state_root(path, root), found.name, MAIN)),))
