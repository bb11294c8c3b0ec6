"""Summaries as people see them: a table, JSON lines or CSV, as the sink says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from scribengin.core.moments import shown_moment

if TYPE_CHECKING:
    from collections.abc import Mapping


def show_summaries(found: Mapping[str, Any]) -> None:
    """On stdout, in the sinks' order; what is said of a table goes to stderr where the table is for programs."""
    for each in found["summaries"]:
        if len(found["summaries"]) > 1 or each["format"] == "table":
            click.echo(f"{each['sink']}: {_told(each)}", err=each["format"] != "table")
        _show_rows(each)
        if each["groups"] > each["keep"]:
            first = f"{each['sink']}: result() gave {each['groups']:,} rows; the first {each['keep']:,} are shown (`keep`)"
            click.echo(first, err=each["format"] != "table")
        elif each["left_out"]:
            kept = f"{each['sink']}: more than {each['keep']:,} groups (`keep`): each that is kept is whole"
            click.echo(f"{kept}, {each['rows_left_out']:,} rows are of others", err=each["format"] != "table")


def _told(each: Mapping[str, Any]) -> str:
    if not each["decided_at"]:
        told = "no Batch yet"
    elif each["batch"] is None:
        told = f"{each['rows_in']:,} rows through {each['decided_at']}, when the flow was cut otherwise"
    else:
        told = f"{each['rows_in']:,} rows through Batch {each['batch']:,} at {each['decided_at']}"
    if each["since"] is None:
        return told
    begun = f"Batch {each['since_batch']:,}" if each["since_batch"] else shown_moment(each["since"])
    return f"{told}, from {begun} on: what came before does not count in it"


def _show_rows(each: Mapping[str, Any]) -> None:
    if each["format"] == "json":
        import msgspec

        for row in each["rows"]:
            click.echo(msgspec.json.encode(row).decode())
    elif each["format"] == "csv":
        import csv
        import io

        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(each["columns"])
        writer.writerows([["" if row.get(name) is None else row[name] for name in each["columns"]] for row in each["rows"]])
        click.echo(text.getvalue(), nl=False)
    elif each["rows"]:
        from scribengin.cli.tables import print_table

        rows = [{name: "" if row.get(name) is None else row[name] for name in each["columns"]} for row in each["rows"]]
        print_table(rows, {name: name for name in each["columns"]})
