"""What a flow file says of the edges between tiers: their channels, how much may wait there, and how it is handed over."""

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
    """Where the hand-off of a cut edge lies. What is None the planner chooses: Kafka where the flow knows one cluster, else a folder."""

    type: ChannelKind | None = None
    topic: str | None = None
    path: str | None = None
    bootstrap: str | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    partitions: int | None = None
    replication: int | None = None


@dataclass(frozen=True, slots=True)
class Pack:
    """How many rows travel as one: at most so many, of at most so many bytes before compression; a Batch waits `linger_s` for them."""

    rows: int | None = None
    bytes: int | None = None
    linger_s: float | None = None


@dataclass(frozen=True, slots=True)
class Encryption:
    """AES-GCM. Either `keyring`, the path of a file with a line `ID BASE64` a key, whose last line is the one that writes; or `keys` (id →
    BASE64), of which `use` writes. `none` takes back what `defaults.edge` says."""

    keyring: str | None = None
    keys: Mapping[str, Any] = field(default_factory=dict)
    use: str | None = None
    none: bool = False


@dataclass(frozen=True, slots=True)
class Rate:
    """At most so much a second."""

    rows: int | None = None
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Depth:
    """How much waits in a channel: rows, bytes, seconds since the oldest was written. What is None is not looked at."""

    rows: int | None = None
    bytes: int | None = None
    age_s: float | None = None


@dataclass(frozen=True, slots=True)
class EdgeProperties:
    """Properties of an arrow that is cut. What is None `defaults.edge` says, and then the planner."""

    channel: Channel | None = None
    compression: Codec | None = None
    encryption: Encryption | None = None
    pack: Pack | None = None
    ordering: Ordering | None = None
    key: tuple[str, ...] = ()
    """the columns whose equal values keep their order, with `ordering: key`"""
    retention_s: float | None = None
    """how long the channel keeps at least what its readers have read"""
    limit: Rate | None = None
    high_water: Depth | None = None
    low_water: Depth | None = None
    capacity: Depth | None = None
    """where the feeder pauses"""
    durability: Durability | None = None
    spill: int | None = None
    """bytes that `store_on_failure` keeps at most"""
    to: str | None = None
    """a group, or `group.member`"""
