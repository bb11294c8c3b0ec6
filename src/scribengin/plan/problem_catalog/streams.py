"""Static sources, time, state and `emit`."""

from __future__ import annotations

from scribengin.spec.problem_entry import ORDERS, ProblemEntry

CATALOG: tuple[ProblemEntry, ...] = (
    ProblemEntry(
        "static-unsupported",
        "A source that cannot be static",
        "`static: true` reads a source completely beside a stream; an endless source cannot be read completely.",
        "Take `static` out.",
        ORDERS + "  n: {type: sequence, static: true}\n"
        "steps:\n"
        "  a: {from: [orders, n], join: {key: [id]}}\n"
        "sinks:\n"
        "  kept: {from: a, type: console}\n",
        slot="file",
        fix=("n: {type: sequence, static: true}", "n: {type: files, path: n, format: json, schema: id BIGINT, static: true}"),
    ),
    ProblemEntry(
        "static-alone",
        "Only static data",
        "No stream feeds the sink, so there would be no Batch.",
        "Take `static: true` out, or join it to a stream.",
        ORDERS + "  users: {type: files, path: users, format: json, schema: user STRING, static: true}\n"
        "sinks:\n"
        "  kept: {from: users, type: console}\n",
        slot="file",
        fix=("sinks:\n  kept: {from: users", "steps:\n  a: {from: [orders, users], join: {key: [user]}}\nsinks:\n  kept: {from: a"),
    ),
    ProblemEntry(
        "static-left",
        "A static side on the left of a join",
        "The stream must be the left side, the static source the right side.",
        "Swap the two.",
        ORDERS + "  users: {type: files, path: users, format: json, schema: user STRING, static: true}\n"
        "steps:\n"
        "  a: {from: [users, orders], join: {key: [user]}}\n"
        "sinks:\n"
        "  kept: {from: a, type: console}\n",
        slot="file",
        fix=("[users, orders]", "[orders, users]"),
    ),
    ProblemEntry(
        "static-how",
        "A right or full join with a static side",
        "Spark cannot know that no row of an endless stream will match.",
        "Use inner, left or semi.",
        ORDERS + "  users: {type: files, path: users, format: json, schema: user STRING, static: true}\n"
        "steps:\n"
        "  a: {from: [orders, users], join: {key: [user], how: full}}\n"
        "sinks:\n"
        "  kept: {from: a, type: console}\n",
        slot="file",
        fix=("how: full", "how: left"),
    ),
    ProblemEntry(
        "static-merged",
        "A stream and a static source in one merge",
        "A union would repeat the static rows in every Batch.",
        "Take `static: true` out: its rows are then read once.",
        ORDERS + "  b: {type: files, path: b, format: json, schema: 'id BIGINT, user STRING, amount DOUBLE, ts TIMESTAMP', static: true}\n"
        "steps:\n"
        "  a: {from: [orders, b]}\n"
        "sinks:\n"
        "  kept: {from: a, type: console}\n",
        slot="file",
        fix=(", static: true", ", watermark: ts 10m"),
    ),
    ProblemEntry(
        "watermark-on-static",
        "A watermark on a static source",
        "Only a stream has late rows.",
        "Take one of the two out.",
        ORDERS + "  users: {type: files, path: u, format: json, schema: 'user STRING, at TIMESTAMP', watermark: at 1m, static: true}\n"
        "steps:\n"
        "  a: {from: [orders, users], join: {key: [user]}}\n"
        "sinks:\n"
        "  kept: {from: a, type: console}\n",
        slot="file",
        severity="warning",
        fix=(", watermark: at 1m", ""),
    ),
    ProblemEntry(
        "no-effect",
        "An option without effect",
        "A static source is read completely: options for the size of a Batch, the poll interval and files that were read are "
        "only for streams. "
        "A channel in a folder has no `partitions`; the members of a group set the brokers of an edge that goes `to` it; "
        "`acknowledge: state` is only for tiers with a step that keeps state.",
        "Take the option out, or take out the setting that cancels it.",
        ORDERS + "  users: {type: files, path: u, format: json, schema: 'user STRING, at TIMESTAMP', max_files: 5, static: true}\n"
        "steps:\n"
        "  a: {from: [orders, users], join: {key: [user]}}\n"
        "sinks:\n"
        "  kept: {from: a, type: console}\n",
        slot="file",
        severity="warning",
        fix=(", max_files: 5", ""),
    ),
    ProblemEntry(
        "time-column-unknown",
        "An unknown time column",
        "A watermark, window, join or dedupe names a column that its input does not have.",
        "Write one of its columns.",
        "big: {from: orders, dedupe: {key: [id], time: at, within: 1m}}",
        fix=("time: at", "time: ts"),
    ),
    ProblemEntry(
        "time-column-type",
        "A time column that is not a TIMESTAMP",
        "Event time needs a TIMESTAMP.",
        "Convert it to TIMESTAMP in a step before, such as `timestamp_millis(x)`.",
        "big: {from: orders, dedupe: {key: [id], time: amount, within: 1m}}",
        fix=("time: amount", "time: ts"),
    ),
    ProblemEntry(
        "watermark-missing",
        "State without a watermark",
        "Without a watermark, an aggregation, dedupe or join of streams never discards state: it grows without limit, and no result "
        "is ever complete.",
        "Add a watermark to the source: `watermark: ts 10m`. For a lookup table, write `static: true`.",
        ORDERS + "  n: {type: sequence}\nsteps:\n  a: {from: n, dedupe: {key: [id]}}\n"
        "sinks:\n  kept: {from: a, type: console}\n  others: {from: orders, type: console}\n",
        slot="file",
        fix=("n: {type: sequence}", "n: {type: sequence, watermark: ts 10m}"),
    ),
    ProblemEntry(
        "join-unbounded",
        "A join of streams without a time limit",
        "Rows of both sides are kept until no match is possible any more; that needs the time of both sides and `within`.",
        "Write `time: {a: ts, b: at}, within: 10m`.",
        ORDERS + "  b: {type: files, path: b, format: json, schema: 'id BIGINT, at TIMESTAMP', watermark: at 1m}\n"
        "steps:\n"
        "  a: {from: [orders, b], join: {key: [id]}}\n"
        "sinks:\n"
        "  kept: {from: a, type: console}\n",
        slot="file",
        fix=("join: {key: [id]}", "join: {key: [id], time: {orders: ts, b: at}, within: 10m}"),
    ),
    ProblemEntry(
        "watermark-other-column",
        "Windows over a column without a watermark",
        "A window is complete when the watermark passes it, and the watermark is on another column.",
        "Use the watermark's column for the window, or set the watermark on the window's column.",
        ORDERS + "  b: {type: files, path: b, format: json, schema: 'ts TIMESTAMP, at TIMESTAMP', watermark: at 1m}\n"
        "steps:\n"
        "  a: {from: b, aggregate: {window: {time: ts, size: 1h}, columns: {n: count(*)}}}\n"
        "sinks:\n"
        "  kept: {from: a, type: console}\n  others: {from: orders, type: console}\n",
        slot="file",
        fix=("time: ts, size", "time: at, size"),
    ),
    ProblemEntry(
        "window-missing",
        "Groups that are never complete",
        "With `emit: append` a group is output when the watermark passes it: it needs a window or the watermark's column.",
        "Add a window, or `emit: update` if the sinks support it.",
        ORDERS + "steps:\n  a: {from: orders, aggregate: {by: [user], columns: {n: count(*)}}}\nsinks:\n  kept: {from: a, type: console}\n",
        slot="file",
        fix=("{by: [user], columns", "{by: [user], window: {time: ts, size: 1h}, columns"),
    ),
    ProblemEntry(
        "watermark-partly",
        "A union in which an input has no watermark",
        "The slowest watermark of all inputs applies. An input without a watermark does not count, so its rows would be late at random.",
        "Give each input a watermark, or set one on the union: it then follows the newest row of all inputs.",
        ORDERS + "  b: {type: files, path: b, format: json, schema: 'id BIGINT, user STRING, amount DOUBLE, ts TIMESTAMP'}\n"
        "steps:\n"
        "  a: {from: [orders, b]}\n"
        "  d: {from: a, dedupe: {key: [id]}}\n"
        "sinks:\n"
        "  kept: {from: d, type: console}\n",
        slot="file",
        fix=(
            "'id BIGINT, user STRING, amount DOUBLE, ts TIMESTAMP'}",
            "'id BIGINT, user STRING, amount DOUBLE, ts TIMESTAMP', watermark: ts 10m}",
        ),
    ),
    ProblemEntry(
        "state-several-ways",
        "A query with state and several paths to its sinks",
        "Spark keeps the state of one stream, so all sinks of a query with state must read the same step.",
        "Take `together` out, or combine the paths with a merge step.",
        ORDERS + "steps:\n"
        "  a: {from: orders, dedupe: {key: [id]}}\n"
        "sinks:\n"
        "  all: {from: orders, type: console, together: both}\n"
        "  kept: {from: a, type: console, together: both}\n",
        slot="file",
        fix=(
            "  all: {from: orders, type: console, together: both}\n  kept: {from: a, type: console, together: both}",
            "  all: {from: orders, type: console}\n  kept: {from: a, type: console}",
        ),
    ),
    ProblemEntry(
        "emit-useless",
        "`emit` on a step that is not an aggregation",
        "Only aggregations over streams output a row more than once.",
        "Take `emit` out.",
        'big: {from: orders, sql: "SELECT id FROM orders", emit: update}',
        fix=(", emit: update", ""),
    ),
    ProblemEntry(
        "emit-unsupported",
        "`emit` that a sink does not support",
        "Files can only be appended to; a row that is written cannot be replaced.",
        "Use `emit: append` with a window, or another sink.",
        ORDERS + "steps:\n"
        "  a: {from: orders, aggregate: {by: [user], emit: update, columns: {n: count(*)}}}\n"
        "sinks:\n"
        "  kept: {from: a, type: files, path: out, format: json}\n",
        slot="file",
        fix=("type: files, path: out, format: json", "type: console"),
    ),
    ProblemEntry(
        "emit-mixed",
        "Several stateful steps on one path, and not all append",
        "A stateful step needs final rows as input.",
        "Use `emit: append` on all of them.",
        ORDERS + "steps:\n"
        "  a: {from: orders, aggregate: {by: [user], emit: update, columns: {n: count(*)}}}\n"
        '  b: {from: a, sql: "SELECT DISTINCT n FROM a"}\n'
        "sinks:\n"
        "  kept: {from: b, type: console}\n",
        slot="file",
        fix=('  b: {from: a, sql: "SELECT DISTINCT n FROM a"}\nsinks:\n  kept: {from: b,', "sinks:\n  kept: {from: a,"),
    ),
    ProblemEntry(
        "sql-per-batch",
        "SQL that would apply to each Batch separately",
        "LIMIT, ORDER BY and OVER have no meaning on an endless stream. Applied to Batches, the result would depend on how rows are "
        "divided into "
        "them.",
        "Filter, group by a window, or sort when you read the output.",
        'big: {from: orders, sql: "SELECT id FROM orders LIMIT 3"}',
        fix=(" LIMIT 3", ""),
    ),
)
