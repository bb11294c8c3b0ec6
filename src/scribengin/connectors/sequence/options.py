"""What a flow can say of `type: sequence`."""

from scribengin.core.options import NodeType, Option

SOURCE = NodeType(
    type="sequence",
    role="source",
    doc="Makes rows by itself: `id BIGINT` from 0, and `ts TIMESTAMP`, `start` plus the id times `step`.",
    options=(
        Option("rows", "int", "how many in all; endless without it (`--once` needs it)", None, example="1000000", low=0),
        Option("rate", "int", "rows per second at most; as fast as they are taken without it", None, example="50000", low=1, pace=True),
        Option("start", "text", "`ts` of row 0, ISO 8601", "2026-01-01T00:00:00Z", example='"2026-01-01T00:00:00Z"'),
        Option("step", "duration", "between the `ts` of two rows", 1.0, example="10ms"),
        Option("max_rows", "int", "rows one Batch takes at most", 1_000_000, example="100000", low=1, pace=True),
        Option("splits", "int", "tasks a Batch is cut into", 2, example="4", low=1, pace=True),
    ),
    abilities=frozenset({"replayable", "bounded"}),
)
