"""Folders for a test in a real HDFS, and in a real bucket."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, cast

from harness.keyed_protocol import keyed_sink
from scribengin.connectors.hdfs.options import SINK
from scribengin.connectors.objects.address import ObjectsAddress
from scribengin.connectors.objects.path import S3Path
from scribengin.embedded.objects import BUCKET
from scribengin.state import lease
from scribengin.testing.protocol import Driver

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scribengin.connectors.hdfs.store import HdfsStore
    from scribengin.embedded.hdfs import Hdfs
    from scribengin.embedded.objects import ObjectServer
    from scribengin.testing.protocol import Job


def options(hdfs: Hdfs, folder: str, **more: Any) -> dict[str, Any]:
    """The options of a sink or source that uses the folder."""
    return {"url": f"{hdfs.uri}/{folder}"} | more


def address(hdfs: Hdfs, folder: str) -> ObjectsAddress:
    """The address of the folder."""
    return ObjectsAddress.of("test", SINK.filled(options(hdfs, folder)))


def opened(hdfs: Hdfs, folder: str) -> HdfsStore:
    """The store, with keys below `folder`."""
    return cast("HdfsStore", address(hdfs, folder).open())


def at_server(server: ObjectServer, prefix: str, setenv: Callable[[str, str], None]) -> S3Path:
    """A state folder in the bucket of the server. `setenv` sets the variables by which this process and its children reach it."""
    for name, value in reached_by(server).items():
        setenv(name, value)
    return S3Path.of(f"s3://{BUCKET}/{prefix}")


def reached_by(server: ObjectServer) -> dict[str, str]:
    """The environment variables by which a process reaches the bucket of the server."""
    return {
        "AWS_ENDPOINT_URL": server.uri,
        "AWS_SHARED_CREDENTIALS_FILE": str(server.credentials),
        **dict.fromkeys(("AWS_ENDPOINT_URL_S3", "AWS_PROFILE", "AWS_ACCESS_KEY_ID"), ""),
    }


def hasty() -> None:
    """Let leases in this process expire after 2 s without a renewal."""
    lease.BEAT_S, lease.EXPIRES_S, lease.POLL_S = 0.2, 2.0, 0.1


def hasty_driver(job: Job, reached: Mapping[str, str]) -> Driver:
    """A driver with a short lease. `reached` are the environment variables by which it reaches its state."""
    os.environ.update(reached)
    hasty()
    return Driver(job)


def hasty_keyed_driver(job: Job, reached: Mapping[str, str]) -> Driver:
    """The same with keyed stores, whose rows are staged in the state."""
    os.environ.update(reached)
    hasty()
    return Driver(job, keyed_sink)
