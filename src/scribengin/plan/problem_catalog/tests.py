"""Tests of a flow."""

from __future__ import annotations

from scribengin.spec.problem_entry import ProblemEntry


def _tests(text: str) -> str:
    return f"tests:\n  - {text}"


CATALOG: tuple[ProblemEntry, ...] = (
    ProblemEntry(
        "test-node-unknown",
        "A test of a node that is not there",
        "`given` names sources, `expect` sinks, and `expect: {dead: …}` sources and steps.",
        "Write the id that is meant.",
        _tests("{name: large ones stay, given: {order: []}, expect: {kept: []}}"),
        slot="top",
        fix=("{order: []}", "{orders: []}"),
    ),
    ProblemEntry(
        "test-column-unknown",
        "A test with a column that is not there",
        "A row of a test names a column that its source, or its sink, does not have.",
        "Write the column that is meant.",
        _tests("{name: large ones stay, given: {orders: [{id: 1, amout: 200}]}, expect: {kept: []}}"),
        slot="top",
        fix=("amout", "amount"),
    ),
    ProblemEntry(
        "test-value",
        "A value of a test that does not fit its column",
        "Rows of tests have the types of the flow. What a bad record does shows one that is given as a text, which is taken as it is.",
        "Write a value of the column's type.",
        _tests("{name: large ones stay, given: {orders: [{id: one, amount: 200}]}, expect: {kept: []}}"),
        slot="top",
        fix=("id: one", "id: 1"),
    ),
    ProblemEntry(
        "test-batch",
        "A test that names a Batch which is not given",
        "`clock`, `crash_after` and `changed` speak of the Batches that `given` has, counted from 1.",
        "Give as many Batches as there are lists under `batches`, or name one of those.",
        _tests("{name: large ones stay, given: {orders: [{id: 1}]}, expect: {kept: []}, crash_after: batch 2}"),
        slot="top",
        fix=("batch 2", "batch 1"),
    ),
    ProblemEntry(
        "test-twice",
        "Two tests of one name",
        "Names tell tests apart, in reports and for `-k`.",
        "Give each a name of its own.",
        _tests("{name: large ones stay, expect: {}}\n  - {name: large ones stay, expect: {}}"),
        slot="top",
        fix=("large ones stay", "small ones go"),
    ),
    ProblemEntry(
        "test-file",
        "A file of a test that cannot be read",
        "`tests` names a file that is not there, or one that cannot be read; so may a test, under `files`.",
        "Mind the path: it starts at the flow file's folder.",
        "",
    ),
)
