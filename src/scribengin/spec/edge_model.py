"""The properties of edges between tiers in a flow file: channels, back-pressure limits, and how rows are sent."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping


Codec = Literal["none", "gzip", "lz4", "snappy", "zstd"]
Durability = Literal["end_to_end", "store_on_failure", "best_effort"]
Ordering = Literal["key", "none"]
ChannelKind = Literal["kafka", "folder"]


@dataclass(frozen=True, slots=True)
class Channel:
    """The channel of an edge. The planner chooses fields that are None: Kafka if the flow knows exactly one cluster, else a folder."""

    type: ChannelKind | None = None
    topic: str | None = None
    path: str | None = None
    bootstrap: str | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    partitions: int | None = None
    replication: int | None = None


@dataclass(frozen=True, slots=True)
class Pack:
    """The limits of one pack: rows, and bytes before compression; a Batch waits up to `linger_s` seconds to fill it."""

    rows: int | None = None
    bytes: int | None = None
    linger_s: float | None = None


@dataclass(frozen=True, slots=True)
class Encryption:
    """AES-GCM. Either `keyring`, the path of a file with a line `ID BASE64` a key, whose last line encrypts; or `keys` (id →
    BASE64), of which `use` encrypts. `none` turns off the encryption of `defaults.edge`."""

    keyring: str | None = None
    keys: Mapping[str, Any] = field(default_factory=dict)
    use: str | None = None
    none: bool = False


@dataclass(frozen=True, slots=True)
class Rate:
    """A rate limit: rows and bytes a second."""

    rows: int | None = None
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Depth:
    """A limit on the unread content of a channel: rows, bytes, seconds since the oldest row was written. None: no limit."""

    rows: int | None = None
    bytes: int | None = None
    age_s: float | None = None


@dataclass(frozen=True, slots=True)
class EdgeProperties:
    """Properties of an edge between two tiers. Fields that are None come from `defaults.edge`, then from the planner."""

    channel: Channel | None = None
    compression: Codec | None = None
    encryption: Encryption | None = None
    pack: Pack | None = None
    ordering: Ordering | None = None
    key: tuple[str, ...] = ()
    """the columns whose equal values keep their order, with `ordering: key`"""
    retention_s: float | None = None
    """the minimum time, in seconds, the channel keeps rows that its readers have read"""
    limit: Rate | None = None
    high_water: Depth | None = None
    low_water: Depth | None = None
    capacity: Depth | None = None
    """the limit at which the writing tier pauses"""
    durability: Durability | None = None
    spill: int | None = None
    """the maximum number of bytes that `store_on_failure` stores locally"""
    to: str | None = None
    """a group, or `group.member`"""
