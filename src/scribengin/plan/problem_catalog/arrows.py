"""Inputs of nodes, and folders."""

from __future__ import annotations

from scribengin.spec.problem_entry import ORDERS, ProblemEntry

CATALOG: tuple[ProblemEntry, ...] = (
    ProblemEntry(
        "cycle",
        "A circular dependency",
        "A step reads its own output, directly or through other steps; such a flow would never end.",
        "Change the `from:` of one of them.",
        ORDERS + "steps:\n  a: {from: b, filter: id > 1}\n  b: {from: a, filter: id > 2}\nsinks:\n  kept: {from: b, type: console}\n",
        slot="file",
        fix=("{from: b, filter: id > 1}", "{from: orders, filter: id > 1}"),
    ),
    ProblemEntry(
        "input-unknown",
        "An input that is not defined",
        "`from:` names a node that the flow does not have.",
        "Write the id of a source or a step; ids are exact.",
        "big: {from: orderz, filter: id > 1}",
        fix=("orderz", "orders"),
    ),
    ProblemEntry(
        "input-is-sink",
        "A sink is used as an input",
        "A sink has no output in the flow.",
        "Read the input of the sink.",
        ORDERS + "sinks:\n  raw: {from: orders, type: console}\n  kept: {from: raw, type: console}\n",
        slot="file",
        fix=("from: raw", "from: orders"),
    ),
    ProblemEntry(
        "branch-missing",
        "A route is read without a branch",
        "A route has only branches; it has no output of its own.",
        "Read `step.branch`.",
        ORDERS + "steps:\n"
        "  r: {from: orders, route: {big: id > 1, small: id <= 1}}\n"
        "  a: {from: r, filter: id > 5}\n"
        "sinks:\n"
        "  kept: {from: a, type: console}\n",
        slot="file",
        fix=("{from: r, filter: id > 5}\nsinks:\n  kept: {from: a,", "{from: r.big, filter: id > 5}\nsinks:\n  kept: {from: [a, r.small],"),
    ),
    ProblemEntry(
        "branch-unknown",
        "A branch that does not exist",
        "The step has no branch of that name.",
        "Write one of the step's branches.",
        ORDERS + "steps:\n"
        "  r: {from: orders, route: {big: id > 1, small: id <= 1}}\n"
        "  a: {from: r.bigg, filter: id > 5}\n"
        "sinks:\n"
        "  kept: {from: a, type: console}\n",
        slot="file",
        fix=("r.bigg, filter: id > 5}\nsinks:\n  kept: {from: a,", "r.big, filter: id > 5}\nsinks:\n  kept: {from: [a, r.small],"),
    ),
    ProblemEntry(
        "branch-unread",
        "A branch that is not used",
        "Its records are counted as filtered and are dropped.",
        "Read the branch in a step or a sink, or ignore the warning.",
        ORDERS + "steps:\n  r: {from: orders, route: {big: id > 1, small: id <= 1}}\nsinks:\n  kept: {from: r.big, type: console}\n",
        slot="file",
        severity="warning",
        fix=("from: r.big", "from: [r.big, r.small]"),
    ),
    ProblemEntry(
        "step-unread",
        "A step that is not used",
        "No sink needs the step, so it would not run.",
        "Read it in a step or a sink, or take it out.",
        ORDERS + "steps:\n  a: {from: orders, filter: id > 1}\nsinks:\n  kept: {from: orders, type: console}\n",
        slot="file",
        fix=("kept: {from: orders", "kept: {from: a"),
    ),
    ProblemEntry(
        "source-unread",
        "A source that is not used",
        "No step or sink reads the source, so it is not opened.",
        "Read it in a step or a sink, or take it out.",
        ORDERS + "  n: {type: sequence}\nsinks:\n  kept: {from: orders, type: console}\n",
        slot="file",
        severity="warning",
        fix=("  n: {type: sequence}\n", ""),
    ),
    ProblemEntry(
        "folder-two-writers",
        "Two sinks write one folder",
        "A reader of the folder could not tell the two apart. The same is true if one folder is inside the other.",
        "Give each its own folder, or let one sink read both: `from: [a, b]`.",
        ORDERS + "sinks:\n"
        "  a: {from: orders, type: files, path: out, format: json}\n"
        "  b: {from: orders, type: files, path: out/b, format: json}\n",
        slot="file",
        fix=("path: out/b", "path: out_b"),
    ),
    ProblemEntry(
        "folder-read-and-written",
        "A sink writes where a source reads",
        "The flow would read its own output as input.",
        "Write to a folder beside it.",
        "kept: {from: orders, type: files, path: data/out, format: json}",
        slot="sink",
        fix=("data/out", "out"),
    ),
)
