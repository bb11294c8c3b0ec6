"""What the commit records of a place come to, for sinks of folders and of object stores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from scribengin.connectors.contract import Unaccounted

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from scribengin.core.numbered_log import NumberedLog


class Orphan(Protocol):
    """Something at a place that no record names."""

    @property
    def foreign(self) -> bool:
        """Whether it is not Scribengin's."""


def found_besides(
    known: Collection[str],
    logs: Iterable[tuple[str, NumberedLog]],
    summarize: Callable[[Any | None, Iterable[Any]], Mapping[str, int]],
    orphans: Iterable[Orphan],
) -> list[Unaccounted]:
    """What a place holds beside what the flow's state accounts for.

    Args:
        known: The lineages that the state accounts for.
        logs: Each lineage that has written there, with its commit records.
        summarize: What records come to, behind those that were folded: `rows` and `files`.
        orphans: What no record names.
    """
    found = []
    for lineage, commits in logs:
        if lineage not in known:
            counts = summarize(commits.summary()[1], (record for _, record in commits.since()))
            found.append(Unaccounted(f"lineage {lineage}", counts["rows"], counts["files"]))
    found.append(Unaccounted("that no record names", items=sum(orphan.foreign for orphan in orphans)))
    return [each for each in found if each.items]


def summarize_commits(summary: Any | None, records: Iterable[Any]) -> dict[str, int]:
    """What folded commit records come to."""
    so_far = summary or {"batches": 0, "rows": 0, "files": 0}
    for record in records:
        so_far = {
            "batches": so_far["batches"] + 1,
            "rows": so_far["rows"] + record["rows"],
            "files": so_far["files"] + len(record["files"]),
        }
    return so_far
