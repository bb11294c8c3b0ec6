"""Tests of a flow."""

from __future__ import annotations

from scribengin.spec.problem_entry import ProblemEntry


def _tests(text: str) -> str:
    return f"tests:\n  - {text}"


CATALOG: tuple[ProblemEntry, ...] = (
    ProblemEntry(
        "test-node-unknown",
        "A test of an unknown node",
        "`given` names sources, `expect` sinks, and `expect: {dead: …}` sources and steps.",
        "Write the correct id.",
        _tests("{name: large ones stay, given: {order: []}, expect: {kept: []}}"),
        slot="top",
        fix=("{order: []}", "{orders: []}"),
    ),
    ProblemEntry(
        "test-column-unknown",
        "A test with an unknown column",
        "A row of a test names a column that its source or sink does not have.",
        "Write the correct column.",
        _tests("{name: large ones stay, given: {orders: [{id: 1, amout: 200}]}, expect: {kept: []}}"),
        slot="top",
        fix=("amout", "amount"),
    ),
    ProblemEntry(
        "test-value",
        "A value of a test that does not fit its column",
        "Rows of tests have the types of the flow. To test a bad record, write it as a text, which is read unchanged.",
        "Write a value of the column's type.",
        _tests("{name: large ones stay, given: {orders: [{id: one, amount: 200}]}, expect: {kept: []}}"),
        slot="top",
        fix=("id: one", "id: 1"),
    ),
    ProblemEntry(
        "test-batch",
        "A test that names a Batch that does not exist",
        "`clock`, `crash_after` and `changed` refer to the Batches in `given`, counted from 1.",
        "Add lists under `batches`, one for each Batch, or use the number of an existing Batch.",
        _tests("{name: large ones stay, given: {orders: [{id: 1}]}, expect: {kept: []}, crash_after: batch 2}"),
        slot="top",
        fix=("batch 2", "batch 1"),
    ),
    ProblemEntry(
        "test-twice",
        "Two tests of one name",
        "Names identify tests, in reports and for `-k`.",
        "Give each test its own name.",
        _tests("{name: large ones stay, expect: {}}\n  - {name: large ones stay, expect: {}}"),
        slot="top",
        fix=("large ones stay", "small ones go"),
    ),
    ProblemEntry(
        "test-file",
        "A file of a test that cannot be read",
        "`tests`, or `files` of a test, names a file that does not exist or cannot be read.",
        "Check the path: it is relative to the flow file's folder.",
        "",
    ),
)
