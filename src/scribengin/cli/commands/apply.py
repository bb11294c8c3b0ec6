"""`scribengin apply FILE|DIR|PACKAGE...`: submit flows to the control plane."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from scribengin.cli.answer import AnsweringCommand, CommandAnswer
from scribengin.cli.flow_argument import flow_path
from scribengin.cli.plane_option import masters_option
from scribengin.cli.spreading import AS_NODES, Tiers, branches_option, check_options, tiers_as_nodes
from scribengin.cli.value_options import accept_option
from scribengin.cli.waiting import wait_for, wait_running_option
from scribengin.core.errors import InputError
from scribengin.core.problems import Place, Problem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scribengin.cli.plane_option import Masters
    from scribengin.cli.value_options import Agreed
    from scribengin.cli.waiting import WaitOption
    from scribengin.client.change_models import TopologyPlan
    from scribengin.client.models import Submit
    from scribengin.plan.spread_utilities import Spread

_EFFECTS = {
    "in place": "no effect on what runs",
    "next Batch": "from the next Batch on",
    "restart": "restart, state kept",
    "drain": "read to its end first, then restart, state kept",
    "new checkpoint": "new checkpoint",
    "refused": "refused in the current state",
}


@click.command(cls=AnsweringCommand)
@click.argument("files", nargs=-1, required=True, type=click.Path(), metavar="FILE|DIR|PACKAGE...")
@click.option("--dry-run", "-n", is_flag=True, help="Only show what would change, how each change takes effect, and the hash of this plan.")
@click.option("--plan", "expected", metavar="HASH", default="", help="Apply exactly the plan that --dry-run showed; fail if it is stale.")
@accept_option
@click.option("--base", type=click.Path(path_type=Path, file_okay=False), help="Folder in which relative data paths start.")
@click.option(
    "--spread",
    type=Tiers(),
    is_flag=False,
    flag_value=AS_NODES,
    metavar="[N]",
    help="Split a flow of utilities into N tiers. Default without N: as many as nodes are up.",
)
@branches_option
@wait_running_option
@masters_option
def command(
    *,
    files: tuple[str, ...],
    dry_run: bool,
    expected: str,
    accept: Agreed,
    base: Path | None,
    spread: int | None,
    branches: str | None,
    wait: WaitOption | None,
    masters: Masters,
) -> CommandAnswer:
    """Submit flows. Each flow and its code become the next version of the flow, which then runs. An unchanged flow is not submitted again.

    A folder or a package stands for all flows in it. All flows of one command are submitted together, or none is. The folder of a flow file
    is packed, so later edits have no effect until the next `apply`. Relative data paths start in that folder (for a package: here), or in
    --base.

    With --spread each utility of a flow, or a run of utilities, becomes a tier; `node list` shows where each runs, and `node map`
    binds it to a node.

    \b
    Examples:
      scribengin apply shop/flow.yaml --wait
      scribengin apply shop --dry-run
    """
    import msgspec

    from scribengin.client.change_models import Topology

    check_options(spread, branches)
    with masters.client() as client:
        tiers = tiers_as_nodes(client.nodes()) if spread == AS_NODES else spread
        submits, packages, warnings, spreads = _packed(files, base, tiers, branches)
        wanted = Topology(tuple(submits), expected, accept.rows, accept.columns)
        if dry_run:
            plan = client.plan_topology(wanted, packages).plan
            return CommandAnswer({**_as_json(plan), **_spread_json(spreads), "applied": []}, warnings, show=lambda: _show(plan, spreads))
        done = client.apply_topology(wanted, packages)
        rows = {
            each.flow: msgspec.to_builtins(wait_for(client, each.flow, ("running",), wait, version=each.version)) for each in done.applied
        }
    flows = [{"flow": each.flow, "version": each.version, "changed": each.changed, "status": rows[each.flow]} for each in done.applied]

    def show() -> None:
        _show(done.plan, spreads)
        for each in done.applied:
            what = "submitted" if each.changed else "nothing to do: the flow already runs this as"
            click.echo(f"flow {each.flow}: {what} version {each.version}")
            if (row := rows[each.flow]) is not None:
                click.echo(f"flow {each.flow} is {row['state']}")

    single: dict[str, Any] = flows[0] if len(flows) == 1 else {}
    return CommandAnswer({**single, **_as_json(done.plan), **_spread_json(spreads), "applied": flows}, warnings, show=show)


def _packed(
    files: Sequence[str], base: Path | None, tiers: int | None, branches: str | None
) -> tuple[list[Submit], dict[str, bytes], list[Problem], list[Spread]]:
    """Returns the flows to submit, their packages by id, the warnings, and the flows that are split into tiers. Raises InputError with all
    problems of all flows in all folders."""
    import os

    from scribengin.client.models import Submit
    from scribengin.packages.make import make_package, text_name
    from scribengin.packages.package import SUFFIX
    from scribengin.packages.store import read_package

    submits: list[Submit] = []
    packages: dict[str, bytes] = {}
    told: list[Problem] = []
    spreads: list[Spread] = []
    for name in files:
        path = path if (path := Path(name)).is_dir() or path.suffix == SUFFIX else flow_path(name)
        chosen = asked = None if path.is_dir() or path.suffix == SUFFIX else path.name
        start = Path.cwd() if path.suffix == SUFFIX else path if path.is_dir() else path.parent
        try:
            if chosen is None and tiers is not None:
                what = "package" if path.suffix == SUFFIX else "folder"
                remedy = "name the flow files to spread, and apply the others without --spread"
                raise InputError([Problem("spread", Place(name), f"--spread takes flow files; this is a {what}", remedy)])
            if path.suffix == SUFFIX:
                package = read_package(path)
            else:
                texts = {}
                if chosen is not None and tiers is not None:
                    spreading, texts[chosen], warnings = _spread(path, tiers, branches)
                    spreads.append(spreading)
                    told += warnings
                    chosen = text_name(chosen)
                made = make_package(start, os.environ, texts=texts, asked=asked)
                package = made.package
                told += made.warnings
        except InputError as error:
            told += error.problems
            continue
        packages[package.id] = package.data
        packed = [flow for flow in package.manifest.flows if chosen in (None, flow.path)]
        if not packed:
            told.append(Problem("flow-missing", Place(str(path)), "this is not a flow file", "name one that has sources or sinks"))
        submits += [Submit(package.id, flow.path, str((base or start).resolve())) for flow in packed]
    told = list(dict.fromkeys(told))
    if any(problem.severity == "error" for problem in told):
        raise InputError(told)
    return submits, packages, told, spreads


def _spread(path: Path, tiers: int, branches: str | None) -> tuple[Spread, str, list[Problem]]:
    """Returns the split of the flow into tiers, the text of the resulting flow file, and the warnings. Raises InputError."""
    import os

    from scribengin.cli.spreading import spread_file
    from scribengin.plan.validate import validate_file

    flow, problems = validate_file(path, os.environ, execute=True)
    if flow is None or any(problem.severity == "error" for problem in problems):
        raise InputError(problems)
    return spread_file(flow, tiers, branches, str(path))


def _spread_json(spreads: Sequence[Spread]) -> dict[str, Any]:
    """The JSON form: flow → tier → its utilities. The tier that merges the branches has none; a flow that was not split has no tiers."""
    told = {each.flow.name: dict(each.runs) | ({each.consolidates: ()} if each.consolidates else {}) for each in spreads}
    return {"spread": {flow: {tier: list(names) for tier, names in runs.items()} for flow, runs in told.items()}} if told else {}


def _as_json(plan: TopologyPlan) -> dict[str, Any]:
    import msgspec

    order = list(_EFFECTS)
    flows = []
    for flow in plan.flows:
        effect = max((change.effect for change in flow.changes), key=order.index, default=None)
        flows.append({**msgspec.to_builtins(flow), "effect": effect})
    return {"hash": plan.hash, "flows": flows}


def _show(plan: TopologyPlan, spreads: Sequence[Spread]) -> None:
    for each in spreads:
        for line in each.lines():
            click.echo(f"flow {each.flow.name}, {line}")
    for flow in plan.flows:
        for change in flow.changes:
            of_all = f"flow {flow.flow} {change.says}"  # a change of the whole flow: it is new, or is to run again
            click.echo(of_all if change.what == "flow" else f"flow {flow.flow}, {change.what}: {change.says} ({_EFFECTS[change.effect]})")
    click.echo(f"plan {plan.hash}")
