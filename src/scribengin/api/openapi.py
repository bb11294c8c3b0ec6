"""Adds to FastAPI's OpenAPI document what it lacks: problems, tokens, and the headers of all requests and answers."""

from __future__ import annotations

from typing import Any

from scribengin.client.problems import MEDIA_TYPE
from scribengin.client.transport import KEY, REVISION

_OPEN = ("/livez", "/readyz")
"""routes that require no token"""
_TOKEN = {"type": "http", "scheme": "bearer", "description": "Needed if the master requires tokens; make one with `scribengin token add`."}
_SEEN = {
    "description": "A revision of the registry. A later read that sends it returns this state or a newer one.",
    "schema": {"type": "integer"},
}
_ONCE = (
    "/v1/flows",
    "/v1/topology",
    "/v1/registry",
    "/v1/groups",
    "/v1/quotas",
    "/v1/peers",
    "/v1/nodes",
    "/v1/tokens",
    "/v1/workflows",
    "/v1/agents",
    "/v1/gateways",
)
"""prefixes of routes on which a write with a key is executed once"""
_EACH_TIME = ("make_token", "plan_topology")
"""operations below these that are exceptions: a token is shown once, and planning changes nothing"""
_WRITES = (
    {
        "name": KEY,
        "in": "header",
        "description": "Repeating the request with the same key returns the first answer, from any master, for a day.",
        "schema": {"type": "string", "minLength": 1, "maxLength": 200},
    },
    {
        "name": "If-Match",
        "in": "header",
        "description": "The flow's ETag. The answer is 412 if the flow's desired state has changed since.",
        "schema": {"type": "string", "pattern": '^"[0-9]{1,18}"$'},
    },
)


def described(document: dict[str, Any]) -> dict[str, Any]:
    """Add problems, tokens and headers to the document, in place, and return it. Idempotent."""
    document.setdefault("components", {})["securitySchemes"] = {"token": _TOKEN}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            default = operation["responses"]["default"]
            default["content"] = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemDetails"}}}
            if path in _OPEN:
                continue
            operation["security"] = [{"token": []}, {}]
            for answer in operation["responses"].values():
                answer["headers"] = {REVISION: _SEEN}
            if (
                path.startswith(_ONCE)
                and method in ("put", "post", "delete")
                and "watching" not in operation["tags"]
                and operation["operationId"] not in _EACH_TIME
            ):
                there = operation.setdefault("parameters", [])
                headers = _WRITES if path.startswith("/v1/flows") else _WRITES[:1]
                there += [header for header in headers if header not in there]
    return document
