"""Sources and sinks."""

from __future__ import annotations

from scribengin.plan.problem_catalog.orders import ORDERS
from scribengin.spec.problem_entry import ProblemEntry

CATALOG: tuple[ProblemEntry, ...] = (
    ProblemEntry(
        "option-not-of-format",
        "An option that the format does not have",
        "It would have no effect.",
        "Take it out, or choose the format that has it.",
        "kept: {from: orders, type: files, path: out, format: json, header: true}",
        slot="sink",
        fix=(", header: true", ""),
    ),
    ProblemEntry(
        "schema-missing",
        "A source without columns",
        "JSON and CSV do not say which columns there are and what types they have; guessing would differ from file to file.",
        "Write `schema: id BIGINT, name STRING`, with the columns that you want; `scribengin infer FILE` proposes them.",
        ORDERS + "  raw: {type: files, path: raw, format: json}\n"
        "sinks:\n  kept: {from: raw, type: console}\n  others: {from: orders, type: console}\n",
        slot="file",
        fix=("path: raw, format: json}", "path: raw, format: json, schema: id BIGINT}"),
    ),
    ProblemEntry(
        "evolve-misplaced",
        "`evolve` where nothing can evolve",
        "Only sources whose records our own decoders read can have other columns than are declared; `lenient` is of JSON and CSV files.",
        "Take `evolve` out.",
        'orders: {type: files, path: data, format: parquet, schema: {fields: "id BIGINT", evolve: lenient}}',
        slot="source",
        fix=('{fields: "id BIGINT", evolve: lenient}', '"id BIGINT, amount DOUBLE"'),
    ),
    ProblemEntry(
        "evolve-state",
        "Columns that may be added meet a state, or a channel",
        "A step that keeps rows keeps them with the columns of that day, and the ends of a channel do not start at the same time.",
        "Name the columns that you want in a `select` before the step that keeps state, or take `evolve: add` out.",
        "version: 1\nname: orders\nsources:\n  orders: {type: files, path: data, format: json, schema: {fields: id BIGINT, evolve: add}}\n"
        "steps:\n  once: {from: orders, dedupe: {key: [id]}}\nsinks:\n  kept: {from: once, type: console}\n",
        slot="file",
        fix=("{fields: id BIGINT, evolve: add}", '"id BIGINT, ts TIMESTAMP", watermark: ts 10m'),
    ),
    ProblemEntry(
        "evolve-sink",
        "Columns that may be added reach a sink whose columns stay",
        "CSV is read by place, and `evolve: strict` of a sink allows no other columns: the start after a new one would be refused.",
        "Name the columns that you want in a `select` before the sink, or take `evolve: add` out.",
        "version: 1\nname: orders\nsources:\n  orders: {type: files, path: data, format: json, schema: {fields: id BIGINT, evolve: add}}\n"
        "sinks:\n  kept: {from: orders, type: files, path: out, format: csv}\n",
        slot="file",
        fix=("format: csv}", "format: json}"),
    ),
    ProblemEntry(
        "summary-sql",
        "A summary that cannot be kept current",
        "Each task adds its rows up, and the parts are put together: that works for count, sum, min, max and avg of columns, by columns.",
        "Take another figure, or compute what you want of a row in a step before.",
        'totals: {from: orders, type: summary, sql: "SELECT count(DISTINCT id) AS n FROM rows"}',
        slot="sink",
        fix=("count(DISTINCT id) AS n FROM rows", "count(*) AS n FROM rows"),
    ),
    ProblemEntry(
        "summary-python",
        "A summary's class that is not there, or lacks a method",
        "Each task makes one and gives it the rows; the driver merges them and asks for the result.",
        "Write a class with `add(record)`, `merge(other)` and `result()` in a module of the flow's folder.",
        'totals: {from: orders, type: summary, python: "steps:Totals"}',
        slot="sink",
        fix=('python: "steps:Totals"', 'sql: "SELECT count(*) AS n FROM rows"'),
    ),
    ProblemEntry(
        "schema-surplus",
        "A schema where the columns are given",
        "Text has one STRING column, a sequence has `id` and `ts`.",
        "Take `schema` out.",
        ORDERS
        + "  n: {type: sequence, schema: x INT}\nsinks:\n  kept: {from: n, type: console}\n  others: {from: orders, type: console}\n",
        slot="file",
        fix=(", schema: x INT", ""),
    ),
    ProblemEntry(
        "done-without-archive",
        "An archive without a use, or none where one is needed",
        "`when_done: archive` moves files to the folder that `archive` names; the one means nothing without the other.",
        "Write both, or take both out.",
        "orders: {type: files, path: data, format: json, schema: id BIGINT, when_done: archive}",
        slot="source",
        fix=("schema: id BIGINT, when_done: archive", 'schema: "id BIGINT, amount DOUBLE", when_done: archive, archive: done'),
    ),
    ProblemEntry(
        "done-read-again",
        "Files that are never done",
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
        "Name a folder beside the one that is read.",
        "orders: {type: files, path: data, format: json, schema: id BIGINT, when_done: archive, archive: data}",
        slot="source",
        fix=(
            "schema: id BIGINT, when_done: archive, archive: data",
            'schema: "id BIGINT, amount DOUBLE", when_done: archive, archive: done',
        ),
    ),
    ProblemEntry(
        "delivery-unsupported",
        "Exactly-once that cannot be kept",
        "The sink cannot commit a Batch once, or a source cannot hand out again what it handed out.",
        "Write `delivery: at_least_once`, or use a sink and sources that can.",
        "",
    ),
    ProblemEntry(
        "option-not-of-delivery",
        "An option that the delivery does not have",
        "With `delivery: at_least_once` Spark's own Kafka sink writes. It knows no transactions, no markers, and no time of a message.",
        "Take it out, or write `delivery: exactly_once`.",
        "kept: {from: orders, type: kafka, bootstrap: 'b:9092', topic: t, format: json, delivery: at_least_once, timestamp: ts}",
        slot="sink",
        fix=(", delivery: at_least_once, timestamp: ts", ", timestamp: ts"),
    ),
    ProblemEntry(
        "table-mode",
        "A table's mode and its key",
        "`mode: append` adds rows and tells them apart by nothing; `upsert` needs a `key`, `changes` a `key` and the column that says the "
        "change, `overwrite` the columns of `partition_by`, whose values say which rows are replaced. Of a source `mode: incremental` "
        "needs `by`, and `snapshot` looks at no such column. `visible: unit` adds rows: of one key, which may come in several "
        "units, nobody could say which row is the last.",
        "Add what the mode needs, take out what it does not look at, or write another mode.",
        "kept: {from: orders, type: postgres, server: 'postgresql://etl@db/shop', table: kept, mode: upsert}",
        slot="sink",
        fix=("mode: upsert", "mode: upsert, key: [id]"),
    ),
    ProblemEntry(
        "key-incomplete",
        "A key that does not tell groups or pairs apart",
        "A row of an aggregation is one of a group, a row of a join of two streams one of a pair: it has no record of its own, and its id "
        "comes from `key`. That must hold all columns of the group key and, of a window, its start or its end; behind a join the columns "
        "that it joins on. Else two groups have one id, and one overwrites the other. A column that is the same in all rows "
        "(`filter: kind = 'a'`) may be left out. What cannot be known is not told: behind Python, `dedupe`, an intersection, and SQL that "
        "is not a plain SELECT.",
        "Add the columns to `key`. A column that follows from another one, such as a name from its id, is better computed than grouped by: "
        "`max(name)`. Tables with `version` may have a shorter key: of rows of one key the one with the greatest value there stands.",
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
        "With `emit: update` a group comes again whenever its values change. One that is in the key makes another id of each of them: the "
        "new row stands beside the old one. With `emit: append` a group comes once, and its values may be in the key beside all of the "
        "group key.",
        "Take it out of `key`, which needs the columns of the group key and no other.",
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
        "An address is printed and stored with the flow; only what is written as a secret is not.",
        'Take it out of the address and write `config: {password: "${secret:env/NAME}"}`.',
        "kept: {from: orders, type: postgres, server: 'postgresql://etl:hunter2@db/shop', table: kept}",
        slot="sink",
        fix=("etl:hunter2@db/shop'", "etl@db/shop', config: {password: '${secret:env/HOME}'}"),
    ),
    ProblemEntry(
        "table-two-writers",
        "Two sinks and one table",
        "Neither could tell which rows are its own, and each would refuse what the other has written.",
        "Give each sink its own table, or let one read both steps.",
        ORDERS + "sinks:\n"
        "  a: {from: orders, type: postgres, server: 'postgresql://etl@db/shop', table: kept}\n"
        "  b: {from: orders, type: postgres, server: 'postgresql://etl@db/shop', table: public.kept}\n",
        slot="file",
        fix=("public.kept", "public.more"),
    ),
    ProblemEntry(
        "writer-options",
        "A writer of Spark that cannot write so",
        "A writer of files needs one `path`. Formats that Spark only reads, or that keep nothing, cannot be sinks. What `transaction` "
        "names is set for each Batch.",
        "Do what the message says.",
        "kept: {from: orders, type: spark, format: orc, delivery: at_least_once}",
        slot="sink",
        fix=("format: orc,", "format: orc, path: out,"),
    ),
    ProblemEntry(
        "http-url",
        "An address that nothing can be sent to",
        "`url` begins with https:// (or http://) and a host. With `body: object` its path and query may name columns that hold single "
        "values; the host may not.",
        "Write https://HOST/PATH, with columns as `{column}` behind the host only.",
        "kept: {from: orders, type: http, url: 'api.example.com/orders', delivery: at_least_once}",
        slot="sink",
        fix=("'api.example", "'https://api.example"),
    ),
    ProblemEntry(
        "http-options",
        "A request that says two things",
        "Some headers say how a request is sent; the client sets them. `rows` and `bytes` belong to requests of several rows.",
        "Take it out, or write `body: array` or `body: lines`.",
        "kept: {from: orders, type: http, url: 'https://api.example.com/orders', rows: 100, delivery: at_least_once}",
        slot="sink",
        fix=("rows: 100, ", ""),
    ),
    ProblemEntry(
        "http-plain",
        "Rows in plain on the network",
        "With http:// everyone on the way to another host can read and change what is sent.",
        "Write https://, if the server has it.",
        "kept: {from: orders, type: http, url: 'http://api.example.com/orders', delivery: at_least_once}",
        slot="sink",
        severity="warning",
        fix=("http://", "https://"),
    ),
    ProblemEntry(
        "table-feeds-itself",
        "A table that feeds itself",
        "What the flow writes to a table that it reads would come to it again, and so on for ever.",
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
        "An object store's address",
        "A url names a bucket and a prefix in it (`s3://shop/orders`); the server, where it is not AWS's, is `endpoint`, with its scheme.",
        "Correct it as the message says.",
        "kept: {from: orders, type: objects, url: 'http://store:9000/shop', format: json}",
        slot="sink",
        fix=("http://store:9000/shop", "s3://shop/orders"),
    ),
    ProblemEntry(
        "object-login",
        "What a login is made of",
        "`config` of an object store holds `access_key_id`, `secret_access_key` and perhaps `session_token`; the rest are options.",
        "Correct the key, or take it out.",
        "kept: {from: orders, type: objects, url: 's3://shop/orders', format: json, config: {acces_key_id: AK1}}",
        slot="sink",
        fix=("{acces_key_id: AK1}", "{access_key_id: AK1, secret_access_key: '${secret:env/HOME}'}"),
    ),
    ProblemEntry(
        "object-two-writers",
        "Two sinks below one prefix",
        "Neither could tell which objects are its own, and each would refuse what the other has written.",
        "Give each sink a prefix of its own, none within another.",
        ORDERS + "sinks:\n"
        "  a: {from: orders, type: objects, url: 's3://shop/orders', format: json}\n"
        "  b: {from: orders, type: objects, url: 's3://shop/orders/large', format: json}\n",
        slot="file",
        fix=("s3://shop/orders/large", "s3://shop/large"),
    ),
    ProblemEntry(
        "delivery-together",
        "Spark's own sink beside another",
        "Where Spark's own sink writes, its write is all that a Batch does; nothing can commit together with it.",
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
        "A Query's name is taken",
        "`together: NAME` has the id of a sink outside the group; both Queries would have one state folder.",
        "Choose another name.",
        ORDERS + "sinks:\n  a: {from: orders, type: console, together: b}\n  b: {from: orders, type: console}\n",
        slot="file",
        fix=("together: b}", "together: both}"),
    ),
    ProblemEntry(
        "together-trigger",
        "Two triggers in one Query",
        "Sinks that go together run in the same Batches.",
        "Give both the same trigger.",
        ORDERS + "sinks:\n"
        "  a: {from: orders, type: console, together: q, trigger: 1s}\n"
        "  b: {from: orders, type: console, together: q, trigger: 2s}\n",
        slot="file",
        fix=("trigger: 2s", "trigger: 1s"),
    ),
    ProblemEntry(
        "partition-unknown",
        "Partitioned by a column that is not there",
        "`partition_by` names columns of the rows that the sink gets.",
        "Write a column of the input, or make it in a step before.",
        "kept: {from: orders, type: files, path: out, format: json, partition_by: [day]}",
        slot="sink",
        fix=("[day]", "[id]"),
    ),
    ProblemEntry(
        "partition-time",
        "Folders by a time that cannot be",
        "The `time` of `partition_by` is a TIMESTAMP of the rows and the last of its folders; the path begins with the year, leaves no unit"
        " out, and names columns that the rows do not have. A Delta table with `mode: upsert` has none.",
        "Write a path such as `dt=%Y-%m-%d/hour=%H`, and the name of a region as `time_zone`.",
        'kept: {from: orders, type: files, path: out, format: json, partition_by: [{time: ts, path: "hour=%H"}]}',
        slot="sink",
        fix=('path: "hour=%H"', 'path: "day=%Y-%m-%d"'),
    ),
    ProblemEntry(
        "partition-no-time",
        "What only folders by time have",
        "`close` and `keep` go by when a folder's time is over.",
        "Add a `time` to `partition_by`, or take the key out.",
        "kept: {from: orders, type: files, path: out, format: json, keep: 30d}",
        slot="sink",
        fix=("keep: 30d", 'partition_by: [{time: ts, path: "day=%Y-%m-%d"}], keep: 30d'),
    ),
    ProblemEntry(
        "close-reopen",
        "Folders that cannot be opened again",
        "`late: reopen` takes a folder's marker away when late rows come. Files can do that. In an object store and in HDFS a marker is "
        "written once, since a process that slept could put back one that was taken away; what the log of a Delta table says to be complete"
        " stays so.",
        "Write `late: dead`: late rows are dead letters, which `dead list` shows; or write to `type: files`.",
        "kept: {from: orders, type: objects, url: s3://shop/kept, format: json, "
        'partition_by: [{time: ts, path: "day=%Y-%m-%d"}], close: {delay: 10m, late: reopen}}',
        slot="sink",
        fix=("late: reopen", "late: dead"),
    ),
    ProblemEntry(
        "partition-all",
        "Nothing left beside the partitions",
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
        "Columns that the format cannot hold",
        "Text takes one STRING column; CSV has no form for arrays, maps, structs and bytes.",
        "Select before the sink, or use `format: json`.",
        "kept: {from: orders, type: files, path: out, format: text}",
        slot="sink",
        fix=("format: text", "format: json"),
    ),
)
