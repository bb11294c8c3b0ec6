"""Python steps."""

from __future__ import annotations

from scribengin.spec.problem_entry import ORDERS, ProblemEntry

CATALOG: tuple[ProblemEntry, ...] = (
    ProblemEntry(
        "python-module-missing",
        "A module that does not exist",
        "Modules are searched in the flow file's folder, then on the Python path; never in the working directory.",
        "Put the file beside the flow file, or install the package.",
        'big: {from: orders, python: "stepz:one"}',
        fix=("stepz:one", "steps:one"),
    ),
    ProblemEntry(
        "python-name-missing",
        "A function that does not exist",
        "The module does not define that name.",
        "Write one of the names that the module defines.",
        'big: {from: orders, python: "steps:onee"}',
        fix=("onee", "one"),
    ),
    ProblemEntry(
        "python-not-callable",
        "Not a function",
        "The name is a value, a module, an async function or a class without `__call__`.",
        "Name a plain function, or a class with `__call__`.",
        'big: {from: orders, python: "steps:value"}',
        fix=("steps:value", "steps:one"),
    ),
    ProblemEntry(
        "python-signature",
        "A function with the wrong parameters",
        "A step's function takes one argument: a dict, with `@batch` a RecordBatch, with `@frame` a DataFrame. A class is created without"
        " arguments, and its `open` takes none.",
        "Define one parameter; give all others defaults.",
        'big: {from: orders, python: "steps:two"}',
        fix=("steps:two", "steps:one"),
    ),
    ProblemEntry(
        "python-syntax",
        "A module that is not valid Python",
        "The position in the message is in the module.",
        "Correct the module.",
        'big: {from: orders, python: "broken:f"}',
        fix=("broken:f", "steps:one"),
    ),
    ProblemEntry(
        "python-branch-unknown",
        "A branch that the step does not declare",
        'The function calls `to("branch", row)` with a name that is not in the step\'s `branches`.',
        "Declare it: `branches: [left]`.",
        'big: {from: orders, python: "steps:sorts"}',
        fix=('"steps:sorts"', '"steps:one"'),
    ),
    ProblemEntry(
        "utility-form",
        "A utility of a kind that is not allowed",
        "Each utility passes its records to the next one. A `@frame` function runs in Spark, and branches would leave the sequence.",
        "Move it to a python step of its own.",
        'big: {from: orders, utilities: ["steps:one", "steps:whole"]}',
        fix=(', "steps:whole"', ""),
    ),
    ProblemEntry(
        "utility-not-bool",
        "A utility that may not be reordered",
        "With `order: free` utilities run in the cheapest order. Only a record function that is annotated `-> bool` gives the same result"
        " in any order.",
        "Annotate it if it only decides whether to keep a record, or write `order: fixed`.",
        'big: {from: orders, utilities: ["steps:one"], order: free}',
        fix=(", order: free", ""),
    ),
    ProblemEntry(
        "utility-changes-record",
        "A test that changes its record",
        "With `order: free` utilities may only read the record: another utility may already have seen the unchanged one.",
        "Remove the change, or write `order: fixed`.",
        'big: {from: orders, utilities: ["steps:marks"], order: free}',
        fix=(", order: free", ""),
    ),
    ProblemEntry(
        "frame-on-error",
        "A frame function with dead letters",
        "A `@frame` function processes whole DataFrames, so no single record can become a dead letter.",
        "Write `on_error: fail`, or make it `@batch`.",
        'big: {from: orders, python: "steps:whole", on_error: dead_letter}',
        fix=("dead_letter", "fail"),
    ),
    ProblemEntry(
        "frame-branches",
        "A frame function with branches",
        "Only record and batch functions can send records to branches.",
        "Use a route after it.",
        ORDERS + "steps:\n"
        '  a: {from: orders, python: {function: "steps:whole", branches: [x]}}\n'
        "  b: {from: a.x, filter: id > 1}\n"
        "sinks:\n"
        "  kept: {from: b, type: console}\n",
        slot="file",
        fix=('{function: "steps:whole", branches: [x]}}\n  b: {from: a.x,', '"steps:whole", on_error: fail}\n  b: {from: a,'),
    ),
)
