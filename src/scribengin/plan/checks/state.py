"""Rules on the inputs and outputs of Queries that keep state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.plan.checks.subject import Subject, called, path_of
from scribengin.plan.graph import base, query_sinks
from scribengin.plan.stages import place_nodes
from scribengin.spec.model import Merge

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scribengin.core.problems import Problem


def unions_have_every_watermark(subject: Subject) -> Iterator[Problem]:
    """Before a step with state, the slowest watermark of all inputs applies; an input without a watermark is an error."""
    marks = subject.resolved.watermarks
    for step in subject.flow.steps.values():
        if not isinstance(step.action, Merge) or step.action.how != "union" or step.watermark is not None:
            continue
        bare = [reference for reference in step.inputs if base(reference) in marks and not marks[base(reference)]]
        below = subject.graph.downstream([step.id]) & subject.resolved.stateful
        inherited = [mark for reference in step.inputs for mark in marks.get(base(reference), ())]
        if not below or not bare or not inherited:
            continue
        names = " and ".join(f'"{id_}"' for id_ in subject.graph.order if id_ in below)
        index = step.inputs.index(bare[0])
        message = f'{called(step)} merges "{bare[0]}", which has no watermark, with inputs that have one, and {names} after it keeps state'
        remedy = (
            f"add to {bare[0]}: watermark: {inherited[0].column} 10m; or set a watermark on the union, which then follows the fastest input"
        )
        yield subject.problem("watermark-partly", path_of(step, "from", index), message, remedy)


def state_is_left_on_one_way(subject: Subject) -> Iterator[Problem]:
    """Spark keeps the state of one stream: all sinks of a Query with state read the same step."""
    forms = {id_: info.form for id_, info in subject.functions.items()}
    for name, sinks in query_sinks(subject.flow).items():
        members = subject.graph.upstream(sink.id for sink in sinks)
        stateful = [id_ for id_ in subject.graph.order if id_ in members and id_ in subject.resolved.stateful]
        if not stateful or subject.graph.cycles or members & subject.shaken:
            continue
        nodes = subject.graph.nodes
        stages = place_nodes(subject.graph, tuple(id_ for id_ in subject.graph.order if id_ in members), forms, stateful=True)
        inside = [id_ for id_, stage in stages.items() if stage in ("tail", "sink")]
        ways = {ref for id_ in inside for ref in getattr(nodes[id_], "inputs", ()) if stages.get(base(ref)) not in ("tail", None)}
        if len(ways) > 1:
            shown = " and ".join(f'"{ref}"' for ref in sorted(ways))
            message = f'query {name}: step "{stateful[0]}" keeps state, but its sinks have different inputs: {shown}'
            key, remedy = "from", f'give each input its own sink, or merge them in a step before sink "{sinks[0].id}"'
            if sinks[0].together is not None:
                key, remedy = "together", "take `together` out"
            yield subject.problem("state-several-ways", path_of(sinks[0], key), message, remedy)
