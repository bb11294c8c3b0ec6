"""The common part of both kinds of channel: the conversion of rows to record batches and back, with the keys of the edge."""

from __future__ import annotations

import socket
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from scribengin.core.errors import SourceError
from scribengin.formats.contract import Bad
from scribengin.formats.keyring import Keyring
from scribengin.formats.packs import PackMaker, damaged_block, read_header, read_pack
from scribengin.formats.row_ids import Hop

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from scribengin.connectors.contract import BatchId, ConnectorContext
    from scribengin.core.types import Schema
    from scribengin.formats.contract import RecordPlace
    from scribengin.formats.packs import PackBlock


class Wire:
    """One end of a channel. Picklable."""

    def __init__(self, place: ConnectorContext) -> None:
        self.node = place.node
        self.options = place.options
        self.id: str = place.options["channel"]
        self._member = place.member
        self._keyring = keyring_of(place)

    def maker(self, schema: Schema, batch: BatchId, unit: int, *, most: int) -> PackMaker:
        """Create the maker of the record batches of one task output.

        Args:
            schema: The columns of the rows.
            batch: The Batch.
            unit: The number of the task output.
            most: The maximum size of a record batch, in bytes.
        """
        options = self.options
        about: dict[str, str | int] = {
            "tier": options["tier"],
            "query": batch.query,
            "lineage": batch.lineage,
            "batch": batch.number,
            "unit": unit,
            "host": socket.gethostname(),
            "time_ms": int(time.time() * 1000),
        } | ({"member": self._member} if self._member else {})
        return PackMaker(
            schema,
            codec=options["compression"],
            keyring=self._keyring,
            rows=options["rows"],
            bytes=options["bytes"],
            most=most,
            sign=self.id,
            about=about,
        )

    def packs(self, values: Iterable[tuple[bytes | None, RecordPlace]]) -> Iterator[PackBlock]:
        """The record batches that were found at the place of this channel. Anything else becomes a block with one bad record."""
        beside = set(self.options["beside"])
        for value, place in values:
            if beside and value is not None and (said := read_header(value)) is not None and said.sign in beside:
                continue
            # the encryption of an edge changes only after all its contents were read (`plan.flow_diff`): an unencrypted message here is not
            # ours
            pack = read_pack(value, self._keyring, place, plain=self._keyring is None)
            if pack.header is None:
                yield pack
            elif pack.header.sign != self.id:
                yield damaged_block(
                    place,
                    Bad(0, "foreign", f'a record batch of "{pack.header.sign}", which is not the writer of this channel'),
                    value or b"",
                )
            else:
                hop = _hop(pack.header.about)
                pack.whole = replace(pack.whole, trails=[(*trail, hop) for trail in pack.whole.trails])
                yield pack


def rows_of(value: bytes | None, channel: str) -> int:
    """The number of the channel's rows in a message: 0 if the message is not a record batch of the channel."""
    said = None if value is None else read_header(value)
    return said.rows if said is not None and said.sign == channel else 0


def _hop(about: Mapping[str, str | int]) -> Hop:
    """Where a record batch was made, as a provenance entry of its rows."""
    tier, query, host = (str(about.get(name, "")) for name in ("tier", "query", "host"))
    batch, time_ms = (number if isinstance(number := about.get(name), int) else -1 for name in ("batch", "time_ms"))
    return Hop(tier, query, batch, host, time_ms, str(about.get("member", "")))


def known_schema(schema: Schema | None, channel: str, node: str) -> Schema:
    """The columns of a channel.

    Args:
        schema: The columns; None if they are not known yet.
        channel: The id of the channel, for messages.
        node: The id of the source, for messages.

    Raises:
        SourceError: The columns are not known yet.
    """
    if schema is None:
        raise SourceError(
            f'channel "{channel}": the columns of its rows are not known yet',
            remedy="start its upstream tier once: the tier records the columns",
            node=node,
        )
    return schema


def keyring_of(place: ConnectorContext) -> Keyring | None:
    """The keys of the edge; None if it is not encrypted."""
    options: Mapping[str, Any] = place.options
    if options["keyring"]:
        return Keyring(place.folder / options["keyring"])
    if options["keys"]:
        return Keyring.of(options["keys"], options["use"])
    return None
