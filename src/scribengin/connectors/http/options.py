"""The options of `type: http`. Imports no client."""

import re

from scribengin.core.options import REQUIRED, NodeType, Option

TEMPLATE = re.compile(r"\{([^{}]*)\}")
"""a column name in an address"""
OURS = frozenset({"connection", "content-encoding", "content-length", "expect", "host", "te", "trailer", "transfer-encoding", "upgrade"})
"""headers that control how a request is sent, and which only the client sets"""
_BATCHES = ("array", "lines")

SINK = NodeType(
    type="http",
    role="sink",
    doc=(
        "Sends rows as JSON, at least once: a Batch is staged and decided, then sent. Each request has a key that stays the same on "
        "retries."
    ),
    options=(
        Option(
            "url",
            "text",
            (
                "target of the requests; with `body: object` its path and query may contain columns, `{column}`, whose values are "
                "percent-encoded"
            ),
            REQUIRED,
            example="https://api.example.com/orders",
            by_member=True,
        ),
        Option("method", "choice", "the HTTP method", "POST", ("POST", "PUT", "PATCH")),
        Option(
            "headers",
            "map",
            "additional headers; secrets as `${secret:env/NAME}`",
            {},
            example="{X-Source: shop}",
            secret=True,
        ),
        Option(
            "query",
            "map",
            "additional query parameters; secrets as `${secret:env/NAME}`",
            {},
            example="{tenant: shop}",
            secret=True,
        ),
        Option(
            "body",
            "choice",
            "contents of a request: `object`, one row; `array`, an array of rows; `lines`, one row per line",
            "object",
            ("object", *_BATCHES),
        ),
        Option("rows", "int", "array, lines: maximum rows of a request", 500, low=1, high=100_000, pace=True),
        Option("bytes", "bytes", "array, lines: maximum total size of its rows", 1 << 20, example="256KiB", low=1, pace=True),
        Option(
            "compression",
            "choice",
            "compression of the request body; the server must support it",
            "none",
            ("none", "gzip", "zstd"),
            pace=True,
        ),
        Option("connections", "int", "maximum concurrent requests; with 1 they arrive in order", 4, low=1, high=64, pace=True),
        Option("timeout", "duration", "how long to wait for the server", 30.0, example="10s", low=0.1, pace=True),
        Option(
            "patience",
            "duration",
            "how long all requests may fail before the flow waits longer and retries",
            60.0,
            example="5m",
            low=0.0,
            pace=True,
        ),
        Option("key_header", "text", "the header with the request's key", "Idempotency-Key", example="Idempotency-Key"),
        Option(
            "ca",
            "path",
            "a PEM file of the CA that signed the server's certificate, if the machine does not trust it",
            None,
            example="ca.pem",
        ),
    ),
    abilities=frozenset({"append", "refuses_rows", "buffers_batches", "audited_in_state", "checks_place", "takes_json"}),
    checks=(
        "scribengin.connectors.http.checks:addresses_can_be_sent_to",
        "scribengin.connectors.http.checks:requests_are_said_once",
    ),
)
