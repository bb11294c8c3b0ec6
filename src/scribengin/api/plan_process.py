"""The process that plans one flow of a package, started by `api.planning`: a person's modules are executed here, and not in a master.

stdin: a `Task` as JSON. stdout: a `Planned` as JSON. Whatever the person's code prints goes to stderr.
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  msgspec looks at it
from dataclasses import dataclass, field
from pathlib import Path

from scribengin.api.child import serve_one
from scribengin.client.problems import Fault, ProblemDetails, to_problem
from scribengin.core.errors import Refused, ScribenginError
from scribengin.registry.kinds import TierSpec  # noqa: TC001  msgspec looks at it
from scribengin.registry.outside import Outside
from scribengin.registry.watched import Watched


@dataclass(frozen=True, slots=True)
class Task:
    """What to plan: a flow of a package in the store `packages`. `state`: the root folder of states. It has `limit_s` for it."""

    packages: str
    package: str
    path: str
    base: str
    state: str
    limit_s: int


@dataclass(frozen=True, slots=True)
class Planned:
    """What came of it; `problem` where it has not come to a plan. `warnings` stand in the flow file."""

    flow: str = ""
    tiers: Mapping[str, TierSpec] = field(default_factory=dict)
    warnings: tuple[Fault, ...] = ()
    problem: ProblemDetails | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    watched: Watched = field(default_factory=Watched)
    """what it says of delay and alerts"""
    outside: Outside = field(default_factory=Outside)
    """where it reads and writes"""


def plan(task: Task) -> Planned:
    """Check and plan it."""
    from scribengin.control.submission import tiers_of, watched_of
    from scribengin.local.prepare import prepare
    from scribengin.packages.store import PackageStore
    from scribengin.plan.meetings import outside_of

    store = PackageStore(Path(task.packages))
    try:
        flows = {flow.path: flow.name for flow in store.read(task.package).manifest.flows}
        if task.path not in flows:
            have = ", ".join(sorted(flows))
            raise Refused(f'the package has no flow file "{task.path}"', remedy=f"it has {have}", code="flow-path")
        prepared = prepare(store.get(task.package) / task.path, state=Path(task.state), base=Path(task.base))
    except ScribenginError as error:
        return Planned(problem=to_problem(error))
    warnings = to_faults(prepared.warnings)
    flow = prepared.plan.flow
    more = {"labels": flow.labels, "watched": watched_of(flow), "outside": outside_of(flow)}
    return Planned(prepared.name, tiers_of(prepared.plan), warnings, **more)  # type: ignore[arg-type]


def to_faults(problems: object) -> tuple[Fault, ...]:
    """Warnings as the API tells them."""
    from scribengin.core.errors import InputError

    return to_problem(InputError(problems)).problems if problems else ()  # type: ignore[arg-type]


if __name__ == "__main__":
    serve_one(Task, plan)
