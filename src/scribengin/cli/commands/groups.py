"""`scribengin group list|show|disable|enable|set-cost`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from scribengin.cli.answer import AnsweringCommand, CommandAnswer
from scribengin.cli.plane_option import masters_option
from scribengin.cli.tables import print_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from scribengin.cli.plane_option import Masters
    from scribengin.client.models import GroupMember, GroupRow


@click.command(cls=AnsweringCommand)
@masters_option
def list_(*, masters: Masters) -> CommandAnswer:
    """List the groups that flows name, and their unhealthy members.

    \b
    Example:
      scribengin group list
    """
    import msgspec

    with masters.client() as client:
        groups = client.groups()

    def show() -> None:
        if not groups:
            click.echo("no submitted flow has groups")
            return
        rows = [
            {
                "group": group.group,
                "flows": ", ".join(group.flows) or "-",
                "members": ", ".join(f"{each.member}{_mark(each)}" for each in group.members),
                "refused": group.refused or "-",
            }
            for group in groups
        ]
        print_table(rows, {name: name for name in ("group", "flows", "members", "refused")})

    return CommandAnswer(msgspec.to_builtins(groups), show=show)


@click.command(cls=AnsweringCommand)
@click.argument("group")
@masters_option
def show(*, group: str, masters: Masters) -> CommandAnswer:
    """Show the members of GROUP, their costs, and their state as each sink sees it.

    \b
    Example:
      scribengin group show db
    """
    with masters.client() as client:
        found = client.group(group)
    return _answer(found)


def _of_member(command: Callable[..., CommandAnswer]) -> Callable[..., CommandAnswer]:
    return click.argument("group")(click.argument("member")(command))


@click.command(cls=AnsweringCommand)
@_of_member
@click.option("--reason", default="", help="Shown to other operators.")
@masters_option
def disable(*, group: str, member: str, reason: str, masters: Masters) -> CommandAnswer:
    """Stop routing new Batches to MEMBER of GROUP, from the next Batch on, for all flows that name the group. Batches already assigned
    still go there.

    \b
    Example:
      scribengin group disable db second --reason "disk replaced"
    """
    return _set(masters, group, member, out=True, why=reason)


@click.command(cls=AnsweringCommand)
@_of_member
@masters_option
def enable(*, group: str, member: str, masters: Masters) -> CommandAnswer:
    """Route Batches to MEMBER of GROUP again, from the next Batch on.

    \b
    Example:
      scribengin group enable db second
    """
    return _set(masters, group, member, out=False)


@click.command(cls=AnsweringCommand)
@_of_member
@click.argument("cost", type=float)
@masters_option
def set_cost(*, group: str, member: str, cost: float, masters: Masters) -> CommandAnswer:
    """Set the COST of MEMBER of GROUP, from the next Batch on. 0: the cost in flow files.

    \b
    Example:
      scribengin group set-cost db second 2
    """
    return _set(masters, group, member, cost=cost)


@click.command(cls=AnsweringCommand)
@_of_member
@click.option("--out", is_flag=True, help="Stop routing new Batches to the member; Batches already assigned still go there.")
@click.option("--back", is_flag=True, help="Route Batches to the member again.")
@click.option("--why", default="", help="With --out: the reason, shown to other operators.")
@click.option("--cost", type=float, help="New cost of the member; 0: the cost in flow files.")
@masters_option
def set_(*, group: str, member: str, out: bool, back: bool, why: str, cost: float | None, masters: Masters) -> CommandAnswer:
    """The old `groups set`: see `scribengin group disable`, `scribengin group enable` and `scribengin group set-cost`."""
    if out == back and (out or cost is None):
        raise click.UsageError("pass --out or --back, or --cost")
    return _set(masters, group, member, out=True if out else False if back else None, why=why, cost=cost)


def _set(masters: Masters, group: str, member: str, *, out: bool | None = None, why: str = "", cost: float | None = None) -> CommandAnswer:
    from scribengin.client.models import SetMember

    with masters.client() as client:
        return _answer(client.set_member(group, member, SetMember(out, why, cost)))


def _answer(group: GroupRow) -> CommandAnswer:
    import msgspec

    return CommandAnswer(msgspec.to_builtins(group), show=lambda: _show(group))


def _show(group: GroupRow) -> None:
    click.echo(f"group {click.style(group.group, bold=True)}, of {', '.join(group.flows) or 'no flow'}")
    if group.refused:
        click.echo(f"  refused: {group.refused}")
    for member in group.members:
        files = f" (flow files: {', '.join(f'{cost:g}' for cost in member.costs)})" if tuple(member.costs) != (member.cost,) else ""
        cost = "-" if member.cost is None else f"{member.cost:g}"
        click.echo(f"  {click.style(member.member, bold=True)}  cost {cost}{files}{f', out: {member.why}' if member.out else ''}")
        for seen in member.seen:
            click.echo(f"    {_seen_text(seen)}")


def _seen_text(seen: Any) -> str:
    """A line such as `flow f, sink kept, server db1:5432: healthy, 12 Batches`."""
    why = f" ({seen['reason']}{', tried again in {:g} s'.format(seen['again_s']) * bool(seen['again_s'])})" if seen["reason"] else ""
    where = f", {seen['place']}" * bool(seen["place"])
    return (
        f"flow {seen['flow']}, sink {seen['sink']}{where}: {seen['state']}{why}, {seen['batches']:,} Batch{'es' * (seen['batches'] != 1)}"
    )


def _mark(member: GroupMember) -> str:
    if member.out:
        return " (out)"
    return " (failed)" if any(seen["state"] == "failed" for seen in member.seen) else ""
