"""`scribengin plan FLOW`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from scribengin.cli.answer import CommandAnswer
from scribengin.cli.flow_argument import flow_argument, flow_path
from scribengin.cli.settings import read_settings, run_settings, setting_flags
from scribengin.cli.warm import WarmCommand
from scribengin.core.errors import Exit, InputError

if TYPE_CHECKING:
    from pathlib import Path

_COLOURS = {"new": "green", "kept": "green", "unchanged": None, "gone": "yellow", "refused": "red"}
_FATE = re.compile(rf"^(  \S+  +)({'|'.join(_COLOURS)})(?=: )")


@click.command(cls=WarmCommand)
@flow_argument
@click.option("--deep", is_flag=True, help="Also let Spark check the name and type of every column (needs Java, 5 to 15 s).")
@click.option("--mermaid", is_flag=True, help="Print a Mermaid flowchart.")
@setting_flags("state", "warm")
def command(*, flow: str, deep: bool, mermaid: bool, state: Path | None) -> CommandAnswer:
    """Show what would run (queries, stages, guarantees) and what it would change in the existing state.

    The exit status is 2 if `run` would refuse the flow: a missing source, a sink that cannot be written, or a state that does not fit.

    \b
    Example:
      scribengin plan flow.yaml
    """
    from scribengin.local.audit import planned_changes, run_advice
    from scribengin.local.move_queries import changes_and_moves
    from scribengin.local.preflight import empty_lookups, planned_refusals, repeated_keys, unmatched_patterns
    from scribengin.local.prepare import prepare
    from scribengin.plan.explain_tiers import as_json, as_mermaid, explain

    settings = run_settings(read_settings({"state": state}))
    prepared = prepare(flow_path(flow), state=settings.state)
    problems = [*prepared.warnings, *empty_lookups(prepared), *repeated_keys(prepared), *unmatched_patterns(prepared).values()]
    found = changes_and_moves(prepared)
    refused, again = planned_refusals(prepared, *found)
    if deep and not refused:
        from scribengin.local.spark_analysis import check_deep

        problems += check_deep(prepared, settings)
    if any(problem.severity == "error" for problem in problems):
        raise InputError(problems)
    changes = planned_changes(prepared, found[0])
    advice = run_advice(prepared)
    result = as_json(prepared.plan, changes, advice)
    if mermaid:
        result["mermaid"] = as_mermaid(prepared.plan)
    text = as_mermaid(prepared.plan) if mermaid else explain(prepared.plan, changes, advice)
    return CommandAnswer(
        result,
        [*problems, *again, *refused],
        Exit.INPUT if refused else Exit.DONE,
        show=lambda: click.echo(text if mermaid else _coloured(text), nl=False),
    )


def _coloured(text: str) -> str:
    """The text of a plan with bold headings and a coloured result for each query and channel."""
    return "".join(_coloured_line(line) for line in text.splitlines(keepends=True))


def _coloured_line(line: str) -> str:
    if line[:1].strip():
        heading, colon, rest = line.rstrip("\n").partition(":")
        return f"{click.style(heading, bold=True)}{colon}{rest}\n"
    return _FATE.sub(lambda found: found[1] + click.style(found[2], fg=_COLOURS[found[2]]), line)
