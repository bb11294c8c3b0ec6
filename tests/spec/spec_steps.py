"""Functions that the flows of these tests name."""

from __future__ import annotations

from typing import Any

from scribengin import record


@record
def has_tag(row: dict[str, Any]) -> bool:
    return "#" in row["text"]


def sort_out(row: dict[str, Any]) -> dict[str, Any]:
    return row


class Sorter:
    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        return row
