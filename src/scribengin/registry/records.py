"""Records as values with names and types: read with their kind, replaced with what others keep there left in, set aside where damaged."""

from __future__ import annotations

import base64
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar, dataclass_transform

import msgspec

from scribengin.registry.contract import Create, Damaged, Delete, RegistryEntry, Replace, parent_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scribengin.registry.contract import Grant, Registry, Term

_KEPT_BYTES = 64 * 1024
DAMAGED = ".damaged"
"""the folder beside a record that takes what was set aside; `names` leaves out what begins with a dot"""


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A kind of record: a subclass declares its keys with their types. A key that has its default is not written.

    `FORMAT` rises when older programs must not replace what newer ones write; a key more is no such case.
    """

    FORMAT: ClassVar[int] = 1

    @classmethod
    def parse(cls, value: Mapping[str, Any]) -> Self:
        """The keys that are known here. Raises msgspec.ValidationError, which names the key, for a wrong type or a lacking key."""
        return msgspec.convert(value, cls)

    def dump(self, over: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The JSON object; with those keys of `over` that this kind does not know. Keys inside of values are the value's."""
        known = msgspec.to_builtins(self)
        others = {key: value for key, value in (over or {}).items() if key not in self.__struct_fields__}
        return {**others, **known, "format": self.FORMAT}


R = TypeVar("R", bound=Record)


@dataclass(frozen=True, slots=True)
class Spot(Generic[R]):
    """A path, and the kind of record that belongs there."""

    path: str
    kind: type[R]

    def create(self, record: R, *, ephemeral: bool = False, grants: tuple[Grant, ...] = ()) -> Create:
        """The write that makes it."""
        return Create(self.path, record.dump(), ephemeral=ephemeral, grants=grants)

    def put(self, there: RegistryEntry | Damaged | None, record: R) -> Create | Replace:
        """The write that makes it what is there, in place of what was read, with the keys that others keep there. A commit of it raises
        Conflict where something else is there by now, Refused where what is there has a newer format."""
        if there is None:
            return self.create(record)
        return Replace(there, record.dump(there.value if isinstance(there, RegistryEntry) else None))


@dataclass(frozen=True, slots=True)
class Stored(Generic[R]):
    """A record as it was read, and what it was read from."""

    record: R
    entry: RegistryEntry

    def replace(self, record: R) -> Replace:
        """The write that puts another in its place, with the keys that somebody else keeps there. Raises Refused where it has a newer
        format."""
        return Replace(self.entry, record.dump(self.entry.value))


@dataclass(frozen=True, slots=True)
class Newer:
    """A record that a newer program wrote, and that this one cannot read. It is to be left alone."""

    entry: RegistryEntry


def read_record(registry: Registry, spot: Spot[R]) -> Stored[R] | Newer | Damaged | None:
    """What is there; see `stored_as`."""
    found = registry.read(spot.path)
    return None if found is None else stored_as(found, spot)


def read_records(registry: Registry, spots: Sequence[Spot[R]]) -> list[Stored[R] | Newer | Damaged | None]:
    """What is at each, in few requests."""
    found = registry.read_many([spot.path for spot in spots])
    return [None if each is None else stored_as(each, spot) for spot, each in zip(spots, found, strict=True)]


def stored_as(found: RegistryEntry | Damaged, spot: Spot[R]) -> Stored[R] | Newer | Damaged:
    """What was read, as its kind of record. An object whose keys do not fit the kind is Damaged too, where its format is known: somebody
    wrote it by hand."""
    if isinstance(found, Damaged):
        return found
    try:
        return Stored(spot.kind.parse(found.value), found)
    except msgspec.ValidationError as error:
        if found.format > spot.kind.FORMAT:
            return Newer(found)
        raw = msgspec.json.encode(found.value)
        return Damaged(found.path, raw, f"does not fit: {error}", found.version, found.changed, found.session)


def put(registry: Registry, spot: Spot[R], record: R) -> Create | Replace:
    """`Spot.put` in place of what this client reads there now."""
    return spot.put(registry.read(spot.path), record)


def set_aside(registry: Registry, damaged: Damaged, *, term: Term | None = None) -> str:
    """Move what is damaged to the folder DAMAGED beside it, in one step, and give its new path. Where records lie below it, it is emptied.

    What is kept is a record: `path`, `why`, `bytes`, `crc32`, and its `text`, or `base64` where it is none, to the first 64 KiB. Raises
    Conflict where it was mended meanwhile.
    """
    above, name = parent_of(damaged.path), damaged.path.rpartition("/")[2]
    aside = f"{above}/{DAMAGED}/{name}@{damaged.changed}".lstrip("/")
    kept = damaged.raw[:_KEPT_BYTES]
    try:
        content = {"text": kept.decode()}
    except UnicodeDecodeError:
        content = {"base64": base64.b64encode(kept).decode()}
    sums = {"bytes": len(damaged.raw), "crc32": f"{zlib.crc32(damaged.raw):08x}"}
    gone = Replace(damaged, {}) if registry.children(damaged.path) else Delete(damaged.path, damaged.version)
    registry.commit(Create(aside, {"format": 1, "path": damaged.path, "why": damaged.why, **sums, **content}), gone, term=term)
    return aside


def names(registry: Registry, folder: str) -> tuple[str, ...]:
    """The names of the records in a folder, sorted."""
    return tuple(name for name in registry.children(folder) if not name.startswith("."))
