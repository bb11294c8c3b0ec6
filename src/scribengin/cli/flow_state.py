"""The state of a flow, for commands that look at it: works for a flow that has mistakes by now, as long as it has a name."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from scribengin.cli.flow_argument import flow_path
from scribengin.cli.settings import read_settings
from scribengin.core.errors import InputError, Refused

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.spec.model import Flow
    from scribengin.state.folder import QueryFolder, StateFolder


def open_state(flow: str, state: Path | None) -> tuple[Flow, StateFolder]:
    """The flow of a FLOW argument and its state folder, which need not be there. `state` is the value of --state.

    Raises InputError where not even a name can be read.
    """
    from scribengin.local.prepare import state_folder
    from scribengin.plan.validate import validate_file

    path = flow_path(flow)
    found, problems = validate_file(path, os.environ, execute=True)
    if found is None or not found.name:
        raise InputError(problems)
    return found, state_folder(path, found, read_settings({"state": state})["state"].value)


def chosen_queries(folder: StateFolder, name: str | None) -> list[QueryFolder]:
    """The Queries that have state, or the one of that name. Raises Refused where there is none."""
    queries = [query for query in folder.queries() if name in (None, query.name)]
    if not queries:
        have = ", ".join(query.name for query in folder.queries())
        wanted = f'query "{name}" of flow "{folder.flow}"' if name else f'flow "{folder.flow}"'
        remedy = f"queries with state are {have}" if have else "run it first, or name its state folder with --state"
        raise Refused(f"{wanted} has no state in {folder.path}", remedy=remedy, code="state-missing")
    return queries
