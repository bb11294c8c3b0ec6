"""Options that are sizes."""

from __future__ import annotations

import click

from scribengin.core.units import parse_bytes


def bytes_of(_context: click.Context, _parameter: click.Parameter, value: str | None) -> int | None:
    """The callback of such an option: `16GiB` in bytes; a bare number is bytes. Raises BadParameter."""
    try:
        return None if value is None else int(value) if value.isdecimal() else parse_bytes(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
