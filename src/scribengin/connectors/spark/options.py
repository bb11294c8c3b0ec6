"""What a flow can say of `type: spark`. Imports no Spark."""

from scribengin.core.options import GIVEN, REQUIRED, NodeType, Option

SINK = NodeType(
    type="spark",
    role="sink",
    doc="Hands rows to any batch writer that Spark knows, at least once: a Batch is staged and decided, then written in one go. Exactly "
    "once where the writer has transaction options.",
    options=(
        Option("format", "text", "what Spark calls the writer", REQUIRED, example="orc"),
        Option("path", "path", "where it writes; an address with a scheme goes to Spark as it is", None, example="out/kept"),
        Option(
            "options",
            "map",
            "what the writer is told; secrets as `${secret:env/NAME}`",
            {},
            example="{compression: zstd}",
            secret=True,
        ),
        Option("mode", "choice", "`append` adds the rows of each Batch to what is there", "append", ("append",)),
        Option("partition_by", "list", "columns that the writer makes folders, or partitions, of", (), example="[country]"),
        Option(
            "transaction",
            "section",
            "the writer's options by which it leaves out a Batch that it has: exactly once",
            None,
            example="{app: txnAppId, version: txnVersion}",
            adds={GIVEN: frozenset({"exactly_once"})},
            keys=(
                Option("app", "text", "the option that takes the name of who writes", REQUIRED, example="txnAppId"),
                Option("version", "text", "the option that takes a number that grows with each Batch", REQUIRED, example="txnVersion"),
            ),
        ),
    ),
    abilities=frozenset({"append"}),
    alone="where rows go is said by options that only its writer knows, and no writer says whether its place takes rows now",
)
