"""`scribengin infer FILE…`: propose a schema for the content of files."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from scribengin.cli.answer import AnsweringCommand, CommandAnswer

if TYPE_CHECKING:
    from scribengin.connectors.files.infer import Proposal
    from scribengin.formats.type_inference import ObservedValues

_FORMATS = ("json", "csv", "text", "parquet", "avro")


@click.command(cls=AnsweringCommand)
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--format", "format_", type=click.Choice(_FORMATS), help="Format of the bytes. Default: detected.")
@click.option("--rows", default=10_000, show_default=True, type=click.IntRange(min=1), help="Number of records to read.")
@click.option("--delimiter", help="csv: separator of cells. Default: detected.")
@click.option("--header/--no-header", default=None, help="csv: whether the first line names the columns. Default: detected.")
@click.option("--null", help="csv: the cell that means null. Default: detected.")
@click.option("--encoding", help="csv, text: encoding, such as windows-1252. Default: detected.")
@click.option("--yaml", "yaml_only", is_flag=True, help="Print only the lines for the flow file.")
def command(
    files: tuple[str, ...],
    format_: str | None,
    rows: int,
    delimiter: str | None,
    header: bool | None,
    null: str | None,
    encoding: str | None,
    yaml_only: bool,
) -> CommandAnswer:
    """Propose the `schema:` of a source from its files.

    FILE is a file, a folder, a glob, or - for stdin; it may be compressed. The proposal is checked against the records that were read; the
    command lists those that would become dead letters, with their places.

    \b
    Example:
      scribengin infer data/*.csv
    """
    from scribengin.connectors.files.infer import files_of, infer, keep_stdin
    from scribengin.core.errors import SourceError
    from scribengin.formats.dialect import CHECKS

    if delimiter is not None:
        delimiter = {"\\t": "\t", "tab": "\t"}.get(delimiter, delimiter)
    given = {"delimiter": delimiter, "header": header, "null": null, "encoding": encoding}
    for name, value in given.items():
        fault = CHECKS[name](value) if name in CHECKS and value is not None else None
        if fault is not None:
            raise click.UsageError(f"--{name} {fault[0]}; {fault[1]}")
    named = [name for name, value in given.items() if value is not None and name != "encoding"]
    if format_ not in (None, "csv") and named:
        raise click.UsageError(f"--{named[0]} is of csv, and --format says {format_}")
    format_ = format_ or ("csv" if named else None)
    with tempfile.TemporaryDirectory(prefix="scribengin-infer-") as folder:
        if "-" in files:
            if len(files) > 1:
                raise click.UsageError("- and files exclude each other")
            kept, whole = keep_stdin(sys.stdin.buffer, Path(folder), rows)
            paths = [kept]
            if not paths[0].stat().st_size:
                raise SourceError("stdin was empty", remedy="name files, or send records: cat FILE | scribengin infer -")
        else:
            paths, whole = files_of(files), True
        proposal = infer(paths, records=rows, format=format_, options=given)
    proposal.whole = proposal.whole and whole
    if "-" in files:
        proposal.deaths = [replace(each, file="stdin") for each in proposal.deaths]
    text = _yaml(proposal, files)
    return CommandAnswer(_as_json(proposal, text), show=lambda: click.echo(text, nl=False) if yaml_only else _show(proposal, text))


def _as_json(proposal: Proposal, text: str) -> dict[str, Any]:
    columns = [
        {
            "name": field.name,
            "type": str(field.type),
            "null": seen.nulls,
            "missing": max(0, proposal.records - proposal.dead - seen.present - seen.nulls),
            "distinct": len(seen.distinct),
            "distinct_is_exact": _is_exact(seen),
            "low": _plain(seen.low),
            "high": _plain(seen.high),
            "examples": seen.examples,
        }
        for field, seen in _columns(proposal)
    ]
    return {
        "format": proposal.format,
        "schema": str(proposal.schema),
        "options": proposal.options,
        "yaml": text,
        "files": proposal.files,
        "records": proposal.records,
        "whole": proposal.whole,
        "columns": columns,
        "dead": proposal.dead,
        "dead_letters": [
            {"file": each.file, "line": each.line, "row": each.row, "reason": each.reason, "message": each.message}
            for each in proposal.deaths
        ],
        "notes": proposal.notes,
    }


def _columns(proposal: Proposal) -> list[tuple[Any, ObservedValues]]:
    return [(field, proposal.columns[field.name]) for field in proposal.schema.fields]


def _is_exact(seen: ObservedValues) -> bool:
    from scribengin.formats.type_inference import DISTINCT

    return len(seen.distinct) <= DISTINCT


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, str | int | float) else str(value)


def _show(proposal: Proposal, text: str) -> None:
    from scribengin.cli.tables import print_table
    from scribengin.formats.type_inference import DISTINCT, show_value

    all_ = "all" if proposal.whole else "the first"
    files = f"{proposal.files:,} files" if proposal.files != 1 else "1 file"
    click.echo(f"{proposal.format}: {all_} {proposal.records:,} records of {files}\n")
    rows = []
    for field, seen in _columns(proposal):
        absent = max(0, proposal.records - proposal.dead - seen.present)
        bounded = seen.low is not None
        rows.append(
            {
                "name": field.name,
                "type": str(field.type),
                "null": f"{absent / max(1, proposal.records - proposal.dead):.1%}" if absent else "",
                "distinct": f"{len(seen.distinct):,}" if _is_exact(seen) else f"over {DISTINCT:,}",
                "low": show_value(seen.low) if bounded else "",
                "high": show_value(seen.high) if bounded else ", ".join(seen.examples[:1]),
            }
        )
    headings = {"name": "column", "type": "type", "null": "null or missing", "distinct": "distinct", "low": "from", "high": "to"}
    print_table(rows, headings)
    click.echo()
    if proposal.dead:
        click.echo(click.style(f"{proposal.dead:,} of {proposal.records:,} records would be dead letters:", fg="yellow"))
        for each in proposal.deaths:
            click.echo(f"  {each}")
        if proposal.dead > len(proposal.deaths):
            click.echo(f"  and {proposal.dead - len(proposal.deaths):,} more")
    else:
        click.echo("none of them would be a dead letter")
    for note in proposal.notes:
        click.echo(f"note: {note}")
    click.echo(f"\n{text}", nl=False)


def _yaml(proposal: Proposal, files: tuple[str, ...]) -> str:
    """The YAML of a source for the flow file."""
    import json

    path = "data" if files[0] == "-" else files[0] if len(files) == 1 else _path_of(files)
    words = re.sub(r"[^a-z0-9]+", "_", Path(path).name.partition(".")[0].lower()).strip("_")
    name = words if re.match(r"[a-z]", words) else "rows"
    more = [f"    # the path takes in all files of that name, not only the {len(files)} that were named"] if len(files) > 1 else []
    lines = ["sources:", f"  {name[:63]}:", "    type: files", *more, f"    path: {_scalar(path)}", f"    format: {proposal.format}"]
    for key, value in proposal.options.items():
        lines.append(f"    {key}: {_mapping(value) if isinstance(value, dict) else json.dumps(value)}")
    lines.append(f"    schema: {_scalar(str(proposal.schema))}")
    return "\n".join(lines) + "\n"


def _mapping(value: dict[str, str]) -> str:
    return "{" + ", ".join(f"{_scalar(key)}: {_scalar(text)}" for key, text in value.items()) + "}"


def _path_of(files: tuple[str, ...]) -> str:
    """A glob that matches all these files, and few others."""
    paths = [Path(each) for each in files]
    suffixes = {"".join(path.suffixes[-2:]) for path in paths}
    name = f"*{suffixes.pop()}" if len(suffixes) == 1 else "*"
    folders = {str(path.parent) for path in paths}
    if len(folders) == 1:
        return str(Path(folders.pop()) / name)
    absolute = any(path.is_absolute() for path in paths)
    common = Path(os.path.commonpath([path.absolute() for path in paths]))
    return str((common if absolute else Path(os.path.relpath(common))) / "**" / name)


def _scalar(text: str) -> str:
    """The text as a YAML scalar on one line, in quotes if it needs them."""
    import json

    import yaml

    plain = not any(mark in text for mark in "{}[]#:&*!|>'\"%@`") and yaml.safe_load(f"k: {text}") == {"k": text}
    return text if plain else json.dumps(text, ensure_ascii=False)
