"""The options that the planner passes to both ends of a channel. Imports neither Spark nor a client."""

from scribengin.core.options import REQUIRED, NodeType, Option

_KINDS = ("kafka", "folder")
_WHERE = (
    Option("channel", "text", "the channel's id, which every record batch carries", REQUIRED),
    Option("beside", "list", "the ids of other channels in the same place", ()),
    Option("topic", "text", "Kafka: the topic"),
    Option("path", "path", "the folder", pace=True),
    Option("bootstrap", "text", "Kafka: bootstrap brokers, separated by commas", pace=True),
    Option("config", "map", "Kafka: additional client settings", {}, secret=True, pace=True),
    Option("partitions", "int", "Kafka: number of partitions of a topic that is created", 4, pace=True),
    Option("replication", "int", "Kafka: number of replicas of a topic that is created", pace=True),
    Option("retention", "duration", "how long rows are kept after they were read", 7 * 86_400.0, pace=True),
    Option("keyring", "path", "the key file", pace=True),
    Option("keys", "map", "a key's id → the key, in base64", {}, secret=True, pace=True),
    Option("use", "text", "the id of the key used for writing", pace=True),
    Option("tier", "text", "the tier at this end", REQUIRED, pace=True),
    Option("to", "text", "a group or a group member", pace=True),
)

_DURABILITIES = ("end_to_end", "store_on_failure", "best_effort")

SOURCE = NodeType(
    type="channel",
    role="source",
    doc="Reads the rows that another tier wrote to the channel.",
    options=(
        Option(
            "kind",
            "choice",
            "storage of the channel",
            REQUIRED,
            _KINDS,
            adds={
                "kafka": frozenset({"reports_position", "verifies", "traces_origin"}),
                "folder": frozenset({"holds_back", "checks_columns", "checks_keys"}),
            },
        ),
        *_WHERE,
        Option("max_rows", "int", "Kafka: maximum record batches of one Batch", 256, pace=True),
        Option("split", "int", "Kafka: record batches that one task reads", 32, pace=True),
        Option("max_bytes", "bytes", "folder: maximum size of one Batch", 2**30, pace=True),
        Option("lossy", "bool", "Kafka: continue without records that are lost", False, pace=True),
    ),
    abilities=frozenset({"replayable", "bounded", "measures_backlog", "handed_over"}),
    internal=True,
)

_BY_DURABILITY = ("chains_batches", "buffers_batches", "restores_files", "traces_rows", "checks_place")

SINK = NodeType(
    type="channel",
    role="sink",
    doc="Writes rows to the channel for another tier.",
    options=(
        Option("kind", "choice", "storage of the channel", REQUIRED, _KINDS, adds={"kafka": frozenset({"commits_units"})}),
        *_WHERE,
        Option("compression", "choice", "compression of record batches", "none", ("none", "gzip", "lz4", "snappy", "zstd"), pace=True),
        Option("rows", "int", "maximum rows of a record batch", 16_384, pace=True),
        Option("bytes", "bytes", "maximum bytes of a record batch, before compression", 768 * 1024, pace=True),
        Option(
            "durability",
            "choice",
            "what the tier does while the channel is unavailable",
            "end_to_end",
            _DURABILITIES,
        ),
        Option("spill", "bytes", "store_on_failure: maximum size of the local buffer", 2**30, pace=True),
        Option("key", "list", "Kafka: rows whose values in these columns are equal keep their order", ()),
    ),
    abilities=frozenset({"exactly_once", "append", "update", "complete", "takes_origins", *_BY_DURABILITY}),
    varying=frozenset({"commits_units", *_BY_DURABILITY}),
    internal=True,
)
