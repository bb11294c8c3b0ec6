"""`--cores` and `--memory` of a host: what all its workers together may have."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

from scribengin.cli.size_option import bytes_of

if TYPE_CHECKING:
    from collections.abc import Callable

C = TypeVar("C")


def capacity_options(command: Callable[..., C]) -> Callable[..., C]:
    """Gives a command `capacity`, a Capacity."""

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
