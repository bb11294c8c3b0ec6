"""Rules on python steps: the function is there, can be called, and uses only what its form allows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.core.problems import Problem, did_you_mean
from scribengin.plan.checks.subject import Subject, called, path_of
from scribengin.plan.graph import branches

if TYPE_CHECKING:
    from collections.abc import Iterator


def functions_are_there(subject: Subject) -> Iterator[Problem]:
    """The module can be read and has a function that takes one row (or batch, or frame)."""
    told: set[Problem] = set()
    for id_, info in subject.functions.items():
        step = subject.flow.steps[id_]
        for fault in info.problems:
            place = fault.place or subject.places.value(path_of(step, "python"))
            message = fault.message if fault.place else f"{called(step)}: {fault.message}"
            problem = Problem(fault.code, place, message, fault.remedy)
            if problem not in told:  # one broken module, many steps
                told.add(problem)
                yield problem


def branches_are_declared(subject: Subject) -> Iterator[Problem]:
    """`to("branch", row)` names a branch that the step declares."""
    for id_, info in subject.functions.items():
        step = subject.flow.steps[id_]
        names = branches(step)
        for branch, line in dict(info.branches).items():
            if branch not in names and info.file is not None:
                near = did_you_mean(branch, names)
                remedy = near or f"declare it: branches: [{', '.join((*names, branch))}]"
                message = f'{called(step)} sends records to "{branch}" ({info.file.name}:{line}), a branch that it does not declare'
                yield subject.problem("python-branch-unknown", path_of(step, "python"), message, remedy)


def frames_fail_whole(subject: Subject) -> Iterator[Problem]:
    """A frame function cannot make dead letters of single records, so it needs `on_error: fail`."""
    for id_, info in subject.functions.items():
        step = subject.flow.steps[id_]
        if info.form != "frame":
            continue
        if step.on_error not in (None, "fail"):
            message = f"{called(step)} is a @frame function and cannot {_meant(step.on_error)}"
            yield subject.problem("frame-on-error", path_of(step, "on_error"), message, "write on_error: fail, or make it @batch")
        if branches(step):
            message = f"{called(step)} is a @frame function and has branches"
            yield subject.problem("frame-branches", path_of(step, "branches"), message, "use a route after it, or make it @record")


def _meant(on_error: str) -> str:
    return "keep dead letters" if on_error == "dead_letter" else "drop single records"
