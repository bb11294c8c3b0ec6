"""Reads a worker's status page as JSON, on the worker's own host: for commands and the node."""

from __future__ import annotations

import json
from typing import Any
from urllib.request import ProxyHandler, build_opener

_HERE = "http://127.0.0.1:"
"""a worker's page is served on its own host only; other addresses in a record are not followed"""
_ANSWER_S = 5.0


def read_worker_page(http: str, worker: str) -> dict[str, Any] | None:
    """The status that a worker serves at `http`; None if it does not answer, or if another process has its port now."""
    if not http.startswith(_HERE):
        return None
    try:
        # a proxy is for other hosts
        with build_opener(ProxyHandler({})).open(f"{http}/json", timeout=_ANSWER_S) as answer:
            said = json.loads(answer.read())
    except (OSError, ValueError):
        return None
    return {**said, "http": http} if isinstance(said, dict) and said.get("worker") == worker else None
