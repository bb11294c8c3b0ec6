"""Folders of a test in a real HDFS, and in a real bucket."""

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
    """A sink's or source's options that lead there."""
    return {"url": f"{hdfs.uri}/{folder}"} | more


def address(hdfs: Hdfs, folder: str) -> ObjectsAddress:
    """Where that folder is."""
    return ObjectsAddress.of("test", SINK.filled(options(hdfs, folder)))


def opened(hdfs: Hdfs, folder: str) -> HdfsStore:
    """The store, with keys below `folder`."""
    return cast("HdfsStore", address(hdfs, folder).open())


def at_server(server: ObjectServer, prefix: str, setenv: Callable[[str, str], None]) -> S3Path:
    """A state folder in the bucket of the server; `setenv` says to this process, and those that it starts, how to reach it."""
    for name, value in reached_by(server).items():
        setenv(name, value)
    return S3Path.of(f"s3://{BUCKET}/{prefix}")


def reached_by(server: ObjectServer) -> dict[str, str]:
    """The variables by which a process reaches its bucket."""
    return {
        "AWS_ENDPOINT_URL": server.uri,
        "AWS_SHARED_CREDENTIALS_FILE": str(server.credentials),
        **dict.fromkeys(("AWS_ENDPOINT_URL_S3", "AWS_PROFILE", "AWS_ACCESS_KEY_ID"), ""),
    }


def hasty() -> None:
    """From now on in this process a lease is followed after 2 s without a sign."""
    lease.BEAT_S, lease.EXPIRES_S, lease.POLL_S = 0.2, 2.0, 0.1


def hasty_driver(job: Job, reached: Mapping[str, str]) -> Driver:
    """One that does not wait long for another's lease. `reached`: the variables by which it reaches its state."""
    os.environ.update(reached)
    hasty()
    return Driver(job)


def hasty_keyed_driver(job: Job, reached: Mapping[str, str]) -> Driver:
    """As `hasty_driver`, over keyed stores, whose rows are staged in the state."""
    os.environ.update(reached)
    hasty()
    return Driver(job, keyed_sink)
