"""SQL and columns."""

from __future__ import annotations

from scribengin.spec.problem_entry import ORDERS, ProblemEntry

CATALOG: tuple[ProblemEntry, ...] = (
    ProblemEntry(
        "sql-syntax",
        "SQL that cannot be parsed",
        "The text is not valid Spark SQL at that place: a query in `sql:`, an expression everywhere else.",
        "Correct the SQL text.",
        "big: {from: orders, filter: id >}",
        fix=("id >}", "id > 1}"),
    ),
    ProblemEntry(
        "sql-input-unknown",
        "A query reads a table that is not an input of the step",
        "The tables of a query are the ids in the step's `from:`.",
        "Add it to `from:`.",
        ORDERS + 'steps:\n  a: {from: orders, sql: "SELECT id FROM users"}\nsinks:\n  kept: {from: a, type: console}\n',
        slot="file",
        fix=("FROM users", "FROM orders"),
    ),
    ProblemEntry(
        "sql-input-unread",
        "An input that the query does not read",
        "Its records would be dropped silently.",
        "Take it out of `from:`, or use it in the query.",
        ORDERS + "  b: {type: sequence}\n"
        "steps:\n"
        '  a: {from: [orders, b], sql: "SELECT id FROM orders"}\n'
        "sinks:\n"
        "  kept: {from: a, type: console}\n",
        slot="file",
        fix=("FROM orders", "FROM orders UNION ALL SELECT id FROM b"),
    ),
    ProblemEntry(
        "column-unknown",
        "An unknown column",
        "The input has no column of that name.",
        "Write one of its columns.",
        "big: {from: orders, filter: amoun > 500}",
        fix=("amoun ", "amount "),
    ),
    ProblemEntry(
        "sql-function-unknown",
        "A function that Spark does not have",
        "The function is not in Spark's list of functions, and the parser does not know it. It is an error if the name is almost "
        "that of a Spark function, and a "
        "warning if the flow's own Python or Spark settings may define it.",
        "Write one of Spark's functions, or use a python step.",
        ORDERS + "steps:\n  a: {from: orders, filter: \"uper(user) = 'A'\"}\nsinks:\n  kept: {from: a, type: console}\n",
        slot="file",
        fix=("uper(", "upper("),
    ),
    ProblemEntry(
        "sql-function-refused",
        "A function that means something else here",
        "Spark has the function, but rows do not come from Spark's own file scans, or the function returns another value when a "
        "Batch is repeated.",
        "Use the alternative that the problem names; `metadata` of the source adds the origin of a row as columns.",
        ORDERS + "steps:\n  a: {from: orders, select: [user, input_file_name() AS file]}\nsinks:\n  kept: {from: a, type: console}\n",
        slot="file",
        fix=(", input_file_name() AS file", ""),
    ),
    ProblemEntry(
        "sql-cast-can-fail",
        "A cast that can fail",
        "Spark's ANSI mode is on: one text that is not a number fails the cast. That includes a cast that Spark adds where a text "
        "meets a number.",
        "Write `try_cast(text AS INT)`: null if the text is not a number.",
        ORDERS + 'steps:\n  a: {from: orders, filter: "CAST(user AS INT) > 3"}\nsinks:\n  kept: {from: a, type: console}\n',
        slot="file",
        severity="warning",
        fix=("CAST(", "try_cast("),
    ),
    ProblemEntry(
        "sql-backslash",
        "A backslash that does not mean what is written",
        "Outside regular expressions, Spark drops a backslash before most characters. LIKE allows one only before `%`, `_` and `\\`.",
        "Double it: `'C:\\\\data'`, or `r'C:\\data'`.",
        ORDERS + "steps:\n  a: {from: orders, filter: \"user = 'x\\\\d'\"}\nsinks:\n  kept: {from: a, type: console}\n",
        slot="file",
        severity="warning",
        fix=("x\\\\d", "x"),
    ),
    ProblemEntry(
        "sql-time-pattern",
        "A time pattern that Spark rejects",
        "`to_timestamp` and similar functions cannot parse names of weekdays (`E`), quarters (`Q`) and weeks; Spark fails at the "
        "first row.",
        "Remove that part from the text: `to_timestamp(substring(text, 5), 'MMM dd HH:mm:ss Z yyyy')`.",
        ORDERS + "steps:\n  a: {from: orders, filter: \"to_date(user, 'EEE MMM dd yyyy') > '2026-01-01'\"}\n"
        "sinks:\n  kept: {from: a, type: console}\n",
        slot="file",
        fix=("EEE MMM dd yyyy", "yyyy-MM-dd"),
    ),
    ProblemEntry(
        "predicate-type",
        "A predicate that is neither true nor false",
        "`filter`, `route` and `require` take BOOLEAN expressions.",
        "Write a comparison.",
        "big: {from: orders, filter: id + 1}",
        fix=("id + 1", "id > 1"),
    ),
    ProblemEntry(
        "aggregate-missing",
        "A column that is not aggregated",
        "Each of `columns` must be one value for a group.",
        "Wrap it, such as `max(user)`, or add it to `by`.",
        ORDERS + "steps:\n"
        "  a: {from: orders, aggregate: {window: {time: ts, size: 1h}, columns: {who: user}}}\n"
        "sinks:\n"
        "  kept: {from: a, type: console}\n",
        slot="file",
        fix=("who: user", "who: max(user)"),
    ),
    ProblemEntry(
        "aggregate-misplaced",
        "An aggregate function outside an aggregation",
        "`filter`, `select`, `route` and `require` process one row at a time.",
        "Use a step with `aggregate:` or `sql:`.",
        'big: {from: orders, filter: "count(*) > 3"}',
        fix=("count(*) > 3", "amount > 3"),
    ),
    ProblemEntry(
        "key-types",
        "Keys of different types",
        "Rows of the two sides would be compared after an implicit cast.",
        "Cast one of them in a select step before.",
        ORDERS + "  b: {type: files, path: b, format: json, schema: id STRING, static: true}\n"
        "steps:\n"
        "  a: {from: [orders, b], join: {key: [id]}}\n"
        "sinks:\n"
        "  kept: {from: a, type: console}\n",
        slot="file",
        fix=("schema: id STRING", "schema: id BIGINT"),
    ),
    ProblemEntry(
        "parse-type",
        "Parsing a column that is not text",
        "A parse step reads a STRING or BINARY column.",
        "Name the column that holds the text.",
        "big: {from: orders, parse: {column: id, format: json, schema: x INT}}",
        fix=("parse: {column: id, format: json, schema: x INT}", "select: [id, CAST(id AS STRING) AS text]"),
    ),
    ProblemEntry(
        "union-columns",
        "A union of different columns",
        "Inputs are merged by column name: all must have the same names and types.",
        "Give them the same columns with a select step.",
        ORDERS + "  b: {type: sequence}\nsteps:\n  a: {from: [orders, b]}\nsinks:\n  kept: {from: a, type: console}\n",
        slot="file",
        fix=(
            "b: {type: sequence}",
            "b: {type: files, path: b, format: json, schema: 'id BIGINT, user STRING, amount DOUBLE, ts TIMESTAMP', watermark: ts 10m}",
        ),
    ),
    ProblemEntry(
        "column-twice",
        "Two columns of one name",
        "The output would have two columns with the same name; upper and lower case count as the same.",
        "Rename one in a select step before.",
        ORDERS + "  b: {type: files, path: b, format: json, schema: 'user STRING, ts TIMESTAMP', static: true}\n"
        "steps:\n"
        "  a: {from: [orders, b], join: {key: [user]}}\n"
        "sinks:\n"
        "  kept: {from: a, type: console}\n",
        slot="file",
        fix=("'user STRING, ts TIMESTAMP'", "'user STRING, since TIMESTAMP'"),
    ),
)
