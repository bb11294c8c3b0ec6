"""`scribengin package create DIR` and `scribengin package inspect FILE`: make a package, or show its contents."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from scribengin.cli.answer import AnsweringCommand, CommandAnswer

if TYPE_CHECKING:
    from scribengin.packages.package import Package


@click.command(cls=AnsweringCommand)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--file",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Where to write it. Default: NAME-ID.package in this folder.",
)
def create(*, folder: Path, file: Path | None) -> CommandAnswer:
    """Create a package: one file with the flows in DIR and their code.

    All flows are checked first; those written in Python are executed. Equal content gives equal bytes; their SHA-256 is the id of the
    package.

    \b
    Example:
      scribengin package create shop --file shop.flows
    """
    from scribengin.core.storage import replace
    from scribengin.packages.make import make_package

    made = make_package(folder, os.environ)
    package = made.package
    written = file or Path(package.file_name)
    replace(written, package.data)
    result = _described(package, written)
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


@click.command(cls=AnsweringCommand)
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
def inspect(*, file: Path) -> CommandAnswer:
    """Verify a package and list its contents.

    \b
    Example:
      scribengin package inspect shop.flows
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
