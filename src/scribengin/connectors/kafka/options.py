"""What a flow can say of `type: kafka`. Imports neither Spark nor a client."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from scribengin.connectors.addresses import Fault, brokers_fault, url_check
from scribengin.connectors.files.options import CELLS_READ, CSV_WRITTEN, ENCODING, JSON_OF_MESSAGES, TIME
from scribengin.core.options import REQUIRED, NodeType, Option

_COLUMN = re.compile(r"\\\{[^{}]*\\\}")
"""in a template whose signs are escaped"""

_registry_url_fault = url_check("http", "https", write="write https://HOST:PORT, and a login as `registry_config`")


def _registry_fault(addresses: str) -> Fault | None:
    """Of one registry, or of several with commas."""
    if "@" in addresses:
        return "holds a login", "take it out, and write registry_config: {basic.auth.user.info: ${secret:env/NAME}}"
    return _registry_url_fault([each.strip() for each in addresses.split(",")])


def avro_fault(options: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """What a sink that writes Avro says too much or too little of: (option, what is wrong, what to do)."""
    if options["format"] != "avro":
        return None
    if options["registry"]:
        if options["subject"] is None and "{" in str(options["topic"]):
            return "topic", f"has the topic {options['topic']}, which is another one for each row, and no subject", "add subject: NAME"
        return None
    if options["avro_schema"] is None:
        remedy = "write registry: URL for a schema registry's wire format; avro_schema: FILE for plain Avro"
        return "format", "writes avro and says neither registry nor avro_schema", remedy
    surplus = next((name for name in ("registry_config", "subject") if options[name]), None)
    return None if surplus is None else (surplus, f"has {surplus}, and no registry", f"take {surplus} out, or add registry: URL")


_CONNECTION = (
    Option(
        "bootstrap",
        "text",
        "brokers to ask first, with commas",
        REQUIRED,
        example='"broker1:9092,broker2:9092"',
        pace=True,
        check=brokers_fault,
        by_member=True,
    ),
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

_CSV = tuple(option for option in CSV_WRITTEN if option.name != "header")
_REGISTRY_CONFIG = Option(
    "registry_config",
    "map",
    "avro: further settings of the registry's client, such as `basic.auth.user.info`; secrets as `${secret:env/NAME}`",
    {},
    example="{ssl.ca.location: ca.pem}",
    formats=("avro",),
    secret=True,
    pace=True,
)
_TIMEOUT = Option("timeout", "duration", "how long brokers may be silent", 5.0, example="30s", low=0.1, pace=True)

LOSS_REMEDY = "restore the records, or go on without them: on_data_loss: continue"
"""of a source whose records are gone"""

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
        Option("format", "choice", "how a value is read", REQUIRED, ("json", "csv", "text", "binary", "avro"), example="json"),
        *CELLS_READ,
        ENCODING,
        replace(TIME, formats=("json", "csv", "avro")),
        JSON_OF_MESSAGES,
        Option(
            "registry",
            "text",
            "avro: address of the schema registry; values are in its wire format (a byte 0, a schema's id in four bytes, Avro)",
            None,
            example='"https://registry:8081"',
            formats=("avro",),
            pace=True,
            check=_registry_fault,
        ),
        _REGISTRY_CONFIG,
        Option(
            "avro_schemas",
            "map",
            "avro: a schema's id → its file, for values in the wire format of a registry that is not asked",
            {},
            example='{"7": schemas/order-7.avsc}',
            formats=("avro",),
            travels=True,
        ),
        Option(
            "avro_schema",
            "path",
            "avro: the file of the schema that all values were written by, where they are plain Avro without a schema's id",
            None,
            example="schemas/order.avsc",
            formats=("avro",),
            travels=True,
        ),
        Option(
            "metadata",
            "columns",
            "columns that are taken from elsewhere than the value; as a mapping under other names. `schema` may say their types; headers "
            "are MAP<STRING, BINARY>",
            {},
            ("key", "timestamp", "topic", "partition", "offset", "headers"),
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
        Option(
            "max_rows",
            "int",
            "records one Batch takes at most (`profile: throughput` 4,000,000, `latency` 100,000)",
            1_000_000,
            example="100000",
            low=1,
            pace=True,
            by_profile={"throughput": 4_000_000, "latency": 100_000},
        ),
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
        _TIMEOUT,
    ),
    abilities=frozenset({"replayable", "bounded", "timely"}),
)

_EXACTLY = ("exactly_once",)

SINK = NodeType(
    type="kafka",
    role="sink",
    doc="Writes messages to topics of Kafka, each row once for readers with `isolation.level=read_committed`; with "
    "`delivery: at_least_once` Spark's own sink writes them.",
    options=(
        *_CONNECTION,
        Option("topic", "text", "the topic; `{column}` in it is filled in from the row", REQUIRED, example='"tweets-{country}"'),
        Option("format", "choice", "how a value is written", REQUIRED, ("json", "csv", "text", "binary", "avro"), example="json"),
        *_CSV,
        Option(
            "registry",
            "text",
            "avro: address of the schema registry; values are in its wire format, by a schema made of the columns, or by `avro_schema`",
            None,
            example='"https://registry:8081"',
            formats=("avro",),
            pace=True,
            check=_registry_fault,
        ),
        _REGISTRY_CONFIG,
        Option(
            "subject",
            "text",
            "avro: the registry's subject that the schema is registered in; by default TOPIC-value",
            None,
            example="tweets-value",
            formats=("avro",),
        ),
        Option(
            "avro_schema",
            "path",
            "avro: the file of the schema that values are written by; without `registry` they are plain Avro without a schema's id",
            None,
            example="schemas/order.avsc",
            formats=("avro",),
            travels=True,
        ),
        Option("columns", "list", "what the value holds; by default every column but those named as headers", (), example="[id, text]"),
        Option(
            "key",
            "text",
            "the column that is the message's key, a STRING or BINARY; whole numbers are written as text",
            None,
            example="user",
        ),
        Option("headers", "map", "header → the STRING or BINARY column that it is taken from", {}, example="{trace: trace_id}"),
        Option(
            "timestamp",
            "text",
            "the TIMESTAMP column that is the message's time, by which brokers count `retention.ms`; by default the time of writing",
            None,
            example="ts",
            deliveries=_EXACTLY,
        ),
        Option(
            "partition",
            "text",
            "SQL over the row that gives the partition's number; by default the key says it, as in other clients",
            None,
            example="id % 4",
        ),
        Option("missing_topic", "choice", "what to do about a topic that is not there", "refuse", ("refuse", "make")),
        Option("partitions", "int", "of a topic that is made", 1, example="4", low=1),
        Option(
            "replication",
            "int",
            "brokers that hold a topic that is made, and the markers; by default three, or as many as there are",
            None,
            example="3",
            low=1,
        ),
        Option(
            "record_id",
            "choice",
            "`header` adds where a row came from and the flow's version to each message",
            "header",
            ("header", "none"),
        ),
        Option(
            "markers",
            "text",
            "the topic that says how far the flow is; by default scribengin-FLOW-SINK-markers",
            None,
            example="tweets-markers",
            deliveries=_EXACTLY,
        ),
        Option(
            "compression",
            "choice",
            "of batches of messages (`profile: throughput` lz4)",
            "none",
            ("none", "gzip", "snappy", "lz4", "zstd"),
            pace=True,
            by_profile={"throughput": "lz4"},
        ),
        Option(
            "linger",
            "duration",
            "how long messages wait for others at most, to travel together (`profile: throughput` 50ms, `latency` 0s)",
            0.005,
            example="50ms",
            pace=True,
            by_profile={"throughput": 0.05, "latency": 0.0},
        ),
        Option(
            "transaction_timeout",
            "duration",
            "after which brokers end a transaction whose writer is gone; readers wait so long for what comes behind",
            60.0,
            example="5m",
            low=1,
            pace=True,
            deliveries=_EXACTLY,
        ),
        _TIMEOUT,
    ),
    abilities=frozenset({"exactly_once", "append", "spark_writes", "units"}),
    check=avro_fault,
)


def topics_pattern(template: str) -> str:
    """The regular expression of all names that a sink's `topic`, in which `{COLUMN}` may stand, can come to."""
    return _COLUMN.sub(".*", re.escape(template))
