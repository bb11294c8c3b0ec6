"""Terms of other systems and of earlier Scribengin versions, with the terms used here. Feeds did-you-mean and docs/coming-from.md."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Collection


Origin = Literal["Scribengin", "Flume", "Storm", "Kafka Connect", "Flink", "Redpanda Connect", "PySpark"]


@dataclass(frozen=True, slots=True)
class OldWord:
    """A term of another system. `ours` is the corresponding key, choice or type of the flow file; `note` adds details if one word is not
    enough.

    `runs` is False if this version does not support it yet.
    """

    word: str
    origin: Origin
    ours: str
    note: str = ""
    runs: bool = True


WORDS: tuple[OldWord, ...] = (
    OldWord("dataflow", "Scribengin", "name", "a dataflow is a flow; `name:` is its name"),
    OldWord("dataflow_id", "Scribengin", "name"),
    OldWord("input", "Scribengin", "from"),
    OldWord("inputs", "Scribengin", "from"),
    OldWord("output", "Scribengin", "sinks"),
    OldWord("outputs", "Scribengin", "sinks"),
    OldWord("operator", "Scribengin", "steps"),
    OldWord("operators", "Scribengin", "steps"),
    OldWord("scribe", "Scribengin", "python", 'a scribe\'s `process` is a Python function: `python: "module:function"`'),
    OldWord("processor", "Scribengin", "python"),
    OldWord("storage", "Scribengin", "type"),
    OldWord("interceptor", "Flume", "python", 'an interceptor is a step: `python: "module:function"`'),
    OldWord("interceptors", "Flume", "steps", "write each interceptor as a step"),
    OldWord("decorator", "Flume", "python", 'a decorator is a step: `python: "module:function"`'),
    OldWord("selector", "Flume", "route"),
    OldWord("multiplexing", "Flume", "route"),
    OldWord("replicating", "Flume", "from", "several nodes may read the same node: name it in each `from:`"),
    OldWord("agent_source", "Flume", "sources"),
    OldWord("collector_sink", "Flume", "sinks"),
    OldWord("roll_size", "Flume", "roll"),
    OldWord("roll_millis", "Flume", "roll"),
    OldWord("batch_size", "Flume", "max_files", "the size of a Batch is set by `max_files`, `max_bytes` or `max_rows` of the source"),
    OldWord("channel", "Flume", "edges", "nodes are connected by `from:`; a channel is an edge between two tiers"),
    OldWord("channels", "Flume", "edges", "nodes are connected by `from:`; a channel is an edge between two tiers"),
    OldWord("choke", "Flume", "limit", "a property of an edge"),
    OldWord("chokes", "Flume", "limit", "a property of an edge"),
    OldWord("E2E", "Flume", "end_to_end", "a value of `durability` of an edge"),
    OldWord("DFO", "Flume", "store_on_failure", "a value of `durability` of an edge"),
    OldWord("BE", "Flume", "best_effort", "a value of `durability` of an edge"),
    OldWord("agentE2ESink", "Flume", "end_to_end", "a value of `durability` of a source with `type: agents`, or of its edge"),
    OldWord("agentSink", "Flume", "end_to_end", "a value of `durability` of a source with `type: agents`, or of its edge"),
    OldWord("agentDFOSink", "Flume", "store_on_failure", "a value of `durability` of a source with `type: agents`, or of its edge"),
    OldWord("agentBESink", "Flume", "best_effort", "a value of `durability` of a source with `type: agents`, or of its edge"),
    OldWord("autoE2EChain", "Flume", "gateways", "agents order the gateways of a group by cost, each in an order of its own"),
    OldWord("autoDFOChain", "Flume", "gateways", "agents order the gateways of a group by cost, each in an order of its own"),
    OldWord("autoBEChain", "Flume", "gateways", "agents order the gateways of a group by cost, each in an order of its own"),
    OldWord("collectorSource", "Flume", "agents", "`type: agents` reads what gateways take from agents"),
    OldWord("autoCollectorSource", "Flume", "agents", "`type: agents` reads what gateways take from agents"),
    OldWord("collectorSink", "Flume", "sinks"),
    OldWord("logical_node", "Flume", "tiers"),
    OldWord("spool_dir", "Flume", "files", "`type: files` reads the files of a folder"),
    OldWord("tail", "Flume", "growing", "`type: files` with `growing: true` reads data that is appended to a file"),
    OldWord("spout", "Storm", "sources", "a spout is a source"),
    OldWord("spouts", "Storm", "sources"),
    OldWord("bolt", "Storm", "steps", "a bolt is a step; one that writes is a sink"),
    OldWord("bolts", "Storm", "steps"),
    OldWord("topology", "Storm", "name", "a topology is a flow; `name:` is its name"),
    OldWord("utility", "Storm", "python"),
    OldWord("fields_grouping", "Storm", "aggregate", "group with `aggregate: {by: […]}`"),
    OldWord("grouping", "Storm", "aggregate", "group with `aggregate: {by: […]}`"),
    OldWord("shuffle_grouping", "Storm", "from", "Spark distributes the rows; no setting is needed"),
    OldWord("parallelism", "Storm", "splits", "Spark uses all cores; `run --spark-master` sets how many"),
    OldWord(
        "parallelism_hint",
        "Storm",
        "splits",
        "Spark uses all cores; `run --spark-master` sets how many",
    ),
    OldWord("num_workers", "Storm", "workers", "a key of a tier, used only on a control plane; each worker has `cores`"),
    OldWord("connector", "Kafka Connect", "type"),
    OldWord("connector.class", "Kafka Connect", "type"),
    OldWord("tasks.max", "Kafka Connect", "workers", "a key of a tier, used only on a control plane; each worker has `cores`"),
    OldWord("transforms", "Kafka Connect", "steps"),
    OldWord("transform", "Kafka Connect", "steps"),
    OldWord("predicates", "Kafka Connect", "filter"),
    OldWord("predicate", "Kafka Connect", "filter"),
    OldWord("topics.regex", "Kafka Connect", "pattern", "the whole name must match"),
    OldWord("bootstrap.servers", "Kafka Connect", "bootstrap"),
    OldWord("group.id", "Kafka Connect", "group", "used only by lag monitoring tools: the positions are in the state folder"),
    OldWord("auto.offset.reset", "Kafka Connect", "start", "used only at the first start"),
    OldWord("isolation.level", "Kafka Connect", "isolation"),
    OldWord("value.converter", "Kafka Connect", "format"),
    OldWord("key.converter", "Kafka Connect", "format"),
    OldWord("converter", "Kafka Connect", "format"),
    OldWord("errors.tolerance", "Kafka Connect", "on_error"),
    OldWord(
        "errors.deadletterqueue.topic.name", "Kafka Connect", "on_error", "`on_error: dead_letter` keeps bad records in the state folder"
    ),
    OldWord("dlq", "Kafka Connect", "dead_letter"),
    OldWord("FileStreamSource", "Kafka Connect", "files"),
    OldWord("FileStreamSink", "Kafka Connect", "files"),
    OldWord("starting_offsets_initializer", "Flink", "start"),
    OldWord("topic_pattern", "Flink", "pattern"),
    OldWord("transactional_id_prefix", "Flink", "markers", "the ids begin with the name of the topic of commit markers"),
    OldWord("record_serializer", "Flink", "format"),
    OldWord("partitioner", "Flink", "partition", "an SQL expression over the row; by default the key decides, as in the Java client"),
    OldWord("seed_brokers", "Redpanda Connect", "bootstrap"),
    OldWord("addresses", "Redpanda Connect", "bootstrap"),
    OldWord("consumer_group", "Redpanda Connect", "group", "used only by lag monitoring tools: the positions are in the state folder"),
    OldWord("start_from_oldest", "Redpanda Connect", "start", "`start: earliest` is the default"),
    OldWord("pipeline", "Redpanda Connect", "steps"),
    OldWord("mapping", "Redpanda Connect", "select"),
    OldWord("subscribe", "PySpark", "topics"),
    OldWord("subscribe_pattern", "PySpark", "pattern"),
    OldWord("starting_offsets", "PySpark", "start", "used only at the first start; `offsets` sets single partitions"),
    OldWord("starting_timestamp", "PySpark", "start", "a time in ISO 8601"),
    OldWord("max_offsets_per_trigger", "PySpark", "max_rows"),
    OldWord("min_offsets_per_trigger", "PySpark", "min_rows"),
    OldWord("fail_on_data_loss", "PySpark", "on_data_loss", "`on_data_loss: stop` is the default"),
    OldWord("kafka.bootstrap.servers", "PySpark", "bootstrap"),
    OldWord("include_headers", "PySpark", "metadata", "`metadata: {h: headers}` adds the headers as a column"),
    OldWord("read_stream", "PySpark", "sources"),
    OldWord("write_stream", "PySpark", "sinks"),
    OldWord("with_watermark", "PySpark", "watermark"),
    OldWord("drop_duplicates", "PySpark", "dedupe"),
    OldWord("drop_duplicates_within_watermark", "PySpark", "dedupe"),
    OldWord("distinct", "PySpark", "dedupe"),
    OldWord("output_mode", "PySpark", "emit"),
    OldWord("group_by", "PySpark", "aggregate", "`aggregate: {by: […], columns: {…}}`"),
    OldWord("agg", "PySpark", "aggregate"),
    OldWord("where", "PySpark", "filter"),
    OldWord("on", "PySpark", "key", "columns that are in both inputs: `key: [COLUMN]`"),
    OldWord("union", "PySpark", "merge"),
    OldWord("union_by_name", "PySpark", "merge"),
    OldWord("intersect", "PySpark", "merge"),
    OldWord("from_json", "PySpark", "parse"),
    OldWord("udf", "PySpark", "python"),
    OldWord("map", "PySpark", "python"),
    OldWord("flat_map", "PySpark", "python", "a record function may return a list"),
    OldWord("map_in_arrow", "PySpark", "python", "a function marked `@batch`"),
    OldWord("map_in_pandas", "PySpark", "python", "a function marked `@batch`"),
    OldWord("foreach_batch", "PySpark", "python", "a function marked `@frame`"),
    OldWord("processing_time", "PySpark", "trigger"),
    OldWord("option", "PySpark", "type", "write options at the same level as `type`"),
    OldWord("options", "PySpark", "type", "write options at the same level as `type`"),
    OldWord("max_files_per_trigger", "PySpark", "max_files"),
    OldWord("max_bytes_per_trigger", "PySpark", "max_bytes"),
    OldWord("partition_columns", "PySpark", "partition_by"),
    OldWord("checkpoint_location", "PySpark", "name", "the state is in `.scribengin` beside the flow, or in the folder of `--state`"),
    OldWord("sep", "PySpark", "delimiter"),
    OldWord("null_value", "PySpark", "null"),
    OldWord("charset", "PySpark", "encoding"),
    OldWord("line_sep", "PySpark", "line_end"),
    OldWord("ignore_leading_white_space", "PySpark", "trim", "at both ends"),
    OldWord("ignore_trailing_white_space", "PySpark", "trim", "at both ends"),
    OldWord("append_mode", "PySpark", "append"),
    OldWord("rate", "PySpark", "sequence"),
    OldWord("permissive", "PySpark", "dead_letter"),
    OldWord("failfast", "PySpark", "fail"),
    OldWord("dropmalformed", "PySpark", "drop"),
    OldWord("join_type", "PySpark", "how"),
    OldWord("outer", "PySpark", "full"),
    OldWord("left_outer", "PySpark", "left"),
    OldWord("right_outer", "PySpark", "right"),
    OldWord("full_outer", "PySpark", "full"),
    OldWord("left_semi", "PySpark", "semi"),
    OldWord("jsonl", "PySpark", "json"),
    OldWord("ndjson", "PySpark", "json"),
)

_OVER_SPARK = "a sink of `type: spark` writes with any writer of Spark, at least once"
_OVER_KAFKA = "copy its records to Kafka or to files first"
_ELSEWHERE: dict[str, tuple[str, str]] = {
    **dict.fromkeys(("s3", "s3a", "s3n", "minio", "r2", "ceph", "bucket"), ("objects", "with `url: s3://BUCKET/PREFIX`")),
    **dict.fromkeys(("parquet", "csv", "json", "text"), ("files", "with `format: {word}`")),
    **dict.fromkeys(("jsonl", "ndjson"), ("files", "with `format: json`")),
    "avro": ("files", "with `format: avro`; a sink writes it to Kafka"),
    **dict.fromkeys(("file", "local", "filesystem", "folder", "directory", "dir", "csvfile"), ("files", "with `path: FOLDER`")),
    **dict.fromkeys(("jdbc", "sql", "database", "db"), ("postgres", "for PostgreSQL; for other databases " + _OVER_SPARK)),
    **dict.fromkeys(("postgresql", "pg", "psql", "timescale", "timescaledb"), ("postgres", "with `server` and `table`")),
    **dict.fromkeys(("redpanda", "msk", "confluent"), ("kafka", "with `bootstrap`; it uses Kafka's protocol")),
    **dict.fromkeys(("elastic", "es"), ("elasticsearch", "with `server` and `index`")),
    **dict.fromkeys(("scylla", "scylladb"), ("cassandra", "with `server`, `keyspace` and `table`")),
    **dict.fromkeys(("deltalake", "databricks"), ("delta", "with `path`")),
    **dict.fromkeys(("stdout", "print", "log", "debug"), ("console", "")),
    **dict.fromkeys(("webhook", "rest", "https", "api"), ("http", "with `url`")),
    **dict.fromkeys(("generator", "seq", "datagen"), ("sequence", "")),
}
"""types of other systems → (our type, the options to write with it)"""
_NO_TYPE = {
    **dict.fromkeys(("kinesis", "pubsub", "rabbitmq", "amqp", "mqtt", "nats", "pulsar", "sqs", "eventbridge"), _OVER_KAFKA),
    **dict.fromkeys(("mysql", "mariadb", "oracle", "mssql", "sqlserver", "snowflake", "bigquery", "redshift", "clickhouse"), _OVER_SPARK),
    **dict.fromkeys(("mongodb", "mongo", "dynamodb", "redis", "iceberg", "hudi", "orc", "xml"), _OVER_SPARK),
    **dict.fromkeys(("gcs", "gs", "azure", "abfs", "abfss", "adls"), "`type: objects` supports stores with the S3 API"),
}
"""types of other systems that are not supported → an alternative"""

_NO_JOIN = {
    **dict.fromkeys(
        ("anti", "leftanti"),
        "write how: left, then filter for rows that have null in a column of the right side that is otherwise never null",
    ),
    **dict.fromkeys(("cross",), "write a sql step with CROSS JOIN"),
}
"""join types of other systems that `how` does not support → an alternative"""

UNITS = {
    **dict.fromkeys(("millis", "millisecond", "milliseconds", "msec"), "ms"),
    **dict.fromkeys(("sec", "secs", "second", "seconds"), "s"),
    **dict.fromkeys(("mins", "minute", "minutes"), "m"),
    **dict.fromkeys(("hr", "hrs", "hour", "hours"), "h"),
    **dict.fromkeys(("day", "days"), "d"),
    **dict.fromkeys(("b", "byte", "bytes"), "B"),
    **dict.fromkeys(("k", "kb"), "kB"),
    **dict.fromkeys(("mb",), "MB"),
    **dict.fromkeys(("g", "gb"), "GB"),
    **dict.fromkeys(("t", "tb"), "TB"),
    **dict.fromkeys(("ki", "kib"), "KiB"),
    **dict.fromkeys(("mi", "mib"), "MiB"),
    **dict.fromkeys(("gi", "gib"), "GiB"),
    **dict.fromkeys(("ti", "tib"), "TiB"),
}
"""units as other tools write them (in lower case) → as they are written here"""


def _folded(word: str) -> str:
    return "".join(char for char in word.lower() if char.isalnum())


_BY_WORD: dict[str, list[OldWord]] = {}
for _word in WORDS:
    _BY_WORD.setdefault(_folded(_word.word), []).append(_word)


def our_word(word: str, known: Collection[str]) -> str | None:
    """The word of `known` that corresponds to a word of another system; None if there is none.

    >>> our_word("transforms", ["steps", "sinks"])
    'steps'
    """
    return next((old.ours for old in _BY_WORD.get(_folded(word), ()) if old.ours in known), None)


def old_word(word: str, known: Collection[str]) -> str:
    """A hint for a word of another system, if the corresponding word is in `known`; else an empty text.

    >>> old_word("transforms", ["steps", "sinks"])
    'did you mean "steps"? ("transforms" is a word of Kafka Connect)'
    """
    for old in _BY_WORD.get(_folded(word), ()):
        if old.ours in known:
            more = f"; {old.note}" if old.note else ""
            return f'did you mean "{old.ours}"? ("{old.word}" is a word of {old.origin}{more})'
    return ""


def type_word(word: str, known: Collection[str]) -> str:
    """What to write for a type of another system, or that it is not supported; an empty text if the type is unknown.

    >>> type_word("s3", ["files", "objects"])
    'write type: objects, with `url: s3://BUCKET/PREFIX`'
    >>> type_word("kinesis", ["files"])
    'kinesis is not supported; copy its records to Kafka or to files first'
    """
    folded = _folded(word)
    ours, beside = _ELSEWHERE.get(folded, ("", ""))
    if ours in known:
        beside = beside.format(word=folded)
        if "spark" not in known:
            beside = beside.partition("; for other databases")[0]
        return f"write type: {ours}{', ' * bool(beside)}{beside}"
    instead = _NO_TYPE.get(folded)
    if instead == _OVER_SPARK and "spark" not in known:
        instead = _OVER_KAFKA
    return f"{word} is not supported; {instead}" if instead else ""


def join_word(word: str, known: Collection[str]) -> str:
    """The alternative for a join type of another system that is not in `known`; else an empty text.

    >>> join_word("cross", ["inner", "semi"])
    'write a sql step with CROSS JOIN'
    """
    return _NO_JOIN.get(_folded(word), "") if "semi" in known else ""


def translate(word: str) -> str:
    """A hint with our term for a word of another system, whatever its place in the file; else an empty text.

    >>> translate("choke")
    '"choke" of Flume is "limit" here: a property of an edge'
    """
    for old in _BY_WORD.get(_folded(word), ()):
        more = f": {old.note}" if old.note else ""
        return f'"{old.word}" of {old.origin} is "{old.ours}" here{"" if old.runs else ", which this version does not support yet"}{more}'
    return ""
