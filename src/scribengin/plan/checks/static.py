"""Rules on static sources: tables that are read whole beside a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.plan.checks.subject import Subject, called, path_of
from scribengin.plan.graph import base
from scribengin.spec.model import Join, Merge

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scribengin.core.problems import Problem


def static_is_supported(subject: Subject) -> Iterator[Problem]:
    """`static: true` needs a source that can be read whole."""
    for source in subject.flow.sources.values():
        declared = subject.source_types.get(source.type)
        if source.static and declared is not None and "static" not in declared.abilities:
            message = f"{called(source)} is static, which a source of type {source.type} does not support"
            yield subject.problem("static-unsupported", path_of(source, "static"), message, "take `static` out")


def static_stands_beside_a_stream(subject: Subject) -> Iterator[Problem]:
    """A static side is the right side of a join, or a table of a sql step that reads a stream too."""
    static = subject.resolved.static
    for sink in subject.flow.sinks.values():
        for index, reference in enumerate(sink.inputs):
            if base(reference) in static:
                message = f'{called(sink)} reads "{reference}", which no stream feeds, so there would be no Batch'
                remedy = f"take `static: true` out of {_static_source(subject, reference)}, or join it to a stream"
                yield subject.problem("static-alone", path_of(sink, "from", index), message, remedy)
    for step in subject.flow.steps.values():
        still = [base(reference) in static for reference in step.inputs]
        if all(still) or not any(still):
            continue
        match step.action:
            case Join(how=how) if len(still) == 2:
                if still[0]:
                    message = f'{called(step)} has the static side "{step.inputs[0]}" on its left'
                    yield subject.problem(
                        "static-left", path_of(step, "from"), message, f"write from: [{step.inputs[1]}, {step.inputs[0]}]"
                    )
                elif how in ("right", "full"):
                    message = f"{called(step)} is a {how} join with a static right side: Spark cannot know that a row will never match"
                    yield subject.problem("static-how", path_of(step, "join", "how"), message, "use inner, left or semi")
            case Merge():
                index = still.index(True)
                message = f'{called(step)} merges a stream with "{step.inputs[index]}", which is static'
                remedy = f"take `static: true` out of {_static_source(subject, step.inputs[index])}: its rows are then read once"
                yield subject.problem("static-merged", path_of(step, "from", index), message, remedy)
            case _:
                pass


def _static_source(subject: Subject, reference: str) -> str:
    above = subject.graph.upstream([base(reference)])
    return ", ".join(f'source "{id_}"' for id_ in subject.flow.sources if id_ in above and subject.flow.sources[id_].static)
