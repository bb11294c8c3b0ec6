"""The options of `type: summary`."""

from scribengin.core.options import NodeType, Option

SINK = NodeType(
    type="summary",
    role="sink",
    doc="Keeps a small table of results in the flow's state: shown at the end of `run` and by `scribengin summary FLOW`.",
    options=(
        Option(
            "sql",
            "text",
            "count, sum, min, max and avg of columns, by columns: a SELECT from `rows` with GROUP BY",
            example="SELECT user, count(*) AS n FROM rows GROUP BY user ORDER BY n DESC",
        ),
        Option("python", "text", "instead of `sql`: a class with `add(record)`, `merge(other)` and `result()`", example="steps:Totals"),
        Option("keep", "int", "maximum number of groups; each kept group is complete", 1000, example="100", low=1, high=10_000),
        Option("format", "choice", "how the table is shown", "table", ("table", "json", "csv")),
    ),
    abilities=frozenset({"exactly_once", "append", "no_place", "finds_unaccounted", "runs_code", "checks_local_place"}),
    checks=("scribengin.connectors.summary.checks:summaries_can_be_kept",),
    alone="its table is built from the decisions of the flow and stored in the flow's state, a single place",
)
