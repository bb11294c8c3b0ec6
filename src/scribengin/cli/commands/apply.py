"""`scribengin apply FILE|DIR|PACKAGE...`: submit flows to the control plane."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from scribengin.cli.answer import Answer, AnsweringCommand
from scribengin.cli.flow_argument import flow_path
from scribengin.cli.home_option import home_option
from scribengin.cli.waiting import wait_for, wait_option

if TYPE_CHECKING:
    from scribengin.control.home import Home
    from scribengin.control.topology import Accept, TopologyPlan


@click.command(cls=AnsweringCommand)
@click.argument("files", nargs=-1, required=True, type=click.Path(), metavar="FILE|DIR|PACKAGE...")
@click.option("--dry-run", "-n", is_flag=True, help="Only say what it would change, how each change takes effect, and the plan's hash.")
@click.option("--plan", "expected", metavar="HASH", default="", help="Do just what --dry-run has said; refuse it where that is stale.")
@click.option(
    "--accept",
    type=click.Choice(["again", "lost"]),
    help="Agree that Queries which need a new checkpoint read all again (rows stand twice), or that what they remember is lost.",
)
@click.option("--base", type=click.Path(path_type=Path, file_okay=False), help="Where relative places of data start.")
@wait_option
@home_option
def command(
    *,
    files: tuple[str, ...],
    dry_run: bool,
    expected: str,
    accept: Accept | None,
    base: Path | None,
    wait: float | None,
    home: Home,
) -> Answer:
    """Submit flows: each with its code becomes the next version of its flow, which then runs. The same again does nothing.

    A folder or a package stands for all flows in it. All that is named here is one topology: all of it is submitted, or nothing. The folder
    of a file is packed: later edits change nothing before the next `apply`. Relative paths of data start there (of a package here), or at
    --base.
    """
    from scribengin.control.submit import submissions
    from scribengin.control.topology import apply_topology, plan_topology

    def state(_flow: str) -> str:
        return str(home.state.absolute())

    paths = [path if (path := Path(file)).is_dir() or path.suffix == ".package" else flow_path(file) for file in files]
    with home.registry() as registry:
        submitted, warnings = submissions(paths, home.packages, home.state, base=base)
        if dry_run:
            plan = plan_topology(registry, submitted, packages=home.packages, state=state)
            return Answer({**plan.as_json(), "applied": []}, warnings, show=lambda: _show(plan))
        by = getpass.getuser()
        plan, applied = apply_topology(registry, submitted, packages=home.packages, state=state, by=by, expected=expected, accept=accept)
        rows = {each.flow: wait_for(registry, each.flow, ("running",), wait) for each in applied}
    flows = [{"flow": each.flow, "version": each.version, "changed": each.changed, "status": rows[each.flow]} for each in applied]

    def show() -> None:
        _show(plan)
        for each in applied:
            what = "submitted" if each.changed else "nothing to do: it is just this that runs as"
            click.echo(f"flow {each.flow}: {what} version {each.version}")
            if (row := rows[each.flow]) is not None:
                click.echo(f"flow {each.flow} is {row['state']}")

    single: dict[str, Any] = flows[0] if len(flows) == 1 else {}
    return Answer({**single, **plan.as_json(), "applied": flows}, warnings, show=show)


def _show(plan: TopologyPlan) -> None:
    for flow in plan.flows:
        for change in flow.changes:
            click.echo(f"flow {flow.flow}, {change.what}: {change.says} ({_EFFECTS[change.effect]})")
    click.echo(f"plan {plan.hash}")


_EFFECTS = {
    "in place": "in place: nothing is touched that runs",
    "next Batch": "from the next Batch on",
    "restart": "restart, state kept",
    "new checkpoint": "new checkpoint",
    "refused": "refused as things are",
}
