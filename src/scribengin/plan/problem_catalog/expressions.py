"""SQL and columns."""

from __future__ import annotations

from scribengin.plan.problem_catalog.orders import ORDERS
from scribengin.spec.problem_entry import ProblemEntry

CATALOG: tuple[ProblemEntry, ...] = (
    ProblemEntry(
        "sql-syntax",
        "SQL that cannot be read",
        "The text is not valid Spark SQL at that place: a query in `sql:`, an expression everywhere else.",
        "Mend the text.",
        "big: {from: orders, filter: id >}",
        fix=("id >}", "id > 1}"),
    ),
    ProblemEntry(
        "sql-input-unknown",
        "A query reads what the step does not",
        "Tables of a query are the inputs in the step's `from:`, by their ids.",
        "Add it to `from:`.",
        ORDERS + 'steps:\n  a: {from: orders, sql: "SELECT id FROM users"}\nsinks:\n  kept: {from: a, type: console}\n',
        slot="file",
        fix=("FROM users", "FROM orders"),
    ),
    ProblemEntry(
        "sql-input-unread",
        "An input that the query does not read",
        "Its records would be lost without a word.",
        "Take it out of `from:`, or use it.",
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
        "A column that is not there",
        "The input, whose columns are known, has none of that name.",
        "Write one of its columns.",
        "big: {from: orders, filter: amoun > 500}",
        fix=("amoun ", "amount "),
    ),
    ProblemEntry(
        "sql-function-unknown",
        "A function that Spark does not have",
        "Neither Spark's list of functions nor the parser knows it. An error if the name is one letter away from a function of Spark's; a "
        "warning if it may be one that the flow's own Python, or settings of Spark, bring.",
        "Write one of Spark's functions, or use a python step.",
        ORDERS + "steps:\n  a: {from: orders, filter: \"uper(user) = 'A'\"}\nsinks:\n  kept: {from: a, type: console}\n",
        slot="file",
        fix=("uper(", "upper("),
    ),
    ProblemEntry(
        "sql-function-refused",
        "A function that means something else here",
        "Spark has it, but rows do not come from its own file scans, or the function gives another value whenever a Batch is made again.",
        "Use what the problem names: `metadata` of the source says where a row came from.",
        ORDERS + "steps:\n  a: {from: orders, select: [user, input_file_name() AS file]}\nsinks:\n  kept: {from: a, type: console}\n",
        slot="file",
        fix=(", input_file_name() AS file", ""),
    ),
    ProblemEntry(
        "sql-cast-can-fail",
        "A cast that can fail",
        "Spark's ANSI mode is on: one text that is not a number fails the cast, also one that Spark puts in where a text meets a number.",
        "Write `try_cast(text AS INT)`: null where it is not a number.",
        ORDERS + 'steps:\n  a: {from: orders, filter: "CAST(user AS INT) > 3"}\nsinks:\n  kept: {from: a, type: console}\n',
        slot="file",
        severity="warning",
        fix=("CAST(", "try_cast("),
    ),
    ProblemEntry(
        "sql-backslash",
        "A backslash that does not mean what is written",
        "Outside of regular expressions Spark drops a backslash before most letters. LIKE takes one before `%`, `_` and `\\` alone.",
        "Double it: `'C:\\\\data'`, or `r'C:\\data'`.",
        ORDERS + "steps:\n  a: {from: orders, filter: \"user = 'x\\\\d'\"}\nsinks:\n  kept: {from: a, type: console}\n",
        slot="file",
        severity="warning",
        fix=("x\\\\d", "x"),
    ),
    ProblemEntry(
        "sql-time-pattern",
        "A pattern of times that Spark refuses",
        "Names of weekdays (`E`), quarters (`Q`) and weeks cannot be read by `to_timestamp` and its like; Spark fails at the first row.",
        "Cut that part off the text: `to_timestamp(substring(text, 5), 'MMM dd HH:mm:ss Z yyyy')`.",
        ORDERS + "steps:\n  a: {from: orders, filter: \"to_date(user, 'EEE MMM dd yyyy') > '2026-01-01'\"}\n"
        "sinks:\n  kept: {from: a, type: console}\n",
        slot="file",
        fix=("EEE MMM dd yyyy", "yyyy-MM-dd"),
    ),
    ProblemEntry(
        "predicate-type",
        "A predicate that is neither true nor false",
        "`filter`, `route` and `require` take BOOLEAN expressions.",
        "Compare it with something.",
        "big: {from: orders, filter: id + 1}",
        fix=("id + 1", "id > 1"),
    ),
    ProblemEntry(
        "aggregate-missing",
        "A column that aggregates nothing",
        "Each of `columns` gives one value for a group.",
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
        "`filter`, `select`, `route` and `require` see one row at a time.",
        "Use a step with `aggregate:` or `sql:`.",
        'big: {from: orders, filter: "count(*) > 3"}',
        fix=("count(*) > 3", "amount > 3"),
    ),
    ProblemEntry(
        "key-types",
        "Keys of different types",
        "Rows of the two sides would be compared after a cast that you did not ask for.",
        "Cast one of them in a select before.",
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
        "Inputs are put together by name: all must have the same names and types.",
        "Bring them to the same columns with a select.",
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
        "The output would have two columns that cannot be told apart; upper and lower case are the same.",
        "Rename one in a select before.",
        ORDERS + "  b: {type: files, path: b, format: json, schema: 'user STRING, ts TIMESTAMP', static: true}\n"
        "steps:\n"
        "  a: {from: [orders, b], join: {key: [user]}}\n"
        "sinks:\n"
        "  kept: {from: a, type: console}\n",
        slot="file",
        fix=("'user STRING, ts TIMESTAMP'", "'user STRING, since TIMESTAMP'"),
    ),
)
