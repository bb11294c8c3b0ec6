"""Sources and sinks."""

from __future__ import annotations

from scribengin.spec.problem_entry import ORDERS, ProblemEntry

CATALOG: tuple[ProblemEntry, ...] = (
    ProblemEntry(
        "option-not-of-format",
        "An option that the format does not have",
        "The option would have no effect.",
        "Take it out, or choose the format that has it.",
        "kept: {from: orders, type: files, path: out, format: json, header: true}",
        slot="sink",
        fix=(", header: true", ""),
    ),
    ProblemEntry(
        "schema-missing",
        "A source without columns",
        "JSON and CSV files do not declare their columns and types, and a guess could differ from file to file.",
        "Write `schema: id BIGINT, name STRING`, with the columns that you need; `scribengin infer FILE` proposes them.",
        ORDERS + "  raw: {type: files, path: raw, format: json}\n"
        "sinks:\n  kept: {from: raw, type: console}\n  others: {from: orders, type: console}\n",
        slot="file",
        fix=("path: raw, format: json}", "path: raw, format: json, schema: id BIGINT}"),
    ),
    ProblemEntry(
        "evolve-misplaced",
        "`evolve` where it does not apply",
        "Only Scribengin's own decoders can handle undeclared columns; `lenient` applies only to JSON and CSV files.",
        "Take `evolve` out.",
        'orders: {type: files, path: data, format: parquet, schema: {fields: "id BIGINT", evolve: lenient}}',
        slot="source",
        fix=('{fields: "id BIGINT", evolve: lenient}', '"id BIGINT, amount DOUBLE"'),
    ),
    ProblemEntry(
        "evolve-state",
        "Added columns with state or a channel",
        "A step with state stores rows with the columns of that time, and the two tiers of a channel do not start at the same time.",
        "Select the columns that you need in a step before the step that keeps state, or take `evolve: add` out.",
        "version: 1\nname: orders\nsources:\n  orders: {type: files, path: data, format: json, schema: {fields: id BIGINT, evolve: add}}\n"
        "steps:\n  once: {from: orders, dedupe: {key: [id]}}\nsinks:\n  kept: {from: once, type: console}\n",
        slot="file",
        fix=("{fields: id BIGINT, evolve: add}", '"id BIGINT, ts TIMESTAMP", watermark: ts 10m'),
    ),
    ProblemEntry(
        "evolve-sink",
        "Added columns reach a sink with fixed columns",
        "CSV is read by column position, and `evolve: strict` of a sink allows no other columns. The next start after a new column "
        "would fail.",
        "Select the columns that you need in a step before the sink, or take `evolve: add` out.",
        "version: 1\nname: orders\nsources:\n  orders: {type: files, path: data, format: json, schema: {fields: id BIGINT, evolve: add}}\n"
        "sinks:\n  kept: {from: orders, type: files, path: out, format: csv}\n",
        slot="file",
        fix=("format: csv}", "format: json}"),
    ),
    ProblemEntry(
        "summary-sql",
        "A summary that cannot be kept current",
        "Each task aggregates its rows, and the results are merged. This works for count, sum, min, max and avg of columns, grouped "
        "by columns.",
        "Use one of these functions, or compute the value for each row in a step before.",
        'totals: {from: orders, type: summary, sql: "SELECT count(DISTINCT id) AS n FROM rows"}',
        slot="sink",
        fix=("count(DISTINCT id) AS n FROM rows", "count(*) AS n FROM rows"),
    ),
    ProblemEntry(
        "summary-python",
        "A summary class that does not exist, or lacks a method",
        "Each task creates an object of the class and adds its rows; the driver merges the objects and calls `result()`.",
        "Write a class with `add(record)`, `merge(other)` and `result()` in a module of the flow's folder.",
        'totals: {from: orders, type: summary, python: "steps:Totals"}',
        slot="sink",
        fix=('python: "steps:Totals"', 'sql: "SELECT count(*) AS n FROM rows"'),
    ),
    ProblemEntry(
        "schema-surplus",
        "A schema where the columns are fixed",
        "Text has one STRING column, a sequence has `id` and `ts`.",
        "Take `schema` out.",
        ORDERS
        + "  n: {type: sequence, schema: x INT}\nsinks:\n  kept: {from: n, type: console}\n  others: {from: orders, type: console}\n",
        slot="file",
        fix=(", schema: x INT", ""),
    ),
    ProblemEntry(
        "done-without-archive",
        "An unused archive, or a missing one",
        "`when_done: archive` moves files to the folder that `archive` names; each needs the other.",
        "Write both, or take both out.",
        "orders: {type: files, path: data, format: json, schema: id BIGINT, when_done: archive}",
        slot="source",
        fix=("schema: id BIGINT, when_done: archive", 'schema: "id BIGINT, amount DOUBLE", when_done: archive, archive: done'),
    ),
    ProblemEntry(
        "done-read-again",
        "Files that are never finished",
        "A file that grows, or that a static source reads at each start, must stay.",
        "Write `when_done: keep`, or take `growing` or `static` out.",
        "orders: {type: files, path: data, format: json, schema: id BIGINT, growing: true, when_done: delete}",
        slot="source",
        fix=("schema: id BIGINT, growing: true, when_done: delete", 'schema: "id BIGINT, amount DOUBLE", when_done: delete'),
    ),
    ProblemEntry(
        "done-archive-read",
        "An archive where a source reads",
        "Archived files would be read as new ones.",
        "Use a folder outside the one that is read.",
        "orders: {type: files, path: data, format: json, schema: id BIGINT, when_done: archive, archive: data}",
        slot="source",
        fix=(
            "schema: id BIGINT, when_done: archive, archive: data",
            'schema: "id BIGINT, amount DOUBLE", when_done: archive, archive: done',
        ),
    ),
    ProblemEntry(
        "delivery-unsupported",
        "Exactly-once delivery that is not possible",
        "The sink cannot commit a Batch exactly once, or a source cannot be re-read identically.",
        "Write `delivery: at_least_once`, or use a sink and sources that support it.",
        "",
    ),
    ProblemEntry(
        "option-not-of-delivery",
        "An option that the delivery does not support",
        "With `delivery: at_least_once` Spark's own Kafka sink writes. It does not support transactions, commit markers or "
        "timestamps of messages.",
        "Take it out, or write `delivery: exactly_once`.",
        "kept: {from: orders, type: kafka, bootstrap: 'b:9092', topic: t, format: json, delivery: at_least_once, timestamp: ts}",
        slot="sink",
        fix=(", delivery: at_least_once, timestamp: ts", ", timestamp: ts"),
    ),
    ProblemEntry(
        "table-mode",
        "A table's mode and its key",
        "`mode: append` adds rows without a key. `upsert` needs a `key`, `changes` a `key` and the column with the kind of "
        "change, `overwrite` the columns of `partition_by`, whose values select the rows to replace. For a source, `mode: incremental` "
        "needs `by`, and `snapshot` does not use it. `visible: unit` needs `mode: append`: rows of one key may be in several "
        "task outputs, and then it is undefined which row is the last.",
        "Add the keys that the mode needs, take out those that it does not use, or write another mode.",
        "kept: {from: orders, type: postgres, server: 'postgresql://etl@db/shop', table: kept, mode: upsert}",
        slot="sink",
        fix=("mode: upsert", "mode: upsert, key: [id]"),
    ),
    ProblemEntry(
        "key-incomplete",
        "A key that does not identify groups or pairs",
        "A row of an aggregation stands for a group, a row of a join of two streams for a pair. It has no record of its own, so its id "
        "comes from `key`. The key must contain all columns of the group key and, for a window, its start or its end; after a join, "
        "the columns "
        "that it joins on. Otherwise two groups have one id, and one overwrites the other. A column that is the same in all rows "
        "(`filter: kind = 'a'`) may be left out. The check does not cover rows after Python, `parse`, `dedupe`, an intersection, a "
        "JOIN in SQL without GROUP BY, and SQL that is not a plain SELECT.",
        "Add the columns to `key`. If a column depends on another one, as a name depends on its id, compute it instead of grouping by it: "
        "`max(name)`. Tables with `version` may have a shorter key: of the rows of one key, the one with the greatest version is kept.",
        ORDERS + "steps:\n"
        "  hourly: {from: orders, aggregate: {by: [user], window: {time: ts, size: 1h}, columns: {n: count(*)}}}\n"
        "sinks:\n"
        "  kept: {from: hourly, type: delta, path: hourly, mode: upsert, key: [user]}\n",
        slot="file",
        fix=("key: [user]}", "key: [user, window_start]}"),
    ),
    ProblemEntry(
        "key-computed",
        "A key that changes with its row",
        "With `emit: update` a group is output again whenever its values change. If such a value is in the key, each change makes a "
        "new id: the "
        "new row is added and the old row stays. With `emit: append` a group is output once, and its values may be in the key beside "
        "all of the "
        "group key.",
        "Take it out of `key`; the key needs only the columns of the group key.",
        ORDERS + "steps:\n"
        "  users: {from: orders, aggregate: {by: [user], emit: update, columns: {n: count(*)}}}\n"
        "sinks:\n"
        "  kept: {from: users, type: delta, path: users, mode: upsert, key: [user, n]}\n",
        slot="file",
        fix=("key: [user, n]", "key: [user]"),
    ),
    ProblemEntry(
        "secret-in-plain",
        "A password in an address",
        "An address is printed and stored with the flow; only secrets are not.",
        'Take it out of the address and write `config: {password: "${secret:env/NAME}"}`.',
        "kept: {from: orders, type: postgres, server: 'postgresql://etl:hunter2@db/shop', table: kept}",
        slot="sink",
        fix=("etl:hunter2@db/shop'", "etl@db/shop', config: {password: '${secret:env/HOME}'}"),
    ),
    ProblemEntry(
        "table-two-writers",
        "Two sinks write one table",
        "Neither sink could identify its own rows, and each would reject the rows of the other.",
        "Give each sink its own table, or let one sink read both steps.",
        ORDERS + "sinks:\n"
        "  a: {from: orders, type: postgres, server: 'postgresql://etl@db/shop', table: kept}\n"
        "  b: {from: orders, type: postgres, server: 'postgresql://etl@db/shop', table: public.kept}\n",
        slot="file",
        fix=("public.kept", "public.more"),
    ),
    ProblemEntry(
        "writer-options",
        "A Spark writer that cannot write this way",
        "A writer of files needs one `path`. Formats that Spark can only read, or that do not store rows, cannot be sinks. The "
        "options that `transaction` "
        "names are set for each Batch.",
        "Follow the remedy in the message.",
        "kept: {from: orders, type: spark, format: orc, delivery: at_least_once}",
        slot="sink",
        fix=("format: orc,", "format: orc, path: out,"),
    ),
    ProblemEntry(
        "http-url",
        "An invalid HTTP address",
        "`url` must begin with https:// (or http://) and a host. With `body: object` its path and query may name columns that hold single "
        "values; the host may not.",
        "Write https://HOST/PATH, with columns as `{column}` only after the host.",
        "kept: {from: orders, type: http, url: 'api.example.com/orders', delivery: at_least_once}",
        slot="sink",
        fix=("'api.example", "'https://api.example"),
    ),
    ProblemEntry(
        "http-options",
        "Contradicting request settings",
        "The client itself sets some headers. `rows` and `bytes` apply only to requests with several rows.",
        "Take it out, or write `body: array` or `body: lines`.",
        "kept: {from: orders, type: http, url: 'https://api.example.com/orders', rows: 100, delivery: at_least_once}",
        slot="sink",
        fix=("rows: 100, ", ""),
    ),
    ProblemEntry(
        "http-plain",
        "Rows sent without encryption",
        "With http:// others on the network can read and change the data.",
        "Write https://, if the server supports it.",
        "kept: {from: orders, type: http, url: 'http://api.example.com/orders', delivery: at_least_once}",
        slot="sink",
        severity="warning",
        fix=("http://", "https://"),
    ),
    ProblemEntry(
        "table-feeds-itself",
        "A table that feeds itself",
        "The flow would read its own output again, without end.",
        "Write to another table.",
        "version: 1\nname: shop\nsources:\n"
        "  orders: {type: postgres, server: 'postgresql://etl@db/shop', table: orders, mode: incremental, by: at}\n"
        "sinks:\n"
        "  kept: {from: orders, type: postgres, server: 'postgresql://etl@db/shop', table: public.orders}\n",
        slot="file",
        fix=("table: public.orders", "table: public.copies"),
    ),
    ProblemEntry(
        "object-url",
        "An invalid address of an object store",
        "A url names a bucket and a prefix in it (`s3://shop/orders`); the server, where it is not AWS's, is `endpoint`, with its scheme.",
        "Correct the address as the message says.",
        "kept: {from: orders, type: objects, url: 'http://store:9000/shop', format: json}",
        slot="sink",
        fix=("http://store:9000/shop", "s3://shop/orders"),
    ),
    ProblemEntry(
        "object-login",
        "Invalid credentials of an object store",
        "`config` of an object store contains `access_key_id`, `secret_access_key` and optionally `session_token`; everything else "
        "is an option.",
        "Correct the key, or take it out.",
        "kept: {from: orders, type: objects, url: 's3://shop/orders', format: json, config: {acces_key_id: AK1}}",
        slot="sink",
        fix=("{acces_key_id: AK1}", "{access_key_id: AK1, secret_access_key: '${secret:env/HOME}'}"),
    ),
    ProblemEntry(
        "object-two-writers",
        "Two sinks below one prefix",
        "Neither sink could identify its own objects, and each would reject the objects of the other.",
        "Give each sink its own prefix; none may be inside another.",
        ORDERS + "sinks:\n"
        "  a: {from: orders, type: objects, url: 's3://shop/orders', format: json}\n"
        "  b: {from: orders, type: objects, url: 's3://shop/orders/large', format: json}\n",
        slot="file",
        fix=("s3://shop/orders/large", "s3://shop/large"),
    ),
    ProblemEntry(
        "delivery-together",
        "Spark's own sink together with another",
        "Spark's own sink commits its Batch itself, so no other sink can commit together with it.",
        "Take `together` out, or write `delivery: exactly_once`.",
        ORDERS + "sinks:\n"
        "  a: {from: orders, type: kafka, bootstrap: 'b:9092', topic: t, format: json, delivery: at_least_once, together: q}\n"
        "  b: {from: orders, type: files, path: out, format: json, together: q}\n",
        slot="file",
        fix=(
            ", together: q}\n  b: {from: orders, type: files, path: out, format: json, together: q}",
            "}\n  b: {from: orders, type: files, path: out, format: json}",
        ),
    ),
    ProblemEntry(
        "together-name",
        "The name of a query is already used",
        "`together: NAME` is the id of a sink outside the group; both queries would use the same state folder.",
        "Write another name.",
        ORDERS + "sinks:\n  a: {from: orders, type: console, together: b}\n  b: {from: orders, type: console}\n",
        slot="file",
        fix=("together: b}", "together: both}"),
    ),
    ProblemEntry(
        "together-trigger",
        "Two triggers in one query",
        "Sinks with the same `together` run in the same Batches.",
        "Give both the same trigger.",
        ORDERS + "sinks:\n"
        "  a: {from: orders, type: console, together: q, trigger: 1s}\n"
        "  b: {from: orders, type: console, together: q, trigger: 2s}\n",
        slot="file",
        fix=("trigger: 2s", "trigger: 1s"),
    ),
    ProblemEntry(
        "partition-unknown",
        "Partitioned by a column that does not exist",
        "`partition_by` names columns of the sink's input.",
        "Write a column of the input, or compute it in a step before.",
        "kept: {from: orders, type: files, path: out, format: json, partition_by: [day]}",
        slot="sink",
        fix=("[day]", "[id]"),
    ),
    ProblemEntry(
        "partition-time",
        "Invalid folders by time",
        "The `time` of `partition_by` is a TIMESTAMP of the rows and the last of its folders; the path begins with the year, leaves no unit"
        " out, and names columns that the rows do not have. A Delta table with `mode: upsert` has none.",
        "Write a path such as `dt=%Y-%m-%d/hour=%H`, and the name of a region as `time_zone`.",
        'kept: {from: orders, type: files, path: out, format: json, partition_by: [{time: ts, path: "hour=%H"}]}',
        slot="sink",
        fix=('path: "hour=%H"', 'path: "day=%Y-%m-%d"'),
    ),
    ProblemEntry(
        "partition-no-time",
        "A key that needs folders by time",
        "`close` and `keep` apply to folders by time.",
        "Add a `time` to `partition_by`, or take the key out.",
        "kept: {from: orders, type: files, path: out, format: json, keep: 30d}",
        slot="sink",
        fix=("keep: 30d", 'partition_by: [{time: ts, path: "day=%Y-%m-%d"}], keep: 30d'),
    ),
    ProblemEntry(
        "close-reopen",
        "Folders that cannot be reopened",
        "`late: reopen` removes a folder's completion marker when late rows arrive. Files can do that. In an object store and in "
        "HDFS, a marker is "
        "written once, because a suspended process could restore a marker that was removed. A partition that the log of a Delta "
        "table marks as complete"
        " stays complete.",
        "Write `late: dead`, which makes late rows dead letters (`dead-letter list` shows them); or write to `type: files`.",
        "kept: {from: orders, type: objects, url: s3://shop/kept, format: json, "
        'partition_by: [{time: ts, path: "day=%Y-%m-%d"}], close: {delay: 10m, late: reopen}}',
        slot="sink",
        fix=("late: reopen", "late: dead"),
    ),
    ProblemEntry(
        "partition-all",
        "No column left for the files",
        "The columns of `partition_by` become folder names; files need at least one more.",
        "Leave one column out of `partition_by`.",
        ORDERS + "steps:\n"
        "  a: {from: orders, select: {user: user}}\n"
        "sinks:\n"
        "  kept: {from: a, type: files, path: out, format: json, partition_by: [user]}\n",
        slot="file",
        fix=("{user: user}", "{user: user, id: id}"),
    ),
    ProblemEntry(
        "format-columns",
        "Columns that the format cannot represent",
        "Text needs exactly one STRING column; CSV cannot represent arrays, maps, structs and bytes.",
        "Select suitable columns before the sink, or use `format: json`.",
        "kept: {from: orders, type: files, path: out, format: text}",
        slot="sink",
        fix=("format: text", "format: json"),
    ),
)
