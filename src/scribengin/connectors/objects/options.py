"""The options of `type: objects`. Imports neither Arrow nor a client."""

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import PurePosixPath
from typing import Any

from scribengin.connectors.addresses import S3_URL, DataLocation, split_url, store_url_fault
from scribengin.connectors.files.options import (
    BY_TIME_CHECKS,
    CLOSE_FOR_GOOD,
    COMPRESSION_CHECK,
    CSV_WRITTEN,
    PARTITION_BY,
    RECORD_CHECKS,
    ROLL_KEYS,
    records_read,
)
from scribengin.core.options import REQUIRED, NodeType, Option

PLACE = (
    Option(
        "url",
        "text",
        "bucket and prefix; `file:///FOLDER` to try it without a server",
        REQUIRED,
        example="s3://shop/orders",
        by_member=True,
        at_check=partial(store_url_fault, form=S3_URL),
    ),
    Option("endpoint", "text", "the server's address, if it is not AWS", None, example='"https://objects.example.org:9000"', pace=True),
    Option("region", "text", "region of the bucket", "us-east-1", example="eu-central-1", pace=True),
    Option("path_style", "bool", "write the bucket in the path, not in the host name", True, pace=True),
    Option(
        "ca_file",
        "path",
        "PEM file of the certificate authorities to trust, in addition to those of the machine",
        None,
        example="ca.pem",
        pace=True,
    ),
    Option(
        "config",
        "map",
        "`access_key_id`, `secret_access_key` and `session_token`, as `${secret:env/NAME}`; by default AWS_ACCESS_KEY_ID and the related "
        "variables, or the profile",
        {},
        example='{access_key_id: AK1, secret_access_key: "${secret:env/STORE_SECRET}"}',
        secret=True,
        pace=True,
    ),
    Option("profile", "text", "profile of the AWS credentials file whose access key is used", None, example="etl", pace=True),
)

PLACE_CHECK = "scribengin.connectors.objects.checks:urls_lead_somewhere"
WRITER_CHECK = "scribengin.connectors.objects.checks:one_writer_a_prefix"


def objects_below(options: Mapping[str, Any]) -> Iterator[DataLocation]:
    """The objects below the url; it does not depend on the login."""
    url = split_url(str(options.get("url", "")))
    if url is not None:
        endpoint = split_url(str(options.get("endpoint") or ""))
        store = f"{endpoint.netloc}/" if endpoint is not None and endpoint.netloc else ""
        place = PurePosixPath("/", store + url.netloc.rpartition("@")[2], url.path.strip("/"))
        yield DataLocation("objects", f"{url.scheme}:/{place}", many=True)


SOURCE = NodeType(
    type="objects",
    role="source",
    doc=(
        "Reads the objects below a url of S3 or a compatible store, including objects that arrive while the flow runs. Each object is "
        "read once, in key order."
    ),
    options=(
        *PLACE,
        Option("format", "choice", "format of the objects", REQUIRED, ("json", "csv", "text", "parquet", "avro"), example="json"),
        Option("match", "text", "a glob for the keys below the url; `**` stands for any number of folders", None, example='"**/*.jsonl"'),
        Option(
            "names",
            "choice",
            "`sorted`: new keys sort after old ones (names by time), and only new keys are listed; `any`: every poll lists all keys",
            "any",
            ("any", "sorted"),
        ),
        Option("look", "duration", "interval between listings, not used with --once", 10.0, example="1m", pace=True, of_streams=True),
        Option("max_files", "int", "maximum objects of one Batch", None, example="100", low=1, pace=True, of_streams=True),
        Option(
            "max_bytes",
            "bytes",
            "maximum bytes of one Batch (it takes at least one object)",
            None,
            example="256MiB",
            low=1,
            pace=True,
            of_streams=True,
        ),
        Option(
            "split", "bytes", "bytes of a large uncompressed object that one task reads", 32 * 2**20, example="64MiB", low=65536, pace=True
        ),
        Option("on_change", "choice", "if an object changes after it was assigned to a Batch", "stop", ("stop", "ignore")),
        *records_read("objects"),
    ),
    abilities=frozenset(
        {"replayable", "bounded", "static", "checks_columns", "checks_keys", "checks_place", "measures_backlog", "fills_for_tasks"}
    ),
    locations=objects_below,
    store_url=S3_URL,
    checks=(*RECORD_CHECKS, PLACE_CHECK),
)

SINK = NodeType(
    type="objects",
    role="sink",
    doc="Writes objects to S3 or a compatible store, each record once: a manifest for each Batch lists the committed objects.",
    options=(
        *PLACE,
        Option("format", "choice", "format of the objects", REQUIRED, ("json", "csv", "text", "parquet"), example="parquet"),
        Option(
            "visible",
            "choice",
            "`manifest`: for readers that use the manifests; `listing`: also for readers that list the prefix, because objects appear "
            "there only when their Batch is published",
            "manifest",
            ("manifest", "listing"),
        ),
        Option(
            "compression",
            "choice",
            "compression of the objects; by default none for text formats, zstd for parquet",
            "auto",
            ("auto", "none", "gzip", "zstd", "snappy"),
        ),
        PARTITION_BY,
        Option("segment", "bytes", "a task starts another object when one reaches this size", None, example="256MiB", low=1, pace=True),
        Option(
            "roll",
            "section",
            "committed objects are merged into large ones; with `visible: listing` they stay hidden until then",
            None,
            example="{size: 128MiB, every: 5m}",
            pace=True,
            keys=ROLL_KEYS,
        ),
        CLOSE_FOR_GOOD,
        *CSV_WRITTEN,
    ),
    maintained_as="store",
    store_url=S3_URL,
    closed_for_good="in an object store or HDFS a completion marker cannot be removed safely",
    abilities=frozenset({"exactly_once", "append", "finds_unaccounted", "has_trash", "checks_place", "takes_json"}),
    locations=objects_below,
    checks=(COMPRESSION_CHECK, PLACE_CHECK, WRITER_CHECK, *BY_TIME_CHECKS),
)
