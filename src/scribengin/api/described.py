"""What FastAPI's OpenAPI document does not say by itself: problems, tokens, and the headers that all requests and answers share."""

from __future__ import annotations

from typing import Any

from scribengin.client.problems import MEDIA_TYPE
from scribengin.client.transport import KEY, REVISION

_OPEN = ("/livez", "/readyz")
"""for these nobody is asked for a token"""
_TOKEN = {"type": "http", "scheme": "bearer", "description": "Where the master asks for one: `scribengin token add` makes it."}
_SEEN = {
    "description": "A state of the registry: what is read afterwards with it in the request is that new, or newer.",
    "schema": {"type": "integer"},
}
_ONCE = ("/v1/flows", "/v1/topology", "/v1/registry", "/v1/groups", "/v1/quotas", "/v1/peers", "/v1/nodes", "/v1/tokens", "/v1/workflows")
"""where writes happen once with a key"""
_EACH_TIME = ("make_token", "plan_topology")
"""but for these: a token is shown once, and planning changes nothing"""
_WRITES = (
    {
        "name": KEY,
        "in": "header",
        "description": "Again with the same key gives the first answer, by any master, for a day.",
        "schema": {"type": "string", "minLength": 1, "maxLength": 200},
    },
    {
        "name": "If-Match",
        "in": "header",
        "description": "The flow's ETag: 412 where something else is wanted of it by now.",
        "schema": {"type": "string", "pattern": '^"[0-9]{1,18}"$'},
    },
)


def described(document: dict[str, Any]) -> dict[str, Any]:
    """The document, with that added in place; a second time changes nothing."""
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
