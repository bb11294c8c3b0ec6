"""Every key of a flow file, declared once: for the parser, the error texts, the JSON Schema and docs/flow-file.md.

The options of a source or sink type are declared by its connector (`core.options`); they are written beside these keys.
"""

from __future__ import annotations

from typing import get_args

from scribengin.spec import tier_keys
from scribengin.spec.key import Key, Section
from scribengin.spec.model import BeyondMaxDead, Delivery, Emit, Engine, Evolve, Late, OnError, Profile

# The keys of `alerts`, declared in the same way as in `keys`.


ALERT = Section(
    "alert",
    "What is reported to whom. Every alert is also written to the master's log.",
    (
        Key("when", "text", "the condition: one of the forms below", "no progress for 5m", required=True),
        Key("webhook", "text", "a URL that receives the alert as JSON, by POST", "https://hooks.example.org/flows"),
        Key(
            "command",
            "words",
            "a program and its arguments, run without a shell; environment variables describe the alert",
            "[notify, ops]",
        ),
    ),
)


# The keys of `tests`, declared in the same way as in `keys`.


GIVEN = Section(
    "given",
    "The long form of a source's input.",
    (
        Key("rows", "own", "rows, as in the short form", "[{id: 1}]"),
        Key("files", "words", "files in the source's own format; paths are relative to the flow file's folder", "[samples/tweets.jsonl]"),
        Key(
            "batches",
            "own",
            "a list of lists of rows, or of `{files: …}`: each is delivered after the one before it is committed",
            "[[{id: 1}], []]",
        ),
    ),
    filled=True,
)

EXPECT = Section(
    "expect",
    "The long form of a sink's expected rows.",
    (
        Key("rows", "own", "exactly these rows", "[{id: 1}]"),
        Key("contains", "own", "at least these rows", "[{id: 1}]"),
        Key("count", "int", "the number of rows", "3", low=0),
        Key("files", "words", "the rows of these files (JSON lines or Parquet)", "[samples/kept.jsonl]"),
        Key("ordered", "bool", "the rows must come in this order", "true", default="false"),
    ),
    filled=True,
)

CHANGED = Section(
    "changed",
    "A change of the flow in the middle of the test: another flow continues with its state.",
    (
        Key("before", "text", "the first Batch that the changed flow runs", "batch 2", required=True),
        Key("flow", "text", "the file of the changed flow; the path is relative to the flow file's folder", "next.yaml"),
        Key("patch", "own", "overrides merged into this flow; null removes a key", "{steps: {known: {filter: id > 3}}}"),
    ),
)

TEST = Section(
    "test",
    "A test: the input of the sources and the expected output of the sinks.",
    (
        Key(
            "name",
            "text",
            "a sentence that states what is tested",
            "five hundred is not enough",
            required=True,
            placeholder="WHAT IT TESTS",
        ),
        Key(
            "given",
            "nodes",
            "source → a list of rows, or the long form; a text is a raw record; sources that are not listed are empty",
            "{tweets: [{id: 1}]}",
        ),
        Key(
            "expect",
            "nodes",
            "sink → a list of rows, or the long form; `dead` → the expected dead letters",
            "{kept: [{id: 1}]}",
            required=True,
        ),
        Key(
            "clock",
            "own",
            "the current time in SQL; a list has one time for each Batch",
            '"2026-01-01T00:00:00Z"',
            default="the machine's clock",
        ),
        Key("crash_after", "text", "`batch N`: the process crashes there, and another process continues", "batch 1"),
        Key(
            "changed",
            "own",
            "another flow continues from a Batch on; a list if there are several changes",
            "{before: batch 2, flow: next.yaml}",
        ),
    ),
)

TEST_SECTIONS = (TEST, GIVEN, EXPECT, CHANGED)

_ON_ERROR = Key(
    "on_error",
    "choice",
    "what happens to a record that cannot be processed: `dead_letter` keeps it with its reason, `drop` discards and counts it, "
    "`fail` stops the query",
    "drop",
    choices=get_args(OnError),
    default="the value in `defaults`",
)
_DELIVERY = Key(
    "delivery",
    "choice",
    "the required delivery guarantee; a flow that cannot give it is rejected",
    "exactly_once",
    choices=get_args(Delivery),
    default="the value in `defaults`",
)
_TRIGGER = Key(
    "trigger",
    "duration",
    "the time from the start of a Batch to the start of the next one; `0s`: immediately",
    "1s",
    default="the value in `defaults`",
)
_LATE = Key(
    "late",
    "choice",
    "only for steps that keep state: what happens to a row behind the watermark: `dead_letter` keeps it, `drop` discards and counts "
    "it, `error` "
    "stops the query",
    "drop",
    choices=get_args(Late),
    default="the value in `defaults`",
)

WATERMARK = Section(
    "watermark",
    "The column and delay that define the event-time progress of a stream. `watermark: COLUMN DURATION` is short for `watermark: "
    "{column: COLUMN, delay: DURATION}`.",
    (
        Key("column", "column", "the TIMESTAMP column", "ts", required=True),
        Key("delay", "duration", "rows that are older than the newest row by more than this are late", "10m", required=True),
        Key(
            "ahead",
            "duration",
            "how far a row may be ahead of the clock when its Batch is planned; a row further ahead becomes a dead letter and does "
            "not move the "
            "watermark",
            "1h",
            default="any",
        ),
        Key(
            "idle",
            "duration",
            "if several streams are combined: the time without rows after which this stream no longer holds back their common watermark",
            "10m",
            default="it always holds it back",
            low=0.001,
        ),
    ),
)

_WATERMARK = Key(
    "watermark",
    "watermark",
    "`COLUMN DURATION`: rows that are older than the newest row by more than this are late; or a section",
    "ts 10m",
    section=WATERMARK,
)
_EMIT = Key(
    "emit",
    "choice",
    "which rows an aggregation outputs: `append` each row once, when it is final; `update` the rows that changed; `complete` all "
    "rows in every Batch",
    "append",
    choices=get_args(Emit),
    default="append",
)
_TIME = Key("time", "column", "the column with the event time", "ts")
_WITHIN = Key("within", "duration", "the largest difference in time between two matching rows", "10m", low=0.001)

SCHEMA = Section(
    "schema",
    "Columns in order, with types of Spark SQL. `schema: TEXT` is short for `schema: {fields: TEXT}`.",
    (
        Key("fields", "schema", "the columns", '"id BIGINT NOT NULL, tags ARRAY<STRING>"', required=True),
        Key(
            "evolve",
            "choice",
            "what happens to columns that are not declared: `strict` reports and drops them, `add` adds them at the next start, "
            "`lenient` makes values that do not fit null",
            "add",
            choices=get_args(Evolve),
            default="strict",
        ),
    ),
)

WINDOW = Section(
    "window",
    "Also groups by time. The window's columns are `window_start` and `window_end`.",
    (
        Key("time", "column", "the column with the event time", "ts", required=True),
        Key("size", "duration", "the length of a window", "1h", required=True, low=0.001),
        Key(
            "slide", "duration", "the time between the starts of two windows", "10m", default="the size: windows do not overlap", low=0.001
        ),
        Key(
            "time_zone",
            "text",
            "the time zone of the windows; only for windows of whole hours that do not slide",
            "Europe/Berlin",
            default="UTC",
        ),
    ),
)

AGGREGATE = Section(
    "aggregate",
    "Groups rows and computes columns of each group.",
    (
        Key("by", "columns", "the columns to group by; none: one group of all rows", "[user]"),
        Key("window", "section", "also groups by time", "{time: ts, size: 1h, slide: 10m}", section=WINDOW),
        _EMIT,
        Key("columns", "expressions", "column name → aggregate expression", "{n: count(*), most: max(amount)}", required=True),
    ),
)

JOIN = Section(
    "join",
    "Joins two inputs on equal keys; the first is the left one.",
    (
        Key(
            "key",
            "columns",
            "columns of both inputs that must be equal; if the name differs in one input, rename it before the join: with `columns: "
            "{country: "
            "code}` of a source of CSV, or in a `select`",
            "[id]",
            required=True,
        ),
        Key(
            "how",
            "choice",
            "the join type: which rows are kept",
            "inner",
            choices=("inner", "left", "right", "full", "semi"),
            default="inner",
        ),
        Key("time", "times", "input → its time column; only for a join of two streams", "{orders: ts, payments: at}"),
        _WITHIN,
    ),
)

PARSE = Section(
    "parse",
    "Parses a STRING or BINARY column; the parsed fields replace it, the other columns stay.",
    (
        Key("column", "column", "the column to parse", "value", required=True),
        Key("format", "choice", "the format of its content", "json", required=True, choices=("json", "csv")),
        Key("schema", "schema", "the fields; for csv in the order of the cells", '"id BIGINT"', required=True),
        Key("delimiter", "raw", "csv: the separator between two cells", '";"', default='","'),
        Key("null", "raws", "csv: the cell content that means null, or a list of several", "NA", default='""'),
        Key("quote", "raw", "csv: the quote character of cells; `none`: quotes have no special meaning", "none", default='"\\""'),
        Key(
            "escape",
            "raw",
            "csv: the escape character; a backslash also makes a cell `\\N` null",
            '"\\\\"',
            default="none",
        ),
        Key(
            "quoted_null",
            "choice",
            "csv: whether a cell in quotes can be null: `typed` in columns other than STRING and BINARY, `always` in all",
            "typed",
            choices=("never", "typed", "always"),
            default="never",
        ),
        Key("trim", "bool", "csv: removes blanks around cells and around their quotes", "true", default="false"),
        Key(
            "extra_cells",
            "choice",
            "csv: what happens to cells after the last column: `refuse` makes the row a dead letter, `empty` drops them if all are "
            "empty, `drop` drops them",
            "empty",
            choices=("refuse", "empty", "drop"),
            default="refuse",
        ),
        Key("encoding", "raw", "csv: the encoding of a BINARY column", "windows-1252", default="utf-8"),
        Key(
            "time",
            "choice",
            "what happens to a time with more than six decimals of a second: `exact` makes its row a dead letter, `truncate` cuts "
            "the rest off",
            "truncate",
            choices=("exact", "truncate"),
            default="exact",
        ),
    ),
)

PYTHON = Section(
    "python",
    "The long form of a Python step.",
    (
        Key("function", "function", "`module:name`", '"steps:sort_out"', required=True),
        Key("branches", "names", 'names that `to("branch", row)` may use; read as `step.branch`', "[late, odd]"),
        Key(
            "time_limit",
            "duration",
            "the time limit for one record, or for one call of a `@batch` function",
            "30s",
            default="30s",
            low=0.001,
        ),
    ),
)

DEDUPE = Section(
    "dedupe",
    "Keeps the first row of each key.",
    (Key("key", "columns", "the columns that identify a row", "[id]", required=True), _TIME, _WITHIN),
)

MERGE = Section(
    "merge",
    "Combines several inputs with the same columns. `from: [a, b]` alone is `merge: {how: union}`.",
    (
        Key(
            "how",
            "choice",
            "`union`: all rows of all inputs; `intersect`: rows whose key is in all inputs",
            "intersect",
            choices=("union", "intersect"),
            default="union",
        ),
        Key("key", "columns", "intersect: the columns that must be equal", "[id]"),
        _TIME,
        _WITHIN,
        Key(
            "origin",
            "column",
            "union: the name of a STRING column, added at the end, with the id of the input that a row comes from",
            "came_by",
        ),
    ),
)

OPERATIONS = (
    Key("filter", "expression", "keeps the rows for which the SQL predicate is true; null is not true", "followers > 5000"),
    Key(
        "select",
        "selection",
        "the output columns, as a list (`id`, `upper(user) AS who`) or a mapping of name to expression",
        "[id, upper(user) AS who]",
    ),
    Key(
        "sql",
        "expression",
        "a Spark SQL query over the inputs; each input is a table with its id as name",
        '"SELECT id, text FROM orders WHERE id > 7"',
    ),
    Key(
        "aggregate",
        "section",
        "groups rows and computes columns of each group",
        "{by: [user], window: {time: ts, size: 1h}, columns: {n: count(*)}}",
        section=AGGREGATE,
    ),
    Key("join", "section", "joins two inputs", "{key: [id], time: {orders: ts, payments: at}, within: 10m}", section=JOIN),
    Key("parse", "section", "parses a text column", '{column: value, format: json, schema: "id BIGINT"}', section=PARSE),
    Key(
        "route",
        "cases",
        "branch → predicate; a row goes to the first branch whose predicate is true, other rows to `otherwise: BRANCH`; read a "
        "branch as `step.branch`",
        "{big: amount > 100, otherwise: small}",
    ),
    Key("python", "function", "`module:name` of a function, or a mapping", '"steps:has_tag"', section=PYTHON),
    Key("utilities", "words", "a sequence of Python steps, each `module:name`; counted as `step.name`", '["steps:f", "steps:g"]'),
    Key("dedupe", "section", "keeps the first row of each key", "{key: [id], time: ts, within: 10m}", section=DEDUPE),
    Key("merge", "section", "combines several inputs", "{how: intersect, key: [id], time: ts, within: 10m}", section=MERGE),
)
"""The operations of a step; a step has exactly one of these."""

_FROM_STEP = Key("from", "inputs", "the node to read, or a list of nodes; `step.branch` for a branch", "tweets", required=True)

SOURCE = Section(
    "source",
    "Where records come from. Write the options of the type at the same level as these keys.",
    (
        Key("type", "name", "the connector", "files", required=True),
        Key("schema", "schema", "its columns", '"id BIGINT, ts TIMESTAMP"', section=SCHEMA),
        _WATERMARK,
        Key("static", "bool", "read as a whole table at each Batch, not as a stream", "true", default="false"),
        _ON_ERROR,
        *tier_keys.WATERS,
    ),
)

STEP = Section(
    "step",
    "A transformation: `from` and exactly one operation.",
    (
        _FROM_STEP,
        *OPERATIONS,
        Key(
            "require",
            "expressions",
            "name → predicate that each output row of the step must meet; null does not meet it",
            "{dated: ts IS NOT NULL}",
        ),
        _ON_ERROR,
        _EMIT,
        _LATE,
        _WATERMARK,
        Key("schema", "schema", "python, utilities: the output columns; default: those of the input", '"id BIGINT"', section=SCHEMA),
        Key(
            "order",
            "choice",
            "utilities: `fixed`: in the order as written; `free`: tests (`-> bool`) run in the cheapest order, which is measured at "
            "run time",
            "free",
            choices=("fixed", "free"),
            default="fixed",
        ),
    ),
)

SINK = Section(
    "sink",
    "Where records go. Write the options of the type at the same level as these keys.",
    (
        Key("from", "inputs", "the node to write; several nodes are written as their union", "tagged", required=True),
        Key("type", "name", "the connector", "files", required=True),
        Key("together", "name", "sinks with the same name here commit together, in one query of that name", "both"),
        _TRIGGER,
        _DELIVERY,
        tier_keys.TO,
    ),
)

RETAIN = Section(
    "retain",
    "How long dead letters are kept, and how many bytes; the limit that is reached first applies.",
    (
        Key("age", "duration", "the maximum age", "30d", default="no limit", low=1.0),
        Key(
            "size",
            "bytes",
            "the largest number of bytes of each query; beyond it, the dead letters of the oldest Batches are deleted",
            "1GiB",
            default="any",
            low=1,
        ),
    ),
    filled=True,
)

MAX_DEAD = Section(
    "max_dead",
    "The largest number or share of a query's records that may become dead letters. `max_dead: 1%` is short for `max_dead: {batch: "
    "1%, run: 1%}`.",
    (
        Key("batch", "bound", "the limit for one Batch: a percentage of its records, or a number", "5%", default="any"),
        Key(
            "run",
            "bound",
            "the limit for all records that the query has read since the start of the run, or of its worker",
            "1%",
            default="any",
        ),
        Key(
            "then",
            "choice",
            "what happens above the limit: `fail` stops the query before the Batch is committed, and the next start runs that Batch again; "
            "`degrade` continues, and the flow is `degraded`",
            "degrade",
            choices=get_args(BeyondMaxDead),
            default="fail",
        ),
    ),
    filled=True,
)

DEFAULTS = Section(
    "defaults",
    "Default values for all nodes.",
    (
        Key("delivery", "choice", _DELIVERY.doc, "exactly_once", choices=get_args(Delivery), default="exactly_once"),
        Key("on_error", "choice", _ON_ERROR.doc, "dead_letter", choices=get_args(OnError), default="dead_letter"),
        Key("late", "choice", _LATE.doc, "drop", choices=get_args(Late), default="dead_letter"),
        Key(
            "profile",
            "choice",
            "`latency` and `throughput` change the defaults of triggers, of the size of a Batch and of how long messages wait to be "
            "sent together",
            "latency",
            choices=get_args(Profile),
            default="balanced",
        ),
        Key("trigger", "duration", _TRIGGER.doc, "1s", default="0s"),
        Key(
            "retain",
            "duration",
            "how long dead letters are kept, or a section with time and size; their counts stay in the ledger",
            "30d",
            default="no limit",
            section=RETAIN,
            low=1.0,
        ),
        Key("edge", "section", "default values for all edges between tiers", "{compression: zstd}", section=tier_keys.DEFAULT_EDGE),
        tier_keys.TRACE,
        tier_keys.STANDBY,
        Key(
            "engine",
            "choice",
            "`auto`: `filter` and `select` run in the Python worker if its SQL engine gives the same result as Spark (`plan` shows "
            "where); `spark`: always in Spark",
            "spark",
            choices=get_args(Engine),
            default="auto",
        ),
    ),
)

FLOW = Section(
    "flow",
    "The file itself.",
    (
        Key("version", "int", "the version of the file format; always 1", "1", required=True),
        Key("name", "name", "the flow's name; also the name of its state folder", "tweets", required=True),
        Key("about", "text", "a description for readers", '"Popular tweets, kept and counted."'),
        Key("labels", "labels", "names and values by which commands (`-l team=shop`) and permissions select flows", "{team: shop}"),
        Key("defaults", "section", "default values for all nodes", "{on_error: drop}", section=DEFAULTS),
        Key("sources", "nodes", "id → source", "{tweets: {…}}", required=True, section=SOURCE),
        Key("steps", "nodes", "id → step", "{known: {…}}", section=STEP),
        Key("sinks", "nodes", "id → sink", "{kept: {…}}", required=True, section=SINK),
        Key("tiers", "nodes", "id → tier: how the flow is split", "{edge: {steps: [known]}}", section=tier_keys.TIER),
        Key(
            "edges",
            "nodes",
            "`a -> b` → properties of an edge between two tiers",
            '{"known -> hot": {compression: zstd}}',
            section=tier_keys.EDGE,
        ),
        Key("groups", "nodes", "id → group of hosts or endpoints", "{hosts_a: {members: [{at: host1}]}}", section=tier_keys.GROUP),
        Key(
            "max_delay",
            "duration",
            "maximum age of the oldest unprocessed input; above it the flow is `degraded`, and producers that ask for its "
            "back-pressure are told to wait",
            "5m",
            default="no limit",
            low=1.0,
        ),
        Key(
            "max_dead",
            "bound",
            "the largest number or share of a query's records that may become dead letters, in a Batch and in a run; or a section",
            "1%",
            default="no limit, but a run with more than half ends with exit status 1",
            section=MAX_DEAD,
        ),
        Key("alerts", "nodes", "id → alert rule", "{stuck: {when: no progress for 5m}}", section=ALERT),
        Key("tests", "own", "tests for `scribengin test`: a list of tests, or of files with tests", "[tests/*.yaml]"),
    ),
)

_OWN = (FLOW, DEFAULTS, RETAIN, MAX_DEAD, SOURCE, STEP, SINK, SCHEMA, WATERMARK, AGGREGATE, WINDOW, JOIN, PARSE, PYTHON, DEDUPE, MERGE)
SECTIONS: tuple[Section, ...] = (*_OWN, *tier_keys.SECTIONS, ALERT)


def operation_names() -> tuple[str, ...]:
    """The names of the operations, of which a step has exactly one."""
    return tuple(key.name for key in OPERATIONS)
