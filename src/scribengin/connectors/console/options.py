"""The options of `type: console`."""

from scribengin.core.options import NodeType, Option

SINK = NodeType(
    type="console",
    role="sink",
    doc="Prints rows to the terminal (stderr), for viewing only: without a delivery guarantee.",
    options=(Option("rows", "int", "maximum rows shown of each Batch", 20, example="20", low=1),),
    abilities=frozenset({"view", "append", "update", "complete", "no_place", "finds_unaccounted", "checks_local_place"}),
    alone="it prints rows to the terminal and stores none of them",
)
