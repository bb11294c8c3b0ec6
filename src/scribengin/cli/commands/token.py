"""`scribengin token add|list|remove`: who may use the API where a token is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from scribengin.cli.answer import Answer, AnsweringCommand
from scribengin.cli.home_option import home_option
from scribengin.cli.tables import print_table

if TYPE_CHECKING:
    from scribengin.api.tokens import RoleName
    from scribengin.control.home import Home

_ROLES = ("viewer", "operator", "editor", "admin")
_file_option = click.option(
    "--file",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file of the tokens; tokens.json of the home by default.",
)


@click.group()
def command() -> None:
    """Make, list and remove the tokens with which others use the API of this home's master.

    The file keeps no token, only what scrypt makes of it. A master takes changes up at once.
    """


@command.command(cls=AnsweringCommand)
@click.argument("name")
@click.option(
    "--role", type=click.Choice(_ROLES), required=True, help="viewer looks; operator also pauses, stops …; editor also submits; admin all."
)
@click.option(
    "-l", "--label", "labels", multiple=True, metavar="LABEL=VALUE", help="Only flows with this label; several: with all of them."
)
@_file_option
@home_option
def add(*, name: str, role: RoleName, labels: tuple[str, ...], file: Path | None, home: Home) -> Answer:
    """Make a token, and print it: it is shown only now."""
    from scribengin.api.tokens import TokenFile

    wanted = {}
    for label in labels:
        key, equals, value = label.partition("=")
        if not (key and equals and value):
            raise click.BadParameter(f'"{label}" is no LABEL=VALUE', param_hint="--label")
        wanted[key] = value
    token = TokenFile(file or home.tokens).add(name, role, wanted)
    return Answer({"name": name, "role": role, "labels": wanted, "token": token}, show=lambda: click.echo(token))


@command.command(cls=AnsweringCommand, name="list")
@_file_option
@home_option
def list_(*, file: Path | None, home: Home) -> Answer:
    """Show whose tokens there are, and what each may do."""
    import msgspec

    from scribengin.api.tokens import TokenFile

    found = msgspec.to_builtins(TokenFile(file or home.tokens).rows())

    def show() -> None:
        rows = [{**row, "labels": ", ".join(f"{label}={value}" for label, value in row["labels"].items())} for row in found]
        print_table(rows, {key: key for key in ("name", "role", "labels", "at", "id")})

    return Answer(found, show=show)


@command.command(cls=AnsweringCommand)
@click.argument("name")
@_file_option
@home_option
def remove(*, name: str, file: Path | None, home: Home) -> Answer:
    """Remove a token: it opens nothing any more, at once."""
    from scribengin.api.tokens import TokenFile

    TokenFile(file or home.tokens).remove(name)
    return Answer({"name": name}, show=lambda: click.echo(f"removed: {name}"))
