"""The channel of a source that agents feed: which it is, and what opens it. Plans import this; what writes is loaded when it is opened."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from scribengin.connectors.agents.options import CHANNEL
from scribengin.core.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scribengin.connectors.agents.contract import ChannelWriter, CommitReport


def open_channel(options: Mapping[str, Any], *, name: str, readers: Sequence[str]) -> ChannelWriter:
    """Open the writing end of a channel.

    Args:
        options: As `channel_of` returns them.
        name: The name of the gateway.
        readers: The tiers that read it, as `FLOW.TIER`.

    Raises:
        Unreachable: The channel does not answer.
        SourceError: The brokers refuse it, for good.
    """
    if options["kind"] == "folder":
        from scribengin.connectors.agents.folder import FolderChannelWriter

        return FolderChannelWriter(Path(options["path"]), name=name, retention_s=options["retention"], readers=readers)
    from scribengin.connectors.agents.kafka import KafkaChannelWriter

    return KafkaChannelWriter(options, name=name, readers=readers)


def channel_of(options: Mapping[str, Any], folder: Path, node: str) -> dict[str, Any]:
    """The options of the channel of a source, complete: `kind`, and `path` or `topic` with the connection. Raises SourceError if it is not
    named."""
    given = CHANNEL.filled(options["channel"] or {})
    kind = given["type"] or ("kafka" if given["topic"] else "folder")
    if not given["path" if kind == "folder" else "topic"]:
        raise SourceError(
            f'source "{node}" does not say where gateways store its records',
            remedy="add channel: {path: FOLDER}, or channel: {topic: NAME, bootstrap: BROKERS}",
            node=node,
        )
    if kind == "folder":
        return {"kind": kind, "path": str(folder / given["path"]), "retention": given["retention"]}
    more = {"config": options["config"], "timeout": options["timeout"]}
    return {"kind": kind, **{name: given[name] for name in ("topic", "bootstrap", "partitions", "replication", "retention")}, **more}


def report_committed(channel: Mapping[str, Any], node: str, report: CommitReport) -> None:
    """Tell the gateways what a tier has committed. Raises OSError, Unreachable."""
    if channel["kind"] == "folder":
        from scribengin.connectors.agents.folder import write_report

        write_report(Path(channel["path"]), report)
        return
    from scribengin.connectors.agents.kafka import send_report

    send_report(channel, node, report)
