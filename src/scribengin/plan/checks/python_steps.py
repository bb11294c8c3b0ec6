"""Rules on python steps: the function is there, can be called, and uses only what its form allows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.core.problems import Problem, did_you_mean
from scribengin.plan.checks.subject import Subject, called, path_of
from scribengin.plan.graph import branches
from scribengin.spec.model import Step, Utilities

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scribengin.plan.python_functions import FunctionInfo
    from scribengin.spec.places import Path


# Rules on utilities: each exists and returns records; those that can be reordered are tests.


def utility_functions_are_there(subject: Subject) -> Iterator[Problem]:
    """Like `functions_are_there`, for each item of a list of utilities."""
    told: set[Problem] = set()
    for step, path, reference, info in _each(subject):
        for fault in info.problems:
            place = fault.place or subject.places.value(path)
            message = fault.message if fault.place else f'{called(step)}, utility "{reference}": {fault.message}'
            problem = Problem(fault.code, place, message, fault.remedy)
            if problem not in told:
                told.add(problem)
                yield problem


def utilities_give_records(subject: Subject) -> Iterator[Problem]:
    """No utility is a `@frame` function, none sends records to a branch."""
    for step, path, reference, info in _each(subject):
        if info.form == "frame":
            message = f'{called(step)}: utility "{reference}" ({_at(info)}) is a @frame function, which runs only in Spark'
            yield subject.problem("utility-form", path, message, "move it to a python step of its own, or make it @batch")
        elif info.branches and info.file is not None:
            branch, line = info.branches[0]
            message = (
                f'{called(step)}: utility "{reference}" sends records to "{branch}" ({info.file.name}:{line}); utilities '
                "cannot have branches"
            )
            yield subject.problem("utility-form", path, message, "move it to a python step of its own, with branches")


def free_ones_only_test(subject: Subject) -> Iterator[Problem]:
    """With `order: free` each utility is a record function that is annotated `-> bool` and leaves its record as it is."""
    for step, path, reference, info in _each(subject):
        assert isinstance(step.action, Utilities)
        if step.action.order != "free" or info.problems or info.form == "frame":
            continue
        if info.form == "batch":
            message = f'{called(step)}: utility "{reference}" ({_at(info)}) takes whole batches; `order: free` allows only record functions'
            yield subject.problem("utility-not-bool", path, message, "make it a record function annotated -> bool, or write order: fixed")
        elif info.tests is False:
            message = f'{called(step)}: utility "{reference}" ({_at(info)}) is not annotated -> bool; `order: free` allows only tests'
            remedy = "annotate it -> bool if it only decides whether to keep a record, or write order: fixed"
            yield subject.problem("utility-not-bool", path, message, remedy)
        elif info.changes and info.file is not None:
            message = (
                f'{called(step)}: utility "{reference}" changes its record ({info.file.name}:{info.changes[0]}); with `order: '
                "free` it may only read it"
            )
            yield subject.problem("utility-changes-record", path, message, "remove the change, or write order: fixed")


def _each(subject: Subject) -> Iterator[tuple[Step, Path, str, FunctionInfo]]:
    for id_, infos in subject.utilities.items():
        step = subject.flow.steps[id_]
        assert isinstance(step.action, Utilities)
        for index, (reference, info) in enumerate(zip(step.action.references, infos, strict=True)):
            yield step, ("steps", id_, "utilities", index), reference, info


def _at(info: FunctionInfo) -> str:
    return "its module" if info.file is None else f"{info.file.name}:{info.line}"


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
