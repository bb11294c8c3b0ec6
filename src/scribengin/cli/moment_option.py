"""The value of an option that is a moment, such as `--since`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from scribengin.core.moments import parse_moment

if TYPE_CHECKING:
    from datetime import datetime


def as_moment(_context: click.Context, _option: click.Parameter, value: str | None) -> datetime | None:
    """A callback for an option. Raises BadParameter."""
    try:
        return parse_moment(value) if value else None
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
