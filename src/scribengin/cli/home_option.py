"""`--home`: the control plane that a command talks to."""

from __future__ import annotations

from pathlib import Path

import click

from scribengin.control.home import DEFAULT, Home


def _home(_context: click.Context, _parameter: click.Parameter, value: Path) -> Home:
    return Home(value.expanduser())


home_option = click.option(
    "--home",
    type=click.Path(path_type=Path, file_okay=False),
    envvar="SCRIBENGIN_HOME",
    default=DEFAULT,
    show_default=True,
    metavar="DIR",
    callback=_home,
    help="The folder of the control plane, as given to `scribengin up`.",
)
"""Gives a command `home`, a Home."""
