"""`scribengin status FLOW`: the progress of each tier, the backlog between tiers, and what is committed at the end of the flow."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from scribengin.cli.answer import CommandAnswer
from scribengin.cli.complete_values import flow_files
from scribengin.cli.each_flow import FlowCommand, each_flow
from scribengin.cli.flow_argument import as_called, is_name
from scribengin.cli.flow_state import prepared_flow
from scribengin.cli.plane_option import masters_option
from scribengin.cli.settings import setting_flags
from scribengin.core.errors import ScribenginError
from scribengin.core.remedies import flow_command
from scribengin.core.time_text import shown_moment
from scribengin.core.units import show_bytes, show_duration

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from scribengin.api.views import RegistryView
    from scribengin.cli.plane_option import Masters
    from scribengin.client.client import Client


_SPARE = {"standby": "ready", "starting": "starting", "failed": "failing", "stopped": "ending"}


@click.command(cls=FlowCommand)
@click.argument("flow", type=click.Path(), metavar="FLOW", required=False, default="", shell_complete=flow_files)
@setting_flags("state")
@masters_option
@each_flow("flow", all_without=True)
def command(*, flow: str, state: Path | None, masters: Masters) -> CommandAnswer:
    """Show the progress of every tier, the backlog between tiers, and what is acknowledged: committed at the end of the flow.

    Works whether or not the flow runs; needs no Java. For a submitted flow it also shows desired state, actual state and workers; this
    works without a running master. Without a name: all submitted flows.

    \b
    Examples:
      scribengin status flow.yaml
      scribengin status orders
    """
    if is_name(flow):
        return _of_name(flow, masters)
    from scribengin.local.preflight import outputs_without_state
    from scribengin.local.status import read_standing

    prepared = prepared_flow(flow, state)
    found = read_standing(prepared)
    never = any(query["state"] == "never ran" for tier in found["tiers"] for query in tier["queries"])
    problems = outputs_without_state(prepared) if never else []
    see_dead = as_called(flow_command("dead-letter list"), {"flow": flow, "state": state})
    return CommandAnswer(found, problems, show=lambda: _show(found, see_dead))


def _of_name(flow: str, masters: Masters) -> CommandAnswer:
    with masters.reader() as plane:
        found = read_named(plane, flow)
    return CommandAnswer(found, show=lambda: show_named(found))


def read_named(plane: Client | RegistryView, flow: str) -> dict[str, Any]:
    """Returns all that is known of a submitted flow, as JSON. `now` (the current rates) is null if no master leads."""
    import msgspec

    from scribengin.client.client import Client

    found: dict[str, Any] = msgspec.to_builtins(plane.flow(flow))
    found["now"] = None
    if isinstance(plane, Client):
        with suppress(ScribenginError):  # fails if no master leads; the rest is known without it
            found["now"] = plane.metrics(flow, step_s=600)["now"]
    return found


def show_named(found: dict[str, Any]) -> None:
    """Print the status of a submitted flow for people."""
    from scribengin.cli.tables import STATE_STYLES, print_table
    from scribengin.watching.flow_figures import going_text

    wanted, now = found["wanted"], found["status"] or {"state": "created"}
    state = click.style(now["state"], fg=STATE_STYLES.get(now["state"]))
    click.echo(f"flow {found['flow']} is {state}" + (f" since {shown_moment(now['since'])}" if now.get("since") else ""))
    for key, said in (("reason", "why"), ("next", "next")):
        if now.get(key):
            click.echo(f"  {said}: {now[key]}")
    if found["workflow"] is not None:
        _show_workflow(found["workflow"])
    for path, said in now.get("refused", {}).items():
        click.echo(f"  refused: {path} {said['why']}\n    {said['remedy']}")
    for each in found["set_aside"]:
        click.echo(f"  set aside: {each['path']} {each['why']}; it is kept in {each['kept']}")
    if going := going_text(now["state"], found["now"]):
        click.echo(f"  now: {going}")
        for line in found["now"]["orders"]:
            click.echo(f"  {line}")
    click.echo(f"wanted {wanted['state']}, version {wanted['version']}, by {wanted['by']} at {shown_moment(wanted['at'])}")
    click.echo()
    rows = []
    for tier in found["tiers"]:
        process = tier["process"]
        by = f"{process['pid']} on {process['host']}" if process else "–"
        told = tier["cause"] and tier["cause"] in now.get("reason", "")  # the reason of the flow's state is printed above
        shown = {"process": by, "worker": tier["worker"] or "–", "cause": "" if told else tier["cause"], "workers": _workers(tier)}
        rows.append({**tier, **shown})
    several = ["workers"] if any(tier["workers"] not in (None, 1) for tier in found["tiers"]) else []
    columns = ("tier", *several, "state", "worker", "process", "failures", *(["cause"] if any(row["cause"] for row in rows) else []))
    print_table(rows, {name: name for name in columns})
    for tier in found["tiers"]:
        if tier["remedy"] and tier["failures"] and tier["remedy"] not in now.get("next", ""):
            click.echo(f"tier {tier['tier']}: {tier['remedy']}")
        if tier["starts_again"]:
            click.echo(f"tier {tier['tier']}: its next worker starts at {shown_moment(tier['starts_again'])}")
        if tier["standby"]:
            spare = tier["standby"]
            click.echo(
                f"tier {tier['tier']}: its standby, {spare['worker']} on {spare['node']}, is {_SPARE.get(spare['state'], spare['state'])}"
            )
        if tier.get("autoscale"):
            click.echo(f"tier {tier['tier']}: {_autoscale_text(tier['autoscale'])}")
    _show_acks(found["acknowledged"])
    show_folders(found["folders"])
    _show_columns(found)


def _workers(tier: Mapping[str, Any]) -> str:
    """The number of workers of a tier; with `each` also the number that is wanted now."""
    if tier["workers"] is None:
        return ""
    return f"each ({tier['wanted_workers']})" if tier["workers"] == "each" and tier["wanted_workers"] else str(tier["workers"])


def _autoscale_text(size: Mapping[str, Any]) -> str:
    """What autoscale thinks of a tier's number of executors: `2 executors; autoscale (1 to 8) would have 4: the lag is 1m30s, …`."""
    executors = f"{size['executors']} executor{'s' * (size['executors'] != 1)}"
    bounds = f"autoscale ({size['min']} to {size['max']})"
    if size["advised"] != size["executors"] and size["mode"] == "advise":
        said = f"would have {size['advised']}"
    elif size["advised"] != size["executors"]:
        said = f"changes it to {size['advised']}"
    else:
        said = "decides nothing now" if size["verdict"] == "wait" else "keeps it"
    why = f": {size['why']}" if size["why"] else ""
    since = f", since {shown_moment(size['since'])}" if size["since"] else ""
    last = f"; last change at {shown_moment(size['changed_at'])}, {size['change']}" if size["change"] else ""
    return f"{executors}; {bounds} {said}{why}{since}{last}"


def _show_acks(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print for each query up to which Batch it is acknowledged to the end of the flow: its sources no longer need to keep the data
    before."""
    for row in rows:
        if row["decided"] < 0:
            continue
        if row["acknowledged"] < 0:
            said = f"nothing yet, Batch {row['decided']:,} is decided"
        else:
            at = f", decided at {shown_moment(row['acknowledged_at'])}" if row["acknowledged_at"] else ""
            said = f"up to Batch {row['acknowledged']:,} of {row['decided']:,}{at}"
        click.echo(f"query {row['query']}: acknowledged to the end of the flow {said}")


def show_folders(folders: Sequence[Mapping[str, Any]]) -> None:
    """Print the folders of sinks that no host maintains, and the work done in the others. Maintained folders without work are left out."""
    for folder in folders:
        if folder["keeper"] is not None and not folder["did_at"] and not folder["error"]:
            continue
        if not folder["node"]:
            said = "no host maintains it yet"
        elif folder["keeper"] is None:
            said = f"{folder['node']} is assigned to maintain it, and has not started"
        else:
            said = f"maintained by {folder['node']}, looked at {shown_moment(folder['looked_at']) or 'not yet'}"
        if folder["did_at"]:
            cleared = f"{folder['files']:,} file{'' if folder['files'] == 1 else 's'} ({show_bytes(folder['bytes'])}) deleted"
            done = f"{folder['folded']:,} commit records folded, {cleared}"
            said += f"; {shown_moment(folder['did_at'])}: {done}"
        click.echo(f"folder {folder['path']}: {said}")
        if folder["error"]:
            click.echo(f"  maintenance fails: {folder['error']}")


def _show_workflow(part: dict[str, Any]) -> None:
    """Print the flows that feed this flow and that it feeds, and those of them that are in trouble."""
    for word, side, met in (("is fed by", "feeding", part["fed_by"]), ("feeds", "reading", part["feeds"])):
        for flow in dict.fromkeys(each[side] for each in met):
            places = dict.fromkeys(each["place"] for each in met if each[side] == flow)
            click.echo(f"  {word} {flow}, at {' and '.join(places)}")
    for source, there in sorted(part["through"].items()):
        said = f"everything that was there at {shown_moment(there['at'])}" if there["at"] else f"not known yet, for {there['unknown']}"
        click.echo(f"  acknowledged to the end of the workflow, of {source}: {said}")
    if part["operation"] is not None:
        asked = part["operation"]
        waits = f": {'; '.join(asked['waits_for'])}" if asked["waits_for"] else ""
        click.echo(f"  operation {asked['id']} sets its workflow to {asked['goal']}{waits}")
    for each in part["ill"]:
        since = f" since {shown_moment(each['since'])}" if each["since"] else ""
        why, then = (f"{sign}{each[key]}" if each[key] else "" for sign, key in ((": ", "reason"), ("; ", "next")))
        click.echo(f"  {each['flow']}, which {each['relation']}, is {each['state']}{since}{why}{then}")


def _show(found: dict[str, Any], dead_list: str) -> None:
    """Print the status of a flow file. `dead_list` is the command that lists the flow's dead letters."""
    from scribengin.cli.tables import print_table
    from scribengin.state.utility_orders import order_lines

    for tier in found["tiers"]:
        holder = tier["holder"]
        by = f"running: process {holder['pid']} on {holder['host']} since {shown_moment(holder['since'])}" if holder else "not running"
        click.echo(f"tier {tier['tier']} {by}")
    click.echo()
    queries = [
        {
            "tier": tier["tier"],
            "query": query["query"],
            "state": query["state"],
            "batch": _or_dash(query["batch"]),
            "acknowledged": _or_dash(query["acknowledged"]),
            "in": query["rows_in"],
            "out": query["rows_out"],
            "dead": query["dead"],
            "lag": _lag(query["lag"]),
            "at": query["decided_at"],
        }
        for tier in found["tiers"]
        for query in tier["queries"]
    ]
    headings = {"tier": "tier", "query": "Query", "state": "state", "batch": "Batch", "acknowledged": "acknowledged"}
    headings |= {"in": "rows in", "out": "out", "dead": "dead"} | ({"lag": "lag"} if found["edges"] else {})
    print_table(queries, headings | {"at": "decided at"})
    for text in (text for tier in found["tiers"] for query in tier["queries"] for text in order_lines(query.get("orders", {}))):
        click.echo(text)
    for tier in found["tiers"]:
        for query in tier["queries"]:
            if text := _watermark_line(query):
                click.echo(text)
    if found["edges"]:
        click.echo()
        grouped = any(edge["members"] for edge in found["edges"])
        print_table(
            [_edge(edge) for edge in found["edges"]],
            {
                "edge": "edge",
                "durability": "durability",
                "written": "written",
                "read": "read",
                "waiting": "waiting",
                "depth": "of it",
                "committed": "committed",
                "batch": "Batch",
                "dropped": "dropped",
            }
            | ({"members": "newest Batches went to"} if grouped else {}),
        )
    click.echo()
    sources = [
        {**row, "released": f"{row['released']:,} of {row['read']:,}", "last": row["last_released"] or "-"} for row in found["sources"]
    ]
    print_table(sources, {"tier": "tier", "query": "Query", "source": "source", "released": "entries released", "last": "last released"})
    _show_columns(found)
    if found["dead"]:
        letters = f"{found['dead']:,} dead letter{'s' * (found['dead'] != 1)}"
        click.echo(f"\n{letters}; see: {dead_list}")


def _watermark_line(query: dict[str, Any]) -> str:
    """A line such as `kept: watermark 2026-01-01T00:50:00.000+00:00, held back by b (2h00m behind the next, no rows since …)`. Empty if no
    input holds the watermark back and none is idle."""
    mark = query.get("watermark")
    if not mark or (not mark["held_back_by"] and not mark["idle"]):
        return ""
    text = f"{query['query']}: watermark {shown_moment(mark['at'] or 'none yet')}"
    if mark["held_back_by"]:
        behind = "" if mark["behind_s"] is None else f"{show_duration(mark['behind_s'])} behind the next, "
        text += f", held back by {mark['held_back_by']} ({behind}no rows since {shown_moment(mark['silent_since'] or '')})"
    return text + (f", without {' and '.join(mark['idle'])} (idle)" if mark["idle"] else "")


def _show_columns(found: dict[str, Any]) -> None:
    """Print the differences between data and schemas, and the accepted changes of the columns that sinks write."""
    from scribengin.local.sink_columns import accepted_text

    if found["noticed"]:
        _show_noticed(found["noticed"])
    for row in found["accepted"]:
        click.echo(f"\n{shown_moment(row['at'])} {accepted_text(row)}")


def _show_noticed(noticed: list[dict[str, Any]]) -> None:
    """Print the differences between data and schemas."""
    from scribengin.cli.tables import print_table

    click.echo()
    rows = [
        {
            "source": each["source"],
            "column": "" if each["kind"] == "again" else each["column"],
            "what": _what(each),
            "type": "" if each["kind"] == "renamed" else each["type"],
            "where": each["file"] if each["line"] is None else f"{each['file']}:{each['line']}",
            "batch": each["batch"],
            "now": each["now"],
        }
        for each in noticed
    ]
    headings = {
        "source": "source",
        "column": "column",
        "what": "what",
        "type": "type",
        "now": "is",
        "batch": "since Batch",
        "where": "first in",
    }
    print_table(rows, headings)


def _what(noticed: dict[str, Any]) -> str:
    records = noticed["records"]
    match noticed["kind"]:
        case "nulled":
            return f"does not fit: {records:,} values"
        case "renamed":
            return f"no value; the file has {noticed['type']}"
        case "null":
            return f"no value in {records:,} records"
    known = {"new": "a new column", "field": "a new field", "missing": "not in"}
    known |= {"lines": "a cell over several lines", "empty": "no record in a file", "again": "a file written again"}
    return known.get(noticed["kind"], str(noticed["kind"]))


def _edge(edge: dict[str, Any]) -> dict[str, Any]:
    waiting = edge["waiting"]
    depth = ""
    if waiting["batches"]:
        age = "" if waiting["oldest_s"] is None else f", the oldest {show_duration(waiting['oldest_s'])}"
        depth = f"{waiting['batches']:,} Batches, {show_bytes(waiting['bytes'])}{age}"
    if edge["stored_rows"]:
        depth = f"{depth}{'; ' if depth else ''}{edge['stored_rows']:,} rows stored by the upstream tier"
    return {
        "edge": f"{edge['edges'][0]}{' …' if len(edge['edges']) > 1 else ''}",
        "durability": edge["durability"],
        "written": edge["written"]["rows"],
        "read": edge["read"]["rows"],
        "waiting": waiting["rows"],
        "depth": depth or "-",
        "committed": edge["committed"]["rows"],
        "batch": _or_dash(edge["committed"]["batch"]),
        "dropped": edge["dropped_rows"],
        "members": _members(edge["members"]),
    }


def _members(members: list[dict[str, Any]]) -> str:
    """A text such as `east 60, west 40, the last to west`."""
    if not members:
        return "-"
    last = max(members, key=lambda member: member["last_batch"])["member"]
    return ", ".join([*(f"{member['member']} {member['batches']:,}" for member in members), f"the last to {last}"])


def _lag(lag: dict[str, Any] | None) -> str:
    """The lag in the form of a run's display."""
    from scribengin.local.contract import QueryView
    from scribengin.watching.wording import lag_text

    if lag is None:
        return "-"
    return lag_text(QueryView("", "running", lag_rows=lag["rows"], lag_bytes=lag["bytes"], lag_s=lag["seconds"])) or "-"


def _or_dash(number: int | None) -> int | str:
    return "-" if number is None else number
