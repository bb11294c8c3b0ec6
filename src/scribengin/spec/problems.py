"""The catalog: what every problem code means, text that makes it, and what to do. docs/problems.md is made from it.

Other floors keep catalogs of their own codes in the same form; the docs take them all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from scribengin.core.problems import Severity

Slot = Literal["file", "top", "source", "step", "sink"]

_BASE = {
    "top": "",
    "source": '  orders: {type: files, path: data, format: json, schema: "id BIGINT, amount DOUBLE, ts TIMESTAMP", watermark: ts 10m}\n',
    "step": "  big: {from: orders, filter: amount > 100}\n",
    "sink": "  kept: {from: big, type: files, path: out, format: json}\n",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One code. `example` is YAML text that makes it, at `slot` of a small flow over `orders` (`example_flow`)."""

    code: str
    title: str
    meaning: str
    remedy: str
    example: str
    slot: Slot = "step"
    severity: Severity = "error"


def example_flow(entry: Entry) -> str:
    """The whole flow file of an entry's example: the example takes the place of `slot` in a flow that is right otherwise."""
    if entry.slot == "file":
        return entry.example
    parts = dict(_BASE)
    parts[entry.slot] = "".join(f"{'' if entry.slot == 'top' else '  '}{line}\n" for line in entry.example.splitlines())
    if entry.slot == "step" and not entry.example.lstrip().startswith("big:"):
        parts["step"] += _BASE["step"]
    if entry.slot == "source" and not entry.example.lstrip().startswith("orders:"):
        parts["source"] += _BASE["source"]
    head = "version: 1\nname: shop\n"
    return f"{head}{parts['top']}sources:\n{parts['source']}steps:\n{parts['step']}sinks:\n{parts['sink']}"


CATALOG: tuple[Entry, ...] = (
    Entry(
        "yaml-syntax",
        "The text is no YAML",
        "The file cannot be read further: a tab, a missing space or bracket, a text that needs quotes.",
        "Mend the place that the problem names; the rest of the file is checked then.",
        "big: {from: orders, filter: amount > 100",
    ),
    Entry(
        "yaml-character",
        "A character that YAML forbids",
        "A control character stands in the file, often pasted by accident.",
        'Take it out; in a double-quoted text it can be written as an escape, such as "\\x07".',
        'big: {from: orders, filter: "amount\x07 > 100"}',
    ),
    Entry(
        "yaml-feature",
        "A feature of YAML that flow files do not use",
        "Tags, several documents in one file, merge keys, keys that are no words, and aliases of nothing are refused.",
        "Write it out.",
        "big: {from: orders, filter: !sql amount > 100}",
    ),
    Entry(
        "yaml-comma",
        "A value in { } that is cut",
        "Inside { } a comma ends a value, and a key needs a space after its colon: a key without a value came of it.",
        "Put the value in quotes, or write one key a line.",
        "big: {from: orders, filter: id IN (1, 2)}",
    ),
    Entry(
        "duplicate-key",
        "A key stands twice",
        "A mapping has the same key twice; which of the two is meant cannot be known.",
        "Keep one.",
        "big: {from: orders, filter: amount > 100, filter: id > 5}",
    ),
    Entry(
        "comment-in-value",
        "A comment after a text without quotes",
        "In YAML, ` #` starts a comment, so what follows is not part of the text; with `#hashtag` that is seldom meant.",
        "Quote the text, or write the comment on a line of its own.",
        "big:\n  from: orders\n  filter: amount > 100 #id > 5",
        severity="warning",
    ),
    Entry(
        "wrong-kind",
        "A value of the wrong kind",
        "A mapping, a list, a single value or nothing stands where something else is wanted.",
        "Write it as the problem shows.",
        "big: {from: orders, filter: [amount > 100]}",
    ),
    Entry(
        "unknown-key",
        "A key that does not exist here",
        "Unknown keys are errors, so that a slip of the pen is told. Keys that begin with `x-` are free.",
        "Write the key that is meant; notes of your own go under `x-…`.",
        "big: {from: orders, filtr: amount > 100, filter: id > 5}",
    ),
    Entry(
        "missing-key",
        "A key is missing",
        "The node cannot work without it.",
        "Add it.",
        "big: {filter: amount > 100}",
    ),
    Entry(
        "not-yet",
        "A known word that this version does not run",
        "A key of a later version. What changes no result is skipped with a warning, the rest is refused.",
        "Take it out.",
        'big: {from: orders, utilities: ["steps:f"], filter: id > 5}',
    ),
    Entry(
        "version",
        "Another version of the file's form",
        "The file is written for another Scribengin.",
        "Write `version: 1`.",
        "version: 2\nname: shop\nsources: {n: {type: sequence}}\nsinks: {kept: {from: n, type: console}}\n",
        slot="file",
    ),
    Entry(
        "bad-name",
        "A name that breaks the rule",
        "Ids of nodes, names of flows, Queries and branches are a lower-case letter, then lower-case letters, digits and `_`; at most 63.",
        "Write the name that the problem proposes.",
        "big-orders: {from: orders, filter: amount > 100}",
    ),
    Entry(
        "id-twice",
        "Two nodes with one id",
        "Sources, steps and sinks share one set of ids.",
        "Give one of the two another id.",
        "orders: {from: big, filter: amount > 100}",
    ),
    Entry(
        "unknown-type",
        "A type that does not exist",
        "No connector has this type in this role.",
        "Write one of the types that the problem lists, or install the connector.",
        "orders: {type: file, path: data, format: json}",
        slot="source",
    ),
    Entry(
        "unknown-option",
        "An option that the type does not have",
        "The options beside `type` are those of the connector; docs/flow-file.md lists them.",
        "Write the option that is meant, or take it out.",
        'orders: {type: files, path: data, format: json, rate: 5, schema: "id BIGINT"}',
        slot="source",
    ),
    Entry(
        "bad-value",
        "A value of the wrong type",
        "A number, true or false, or another form is wanted.",
        "Write it as the problem shows. `yes` and `on` are texts in YAML 1.2.",
        'orders: {type: files, path: data, format: json, growing: yes, schema: "id BIGINT, amount DOUBLE"}',
        slot="source",
    ),
    Entry(
        "bad-unit",
        "A duration or size without its unit",
        "Durations and sizes need a unit: ms, s, m, h, d; B, kB, MB, GB, TB, KiB, MiB, GiB, TiB.",
        "Add the unit.",
        'orders: {type: files, path: data, format: json, max_bytes: 64, schema: "id BIGINT, amount DOUBLE"}',
        slot="source",
    ),
    Entry(
        "bad-choice",
        "None of the choices",
        "The key takes one of a few words.",
        "Write one of them.",
        "big: {from: orders, filter: amount > 100, on_error: ignore}",
    ),
    Entry(
        "out-of-range",
        "A number out of its bounds",
        "The value is smaller or larger than it may be.",
        "Write one within the bounds.",
        'orders: {type: files, path: data, format: json, max_files: 0, schema: "id BIGINT, amount DOUBLE"}',
        slot="source",
    ),
    Entry(
        "twice",
        "The same thing twice",
        "A list, or a step, names something twice where once is meant.",
        "Take one out.",
        "big: {from: [orders, orders]}",
    ),
    Entry(
        "schema-syntax",
        "A schema that cannot be read",
        "A schema is NAME TYPE, NAME TYPE, … in the words of Spark SQL.",
        "Mend the place that the problem names.",
        'orders: {type: files, path: data, format: json, schema: "id BIGINT, amount DUBLE"}',
        slot="source",
    ),
    Entry(
        "env-missing",
        "An environment variable is not set",
        "`${env:NAME}` is filled in from the environment.",
        "Set it, or give a default: `${env:NAME:-default}`.",
        "big: {from: orders, filter: 'amount > ${env:SHOP_MINIMUM}'}",
    ),
    Entry(
        "secret-missing",
        "A secret is not there",
        "`${secret:env/NAME}` is read from the environment, `${secret:file/PATH}` from a file; the path starts at the flow file's folder.",
        "Put it there.",
        "big: {from: orders, filter: 'amount > ${secret:file/keys/minimum}'}",
    ),
    Entry(
        "secret-misplaced",
        "A secret where it would be shown",
        "Plans, logs and states show every text of a flow, but for options that are declared as secrets.",
        "Use `${env:…}` for what is no secret.",
        "big: {from: orders, filter: 'amount > ${secret:env/HOME}'}",
    ),
    Entry(
        "fill-syntax",
        "A reference that means nothing",
        "`${…}` is one of `${env:NAME}`, `${env:NAME:-default}`, `${secret:env/NAME}`, `${secret:file/PATH}`.",
        "Write one of these, or `$${` for a plain `${`.",
        "big: {from: orders, filter: 'amount > ${MINIMUM}'}",
    ),
    Entry(
        "operation-missing",
        "A step that does nothing",
        "A step has one operation. Only several inputs without one mean something: their union.",
        "Add an operation.",
        "big: {from: orders}",
    ),
    Entry(
        "operation-twice",
        "A step that does two things",
        "A step has one operation, so that counts and dead letters belong to one thing.",
        "Make a second step.",
        "big: {from: orders, filter: amount > 100, dedupe: {key: [id]}}",
    ),
    Entry(
        "inputs-count",
        "Too many inputs, or too few",
        "Most operations take one input, join two, merge two or more, sql any number.",
        "Bring inputs together in a step of their own.",
        "big: {from: [orders, more], filter: amount > 100}",
    ),
    Entry(
        "key-misplaced",
        "A key that means nothing for this operation",
        "`emit` belongs to aggregations, `schema` to Python steps.",
        "Take it out.",
        "big: {from: orders, filter: amount > 100, emit: update}",
    ),
    Entry(
        "select-name",
        "An expression without a name",
        "A computed column needs a name.",
        "Write `expression AS name`.",
        "big: {from: orders, select: [id, upper(name)]}",
    ),
    Entry(
        "function-syntax",
        "No name of a function",
        "A Python step names its function as `module:name`; modules start at the flow file's folder.",
        "Write `module:name`.",
        "big: {from: orders, python: steps.py}",
    ),
    Entry(
        "window-slide",
        "A window that slides further than it is long",
        "Rows between two windows would belong to none.",
        "Write a slide of at most the size.",
        "big: {from: orders, aggregate: {window: {time: ts, size: 10m, slide: 1h}, columns: {n: count(*)}}}",
    ),
    Entry(
        "time-zone-unknown",
        "No time zone",
        "A time zone is named by its region, as in the tz database: `Europe/Berlin`, `Asia/Kolkata`, `UTC`.",
        "Write the name that the problem proposes.",
        "big: {from: orders, aggregate: {window: {time: ts, size: 1d, time_zone: Europe/Berln}, columns: {n: count(*)}}}",
    ),
    Entry(
        "window-time-zone",
        "A window that cannot follow a local clock",
        "When clocks are set back an hour comes twice. Whole hours that do not overlap keep clear bounds then; other windows would not.",
        "Leave `time_zone` out, or let the window tumble by whole hours or days.",
        "big: {from: orders, aggregate: {window: {time: ts, size: 1d, slide: 1h, time_zone: Europe/Berlin}, columns: {n: count(*)}}}",
    ),
    Entry(
        "join-time",
        "Times that do not belong to the inputs",
        "`time` of a join names the time column of both inputs, by their ids.",
        "Name both inputs.",
        "big: {from: [orders, payments], join: {key: [id], time: {orders: ts}, within: 10m}}",
    ),
    Entry(
        "time-within",
        "Half of a time rule",
        "`time` says which column, `within` how far; one says nothing without the other.",
        "Give both, or none.",
        "big: {from: orders, dedupe: {key: [id], within: 10m}}",
    ),
    Entry(
        "merge-union",
        "A key for a union",
        "A union takes every row of every input; only an intersection compares keys.",
        "Take the key out, or write `how: intersect`.",
        "big: {from: [orders, more], merge: {how: union, key: [id]}}",
    ),
    Entry(
        "flow-file-missing",
        "There is no such flow file",
        "The file is not there, or may not be read, or is no text.",
        "Mind the path: it starts at the working directory.",
        "",
        slot="file",
    ),
    Entry(
        "flow-file-python",
        "A Python flow file that cannot be taken",
        "The module does not compile, raises when it is loaded, or has no variable `flow`.",
        "End the module with `flow = Flow(…)`.",
        "",
        slot="file",
    ),
    Entry(
        "not-executed",
        "A Python flow file was read only",
        "`validate` never runs code of yours: of a .py flow it sees only whether it compiles and sets `flow`.",
        "`scribengin plan` executes it and checks all of it.",
        "",
        slot="file",
        severity="warning",
    ),
    Entry(
        "fmt-refused",
        "A file that `fmt` leaves alone",
        "Some texts are read in two ways by different readers of YAML, or lose something when they are laid out.",
        "Mend what `validate` tells first; quote what is odd; or lay the file out by hand.",
        "",
        slot="file",
    ),
    Entry(
        "sink-left-out",
        "A sink that no flow has",
        "In the Python form a sink was made by `.to(…)` and not handed to `Flow(…)`: its rows would silently be missing.",
        "Hand it to `Flow(…)` beside the others.",
        "",
        slot="file",
    ),
    Entry(
        "function-nameless",
        "A function without a name",
        "A lambda, or a function inside another, cannot be found again by executors, nor after a restart.",
        "Write it at the top of a module.",
        "",
        slot="file",
    ),
)

CODES = frozenset(entry.code for entry in CATALOG)
