"""`--spread` and `--branches`: a flow with its utilities in tiers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.core.errors import InputError

if TYPE_CHECKING:
    from scribengin.core.problems import Problem
    from scribengin.plan.spread import Spread
    from scribengin.spec.model import Flow


def spread_flow(flow: Flow, tiers: int, branches: str | None, name: str) -> tuple[Flow, list[Problem]]:
    """(the flow in tiers, warnings). Raises InputError and Refused."""
    made, _, warnings = spread_file(flow, tiers, branches, name)
    return made.flow, warnings


def spread_file(flow: Flow, tiers: int, branches: str | None, name: str) -> tuple[Spread, str, list[Problem]]:
    """(what runs where, the flow file, warnings); `name` is the file that the flow comes from."""
    from scribengin.plan.spread import read_branches, spread, spread_text

    made = spread(flow, tiers, None if branches is None else read_branches(branches))
    text, problems = spread_text(made, f"{name} (spread)")
    if any(problem.severity == "error" for problem in problems):
        raise InputError(problems)
    return made, text, problems
