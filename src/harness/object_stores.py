"""The object store of a test: a real one, skipped where a machine cannot have it, required where CI is."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, cast

from scribengin.connectors.objects.address import ObjectsAddress
from scribengin.connectors.objects.options import SINK
from scribengin.core.errors import EnvironmentFault
from scribengin.embedded.objects import BUCKET, PACKAGE, VERSION, ObjectServer, built

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.connectors.objects.s3 import S3Store


def or_skipped(folder: Path) -> ObjectServer:
    """A server of that folder, once its program is there. Without a Go to build it the test is skipped, and fails where CI is set."""
    import pytest

    try:
        built(PACKAGE, VERSION)
    except EnvironmentFault as error:
        if os.environ.get("CI") or error.code != "server-missing":
            raise
        pytest.skip(f"no object store to test with: {error}; {error.remedy}")
    return ObjectServer(folder)


def options(server: ObjectServer, prefix: str = "", **more: Any) -> dict[str, Any]:
    """A sink's or source's options that lead to the server, with the key of access in `config`."""
    lines = server.credentials.read_text().splitlines()[1:]
    key, secret = (line.partition(" = ")[2] for line in lines)
    config = {"access_key_id": key, "secret_access_key": secret}
    return {"url": f"s3://{BUCKET}/{prefix}".rstrip("/"), "endpoint": server.uri, "config": config} | more


def address(server: ObjectServer, prefix: str = "") -> ObjectsAddress:
    """Where that prefix is."""
    return ObjectsAddress.of("test", SINK.filled(options(server, prefix)))


def opened(server: ObjectServer, prefix: str = "") -> S3Store:
    """The store, with keys below `prefix`."""
    return cast("S3Store", address(server, prefix).open())
