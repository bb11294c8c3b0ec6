"""What workers say of the columns of their data."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  msgspec looks at the annotations of records
from typing import Any

from scribengin.registry.records import Record


class ColumnsRecord(Record):
    """What the data of a tier's sources have that their schemas have not, by the decisions of its Batches; what its sinks write that their
    folders had not."""

    noticed: tuple[Mapping[str, Any], ...] = ()
    """the newest hundred: `source`, `column`, `kind`, `type`, `file`, `line`, `batch`, `at`, `records`, `now`, as `status` shows them"""
    accepted: tuple[Mapping[str, Any], ...] = ()
    """of each sink the last that somebody has agreed to: `sink`, `columns`, `instead`, `readers`, `at`, `by`, the same way"""
