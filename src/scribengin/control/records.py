"""The control plane's values as records of the registry, and back. What cannot be read as one is named, never fatal."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from scribengin.registry.contract import Create, Damaged, Entry, Replace, shown

if TYPE_CHECKING:
    from scribengin.registry.contract import Registry

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TierSpec:
    """A tier of a version, as far as masters must know it."""

    feeders: tuple[str, ...] = ()
    """tiers of the same flow that write what it reads"""
    cores: int = 1
    memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Spec:
    """A version of a flow: `flows/<flow>/spec/<n>`. Never changed once it is written."""

    package: str
    """sha256 of the package that it came in"""
    path: str
    """of the flow file, inside the package"""
    base: str
    """the folder where the flow's relative paths start; on every host the same"""
    state: str
    """the folder of the flow's state; on every host the same"""
    tiers: dict[str, TierSpec]
    at: float = 0.0
    by: str = ""
    labels: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Bound:
    """What a tier is bound to: `logicalnodes/<flow>.<tier>`."""

    node: str


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A record that is there and says nothing."""

    path: str
    why: str

    def __str__(self) -> str:
        return f"{shown(self.path)} {self.why}"


def read_as(there: Entry | Damaged | None, kind: type[T]) -> T | Unreadable | None:
    """The value that a record says; None where there is none, or it is a folder only."""
    if there is None or (isinstance(there, Entry) and not there.value):
        return None
    if isinstance(there, Damaged):
        return Unreadable(there.path, there.why)
    try:
        return msgspec.convert(there.value, kind)
    except msgspec.ValidationError as error:
        return Unreadable(there.path, f"is no {kind.__name__}: {error}")


def as_record(value: Any, there: Entry | Damaged | None) -> dict[str, Any]:
    """The record of a value: what is there keeps the keys that this version does not know."""
    known = there.value if isinstance(there, Entry) else {}
    made: dict[str, Any] = msgspec.to_builtins(value)
    return {**known, "format": 1, **made}


def put(registry: Registry, path: str, value: Any) -> Create | Replace:
    """The write that makes `value` the record at `path`, in place of what this client reads there now."""
    there = registry.read(path)
    record = as_record(value, there)
    return Create(path, record) if there is None else Replace(there, record)
