"""What a flow can say of `type: http`. Imports no client."""

import re

from scribengin.core.options import REQUIRED, NodeType, Option

TEMPLATE = re.compile(r"\{([^{}]*)\}")
"""a column in an address"""
OURS = frozenset({"connection", "content-encoding", "content-length", "expect", "host", "te", "trailer", "transfer-encoding", "upgrade"})
"""headers that say how a request is sent: the client's"""
_BATCHES = ("array", "lines")

SINK = NodeType(
    type="http",
    role="sink",
    doc="Sends rows as JSON, at least once: a Batch is staged and decided, then sent. Each request has a key, the same at each try.",
    options=(
        Option(
            "url",
            "text",
            "where requests go; with `body: object` its path and query may name columns, `{column}`, whose values are quoted",
            REQUIRED,
            example="https://api.example.com/orders",
            by_member=True,
        ),
        Option("method", "choice", "the method", "POST", ("POST", "PUT", "PATCH")),
        Option(
            "headers",
            "map",
            "further headers; secrets as `${secret:env/NAME}`",
            {},
            example="{X-Source: shop}",
            secret=True,
        ),
        Option(
            "query",
            "map",
            "further parts of the query; secrets as `${secret:env/NAME}`",
            {},
            example="{tenant: shop}",
            secret=True,
        ),
        Option(
            "body",
            "choice",
            "what a request holds: `object`, one row; `array`, an array of rows; `lines`, a row in each line",
            "object",
            ("object", *_BATCHES),
        ),
        Option("rows", "int", "array, lines: how many rows a request has at most", 500, low=1, high=100_000, pace=True),
        Option("bytes", "bytes", "array, lines: how large its rows are at most, together", 1 << 20, example="256KiB", low=1, pace=True),
        Option("compression", "choice", "of a request's body; the server must take it", "none", ("none", "gzip", "zstd"), pace=True),
        Option("connections", "int", "how many requests are under way at once; with 1 they come in order", 4, low=1, high=64, pace=True),
        Option("timeout", "duration", "how long the server may be silent", 30.0, example="10s", low=0.1, pace=True),
        Option(
            "patience",
            "duration",
            "how long no request at all may come through, before the flow waits longer and begins again",
            60.0,
            example="5m",
            low=0.0,
            pace=True,
        ),
        Option("key_header", "text", "the header that has a request's key", "Idempotency-Key", example="Idempotency-Key"),
        Option(
            "ca", "path", "a PEM file of who signs the server's certificate, where the machine does not know him", None, example="ca.pem"
        ),
    ),
    abilities=frozenset({"append"}),
)
