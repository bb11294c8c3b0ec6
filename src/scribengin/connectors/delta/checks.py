"""Checks of Delta tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.connectors.delta.options import REACHED
from scribengin.connectors.objects.checks import urls_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scribengin.connectors.check_contract import CheckedNode
    from scribengin.core.problems import Problem


def folders_need_no_address(sink: CheckedNode) -> Iterator[Problem]:
    """A table in a local folder needs no server address and no login."""
    for name in [option.name for option in REACHED if option.name in sink.options and not urls_of(sink)]:
        message = f'{sink.called} has "{name}", but its path {sink.options.get("path")} is a local folder'
        yield sink.problem_at_key("object-url", sink.path(name), message, "write path: s3://BUCKET/PREFIX, or take it out")
