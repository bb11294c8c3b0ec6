"""From the reports of a Batch's stages to the counts of its nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scribengin.spark.program import DIED_IN, EXIT, LATE
from scribengin.state.contract import Counts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scribengin.spark.compiled import Compiled


def gather_counts(compiled: Compiled, *reports: Iterable[dict[str, Any]]) -> dict[str, Counts]:
    """Node → counts. A run of native steps is one node (`known+hot`): in is what entered it, out what the next stage took in."""
    counts: dict[str, Counts] = {}
    for each in reports:
        for report in each:
            for node, data in report["counts"].items():
                counts.setdefault(node, Counts()).add(Counts.from_json(data))
    for run in compiled.runs:
        node = counts.setdefault(run.name, Counts())
        died = sum(counts[key].dead for step in run.name.split("+") if (key := DIED_IN + step) in counts)
        gate = Counts()
        for step in run.name.split("+"):
            gate.add(counts.get(LATE + step, Counts()))
        if run.name + EXIT in run.fed_by:  # `parse: spark`: a source and its native part are one node
            node.out -= counts[run.name + EXIT].out if run.name + EXIT in counts else 0
            node.dead += gate.dead
            node.filtered = node.rows_in - node.out - node.dead
            continue
        node.rows_in += sum(counts[exit_].out for exit_ in run.fed_by if exit_ in counts) + died - gate.late
        node.dead += died + gate.dead
        node.late += gate.late
        if not run.stateful:
            surplus = node.out + node.dead - node.rows_in
            node.made, node.filtered = max(0, surplus), max(0, -surplus)
    return {node: count for node, count in counts.items() if not node.endswith(EXIT) and not node.startswith((DIED_IN, LATE))}
