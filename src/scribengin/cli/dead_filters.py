"""The options by which dead letters are chosen."""

from __future__ import annotations

from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

from scribengin.cli.complete_values import nodes, words
from scribengin.cli.moment_option import as_moment

if TYPE_CHECKING:
    from collections.abc import Callable

    from scribengin.local.letters import Which

C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class Filters:
    """Which dead letters a command takes; a filter that is not given excludes none."""

    which: Which

    def given(self) -> dict[str, str]:
        """Those that were said, for a master."""
        which = self.which
        names = ("query", "step", "reason", "prefix", "since", "until")
        return {name: value for name in names if (value := getattr(which, name))}


def letter_filters(command: Callable[..., C]) -> Callable[..., C]:
    """Gives a command `filters`, a Filters: an argument ID, and options."""

    @click.argument("letter", metavar="[ID]", default="")
    @click.option("--query", default="", help="Only this query.", shell_complete=nodes("sinks"))
    @click.option("--step", default="", help="Only this step.", shell_complete=nodes("steps", "sources", "sinks"))
    @click.option("--reason", default="", help="Only this reason.", shell_complete=words(_reasons))
    @click.option(
        "--since",
        default="",
        metavar="TIME",
        help="Only Batches decided since this time: 2026-01-31T12:00:00Z, or how long ago (2h).",
        callback=_moment,
    )
    @click.option("--until", default="", metavar="TIME", help="Only Batches decided before this time.", callback=_moment)
    @wraps(command)
    def with_filters(*, letter: str, query: str, step: str, reason: str, since: str, until: str, **more: Any) -> C:
        from scribengin.local.letters import Which

        return command(filters=Filters(Which(query, step, reason, letter, since, until)), **more)

    return with_filters


def _reasons() -> list[str]:
    from scribengin.cli.code_catalog.reasons import REASONS

    return [reason.name for reason in REASONS]


def _moment(context: click.Context, option: click.Parameter, value: str) -> str:
    moment = as_moment(context, option, value)
    return "" if moment is None else moment.isoformat()
