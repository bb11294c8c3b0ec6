"""The options `--spread` and `--branches`: split a flow of utilities into tiers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from scribengin.core.errors import InputError, Refused, Unreachable
from scribengin.core.problems import Place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scribengin.client.models import NodeRow
    from scribengin.core.problems import Problem
    from scribengin.plan.spread_utilities import Spread
    from scribengin.spec.model import Flow

AS_NODES = 0
"""value of the option: as many tiers as nodes are up"""


class Tiers(click.ParamType):  # type: ignore[type-arg, unused-ignore]  # generic since click 8.4
    """A number of tiers, at least 1; AS_NODES if no number is given."""

    name = "tiers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Parse the number. Fails for anything else, such as a file name that follows the option."""
        if isinstance(value, int) or (value.isdecimal() and int(value) >= 1):
            return int(value)
        if Path(value).exists():
            why = f"{value} was read as the number of tiers; name files before --spread"
        else:
            why = f'"{value}" is not a valid number of tiers; write --spread 3, or --spread alone for as many as nodes are up'
        return self.fail(why, param, ctx)


branches_option = click.option(
    "--branches",
    metavar="'KEY TIME SPAN [union]'",
    help="With --spread: run tests side by side; the last tier keeps rows that all of them kept, with `union` rows that any kept.",
)


def check_options(spread: int | None, branches: str | None) -> None:
    """Raises UsageError if an option lacks the option that it needs."""
    if spread is None and branches is not None:
        raise click.UsageError("--branches needs --spread")


def tiers_as_nodes(nodes: Sequence[NodeRow]) -> int:
    """The number of running nodes. Raises Unreachable if there is none."""
    if up := sum(node.up and node.state == "up" for node in nodes):
        return up
    remedy = "start one (scribengin server node --registry ADDRESS), or pass the number of tiers: --spread 3"
    raise Unreachable("no node is running, so --spread has no number of tiers", remedy=remedy, code="spread")


def spread_flow(flow: Flow, tiers: int, branches: str | None, name: str) -> tuple[Flow, list[Problem]]:
    """Returns the flow in tiers, and warnings. Raises InputError and Refused."""
    made, _, warnings = spread_file(flow, tiers, branches, name)
    return made.flow, warnings


def spread_file(flow: Flow, tiers: int, branches: str | None, name: str) -> tuple[Spread, str, list[Problem]]:
    """Split a flow into tiers.

    Args:
        flow: the flow
        tiers: the number of tiers
        branches: the value of --branches; None runs the utilities one after the other
        name: the flow's file, for problems

    Returns: the split, the text of the flow file in tiers, and warnings

    Raises:
        InputError: the flow in tiers has errors
        Refused: the flow cannot be split
    """
    from scribengin.plan.spread_utilities import read_branches, spread, spread_text

    meeting = None if branches is None else read_branches(branches)
    try:
        made = spread(flow, tiers, meeting)
    except Refused as error:
        error.place = Place(name)
        raise
    text, problems = spread_text(made, f"{name} (spread)")
    if any(problem.severity == "error" for problem in problems):
        raise InputError(problems)
    return made, text, problems
