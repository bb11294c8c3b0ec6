"""`scribengin package DIR` and `scribengin package show FILE`."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from scribengin.cli.answer import AnsweringCommand, CommandAnswer

if TYPE_CHECKING:
    from scribengin.packages.package import Package


class _MakeOrShow(click.Group):
    """What is no name of a command is the folder to make a package of; one that is called so is written `./show`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        asks = not args or args[0] in (*self.commands, *ctx.help_option_names)
        return super().parse_args(ctx, args if asks else ["make", *args])

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name in super().list_commands(ctx) if name != "make"]


@click.group(cls=_MakeOrShow, subcommand_metavar="DIR [-o FILE] | show FILE")
def command() -> None:
    """Create one file of the flows in DIR and their code, or inspect such a file.

    A package contains the flow files in DIR, the .py files below it, the schema files that the flows name, requirements.lock and
    requirements.txt. Equal content gives equal bytes; their SHA-256 is the id of the package. All flows are checked first; those written in
    Python are executed.

    \b
    Examples:
      scribengin package shop -o shop.flows
      scribengin package show shop.flows
    """


@command.command(cls=AnsweringCommand, name="make")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Where to write it; NAME-ID.package here by default.",
)
def make(*, folder: Path, output: Path | None) -> CommandAnswer:
    """Make a package of the flows in DIR; `scribengin package DIR` is short for it."""
    from scribengin.core.storage import replace
    from scribengin.packages.make import make_package

    made = make_package(folder, os.environ)
    package = made.package
    file = output or Path(package.file_name)
    replace(file, package.data)
    result = _described(package, file)
    for flow in result["flows"]:
        places = made.relative[flow["name"]]
        flow["relative"] = None if places is None else [asdict(place) for place in places]

    def show() -> None:
        _show(result)
        for flow in result["flows"]:
            if flow["relative"]:
                places = ", ".join(f"{place['option']} of {place['node']} ({place['path']})" for place in flow["relative"])
                click.echo(f"{flow['name']} needs a folder where relative places start: {places}")

    return CommandAnswer(result, made.warnings, show=show)


@command.command(cls=AnsweringCommand)
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
def show(*, file: Path) -> CommandAnswer:
    """Verify a package and list its contents.

    \b
    Example:
      scribengin package show shop.flows
    """
    from scribengin.packages.store import read_package

    result = _described(read_package(file), file)
    return CommandAnswer(result, show=lambda: _show(result))


def _described(package: Package, file: Path) -> dict[str, Any]:
    manifest = package.manifest
    return {
        "id": package.id,
        "file": str(file),
        "size": len(package.data),
        "name": manifest.name,
        "scribengin": manifest.scribengin,
        "flows": [asdict(flow) for flow in manifest.flows],
        "files": [asdict(each) for each in manifest.files],
        "requirements": list(manifest.requirements),
    }


def _show(result: dict[str, Any]) -> None:
    from scribengin.cli.tables import print_table

    click.echo(f"{result['file']}: package {result['name']}, {result['size']:,} bytes, by scribengin {result['scribengin']}")
    click.echo(f"id {result['id']}")
    flows = ", ".join(f"{flow['name']} ({flow['path']})" for flow in result["flows"])
    click.echo(f"flows: {flows}")
    rows = [each | {"sha256": each["sha256"][:12]} for each in result["files"]]
    print_table(rows, {"path": "file", "size": "bytes", "sha256": "sha256"})
