"""The audit of a group's sink: the decisions are distributed to the members, and their results are merged in Batch order."""

from __future__ import annotations

import heapq
from contextlib import ExitStack
from dataclasses import asdict, replace
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING

import msgspec

from scribengin.connectors.contract import BatchId, Decided, Receipt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from scribengin.connectors.contract import Published
    from scribengin.connectors.group.contract import MemberSink


def audit_members(
    sinks: Mapping[str, MemberSink], decided: Iterable[Decided], *, lineage: str, member_of: Callable[[Decided], str]
) -> Iterator[Published]:
    """See `Sink.audit`. The decisions are read once and may be many: each member's part waits in an unnamed temporary file."""
    with ExitStack() as stack:
        parts: dict[str, IO[bytes]] = {name: stack.enter_context(TemporaryFile()) for name in sinks}
        first: int | None = None
        for each in decided:
            first = each.batch.number if first is None else first
            parts[member_of(each)].write(_encoded(each))
        told = [_named(name, sink.audit(lineage=lineage, decided=_read(parts[name]), since=first)) for name, sink in sinks.items()]
        yield from heapq.merge(*told, key=lambda published: published.number if published.number >= 0 else float("inf"))


def _named(name: str, told: Iterable[Published]) -> Iterator[Published]:
    for each in told:
        yield replace(each, violations=tuple(f"member {name}: {text}" for text in each.violations))


def _encoded(decided: Decided) -> bytes:
    receipts = [receipt.as_json() for receipt in decided.receipts]
    return msgspec.json.encode([asdict(decided.batch), decided.input_hash, receipts, decided.behind["behind"]]) + b"\n"


def _read(file: IO[bytes]) -> Iterator[Decided]:
    file.seek(0)
    for line in file:
        batch, hash_, receipts, behind = msgspec.json.decode(line)
        yield Decided(BatchId(**batch), hash_, tuple(Receipt.from_json(each) for each in receipts), behind)
