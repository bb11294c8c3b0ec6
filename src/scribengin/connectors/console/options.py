"""What a flow can say of `type: console`."""

from scribengin.core.options import NodeType, Option

SINK = NodeType(
    type="console",
    role="sink",
    doc="Shows rows on the terminal (stderr): a view, outside the guarantee.",
    options=(Option("rows", "int", "rows shown of each Batch at most", 20, example="20", low=1),),
    abilities=frozenset({"view", "append", "update", "complete"}),
    alone="it shows rows on the terminal, which keeps none of them",
)
