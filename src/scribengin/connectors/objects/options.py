"""What a flow can say of `type: objects`. Imports neither Arrow nor a client."""

from functools import partial

from scribengin.connectors.files.options import CLOSE_FOR_GOOD, CSV_WRITTEN, PARTITION_BY, ROLL_KEYS, records_read
from scribengin.core.options import REQUIRED, NodeType, Option


def at_fault(type_: str, at: str) -> tuple[str, str] | None:
    """What is wrong with the `at` of a member that is a url of a node of that type, and the remedy; None where nothing is."""
    from scribengin.connectors.objects.address import url_fault

    return url_fault(at, type_)


PLACE = (
    Option(
        "url",
        "text",
        "bucket and prefix; `file:///FOLDER` for a try without a server",
        REQUIRED,
        example="s3://shop/orders",
        by_member=True,
        at_check=partial(at_fault, "objects"),
    ),
    Option(
        "endpoint", "text", "the server's address, where it is not AWS's", None, example='"https://objects.example.org:9000"', pace=True
    ),
    Option("region", "text", "of the bucket", "us-east-1", example="eu-central-1", pace=True),
    Option("path_style", "bool", "the bucket stands in the path, not in the server's name", True, pace=True),
    Option("ca_file", "path", "PEM file of the authorities to trust, where the machine's do not do", None, example="ca.pem", pace=True),
    Option(
        "config",
        "map",
        "`access_key_id`, `secret_access_key` and `session_token`, as `${secret:env/NAME}`; without it AWS_ACCESS_KEY_ID and its "
        "companions, or the profile",
        {},
        example='{access_key_id: AK1, secret_access_key: "${secret:env/STORE_SECRET}"}',
        secret=True,
        pace=True,
    ),
    Option("profile", "text", "whose access key of AWS's credentials file is taken", None, example="etl", pace=True),
)

SOURCE = NodeType(
    type="objects",
    role="source",
    doc="Reads the objects below a url of S3 and stores like it, those that arrive while it runs too. Each is read once, in key order.",
    options=(
        *PLACE,
        Option("format", "choice", "how the bytes are read", REQUIRED, ("json", "csv", "text", "parquet", "avro"), example="json"),
        Option("match", "text", "a glob for the keys below the url; `**` stands for any number of folders", None, example='"**/*.jsonl"'),
        Option(
            "names",
            "choice",
            "`sorted`: new keys come behind the old ones (names by time), and only these are listed; `any`: all are listed at each look",
            "any",
            ("any", "sorted"),
        ),
        Option(
            "look", "duration", "how long from one listing to the next, but under --once", 10.0, example="1m", pace=True, of_streams=True
        ),
        Option("max_files", "int", "objects one Batch takes at most", None, example="100", low=1, pace=True, of_streams=True),
        Option(
            "max_bytes",
            "bytes",
            "bytes one Batch takes at most (at least one object)",
            None,
            example="256MiB",
            low=1,
            pace=True,
            of_streams=True,
        ),
        Option("split", "bytes", "how much of a large plain object one task reads", 32 * 2**20, example="64MiB", low=65536, pace=True),
        Option("on_change", "choice", "what an object does that changed after it was taken", "stop", ("stop", "ignore")),
        *records_read("objects"),
    ),
    abilities=frozenset({"replayable", "bounded", "static"}),
)

SINK = NodeType(
    type="objects",
    role="sink",
    doc="Writes objects to S3 and stores like it, each record once: a manifest for each Batch says which objects count.",
    options=(
        *PLACE,
        Option("format", "choice", "how rows are written", REQUIRED, ("json", "csv", "text", "parquet"), example="parquet"),
        Option(
            "visible",
            "choice",
            "`manifest`: for readers that go by the manifests; `listing`: for such as list the prefix too, objects get there when their "
            "Batch is published",
            "manifest",
            ("manifest", "listing"),
        ),
        Option(
            "compression",
            "choice",
            "of the objects; by default none for text formats, zstd for parquet",
            "auto",
            ("auto", "none", "gzip", "zstd", "snappy"),
        ),
        PARTITION_BY,
        Option("segment", "bytes", "a task begins another object when one has so much", None, example="256MiB", low=1, pace=True),
        Option(
            "roll",
            "section",
            "committed objects are merged to large ones; with `visible: listing` they stay hidden until then",
            None,
            example="{size: 128MiB, every: 5m}",
            pace=True,
            keys=ROLL_KEYS,
        ),
        CLOSE_FOR_GOOD,
        *CSV_WRITTEN,
    ),
    abilities=frozenset({"exactly_once", "append"}),
)
