"""What a flow can say of `type: kafka`. Imports neither Spark nor a client."""

from scribengin.core.options import REQUIRED, NodeType, Option

_CONNECTION = (
    Option("bootstrap", "text", "brokers to ask first, with commas", REQUIRED, example='"broker1:9092,broker2:9092"', pace=True),
    Option(
        "config",
        "map",
        "further settings of the client (librdkafka), such as `security.protocol`; secrets as `${secret:env/NAME}`",
        {},
        example="{security.protocol: SSL, ssl.ca.location: ca.pem}",
        secret=True,
        pace=True,
    ),
)

SOURCE = NodeType(
    type="kafka",
    role="source",
    doc="Reads topics of Kafka, each record once, in the order of its partition.",
    options=(
        *_CONNECTION,
        Option("topics", "list", "the topics to read", (), example="[tweets]"),
        Option(
            "pattern",
            "text",
            "a regular expression; every topic whose whole name it matches is read, new ones too",
            None,
            example='"tweets-.*"',
        ),
        Option("assign", "map", "topic → its partitions to read, with commas", {}, example='{tweets: "0,1"}'),
        Option("format", "choice", "how a value is read", REQUIRED, ("json", "csv", "text", "binary"), example="json"),
        Option("delimiter", "text", "csv: what stands between two cells", ",", example=",", formats=("csv",)),
        Option("null", "text", "csv: the cell that means null", "", example="NA", formats=("csv",)),
        Option(
            "metadata",
            "map",
            "column of the schema → what it is taken from instead of the value: key, timestamp, topic, partition, offset, headers",
            {},
            example="{user: key, at: timestamp}",
        ),
        Option("start", "text", "where to begin the first time: `earliest`, `latest`, or a time in ISO 8601", "earliest", example="latest"),
        Option(
            "offsets",
            "map",
            "`topic-partition` → the offset to begin at the first time, where `start` does not hold",
            {},
            example='{tweets-0: "100"}',
        ),
        Option(
            "isolation",
            "choice",
            "`read_committed` waits for transactions and leaves out aborted ones",
            "read_committed",
            ("read_committed", "read_uncommitted"),
        ),
        Option("on_data_loss", "choice", "what records do that are gone before they were read", "stop", ("stop", "continue")),
        Option("max_rows", "int", "records one Batch takes at most", 1_000_000, example="100000", low=1, pace=True),
        Option("min_rows", "int", "records that a Batch waits for, for `max_delay` at most", 1, example="1000", low=1, pace=True),
        Option("max_delay", "duration", "how long records wait at most for `min_rows`", 1.0, example="10s", pace=True),
        Option("split", "int", "how many records of a partition one task reads", 250_000, example="100000", low=1, pace=True),
        Option(
            "group",
            "text",
            "the consumer group whose offsets tell lag tools how far a Query is; by default scribengin.FLOW.QUERY",
            None,
            example="tweets-counter",
            pace=True,
        ),
        Option("timeout", "duration", "how long brokers may be silent", 5.0, example="30s", low=0.1, pace=True),
    ),
    abilities=frozenset({"replayable", "bounded"}),
)
