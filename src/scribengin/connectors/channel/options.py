"""What the planner tells both ends of a channel. Imports neither Spark nor a client."""

from scribengin.core.options import REQUIRED, NodeType, Option

_KINDS = ("kafka", "folder")
_WHERE = (
    Option("channel", "text", "its id, which every pack names", REQUIRED),
    Option("beside", "list", "the ids of other channels in the same place", ()),
    Option("topic", "text", "Kafka: the topic"),
    Option("path", "path", "the folder", pace=True),
    Option("bootstrap", "text", "Kafka: brokers to ask first, with commas", pace=True),
    Option("config", "map", "Kafka: further settings of the client", {}, secret=True, pace=True),
    Option("partitions", "int", "Kafka: of the topic that is made", 4, pace=True),
    Option("replication", "int", "Kafka: brokers that hold the topic that is made", pace=True),
    Option("retention", "duration", "how long it keeps what was read", 7 * 86_400.0, pace=True),
    Option("keyring", "path", "the file of the keys", pace=True),
    Option("keys", "map", "a key's id → the key, in base64", {}, secret=True, pace=True),
    Option("use", "text", "the id of the key that writes", pace=True),
    Option("tier", "text", "the tier at this end", REQUIRED, pace=True),
    Option("to", "text", "a group, or one of its members", pace=True),
)

_DURABILITIES = ("end_to_end", "store_on_failure", "best_effort")

SOURCE = NodeType(
    type="channel",
    role="source",
    doc="Reads what another tier has handed over.",
    options=(
        Option("kind", "choice", "what it lies in", REQUIRED, _KINDS),
        *_WHERE,
        Option("max_rows", "int", "Kafka: packs that one Batch takes at most", 256, pace=True),
        Option("split", "int", "Kafka: packs that one task reads", 32, pace=True),
        Option("max_bytes", "bytes", "a folder: how much one Batch takes at most", 2**30, pace=True),
        Option("lossy", "bool", "Kafka: go on without what is gone", False, pace=True),
    ),
    abilities=frozenset({"replayable", "bounded"}),
    internal=True,
)

SINK = NodeType(
    type="channel",
    role="sink",
    doc="Hands over to another tier.",
    options=(
        Option("kind", "choice", "what it lies in", REQUIRED, _KINDS, adds={"kafka": frozenset({"units"})}),
        *_WHERE,
        Option("compression", "choice", "of packs", "none", ("none", "gzip", "lz4", "snappy", "zstd"), pace=True),
        Option("rows", "int", "rows of a pack at most", 16_384, pace=True),
        Option("bytes", "bytes", "bytes of a pack at most, before compression", 768 * 1024, pace=True),
        Option(
            "durability",
            "choice",
            "what it does while the channel is away",
            "end_to_end",
            _DURABILITIES,
        ),
        Option("spill", "bytes", "store_on_failure: how much waits at most", 2**30, pace=True),
        Option("key", "list", "Kafka: rows whose values in these columns are equal keep their order", ()),
    ),
    abilities=frozenset({"exactly_once", "append", "update", "complete"}),
    internal=True,
)
