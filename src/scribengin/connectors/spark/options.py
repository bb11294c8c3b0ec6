"""The options of `type: spark`. Does not import Spark."""

from scribengin.core.options import GIVEN, REQUIRED, NodeType, Option

SINK = NodeType(
    type="spark",
    role="sink",
    doc="Writes rows with any batch writer that Spark knows, at least once: a Batch is staged and decided, then written in one job. "
    "Exactly once if the writer has transaction options.",
    options=(
        Option("format", "text", "Spark's name of the writer", REQUIRED, example="orc"),
        Option("path", "path", "target path; an address with a scheme is passed to Spark unchanged", None, example="out/kept"),
        Option(
            "options",
            "map",
            "options for the writer; secrets as `${secret:env/NAME}`",
            {},
            example="{compression: zstd}",
            secret=True,
        ),
        Option("mode", "choice", "`append` adds the rows of each Batch to the existing data", "append", ("append",)),
        Option("partition_by", "list", "columns that the writer partitions by", (), example="[country]"),
        Option(
            "transaction",
            "section",
            "the writer's options for skipping a Batch that it already has: exactly once",
            None,
            example="{app: txnAppId, version: txnVersion}",
            adds={GIVEN: frozenset({"exactly_once"})},
            keys=(
                Option("app", "text", "the option for the name of the writing application", REQUIRED, example="txnAppId"),
                Option("version", "text", "the option for a number that increases with each Batch", REQUIRED, example="txnVersion"),
            ),
        ),
    ),
    abilities=frozenset({"append", "buffers_batches", "audited_in_state", "masks"}),
    checks=("scribengin.connectors.spark.checks:spark_writers_can_write",),
    alone="only the writer knows the target of rows, by its own options, and no writer reports whether the target accepts rows now",
)
