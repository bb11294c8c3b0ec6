"""`scribengin config show`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from scribengin.cli.answer import AnsweringCommand, CommandAnswer
from scribengin.cli.settings import SETTINGS, read_settings, setting_flags, settings_file


@click.command(cls=AnsweringCommand)
@setting_flags()
def show(**flags: Any) -> CommandAnswer:
    """List all settings with their values and origins.

    \b
    Example:
      scribengin config show
    """
    chosen = read_settings(flags)
    file = settings_file()
    rows = [
        {
            "name": setting.name,
            "value": str(chosen[setting.name].value) if isinstance(chosen[setting.name].value, Path) else chosen[setting.name].value,
            "origin": chosen[setting.name].origin,
            "variable": setting.variable,
            "flag": setting.flag,
            "about": setting.doc,
        }
        for setting in SETTINGS
    ]

    def display() -> None:
        for row in rows:
            value = (
                "-"
                if row["value"] in (None, "", {})
                else str(row["value"]).lower()
                if isinstance(row["value"], bool)
                else str(row["value"])
            )
            click.echo(f"{row['name']:<13} {value:<24} {click.style(str(row['origin']), dim=True)}")

    return CommandAnswer({"file": str(file) if file else None, "settings": rows}, show=display)
