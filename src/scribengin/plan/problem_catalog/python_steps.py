"""Python steps."""

from __future__ import annotations

from scribengin.plan.problem_catalog.orders import ORDERS
from scribengin.spec.problem_entry import ProblemEntry

CATALOG: tuple[ProblemEntry, ...] = (
    ProblemEntry(
        "python-module-missing",
        "A module that is not there",
        "Modules are looked for in the flow file's folder, then on the Python path; never in the working directory.",
        "Put the file beside the flow file, or install the package.",
        'big: {from: orders, python: "stepz:one"}',
        fix=("stepz:one", "steps:one"),
    ),
    ProblemEntry(
        "python-name-missing",
        "A function that is not there",
        "The module does not define that name.",
        "Write one of the names that it has.",
        'big: {from: orders, python: "steps:onee"}',
        fix=("onee", "one"),
    ),
    ProblemEntry(
        "python-not-callable",
        "Not a function",
        "The name stands for a value, a module, an async function or a class without `__call__`.",
        "Name a plain function, or a class with `__call__`.",
        'big: {from: orders, python: "steps:value"}',
        fix=("steps:value", "steps:one"),
    ),
    ProblemEntry(
        "python-signature",
        "A function that cannot be called so",
        "A step's function takes one argument: a dict, with `@batch` a RecordBatch, with `@frame` a DataFrame. A class is made without"
        " arguments, and its `open` takes none.",
        "Take one argument; give the others defaults.",
        'big: {from: orders, python: "steps:two"}',
        fix=("steps:two", "steps:one"),
    ),
    ProblemEntry(
        "python-syntax",
        "A module that Python cannot read",
        "The place is in the module.",
        "Mend the module.",
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
        "A utility of a form that is not allowed",
        "Utilities hand records on, one to the next: a `@frame` function runs in Spark, and branches leave the row of utilities.",
        "Make it a python step of its own.",
        'big: {from: orders, utilities: ["steps:one", "steps:whole"]}',
        fix=(', "steps:whole"', ""),
    ),
    ProblemEntry(
        "utility-not-bool",
        "A utility that may not be reordered",
        "With `order: free` utilities run in the order that costs least. Only a record function that is annotated `-> bool` gives the same"
        " in any order.",
        "Annotate it where it only says whether a record stays, or write `order: fixed`.",
        'big: {from: orders, utilities: ["steps:one"], order: free}',
        fix=(", order: free", ""),
    ),
    ProblemEntry(
        "utility-changes-record",
        "A test that changes its record",
        "With `order: free` utilities get a record to look at: what one would change another may have seen already.",
        "Let it only look, or write `order: fixed`.",
        'big: {from: orders, utilities: ["steps:marks"], order: free}',
        fix=(", order: free", ""),
    ),
    ProblemEntry(
        "frame-on-error",
        "A frame function with dead letters",
        "A `@frame` function works on whole DataFrames: no single record of it can be set aside.",
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
