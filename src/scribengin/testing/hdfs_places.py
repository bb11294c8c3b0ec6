"""Folders of a test in a real HDFS."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from scribengin.connectors.hdfs.options import SINK
from scribengin.connectors.objects.address import Address
from scribengin.state import remote_lease
from scribengin.testing.keyed_protocol import keyed_sink
from scribengin.testing.protocol import Driver

if TYPE_CHECKING:
    from scribengin.connectors.hdfs.store import HdfsStore
    from scribengin.embedded.hdfs import Hdfs
    from scribengin.testing.protocol import Job


def options(hdfs: Hdfs, folder: str, **more: Any) -> dict[str, Any]:
    """A sink's or source's options that lead there."""
    return {"url": f"{hdfs.uri}/{folder}"} | more


def address(hdfs: Hdfs, folder: str) -> Address:
    """Where that folder is."""
    return Address.of("test", SINK.filled(options(hdfs, folder)))


def opened(hdfs: Hdfs, folder: str) -> HdfsStore:
    """The store, with keys below `folder`."""
    return cast("HdfsStore", address(hdfs, folder).open())


def hasty() -> None:
    """From now on in this process a lease is followed after 2 s without a sign."""
    remote_lease.BEAT_S, remote_lease.EXPIRES_S, remote_lease.POLL_S = 0.2, 2.0, 0.1


def hasty_driver(job: Job) -> Driver:
    """One that does not wait long for another's lease."""
    hasty()
    return Driver(job)


def hasty_keyed_driver(job: Job) -> Driver:
    """As `hasty_driver`, over keyed stores, whose rows are staged in the state."""
    hasty()
    return Driver(job, keyed_sink)
