"""`--cores` and `--memory` of a host: what all its workers together may have."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

from scribengin.core.units import parse_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

C = TypeVar("C")


def _bytes(_context: click.Context, _parameter: click.Parameter, value: str | None) -> int | None:
    try:
        return None if value is None else parse_bytes(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def capacity_options(command: Callable[..., C]) -> Callable[..., C]:
    """Gives a command `capacity`, a Capacity."""

    @click.option(
        "--cores",
        type=click.IntRange(min=1),
        metavar="N",
        help="What all its workers together may have; then each has CPUs of its own. No limit by default.",
    )
    @click.option("--memory", metavar="SIZE", callback=_bytes, help="The same, as in 16GiB.")
    @wraps(command)
    def with_capacity(*some: Any, cores: int | None, memory: int | None, **more: Any) -> C:
        from scribengin.hosts.node import Capacity

        return command(*some, capacity=Capacity(cores, memory), **more)

    return with_capacity
