"""Workers' records about the columns of their data."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  msgspec looks at the annotations of records
from typing import Any

from scribengin.registry.records import Record


class ColumnsRecord(Record):
    """Columns in the data of a tier's sources that their schemas lack, by the decisions of its Batches; columns that its sinks write and
    that their folders lacked."""

    noticed: tuple[Mapping[str, Any], ...] = ()
    """the newest hundred: `source`, `column`, `kind`, `type`, `file`, `line`, `batch`, `at`, `records`, `now`, as `status` shows them"""
    accepted: tuple[Mapping[str, Any], ...] = ()
    """for each sink the last agreement: `sink`, `columns`, `instead`, `readers`, `at`, `by`, in the same form"""
