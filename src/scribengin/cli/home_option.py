"""`--home`, or `--registry`: the control plane that a command talks to."""

from __future__ import annotations

from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from scribengin.cli.registry_option import registry_options
from scribengin.control.home import DEFAULT, Home

if TYPE_CHECKING:
    from collections.abc import Callable

    from scribengin.registry.entrance import ConnectionSettings

C = TypeVar("C")


def _home(_context: click.Context, _parameter: click.Parameter, value: Path) -> Home:
    return Home(value.expanduser())


folder_option = click.option(
    "--home",
    type=click.Path(path_type=Path, file_okay=False),
    envvar="SCRIBENGIN_HOME",
    default=DEFAULT,
    show_default=True,
    metavar="DIR",
    callback=_home,
    help="Folder of the control plane, as given to `scribengin server dev`.",
)
"""Gives a command `home`, a Home, of a folder and nothing else."""


def home_option(command: Callable[..., C]) -> Callable[..., C]:
    """Gives a command `home`, a Home, whose registry is that of `--registry` where one is named."""

    @folder_option
    @registry_options(required=False)
    @wraps(command)
    def with_home(*some: Any, home: Home, entrance: ConnectionSettings | None, **more: Any) -> C:
        return command(*some, home=Home(home.folder, entrance), **more)

    return with_home
