"""`--accept`: what a person agrees to, where a change costs rows, or where readers of a folder meet other columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import click

if TYPE_CHECKING:
    from collections.abc import Callable

_ROWS = ("again", "lost")


@dataclass(frozen=True, slots=True)
class Agreed:
    """`rows` are read again or lost; `columns`: sinks go on with other ones than their folders hold, sources with others than the flow
    names."""

    rows: Literal["again", "lost"] | None
    columns: bool


def accept_option(command: Callable[..., object]) -> Callable[..., object]:
    """The option; the command gets `accept`, an Agreed."""
    return click.option(
        "--accept",
        multiple=True,
        type=click.Choice([*_ROWS, "columns"]),
        callback=_agreed,
        help="Accept a consequence of the change. again: queries that need a new checkpoint read all data again, and rows "
        "are duplicated. lost: the state of these queries is lost. columns: sinks whose folders hold files with other "
        "columns write the columns of the flow from now on, and sources read earlier files with other columns. May be "
        "repeated.",
    )(command)


def _agreed(_context: click.Context, _option: click.Parameter, said: tuple[str, ...]) -> Agreed:
    if set(_ROWS) <= set(said):
        raise click.UsageError("--accept again and --accept lost exclude each other")
    rows: Literal["again", "lost"] | None = "again" if "again" in said else "lost" if "lost" in said else None
    return Agreed(rows, "columns" in said)
