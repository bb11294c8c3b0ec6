"""Python steps."""

from __future__ import annotations

from scribengin.plan.problem_catalog.orders import ORDERS
from scribengin.spec.problem_entry import Entry

CATALOG: tuple[Entry, ...] = (
    Entry(
        "python-module-missing",
        "A module that is not there",
        "Modules are looked for in the flow file's folder, then on the Python path; never in the working directory.",
        "Put the file beside the flow file, or install the package.",
        'big: {from: orders, python: "stepz:one"}',
    ),
    Entry(
        "python-name-missing",
        "A function that is not there",
        "The module does not define that name.",
        "Write one of the names that it has.",
        'big: {from: orders, python: "steps:onee"}',
    ),
    Entry(
        "python-not-callable",
        "Not a function",
        "The name stands for a value, a module, an async function or a class without `__call__`.",
        "Name a plain function, or a class with `__call__`.",
        'big: {from: orders, python: "steps:value"}',
    ),
    Entry(
        "python-signature",
        "A function that cannot be called so",
        "A step's function takes one argument: a dict, with `@batch` a RecordBatch, with `@frame` a DataFrame. A class is made without"
        " arguments, and its `open` takes none.",
        "Take one argument; give the others defaults.",
        'big: {from: orders, python: "steps:two"}',
    ),
    Entry(
        "python-syntax",
        "A module that Python cannot read",
        "The place is in the module.",
        "Mend the module.",
        'big: {from: orders, python: "broken:f"}',
    ),
    Entry(
        "python-branch-unknown",
        "A branch that the step does not declare",
        'The function calls `to("branch", row)` with a name that is not in the step\'s `branches`.',
        "Declare it: `branches: [left]`.",
        'big: {from: orders, python: "steps:sorts"}',
    ),
    Entry(
        "frame-on-error",
        "A frame function with dead letters",
        "A `@frame` function works on whole DataFrames: no single record of it can be set aside.",
        "Write `on_error: fail`, or make it `@batch`.",
        'big: {from: orders, python: "steps:whole", on_error: dead_letter}',
    ),
    Entry(
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
    ),
)
