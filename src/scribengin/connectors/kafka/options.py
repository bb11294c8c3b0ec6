"""The options of `type: kafka`. Imports neither Spark nor a client."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from scribengin.connectors.addresses import DataLocation, Fault, brokers_fault, url_check
from scribengin.connectors.files.options import CELLS_READ, CSV_WRITTEN, ENCODING, JSON_OF_MESSAGES, SHAPE_CHECK, TIME
from scribengin.core.options import REQUIRED, NodeType, Option

_COLUMN = re.compile(r"\\\{[^{}]*\\\}")
"""a column of a template, after special characters of the template were escaped"""

_registry_url_fault = url_check("http", "https", write="write https://HOST:PORT, and a login as `registry_config`")


def _registry_fault(addresses: str) -> Fault | None:
    """The error in `registry`, which is one address or several separated by commas; None if it is valid."""
    if "@" in addresses:
        return "contains a login", "remove it, and write registry_config: {basic.auth.user.info: ${secret:env/NAME}}"
    return _registry_url_fault([each.strip() for each in addresses.split(",")])


def avro_fault(options: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """The first contradictory or missing option of a sink that writes Avro, as (option, what is wrong, remedy); None if there is none."""
    if options["format"] != "avro":
        return None
    if options["registry"]:
        if options["subject"] is None and "{" in str(options["topic"]):
            return "topic", f"has the topic {options['topic']}, which differs by row, and no subject", "add subject: NAME"
        return None
    if options["avro_schema"] is None:
        remedy = "write registry: URL for a schema registry's wire format; avro_schema: FILE for plain Avro"
        return "format", "writes avro and has neither registry nor avro_schema", remedy
    surplus = next((name for name in ("registry_config", "subject") if options[name]), None)
    return None if surplus is None else (surplus, f"has {surplus}, but no registry", f"remove {surplus}, or add registry: URL")


_CONNECTION = (
    Option(
        "bootstrap",
        "text",
        "bootstrap brokers, separated by commas",
        REQUIRED,
        example='"broker1:9092,broker2:9092"',
        pace=True,
        check=brokers_fault,
        by_member=True,
    ),
    Option(
        "config",
        "map",
        "additional client settings (librdkafka), such as `security.protocol`; secrets as `${secret:env/NAME}`",
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
    "avro: additional settings of the registry client, such as `basic.auth.user.info`; secrets as `${secret:env/NAME}`",
    {},
    example="{ssl.ca.location: ca.pem}",
    formats=("avro",),
    secret=True,
    pace=True,
)
_TIMEOUT = Option("timeout", "duration", "how long to wait for brokers", 5.0, example="30s", low=0.1, pace=True)

LOSS_REMEDY = "restore the records, or continue without them: on_data_loss: continue"
"""the remedy of a source whose records are lost"""


def topics_read(options: Mapping[str, Any]) -> Iterator[DataLocation]:
    """The topics that a source reads: each by its name; for `pattern` one location that stands for all matching topics."""
    at = _cluster_of(options)
    for name in dict.fromkeys([*options.get("topics", ()), *options.get("assign", {})]):
        yield DataLocation("topic", at, str(name))
    if options.get("pattern"):
        yield DataLocation("topic", at, str(options["pattern"]), many=True)


def topics_written(options: Mapping[str, Any]) -> Iterator[DataLocation]:
    """The topic that a sink writes; for a template one location that stands for all topics that can result from it."""
    template = str(options.get("topic", ""))
    pattern = topics_pattern(template)
    many = pattern != re.escape(template)
    yield DataLocation("topic", _cluster_of(options), pattern if many else template, many=many)


def _cluster_of(options: Mapping[str, Any]) -> str:
    return ",".join(sorted(each.strip() for each in str(options.get("bootstrap", "")).split(",")))


SOURCE = NodeType(
    type="kafka",
    role="source",
    doc="Reads Kafka topics, each record once, in the order of its partition.",
    options=(
        *_CONNECTION,
        Option("topics", "list", "the topics to read", (), example="[tweets]"),
        Option(
            "pattern",
            "text",
            "a regular expression; every topic whose full name matches is read, including new ones",
            None,
            example='"tweets-.*"',
        ),
        Option("assign", "map", "topic → its partitions to read, separated by commas", {}, example='{tweets: "0,1"}'),
        Option("format", "choice", "format of the value", REQUIRED, ("json", "csv", "text", "binary", "avro"), example="json"),
        *CELLS_READ,
        ENCODING,
        replace(TIME, formats=("json", "csv", "avro")),
        JSON_OF_MESSAGES,
        Option(
            "registry",
            "text",
            "avro: address of the schema registry; values are in its wire format (a byte 0, the schema id in four bytes, Avro)",
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
            "avro: schema id → its file, for values in the wire format of a registry that is not used",
            {},
            example='{"7": schemas/order-7.avsc}',
            formats=("avro",),
            travels=True,
        ),
        Option(
            "avro_schema",
            "path",
            "avro: the schema file of all values, for plain Avro without a schema id",
            None,
            example="schemas/order.avsc",
            formats=("avro",),
            travels=True,
        ),
        Option(
            "metadata",
            "columns",
            "columns from parts of the record other than the value; a mapping renames them. `schema` may give their types; headers are "
            "MAP<STRING, BINARY>",
            {},
            ("key", "timestamp", "topic", "partition", "offset", "headers"),
            example="{user: key, at: timestamp}",
        ),
        Option(
            "start", "text", "where to start on the first run: `earliest`, `latest`, or a time in ISO 8601", "earliest", example="latest"
        ),
        Option(
            "offsets",
            "map",
            "`topic-partition` → the offset to start at on the first run; overrides `start`",
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
        Option("on_data_loss", "choice", "if records are lost before they were read", "stop", ("stop", "continue")),
        Option(
            "max_rows",
            "int",
            "maximum records of one Batch (`profile: throughput` 4,000,000, `latency` 100,000)",
            1_000_000,
            example="100000",
            low=1,
            pace=True,
            by_profile={"throughput": 4_000_000, "latency": 100_000},
        ),
        Option("min_rows", "int", "minimum records that a Batch waits for, at most for `max_delay`", 1, example="1000", low=1, pace=True),
        Option("max_delay", "duration", "maximum wait for `min_rows`", 1.0, example="10s", pace=True),
        Option("split", "int", "records of a partition that one task reads", 250_000, example="100000", low=1, pace=True),
        Option(
            "group",
            "text",
            "the consumer group whose offsets show the position of a query to lag tools; by default scribengin.FLOW.QUERY",
            None,
            example="tweets-counter",
            pace=True,
        ),
        _TIMEOUT,
    ),
    abilities=frozenset({"replayable", "bounded", "timely", "measures_backlog", "reports_position", "verifies", "traces_origin"}),
    locations=topics_read,
    checks=(SHAPE_CHECK,),
)

_EXACTLY = ("exactly_once",)

_STAGED = ("chains_batches", "commits_units", "traces_rows")
"""abilities that Scribengin's own sink has and Spark's does not"""

SINK = NodeType(
    type="kafka",
    role="sink",
    doc="Writes messages to Kafka topics, each row once for readers with `isolation.level=read_committed`; with `delivery: "
    "at_least_once` Spark's own sink writes them.",
    options=(
        *_CONNECTION,
        Option("topic", "text", "the topic; `{column}` in it is replaced by the row's value", REQUIRED, example='"tweets-{country}"'),
        Option("format", "choice", "format of the value", REQUIRED, ("json", "csv", "text", "binary", "avro"), example="json"),
        *_CSV,
        Option(
            "registry",
            "text",
            (
                "avro: address of the schema registry; values are in its wire format, with a schema built from the columns, or with "
                "`avro_schema`"
            ),
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
            "avro: the schema file for writing values; without `registry` they are plain Avro without a schema id",
            None,
            example="schemas/order.avsc",
            formats=("avro",),
            travels=True,
        ),
        Option("columns", "list", "columns of the value; by default every column that is not used as a header", (), example="[id, text]"),
        Option(
            "key",
            "text",
            "the column of the message key, STRING or BINARY; integers are written as text",
            None,
            example="user",
        ),
        Option("headers", "map", "header → the STRING or BINARY column that it is taken from", {}, example="{trace: trace_id}"),
        Option(
            "timestamp",
            "text",
            "the TIMESTAMP column of the message timestamp, which brokers use for `retention.ms`; by default the time of writing",
            None,
            example="ts",
            deliveries=_EXACTLY,
        ),
        Option(
            "partition",
            "text",
            "an SQL expression over the row for the partition number; by default the key determines it, as in other clients",
            None,
            example="id % 4",
        ),
        Option("missing_topic", "choice", "what to do if a topic does not exist", "refuse", ("refuse", "make")),
        Option("partitions", "int", "number of partitions of a topic that is created", 1, example="4", low=1),
        Option(
            "replication",
            "int",
            "replicas of a topic that is created, and of the commit markers; by default three, or the number of brokers if smaller",
            None,
            example="3",
            low=1,
        ),
        Option(
            "record_id",
            "choice",
            "`header` adds the row's origin and the flow's version to each message",
            "header",
            ("header", "none"),
        ),
        Option(
            "markers",
            "text",
            "the topic of the commit markers; by default scribengin-FLOW-SINK-markers",
            None,
            example="tweets-markers",
            deliveries=_EXACTLY,
        ),
        Option(
            "compression",
            "choice",
            "compression of message batches (`profile: throughput` lz4)",
            "none",
            ("none", "gzip", "snappy", "lz4", "zstd"),
            pace=True,
            by_profile={"throughput": "lz4"},
        ),
        Option(
            "linger",
            "duration",
            "how long messages wait at most to be sent together (`profile: throughput` 50ms, `latency` 0s)",
            0.005,
            example="50ms",
            pace=True,
            by_profile={"throughput": 0.05, "latency": 0.0},
        ),
        Option(
            "transaction_timeout",
            "duration",
            "brokers abort a transaction after this time if its writer has failed; until then readers wait for later records",
            60.0,
            example="5m",
            low=1,
            pace=True,
            deliveries=_EXACTLY,
        ),
        _TIMEOUT,
    ),
    varying=frozenset({"spark_writes", *_STAGED}),
    abilities=frozenset({"exactly_once", "append", "takes_json", "checks_place", "spark_writes", *_STAGED}),
    locations=topics_written,
    check=avro_fault,
)


def topics_pattern(template: str) -> str:
    """The regular expression for all topic names that can result from a sink's `topic`, which may contain `{COLUMN}`."""
    return _COLUMN.sub(".*", re.escape(template))
