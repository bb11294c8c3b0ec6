"""Prints the summary at the end of a run (the outcome of each query, and the ledger) and the tables of summary sinks."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from scribengin.cli.tables import open_console, print_grid
from scribengin.core.time_text import shown_moment
from scribengin.core.units import show_duration
from scribengin.state.utility_orders import order_texts
from scribengin.watching.wording import STEADY_S, catch_up_text, lag_text, lost_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from scribengin.local.contract import QueryResult, RunResult
    from scribengin.local.ledger import LedgerLine
    from scribengin.state.contract import Counts


# the tables of summary sinks: as a table, JSON lines or CSV, as the sink declares


def show_summaries(found: Mapping[str, Any]) -> None:
    """Print the tables on stdout, in the sinks' order. Remarks about a table in JSON or CSV go to stderr."""
    for each in found["summaries"]:
        if len(found["summaries"]) > 1 or each["format"] == "table":
            click.echo(f"{each['sink']}: {_as_of(each)}", err=each["format"] != "table")
        _show_rows(each)
        if each["groups"] > each["keep"]:
            first = f"{each['sink']}: result() gave {each['groups']:,} rows; the first {each['keep']:,} are shown (`keep`)"
            click.echo(first, err=each["format"] != "table")
        elif each["left_out"]:
            kept = f"{each['sink']}: more than {each['keep']:,} groups (`keep`): each that is kept is whole"
            click.echo(f"{kept}, {each['rows_left_out']:,} rows are of others", err=each["format"] != "table")


def _as_of(each: Mapping[str, Any]) -> str:
    if not each["decided_at"]:
        told = "no Batch yet"
    elif each["batch"] is None:
        told = f"{each['rows_in']:,} rows through {each['decided_at']}, with an earlier tier layout"
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


_STYLE = {"finished": "green", "stopped": "yellow", "failed": "red"}
_BEFORE, _BEHIND = ("in", "made"), ("out", "filtered", "folded", "dead", "late")
_COLUMNS = (*_BEFORE, *_BEHIND, "held", "replayed")
_MEANINGS = {
    "made": "rows added: a join with several matches, a function that returns several rows",
    "folded": "rows without an output row of their own: parts of a group or a join, and duplicates",
    "late": "rows behind the watermark, which were dropped",
    "held": "rows in state now, not part of the sum: open windows, groups, rows that wait for a match, keys of a dedupe",
    "replayed": "dead letters that were replayed; they are part of in",
}
_LEGEND_WIDTH = 80


def show_summary(result: RunResult, dead_list: str, console: Console | None = None) -> None:
    """Print the summary on stdout, or on `console`. `dead_list` is the command that lists the flow's dead letters."""
    console = console or open_console()
    console.print()
    # errors of a run that ended regularly are printed first, above all that looks like success
    wrong = [problem for problem in result.problems if problem.severity == "error"] if result.state != "failed" else []
    for problem in wrong:
        console.print(Text(problem.message, style="bold red"))
    state = Text(f"{result.state}, with errors", "red") if wrong else Text(result.state, _STYLE[result.state])
    console.print(Text.assemble((result.flow, "bold"), " ", state))
    if not result.queries:
        console.print(Text("  before it began: nothing was read or written"))
        return
    for query in result.queries:
        _show_query(query, console)
    earlier = any(query.batches > _batches_of_run(query) for query in result.queries)
    tables = {"This run" * earlier: {query.name: query.lines_of_run for query in result.queries}}
    if earlier:
        tables["All runs"] = {query.name: query.lines for query in result.queries}
    show_ledgers(tables, console)
    console.print()
    if any(query.batches for query in result.queries) or result.violations:
        show_verdict(result.violations, console)
    show_losses({query.name: query.nodes for query in result.queries}, console)
    if dead := sum(query.rows.dead for query in result.queries):
        here = sum(query.this_run.dead for query in result.queries)
        letters = f"{dead:,} dead letter{'s' * (dead != 1)}" + (f", {f'{here:,}' if here else 'none'} of this run" if earlier else "")
        replayed = sum(query.rows.replayed for query in result.queries)
        letters += f", {replayed:,} replayed" if replayed else ""
        console.print(Text.assemble((letters, "yellow"), "; list them with: ", (dead_list, "bold")))
    if result.summaries:
        console.print()
        show_summaries({"summaries": result.summaries})


def show_verdict(violations: Sequence[str], console: Console, *, besides: bool = False, uncounted: Sequence[str] = ()) -> None:
    """Print whether the ledger balances: one line, or every violation.

    Args:
        violations: violations of the balance
        console: where to print
        besides: the sinks' places hold rows that the flow's state does not account for
        uncounted: sinks whose places were not searched for such rows
    """
    if uncounted:
        where = f"the place of {uncounted[0]} holds" if len(uncounted) == 1 else f"the places of {', '.join(uncounted)} hold"
        console.print(Text(f"Not covered: other data that {where}.", style="yellow"))
    if not violations and besides:
        console.print(
            Text("What this flow wrote balances. Its places hold other rows, which the ledger does not cover: see below.", style="yellow")
        )
        return
    if not violations:
        well = "What this flow wrote balances." if uncounted else "The ledger balances: every record that came in is accounted for."
        console.print(Text(well, style="green"))
        return
    console.print(Text("The ledger does NOT balance:", style="red"))
    for violation in violations:
        console.print(Text(f"  {violation}", style="red"))


def show_losses(queries: Mapping[str, Mapping[str, Counts]], console: Console) -> None:
    """Print a line for each source whose records were lost before they were read (`queries`: query → node → counts). They are not part of
    the balance."""
    for query, nodes in queries.items():
        for node, counts in nodes.items():
            if lost := lost_text(counts):
                console.print(Text(f"Lost before they were read: records of {node} that query {query} skipped: {lost}.", style="red"))


def _batches_of_run(query: QueryResult) -> int:
    return 0 if query.view is None else query.view.batches


def _show_query(query: QueryResult, console: Console) -> None:
    ran = _batches_of_run(query)
    rate = f", {query.this_run.rows_in / query.seconds:,.0f} rows/s" if query.seconds >= STEADY_S and query.this_run.rows_in else ""
    what = (
        f"{_rows(query.this_run.rows_in)} in {ran:,} Batch{'es' * (ran != 1)}"
        if ran
        else "nothing new"
        if query.state == "finished"
        else "no Batch"
    )
    console.print(
        Text.assemble(
            "  ", (query.name, "bold"), "  ", (query.state, _STYLE.get(query.state, "")), f"  {what}, {show_duration(query.seconds)}{rate}"
        )
    )
    if query.batches > ran:
        all_runs = f"{_rows(query.rows.rows_in)} in {query.batches:,} Batch{'es' * (query.batches != 1)}"
        console.print(Text(f"    all runs: {all_runs}", style="dim"))
    for sink in query.sinks:
        weaker = ", at least once" if sink.guarantee == "at least once" else ""
        wrote = sink.rows if query.view is None or sink.sink not in query.view.sinks else query.view.sinks[sink.sink].rows
        more = f" ({sink.rows:,} with earlier runs)" if sink.rows != wrote else ""
        console.print(Text(f"    {_rows(wrote)} to {sink.place or sink.sink}{weaker}{more}"))
    if query.view is not None and (lag := lag_text(query.view)):
        console.print(Text(f"    {', '.join(filter(None, [f'lag {lag}', catch_up_text(query.view)]))}", style="dim"))
    for note in (*query.notes, *order_texts(query.orders)):
        console.print(Text(f"    {note}", style="dim"))


def _rows(count: int) -> str:
    return f"{count:,} row{'s' * (count != 1)}"


def show_ledgers(tables: Mapping[str, Mapping[str, Sequence[LedgerLine]]], console: Console) -> None:
    """Print ledgers, given as heading → query → its lines. Columns that are empty everywhere are left out. The meanings of the others are
    printed below the last table."""
    shown = {heading: queries for heading, queries in tables.items() if any(queries.values())}
    used = set[str]()
    for heading, queries in shown.items():
        console.print(Text(f"\n{heading}" if heading else ""))
        used |= {*_show_ledger(queries, console)}
    _show_meanings(next(reversed(shown.values()), {}), [column for column in _COLUMNS if column in used], console)


def _show_ledger(queries: Mapping[str, Sequence[LedgerLine]], console: Console) -> Sequence[str]:
    rows = [(query, line) for query, lines in queries.items() for line in lines if not line.lookup]
    if not rows:
        return ()
    columns = [column for column in _COLUMNS if column in ("in", "out") or any(_count(line, column) for _, line in rows)]
    cells, before = list[list[Text]](), ""
    for query, line in rows:
        node = f"  .{line.node}" if line.part_of else line.node
        cells.append([Text("" if query == before else query), Text(node), *(_number(column, _count(line, column)) for column in columns)])
        before = query
    shape = [False, False, *[True] * len(columns)]
    print_grid([Text(name) for name in ("Query", "node", *columns)], cells, right=shape, whole=shape, console=console)
    return columns


def _show_meanings(queries: Mapping[str, Sequence[LedgerLine]], columns: Sequence[str], console: Console) -> None:
    if len(columns) > len(("in", "out")):
        left, sums = [[name for name in names if name in columns] for names in (_BEFORE, _BEHIND)]
        _explain(f"each line: {' + '.join(left)} = {' + '.join(sums)}", console)
    for column, meaning in _MEANINGS.items():
        if column in columns:
            _explain(f"{column}: {meaning}", console)
    for query, lines in queries.items():
        for line in lines:
            if line.lookup:
                read = f"{line.rows_in:,} row{'s' * (line.rows_in != 1)} in all, which are not part of in"
                dead = f"; dead letters among them: {line.dead:,}" if line.dead else ""
                _explain(f"{line.node}: lookup table of query {query}, read again by each Batch: {read}{dead}", console)


def _explain(text: str, console: Console) -> None:
    for line in wrap(text, min(_LEGEND_WIDTH, console.width), subsequent_indent="  ", break_long_words=False):
        console.print(Text(line, style="dim"), soft_wrap=True)


def _count(line: LedgerLine, column: str) -> int | None:
    count: int | None = line.rows_in if column == "in" else getattr(line, column)
    return count


def _number(column: str, count: int | None) -> Text:
    if not count:
        return Text("0" if column in ("in", "out") else "")
    return Text(f"{count:,}", style="yellow" if column in ("dead", "late") else "")
