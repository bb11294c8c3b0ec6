"""The process that plans one flow of a package, started by `api.planning`: a person's modules are executed here, and not in a master.

stdin: a `Task` as JSON. stdout: a `Planned` as JSON. Whatever the person's code prints goes to stderr.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from scribengin.api.child import serve_one
from scribengin.client.problems import Fault, ProblemDetails, to_problem
from scribengin.control.submission import Submission, submission_of
from scribengin.core.errors import Refused, ScribenginError


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

    submission: Submission | None = None
    warnings: tuple[Fault, ...] = ()
    problem: ProblemDetails | None = None


def plan(task: Task) -> Planned:
    """Check and plan it."""
    from scribengin.local.prepare import prepare
    from scribengin.packages.store import PackageStore

    store = PackageStore(Path(task.packages))
    try:
        flows = {flow.path: flow.name for flow in store.read(task.package).manifest.flows}
        if task.path not in flows:
            have = ", ".join(sorted(flows))
            raise Refused(f'the package has no flow file "{task.path}"', remedy=f"it has {have}", code="flow-path")
        prepared = prepare(store.get(task.package) / task.path, state=Path(task.state), base=Path(task.base))
    except ScribenginError as error:
        return Planned(problem=to_problem(error))
    return Planned(submission_of(prepared.plan, task.package, task.path, task.base), to_faults(prepared.warnings))


def to_faults(problems: object) -> tuple[Fault, ...]:
    """Warnings as the API tells them."""
    from scribengin.core.errors import InputError

    return to_problem(InputError(problems)).problems if problems else ()  # type: ignore[arg-type]


if __name__ == "__main__":
    serve_one(Task, plan)
