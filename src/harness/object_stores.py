"""A real object store for a test, which is skipped on a machine that cannot run one, and fails in CI."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, cast

from scribengin.connectors.objects.address import ObjectsAddress
from scribengin.connectors.objects.options import SINK
from scribengin.core.errors import EnvironmentFault
from scribengin.embedded.go_programs import built
from scribengin.embedded.objects import BUCKET, PACKAGE, VERSION, ObjectServer

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.connectors.objects.s3 import S3Store


def or_skipped(folder: Path) -> ObjectServer:
    """A server with its data in a folder. Without Go, which builds its program, the test is skipped; in CI it fails."""
    import pytest

    try:
        built(PACKAGE, VERSION)
    except EnvironmentFault as error:
        if os.environ.get("CI") or error.code != "server-missing":
            raise
        pytest.skip(f"no object store to test with: {error}; {error.remedy}")
    return ObjectServer(folder)


def options(server: ObjectServer, prefix: str = "", **more: Any) -> dict[str, Any]:
    """The options of a sink or source that uses the server, with the access key in `config`."""
    lines = server.credentials.read_text().splitlines()[1:]
    key, secret = (line.partition(" = ")[2] for line in lines)
    config = {"access_key_id": key, "secret_access_key": secret}
    return {"url": f"s3://{BUCKET}/{prefix}".rstrip("/"), "endpoint": server.uri, "config": config} | more


def address(server: ObjectServer, prefix: str = "") -> ObjectsAddress:
    """The address of a prefix."""
    return ObjectsAddress.of("test", SINK.filled(options(server, prefix)))


def opened(server: ObjectServer, prefix: str = "") -> S3Store:
    """The store, with keys below `prefix`."""
    return cast("S3Store", address(server, prefix).open())
