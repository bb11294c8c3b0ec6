"""Rules on inputs: which node reads which."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.core.problems import did_you_mean, suggestion
from scribengin.plan.checks.subject import Subject, called, path_of
from scribengin.plan.graph import base, branches, inputs_of
from scribengin.spec.model import Join, Merge, Route, Sink, Source, Sql, Step

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scribengin.core.problems import Problem


def no_cycle(subject: Subject) -> Iterator[Problem]:
    """Report cycles: a node that reads its own output would never end."""
    for cycle in subject.graph.cycles:
        shown = " -> ".join((*cycle, cycle[0]))
        node = subject.graph.nodes[cycle[0]]
        unread = [id_ for id_, readers in subject.graph.readers.items() if not readers and id_ not in (*subject.flow.sinks, *cycle)]
        remedy = f"change the `from:` of one of them{f', such as to {unread[0]}, which is not used' if unread else ''}"
        yield subject.problem("cycle", path_of(node, "from"), f"circular dependency: {shown}", remedy)


def inputs_are_there(subject: Subject) -> Iterator[Problem]:
    """Every `from:` names a source, a step or a branch."""
    for node in subject.graph.nodes.values():
        for index, reference in enumerate(inputs_of(node)):
            found = _wrong_reference(subject, node, reference)
            if found is not None:
                code, message, remedy = found
                yield subject.problem(code, path_of(node, "from", index), f"{called(node)} {message}", remedy)


def _wrong_reference(subject: Subject, node: Source | Step | Sink, reference: str) -> tuple[str, str, str] | None:
    target = subject.graph.nodes.get(base(reference))
    if target is None and (base(reference) in subject.broken or not subject.knows_nodes):
        return None
    if target is None:
        known = [*subject.flow.sources, *subject.flow.steps]
        near = suggestion(reference, [id_ for id_ in known if id_ != node.id], "there are") or "declare it under sources or steps"
        return "input-unknown", f'reads "{reference}", which is not defined', near
    if isinstance(target, Sink):
        fed = " and ".join(target.inputs)
        return "input-is-sink", f'reads "{reference}", which is a sink; sinks have no output', f"read its input: {fed}"
    names = branches(target)
    _, dot, branch = reference.partition(".")
    if dot and branch not in names:
        remedy = did_you_mean(branch, names) or (f"its branches are {', '.join(names)}" if names else f'read "{target.id}"')
        has = f'{called(target)} has no branch "{branch}"' if names else f"{called(target)} has no branches"
        return "branch-unknown", f'reads "{reference}", but {has}', remedy
    if not dot and isinstance(target, Step) and isinstance(target.action, Route):
        shown = ", ".join(f"{target.id}.{name}" for name in names)
        return "branch-missing", f'reads "{reference}", a route, without a branch', f"read one of {shown}"
    return None


def inputs_are_counted(subject: Subject) -> Iterator[Problem]:
    """A join reads two inputs, a merge two or more, sql and sinks one or more, the others one; none reads the same one twice."""
    for node in subject.graph.reading:
        count = len(node.inputs)
        twice = next((reference for index, reference in enumerate(node.inputs) if reference in node.inputs[:index]), None)
        if twice is not None:
            index = len(node.inputs) - 1 - node.inputs[::-1].index(twice)
            message = f'{called(node)} reads "{twice}" twice: each of its records would be duplicated'
            yield subject.problem("twice", path_of(node, "from", index), message, "name it once")
            continue
        if isinstance(node, Sink):
            continue
        match node.action:
            case Join() if count != 2:
                message = f"{called(node)} joins {count} input{'s' * (count != 1)}; a join needs two"
                yield subject.problem(
                    "inputs-count", path_of(node, "from"), message, "write two ids under `from`; to join more, use several steps"
                )
            case Merge() if count < 2:
                yield subject.problem(
                    "inputs-count",
                    path_of(node, "from"),
                    f"{called(node)} merges one input; a merge needs two or more",
                    f"add a second input: from: [{node.inputs[0]}, ID]",
                )
            case Merge(how="intersect") if count != 2:
                message = f"{called(node)} intersects {count} inputs; an intersection needs two"
                yield subject.problem("inputs-count", path_of(node, "from"), message, "to intersect more, use several steps")
            case Join() | Merge() | Sql():
                pass
            case _ if count != 1:
                kind = type(node.action).__name__.lower()
                remedy = f"merge them first: a step with only from: [{', '.join(node.inputs)}] is their union"
                yield subject.problem("inputs-count", path_of(node, "from"), f"{called(node)} is a {kind} with {count} inputs", remedy)


def everything_is_read(subject: Subject) -> Iterator[Problem]:
    """A step without a reader is an error; a source or a branch without a reader is a warning."""
    graph = subject.graph
    if any(id_ not in subject.flow.sources for id_ in subject.broken) or subject.unread & {"steps", "sinks"} or graph.cycles:
        return  # a node that could not be read may read anything, and so may a node of a cycle
    if not subject.flow.sinks:
        message = "the flow has no sink, so it would not process anything"
        yield subject.problem("missing-key", ("sinks",), message, "add one under sinks:")
        return
    meant = _meant(subject)
    for source in subject.flow.sources.values():
        if not graph.readers[source.id] and source.id not in meant:
            yield subject.problem_at_key("source-unread", path_of(source), f"{called(source)} is not used", severity="warning")
    for step in subject.flow.steps.values():
        if step.id in meant:
            continue
        if not graph.readers[step.id]:
            remedy = "read it in a sink or a step, or take it out"
            yield subject.problem_at_key("step-unread", path_of(step), f"{called(step)} is not used", remedy)
            continue
        for branch in branches(step):
            if f"{step.id}.{branch}" not in graph.references:
                message = f'branch "{step.id}.{branch}" is not used: its records are filtered out'
                yield subject.problem_at_key("branch-unread", _branch_path(step, branch), message, severity="warning")


def _meant(subject: Subject) -> set[str]:
    """The nodes that unknown inputs probably refer to: they count as used."""
    known = [*subject.flow.sources, *subject.flow.steps]
    unknown = {base(reference) for reference in subject.graph.references} - subject.graph.nodes.keys()
    return {id_ for reference in unknown for id_ in known if f'"{id_}"' in did_you_mean(reference, known)}


def _branch_path(step: Step, branch: str) -> tuple[str | int, ...]:
    if not isinstance(step.action, Route):
        return path_of(step, "branches")
    return path_of(step, "route", "otherwise" if branch == step.action.otherwise else branch)
