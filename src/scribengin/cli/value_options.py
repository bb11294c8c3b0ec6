"""Options whose values are times, sizes or labels, and other options that several commands share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from scribengin.core.errors import Refused
from scribengin.core.time_text import parse_moment
from scribengin.core.units import parse_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from scribengin.api.views import RegistryView
    from scribengin.client.client import Client


# options that take a time, such as `--since`


def as_moment(_context: click.Context, _option: click.Parameter, value: str | None) -> datetime | None:
    """Parse the value of such an option (click callback). Raises BadParameter."""
    try:
        return parse_moment(value) if value else None
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


# `-l LABEL=VALUE`: selects flows by labels, in addition to names or in place of them


NAME_ONE = "name a flow, or pass -l NAME=VALUE"


def _labels(_context: click.Context, _parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for text in given:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise click.BadParameter(f"{text} is not a valid label; write NAME=VALUE")
        found[name] = value
    return found


labels_option = click.option(
    "-l",
    "--label",
    "labels",
    multiple=True,
    metavar="NAME=VALUE",
    callback=_labels,
    help="Only flows with this label. May be repeated; a flow must have all of them.",
)
"""Adds the option to a command, which receives `labels`, a dict."""


def chosen(client: Client | RegistryView, names: Sequence[str], labels: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the named flows and the flows with all the labels. Raises Refused if a named flow does not exist or no flow has the labels,
    and UsageError if neither names nor labels are given."""
    if not names and not labels:
        raise click.UsageError(NAME_ONE)
    for name in names:
        client.flow(name)
    labelled = [row.flow for row in client.flows(labels)] if labels else []
    if labels and not labelled:
        said = ", ".join(f"{name}={value}" for name, value in labels.items())
        raise Refused(
            f"no flow has {said}", remedy="labels are set in flow files: labels: {team: shop}; see: scribengin list", code="label-unknown"
        )
    return tuple(dict.fromkeys([*names, *labelled]))


# `--accept`: accepted consequences of a change, for rows and for readers of a folder


_ROWS = ("again", "lost")


@dataclass(frozen=True, slots=True)
class Agreed:
    """The consequences that the user accepts. `rows`: they are read again, or lost. `columns`: sinks continue with other columns than their
    folders hold, and sources read files with other columns than the flow declares."""

    rows: Literal["again", "lost"] | None
    columns: bool


def accept_option(command: Callable[..., object]) -> Callable[..., object]:
    """Add the option to a command, which receives `accept`, an `Agreed`."""
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


def bytes_of(_context: click.Context, _parameter: click.Parameter, value: str | None) -> int | None:
    """Parse a size such as `16GiB` into bytes (click callback); a bare number is bytes. Raises BadParameter."""
    try:
        return None if value is None else int(value) if value.isdecimal() else parse_bytes(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


# `--cores` and `--memory` of a host: the limits of all its workers together


C = TypeVar("C")


def capacity_options(command: Callable[..., C]) -> Callable[..., C]:
    """Add the options to a command, which receives `capacity`, a `Capacity`."""

    @click.option(
        "--cores",
        type=click.IntRange(min=1),
        metavar="N",
        help="Cores that all workers together may use; each worker then has CPUs of its own. Default: no limit.",
    )
    @click.option("--memory", metavar="SIZE", callback=bytes_of, help="Memory that all workers together may use, such as 16GiB.")
    @wraps(command)
    def with_capacity(*some: Any, cores: int | None, memory: int | None, **more: Any) -> C:
        from scribengin.hosts.node import Capacity

        return command(*some, capacity=Capacity(cores, memory), **more)

    return with_capacity
