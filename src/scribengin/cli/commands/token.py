"""`scribengin token add|list|remove`: manage the tokens that give access to the API."""

from __future__ import annotations

import getpass
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from scribengin.cli.answer import AnsweringCommand, CommandAnswer
from scribengin.cli.guesses import GuessingGroup
from scribengin.cli.plane_option import masters_option
from scribengin.cli.tables import print_table
from scribengin.core.units import parse_duration_s

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scribengin.cli.plane_option import Masters
    from scribengin.client.models import RoleName, TokenRow

_ROLES = ("agent", "viewer", "operator", "editor", "admin")
_file_option = click.option(
    "--file",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write to another file, which a master reads at its start.",
)


@click.group(cls=GuessingGroup)
def command() -> None:
    """Create, list and remove tokens for the masters' API.

    The registry stores only a scrypt hash of each token; changes apply to all masters at once. Tokens can be created by anyone who has the
    registry's login (in the home folder, or --login-file), or through the API with an admin token (--master). If no control plane runs in
    the home folder, they are kept in its tokens.json for the next start.

    \b
    Example:
      scribengin token add ci --role editor --expires 90d
    """


@command.command(cls=AnsweringCommand)
@click.argument("name")
@click.option(
    "--role",
    type=click.Choice(_ROLES),
    required=True,
    help="agent: only send records to gateways; viewer: read; operator: also pause, stop, …; editor: also submit; admin: everything.",
)
@click.option(
    "-l",
    "--label",
    "labels",
    multiple=True,
    metavar="LABEL=VALUE",
    help="Only flows with this label. May be repeated; a flow must have all of them. For agents: agent=PATTERN of names.",
)
@click.option("--expires", metavar="TIME", help="Expiry: a duration (90d) or a date (2027-01-31).")
@_file_option
@masters_option
def add(*, name: str, role: RoleName, labels: tuple[str, ...], expires: str | None, file: Path | None, masters: Masters) -> CommandAnswer:
    """Create a token and print it. It cannot be shown again.

    \b
    Examples:
      scribengin token add ci --role editor --expires 90d
      scribengin token add web-hosts --role agent --label "agent=web-*"
    """
    wanted = {}
    for label in labels:
        key, equals, value = label.partition("=")
        if not (key and equals and value):
            raise click.BadParameter(f'"{label}" is not of the form LABEL=VALUE', param_hint="--label")
        wanted[key] = value
    until = "" if expires is None else _until(expires)
    with _tokens(masters, file) as there:
        token = there.add(name, role, wanted, until)
    return CommandAnswer(
        {"name": name, "role": role, "labels": wanted, "until": until, "token": token, "where": there.where},
        show=lambda: click.echo(token),
    )


@command.command(cls=AnsweringCommand, name="list")
@_file_option
@masters_option
def list_(*, file: Path | None, masters: Masters) -> CommandAnswer:
    """List tokens and their roles.

    \b
    Example:
      scribengin token list
    """
    import msgspec

    with _tokens(masters, file) as there:
        found = msgspec.to_builtins(there.rows())

    def show() -> None:
        rows = [{**row, "labels": ", ".join(f"{label}={value}" for label, value in row["labels"].items())} for row in found]
        print_table(rows, {key: key for key in ("name", "role", "labels", "at", "until", "id")})

    return CommandAnswer(found, show=show)


@command.command(cls=AnsweringCommand)
@click.argument("name")
@_file_option
@masters_option
def remove(*, name: str, file: Path | None, masters: Masters) -> CommandAnswer:
    """Remove a token. No master accepts it any more.

    \b
    Example:
      scribengin token remove ci
    """
    with _tokens(masters, file) as there:
        there.remove(name)
    return CommandAnswer({"name": name}, show=lambda: click.echo(f"removed: {name}"))


@dataclass(frozen=True, slots=True)
class _There:
    """A place that holds tokens: the registry, a master's API, or a file that no master has taken over yet."""

    where: str
    rows: Callable[[], list[TokenRow]]
    add: Callable[[str, RoleName, dict[str, str], str], str]
    remove: Callable[[str], object]


@contextmanager
def _tokens(masters: Masters, file: Path | None) -> Iterator[_There]:
    """Open the place that holds the tokens: a file if one is named, or if the home has no running control plane; the API if masters are
    named; otherwise the registry."""
    from scribengin.api.token_file import TokenFile
    from scribengin.api.tokens import Tokens
    from scribengin.client.models import NewToken

    home = masters.home
    if file is not None or (not masters.named and home.entrance is None and not home.master()):
        tokens = TokenFile(file or home.tokens)
        yield _There(
            str(tokens.path), tokens.rows, lambda name, role, labels, until: tokens.add(name, role, labels, until=until), tokens.remove
        )
    elif masters.named:
        with masters.client() as client:
            yield _There(
                client.masters[0],
                client.tokens,
                lambda name, role, labels, until: client.add_token(NewToken(name, role, labels, until)).token,
                client.remove_token,
            )
    else:
        with home.registry() as registry:
            kept, by = Tokens(registry), getpass.getuser()
            yield _There(
                "registry", kept.rows, lambda name, role, labels, until: kept.add(name, role, labels, until=until, by=by), kept.remove
            )


def _until(text: str) -> str:
    """Parse a duration from now, or a date or time, into ISO 8601 in UTC."""
    try:
        return (datetime.now(UTC) + timedelta(seconds=parse_duration_s(text))).isoformat(timespec="seconds")
    except (ValueError, OverflowError):
        pass
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(f"{text} is not a valid time; write 90d, or 2027-01-31", param_hint="--expires") from None
    return (found if found.tzinfo is not None else found.astimezone()).astimezone(UTC).isoformat(timespec="seconds")
