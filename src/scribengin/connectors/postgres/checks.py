"""Checks of PostgreSQL sources: what their mode needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scribengin.connectors.check_contract import CheckedNode
    from scribengin.core.problems import Problem


def tables_that_grow_say_by_what(source: CheckedNode) -> Iterator[Problem]:
    """`mode: incremental` needs a growing column; a snapshot does not, and a static source is read completely."""
    mode = source.options.get("mode", "snapshot")
    if mode == "incremental" and not source.options.get("by"):
        message = f"{source.called} has mode: incremental but no `by`, the column whose value is greater in newer rows"
        yield source.problem_at_key("table-mode", source.path("mode"), message, "add by, such as: by: updated_at")
    for name in ("by", "settle", "waits_for") if mode == "snapshot" else ():
        if source.options.get(name):
            message = f'{source.called} has "{name}", which mode: snapshot does not use'
            yield source.problem_at_key("table-mode", source.path(name), message, "write mode: incremental, or take it out")
    if mode == "incremental" and source.static:
        message = f"{source.called} is static and has mode: incremental; a static source is read completely"
        yield source.problem_at_key("table-mode", source.path("mode"), message, "take one of the two out")
