"""Every key of a flow file, declared once: feeds the parser, the error texts, the JSON Schema and docs/flow-file.md.

The options of a source or sink type are declared by its connector (`core.options`); they stand beside these keys.
"""

from __future__ import annotations

from typing import get_args

from scribengin.spec import alert_keys, tier_keys
from scribengin.spec.key import Key, Section
from scribengin.spec.model import BeyondMaxDead, Delivery, Emit, Engine, Evolve, Late, OnError, Profile

_ON_ERROR = Key(
    "on_error",
    "choice",
    "what happens to a record that cannot be handled: `dead_letter` keeps it with its reason, `drop` counts it, `fail` stops the Query",
    "drop",
    choices=get_args(OnError),
    default="that of `defaults`",
)
_DELIVERY = Key(
    "delivery",
    "choice",
    "the guarantee that must hold; one that cannot be kept is refused",
    "exactly_once",
    choices=get_args(Delivery),
    default="that of `defaults`",
)
_TRIGGER = Key(
    "trigger", "duration", "how long after the start of a Batch the next one starts; `0s`: at once", "1s", default="that of `defaults`"
)
_LATE = Key(
    "late",
    "choice",
    "of a step that keeps state: what happens to a row that the watermark has passed: `dead_letter` keeps it, `drop` counts it, `error` "
    "stops the Query",
    "drop",
    choices=get_args(Late),
    default="that of `defaults`",
)

WATERMARK = Section(
    "watermark",
    "Which time says how far a stream has come. `watermark: COLUMN DURATION` is short for `watermark: {column: COLUMN, delay: DURATION}`.",
    (
        Key("column", "column", "the TIMESTAMP column", "ts", required=True),
        Key("delay", "duration", "rows that are later than the newest by more than that are late", "10m", required=True),
        Key(
            "ahead",
            "duration",
            "how far a row may be ahead of the clock when its Batch is planned; a row further ahead is a dead letter and does not move the "
            "watermark",
            "1h",
            default="any",
        ),
        Key(
            "idle",
            "duration",
            "how long without rows until it no longer holds back the watermarks of others, where several streams meet",
            "10m",
            default="it always does",
            low=0.001,
        ),
    ),
)

_WATERMARK = Key(
    "watermark",
    "watermark",
    "`COLUMN DURATION`: rows that are later than the newest by more than that are late; or a section",
    "ts 10m",
    section=WATERMARK,
)
_EMIT = Key(
    "emit",
    "choice",
    "when an aggregation gives its rows: `append` once and final, `update` those that changed, `complete` all in every Batch",
    "append",
    choices=get_args(Emit),
    default="append",
)
_TIME = Key("time", "column", "the column that says when it happened", "ts")
_WITHIN = Key("within", "duration", "how far apart two rows may be in time", "10m", low=0.001)

SCHEMA = Section(
    "schema",
    "Columns in order, in the words of Spark SQL. `schema: TEXT` is short for `schema: {fields: TEXT}`.",
    (
        Key("fields", "schema", "the columns", '"id BIGINT NOT NULL, tags ARRAY<STRING>"', required=True),
        Key(
            "evolve",
            "choice",
            "what becomes of data with other columns: `strict` tells of new ones and drops them, `add` takes them in at the next start, "
            "`lenient` makes values that do not fit null",
            "add",
            choices=get_args(Evolve),
            default="strict",
        ),
    ),
)

WINDOW = Section(
    "window",
    "Groups by time too. The window's columns are `window_start` and `window_end`.",
    (
        Key("time", "column", "the column that says when it happened", "ts", required=True),
        Key("size", "duration", "how long a window is", "1h", required=True, low=0.001),
        Key("slide", "duration", "how far apart two windows start", "10m", default="the size: windows do not overlap", low=0.001),
        Key(
            "time_zone",
            "text",
            "whose clock they follow; for windows of whole hours that do not slide",
            "Europe/Berlin",
            default="UTC",
        ),
    ),
)

AGGREGATE = Section(
    "aggregate",
    "Groups rows and computes columns of each group.",
    (
        Key("by", "columns", "the columns that make a group; none: one group of all rows", "[user]"),
        Key("window", "section", "groups by time too", "{time: ts, size: 1h, slide: 10m}", section=WINDOW),
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
            "columns of both inputs that must be equal; if one input has another name for it, rename it before: by `columns: {country: "
            "code}` of a source of CSV, or in a `select`",
            "[id]",
            required=True,
        ),
        Key("how", "choice", "which rows stay", "inner", choices=("inner", "left", "right", "full", "semi"), default="inner"),
        Key("time", "times", "input → its time column, for two streams", "{orders: ts, payments: at}"),
        _WITHIN,
    ),
)

PARSE = Section(
    "parse",
    "Reads a STRING or BINARY column; the parsed fields join the other columns, the column itself leaves.",
    (
        Key("column", "column", "the column that is read", "value", required=True),
        Key("format", "choice", "what it holds", "json", required=True, choices=("json", "csv")),
        Key("schema", "schema", "the fields; of csv in the order of the cells", '"id BIGINT"', required=True),
        Key("delimiter", "raw", "csv: what stands between two cells", '";"', default='","'),
        Key("null", "raws", "csv: the cell that means null, or a list of such", "NA", default='""'),
        Key("quote", "raw", "csv: what cells are quoted with; `none`: quotes mean nothing", "none", default='"\\""'),
        Key(
            "escape",
            "raw",
            "csv: what takes its meaning from the character behind it; a backslash makes a cell `\\N` null too",
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
        Key("trim", "bool", "csv: blanks around cells, and around their quotes, are no part of them", "true", default="false"),
        Key(
            "extra_cells",
            "choice",
            "csv: cells behind the last column: `refuse`: a dead letter; `empty` drops them if all are empty, `drop` drops them",
            "empty",
            choices=("refuse", "empty", "drop"),
            default="refuse",
        ),
        Key("encoding", "raw", "csv: what the bytes of a BINARY column are", "windows-1252", default="utf-8"),
        Key(
            "time",
            "choice",
            "what happens to a time that is finer than microseconds: `exact` makes its row a dead letter, `truncate` cuts the rest off",
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
        Key("time_limit", "duration", "how long one record, or one call of a `@batch` function, may take", "30s", default="30s", low=0.001),
    ),
)

DEDUPE = Section(
    "dedupe",
    "Keeps the first row of each key.",
    (Key("key", "columns", "the columns that make two rows the same", "[id]", required=True), _TIME, _WITHIN),
)

MERGE = Section(
    "merge",
    "Brings several inputs with the same columns together. `from: [a, b]` alone is `merge: {how: union}`.",
    (
        Key(
            "how",
            "choice",
            "`union`: all rows of all inputs; `intersect`: rows whose key all inputs have",
            "intersect",
            choices=("union", "intersect"),
            default="union",
        ),
        Key("key", "columns", "intersect: the columns that must be equal", "[id]"),
        _TIME,
        _WITHIN,
        Key("origin", "column", "union: a STRING column, added at the end, that says by which input a row came", "came_by"),
    ),
)

OPERATIONS = (
    Key("filter", "expression", "keeps the rows for which the SQL predicate is true; null is not true", "followers > 5000"),
    Key(
        "select",
        "selection",
        "the columns that stay, as a list (`id`, `upper(user) AS who`) or a mapping of name to expression",
        "[id, upper(user) AS who]",
    ),
    Key("sql", "expression", "a Spark SQL query over the inputs, each a table of its id", '"SELECT id, text FROM orders WHERE id > 7"'),
    Key(
        "aggregate",
        "section",
        "groups rows and computes columns of each group",
        "{by: [user], window: {time: ts, size: 1h}, columns: {n: count(*)}}",
        section=AGGREGATE,
    ),
    Key("join", "section", "joins two inputs", "{key: [id], time: {orders: ts, payments: at}, within: 10m}", section=JOIN),
    Key("parse", "section", "reads a text column", '{column: value, format: json, schema: "id BIGINT"}', section=PARSE),
    Key(
        "route",
        "cases",
        "branch → predicate; the first that holds takes the row; `otherwise: BRANCH` takes the rest; read as `step.branch`",
        "{big: amount > 100, otherwise: small}",
    ),
    Key("python", "function", "`module:name` of a function, or a mapping", '"steps:has_tag"', section=PYTHON),
    Key("utilities", "words", "Python steps in a row, each `module:name`; counted as `step.name`", '["steps:f", "steps:g"]'),
    Key("dedupe", "section", "keeps the first row of each key", "{key: [id], time: ts, within: 10m}", section=DEDUPE),
    Key("merge", "section", "brings several inputs together", "{how: intersect, key: [id], time: ts, within: 10m}", section=MERGE),
)
"""What a step can do; it does exactly one of these."""

_FROM_STEP = Key("from", "inputs", "the node that is read, or a list; `step.branch` for a branch", "tweets", required=True)

SOURCE = Section(
    "source",
    "Where records come from. The options of its type stand flat beside these keys.",
    (
        Key("type", "name", "the connector", "files", required=True),
        Key("schema", "schema", "its columns", '"id BIGINT, ts TIMESTAMP"', section=SCHEMA),
        _WATERMARK,
        Key("static", "bool", "read as a table at each Batch, not as a stream", "true", default="false"),
        _ON_ERROR,
        *tier_keys.WATERS,
    ),
)

STEP = Section(
    "step",
    "One operation between nodes: `from` and exactly one operation.",
    (
        _FROM_STEP,
        *OPERATIONS,
        Key("require", "expressions", "name → predicate, checked on the step's output; null fails", "{dated: ts IS NOT NULL}"),
        _ON_ERROR,
        _EMIT,
        _LATE,
        _WATERMARK,
        Key(
            "schema", "schema", "python, utilities: the columns that it gives; without it those of its input", '"id BIGINT"', section=SCHEMA
        ),
        Key(
            "order",
            "choice",
            "of the utilities: `fixed`, as written; `free`, tests (`-> bool`) in the order that costs least, found out on the way",
            "free",
            choices=("fixed", "free"),
            default="fixed",
        ),
    ),
)

SINK = Section(
    "sink",
    "Where records go. The options of its type stand flat beside these keys.",
    (
        Key("from", "inputs", "the node that is written; several are written as their union", "tagged", required=True),
        Key("type", "name", "the connector", "files", required=True),
        Key("together", "name", "sinks of the same name commit together, in one Query of that name", "both"),
        _TRIGGER,
        _DELIVERY,
        tier_keys.TO,
    ),
)

RETAIN = Section(
    "retain",
    "How long dead letters are kept, and how many bytes of them; whichever is reached first.",
    (
        Key("age", "duration", "how long", "30d", default="for ever", low=1.0),
        Key("size", "bytes", "how many bytes of each Query: of more the oldest Batches lose theirs", "1GiB", default="any", low=1),
    ),
    filled=True,
)

MAX_DEAD = Section(
    "max_dead",
    "How many of the records that a Query reads may become dead letters. `max_dead: 1%` is short for `max_dead: {batch: 1%, run: 1%}`.",
    (
        Key("batch", "bound", "of the records of one Batch: a percentage of them, or a number", "5%", default="any"),
        Key("run", "bound", "of all records that the Query has read since the run, or its worker, began", "1%", default="any"),
        Key(
            "then",
            "choice",
            "what happens beyond it: `fail` stops the Query before the Batch is committed, and the next start runs that Batch again; "
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
    "What holds for every node that says nothing else.",
    (
        Key("delivery", "choice", _DELIVERY.doc, "exactly_once", choices=get_args(Delivery), default="exactly_once"),
        Key("on_error", "choice", _ON_ERROR.doc, "dead_letter", choices=get_args(OnError), default="dead_letter"),
        Key("late", "choice", _LATE.doc, "drop", choices=get_args(Late), default="dead_letter"),
        Key(
            "profile",
            "choice",
            "`latency` and `throughput` are other defaults of triggers, of how much a Batch takes and of how long messages wait for others",
            "latency",
            choices=get_args(Profile),
            default="balanced",
        ),
        Key("trigger", "duration", _TRIGGER.doc, "1s", default="0s"),
        Key(
            "retain",
            "duration",
            "how long dead letters are kept, or how long and how many bytes; their number stays in the ledger",
            "30d",
            default="for ever",
            section=RETAIN,
            low=1.0,
        ),
        Key(
            "edge", "section", "what holds for every cut edge that says nothing else", "{compression: zstd}", section=tier_keys.DEFAULT_EDGE
        ),
        tier_keys.TRACE,
        tier_keys.STANDBY,
        Key(
            "engine",
            "choice",
            "`auto`: `filter` and `select` run in the tail where its own engine means the same (`plan` shows it); `spark`: in Spark",
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
        Key("version", "int", "of the file's form; 1", "1", required=True),
        Key("name", "name", "the flow's name; its state lies under it", "tweets", required=True),
        Key("about", "text", "a sentence for people", '"Popular tweets, kept and counted."'),
        Key("labels", "labels", "names and values by which verbs (`-l team=shop`) and rights choose flows", "{team: shop}"),
        Key("defaults", "section", "what holds for every node that says nothing else", "{on_error: drop}", section=DEFAULTS),
        Key("sources", "nodes", "id → source", "{tweets: {…}}", required=True, section=SOURCE),
        Key("steps", "nodes", "id → step", "{known: {…}}", section=STEP),
        Key("sinks", "nodes", "id → sink", "{kept: {…}}", required=True, section=SINK),
        Key("tiers", "nodes", "id → tier: where the flow is cut", "{edge: {steps: [known]}}", section=tier_keys.TIER),
        Key(
            "edges",
            "nodes",
            "`a -> b` → properties of an arrow that is cut",
            '{"known -> hot": {compression: zstd}}',
            section=tier_keys.EDGE,
        ),
        Key("groups", "nodes", "id → group of hosts or endpoints", "{hosts_a: {members: [{at: host1}]}}", section=tier_keys.GROUP),
        Key(
            "max_delay",
            "duration",
            "how old the oldest thing that waits may be; beyond it the flow is `degraded`, and tells producers to wait",
            "5m",
            default="it is not looked at",
            low=1.0,
        ),
        Key(
            "max_dead",
            "bound",
            "how many of the records that a Query reads may become dead letters, in a Batch and in a run; or a section",
            "1%",
            default="any number, but a run with more than half ends with exit status 1",
            section=MAX_DEAD,
        ),
        Key("alerts", "nodes", "id → who is told of what", "{stuck: {when: no progress for 5m}}", section=alert_keys.ALERT),
        Key("tests", "own", "examples of input and output for `scribengin test`: tests, or files of them", "[tests/*.yaml]"),
    ),
)

_OWN = (FLOW, DEFAULTS, RETAIN, MAX_DEAD, SOURCE, STEP, SINK, SCHEMA, WATERMARK, AGGREGATE, WINDOW, JOIN, PARSE, PYTHON, DEDUPE, MERGE)
SECTIONS: tuple[Section, ...] = (*_OWN, *tier_keys.SECTIONS, alert_keys.ALERT)


def operation_names() -> tuple[str, ...]:
    """The keys of which a step has exactly one."""
    return tuple(key.name for key in OPERATIONS)
