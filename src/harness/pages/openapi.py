"""Generates the OpenAPI document of the API (`docs/openapi.json`) from the application, without a master."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import structlog

from scribengin.api.app import make_app
from scribengin.api.auth import Authentication
from scribengin.api.plane import Plane
from scribengin.api.planner import Planner
from scribengin.control.alerting import AlertDispatcher
from scribengin.control.worker_reports import WorkerWatch
from scribengin.packages.store import PackageStore
from scribengin.registry.memory import MemoryStore
from scribengin.watching.telemetry import Board


def openapi_document() -> dict[str, Any]:
    """The document that a master serves at `/v1/openapi.json`."""
    registry, nowhere = MemoryStore().client(), Path("/nowhere")
    gate = Authentication(None, asks=False, local=True)
    board, log = Board(), structlog.get_logger()
    watch = WorkerWatch(registry, board, AlertDispatcher(registry, board, log))
    plane = Plane(registry, PackageStore(nowhere), Planner(nowhere), "", gate, leads=lambda: False, watch=watch)
    document: dict[str, Any] = make_app(plane).openapi()
    return document


def openapi_text() -> str:
    """The document as text, as it is checked in."""
    return msgspec.json.format(msgspec.json.encode(openapi_document(), order="deterministic"), indent=1).decode() + "\n"
