"""The folders of a tier's sinks that want upkeep: old commit records folded, what attempts have left cleared away."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from scribengin.plan.groups import placed, target

if TYPE_CHECKING:
    from collections.abc import Collection

    from scribengin.spec.model import Flow


def kept_folders(flow: Flow, sinks: Collection[str] | None = None) -> tuple[str, ...]:
    """Of a tier's flow, sorted: of its file sinks and of its channels in folders, of each member where they go to a group. `sinks`: of
    those alone."""
    folders = set()
    for node in flow.sinks.values():
        if sinks is not None and node.id not in sinks:
            continue
        if node.type != "files" and (node.type, node.options.get("kind")) != ("channel", "folder"):
            continue
        paths = [node.options.get("path")] if target(node) is None else [each["path"] for _, _, each in placed(flow, node, node.options)]
        folders |= {str(Path(flow.folder.resolve(), path)) for path in paths if path}
    return tuple(sorted(folders))
