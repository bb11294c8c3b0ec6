"""Checks of `type: spark` sinks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from scribengin.connectors.check_contract import CheckedNode, Keys
    from scribengin.core.problems import Problem

_IN_FOLDERS = ("avro", "csv", "json", "orc", "parquet", "text", "xml")
"""Spark's own writers of files"""
_READS_ONLY = ("binaryfile", "rate", "rate-micro-batch", "socket")
_KEEPS_NOTHING = {"console": "use type: console", "memory": "use type: files", "noop": "take the sink out; this writer discards all rows"}


def spark_writers_can_write(sink: CheckedNode) -> Iterator[Problem]:
    """A writer of files needs one path; a format that Spark cannot write, or does not store, is an error; an option must have one value."""
    for place, what, remedy in _spark_faults(sink.options):
        yield sink.problem_at_key("writer-options", sink.path(*place), f"{sink.called} {what}", remedy)


def _spark_faults(options: Mapping[str, Any]) -> Iterator[tuple[Keys, str, str]]:
    """The faults of the options as (key below the sink, what is wrong, remedy)."""
    given, transaction = options.get("options") or {}, options.get("transaction") or {}
    format_ = str(options.get("format", "")).lower()
    if format_ in _IN_FOLDERS and not options.get("path") and "path" not in given:
        yield (), f"writes {format_} files, but has no path", "add path: out/kept"
    if options.get("path") and "path" in given:
        yield ("options", "path"), "has a path twice", "take one of the two out"
    if format_ in _KEEPS_NOTHING:
        yield ("format",), f"has format: {format_}, which does not store rows", _KEEPS_NOTHING[format_]
    if format_ in _READS_ONLY:
        yield ("format",), f"has format: {format_}, which Spark can only read", "use a format that Spark can write"
    names = set(transaction.values())
    if transaction and len(names) < 2:
        yield (
            ("transaction",),
            "uses the same option for `app` and `version` of its transaction",
            "write the names of two different options of the writer",
        )
    for name in sorted(names & given.keys()):
        yield ("options", name), f'gives the option "{name}", which its transaction sets for each Batch', "take it out of `options`"
