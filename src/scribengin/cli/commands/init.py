"""`scribengin init [FOLDER]`: create a small working flow and data that contains a few bad records."""

from __future__ import annotations

import json
import random
import shlex
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path

import click

from scribengin.cli.answer import AnsweringCommand, CommandAnswer
from scribengin.cli.commands.schema import schema_text
from scribengin.core.errors import Refused

_ORDERS = 1000
_BAD = ('{"id": 1001, "customer": "cut o', '{"id": "1002", "customer": "ada", "country": "de", "amount": 12.5, "paid": true}')


@click.command(cls=AnsweringCommand)
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), default=Path())
def command(folder: Path) -> CommandAnswer:
    """Create FOLDER (this folder by default) with a working flow: flow.yaml, steps.py, flow.schema.json for editors, and data.

    \b
    Example:
      scribengin init shop
    """
    contents = {
        "flow.yaml": _template("flow.yaml"),
        "steps.py": _template("steps.py"),
        "flow.schema.json": schema_text(),
        "data/orders.jsonl": _orders(),
        ".gitignore": ".scribengin/\nout/\n",
    }
    taken = [name for name in contents if (folder / name).exists()]
    if taken:
        raise Refused(
            f"{', '.join(str(folder / name) for name in taken)}: already there",
            remedy="name another folder: scribengin init FOLDER",
            code="folder-taken",
        )
    for name, text in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    flow = folder / "flow.yaml"
    typed = shlex.quote(str(flow))
    following = [
        f"scribengin {command}" for command in (f"validate {typed}", f"run {typed} --once", f"audit {typed}", f"dead-letter list {typed}")
    ]

    def show() -> None:
        click.echo(f"made {', '.join(str(folder / name) for name in contents)}\nnow try:")
        for line in following:
            click.echo(f"  {line}")

    return CommandAnswer({"folder": str(folder), "flow": str(flow), "files": sorted(contents), "next": following}, show=show)


def _template(name: str) -> str:
    return files("scribengin.cli").joinpath("template", name).read_text(encoding="utf-8")


def _orders() -> str:
    """The example orders; each call returns the same text. Two lines are malformed, some orders have no positive amount, and one has an
    unknown country."""
    dice = random.Random(1)
    start = datetime(2026, 1, 1, tzinfo=UTC)
    lines = []
    for number in range(_ORDERS):
        order = {
            "id": number,
            "customer": dice.choice(["ada", "grace", "linus", "tuan", "zoë"]),
            "country": "xx" if number == 500 else dice.choice(["de", "fr", "vn"]),
            "amount": 0.0 if number % 250 == 7 else round(dice.expovariate(1 / 400), 2),
            "paid": number in (257, 500) or dice.random() < 0.8,
            "ts": (start + timedelta(minutes=7 * number)).isoformat().replace("+00:00", "Z"),
        }
        lines.append(json.dumps(order, ensure_ascii=False))
    lines[300:300] = _BAD
    return "\n".join(lines) + "\n"
