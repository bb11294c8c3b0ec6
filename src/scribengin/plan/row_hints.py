"""Hints on rows that Spark drops by its own rules: nothing to explode, a null in a comparison of two rows.

The ledger counts them, but they do not become dead letters, and the text of the step does not show that they are dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from scribengin.plan.columns import find
from scribengin.plan.describe import listed, span
from scribengin.plan.graph import base
from scribengin.plan.sql.dropped_rows import Exploded, exploded, inner_joins, merged_sets
from scribengin.plan.sql.parse import parse_expression, parse_query
from scribengin.spec.model import Dedupe, Join, Merge, Select, Sql, Step

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scribengin.plan.graph import Graph
    from scribengin.plan.resolve import Resolved
    from scribengin.spec.model import Flow


# Hints on rows that are too late for their folder by event time. Separate from `dropped_rows`, because the ledger counts these rows.


def late_notes(flow: Flow) -> Iterator[str]:
    """One sentence for each sink that closes its folders by time."""
    for sink in flow.sinks.values():
        close = sink.options.get("close")
        if isinstance(close, Mapping) and "delay" in close:  # an option of another connector may have the same name
            closed = f'"{sink.id}" closes a folder by time when rows {span(close["delay"])} newer than its end have arrived'
            if close.get("late", "dead") == "dead":
                yield f"{closed}; later rows for it are dead letters (late)"
            else:
                yield f"{closed}; later rows for it remove its completion marker until it is closed again"


_DROPS = {"inner": (0, 1), "semi": (0,), "left": (1,), "right": (0,), "full": ()}
"""join type → the inputs whose rows are dropped without a match"""
_KEEPS = {"inner": "how: left", "right": "how: full"}
"""join type → the type that keeps rows of the first input without a match"""


def drop_notes(graph: Graph, resolved: Resolved) -> Iterator[str]:
    """One sentence for each step over streams that may drop rows."""
    for id_ in graph.order:
        step = graph.nodes[id_]
        if not isinstance(step, Step) or not resolved.streams(step):
            continue
        match step.action:
            case Select(columns):
                for _, expression in columns:
                    for each in exploded(parse_expression(expression).tree):
                        yield f"{_no_row(id_, each)}. The ledger counts such rows as filtered"
            case Sql(text):
                yield from _of_query(id_, text)
            case Join(key=key, how=how):
                meets = [step.inputs[at] for at in _DROPS[how]]
                yield from _unmet(step, resolved, meets, key, _KEEPS.get(how, ""))
            case Merge(how="intersect", key=key):
                yield from _unmet(step, resolved, step.inputs[:1], key, "")
            case Dedupe(key=key):
                if names := _nullable(resolved, step.inputs[0], key):
                    note = f'"{id_}": null counts as a value in {listed(names)}: of the rows with null there'
                    yield (
                        f"{note}{' and are equal in the rest of the key' * (len(key) > 1)} one is kept, the ledger counts the "
                        "others as folded"
                    )


def _of_query(id_: str, text: str) -> Iterator[str]:
    tree = parse_query(text).tree
    for each in exploded(tree):
        yield f"{_no_row(id_, each)}. The ledger sets such rows off against the rows that the query makes"
    for columns in inner_joins(tree):
        yield (
            f'"{id_}": JOIN drops rows for which its condition is null, such as rows with a null in {listed(columns)}. '
            "They do not become dead letters; a `join` step with `time` makes dead letters of rows without a time"
        )
    for word in merged_sets(tree):
        yield f'"{id_}": {word} outputs equal rows once, however often they come in'


def _no_row(id_: str, each: Exploded) -> str:
    return f'"{id_}": {each.call} drops a row in which {each.argument} is null or empty; {each.keeping} keeps it'


def _unmet(step: Step, resolved: Resolved, inputs: Sequence[str], key: tuple[str, ...], keeping: str) -> Iterator[str]:
    """For inputs of a join that are streams: a null key does not match, not even another null."""
    for input_ in inputs:
        if base(input_) in resolved.static or not (names := _nullable(resolved, input_, key)):
            continue
        kept = f"; {keeping} keeps them" if keeping and input_ == step.inputs[0] else ""
        yield f'"{step.id}": rows of {input_} with null in {listed(names)} match no row and are dropped, like rows without a match{kept}'


def _nullable(resolved: Resolved, reference: str, key: tuple[str, ...]) -> list[str]:
    """The columns of a key that may be null, as far as known."""
    columns = resolved.of(reference) or ()
    return [name for name in key if (column := find(columns, name)) is None or column.nullable]
