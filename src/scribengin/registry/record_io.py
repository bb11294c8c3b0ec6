"""Records as values with typed fields: read as their kind, replaced without losing keys of other programs, set aside if damaged."""

from __future__ import annotations

import base64
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar, dataclass_transform

import msgspec

from scribengin.core.errors import Refused
from scribengin.core.records import canonical
from scribengin.registry.contract import COMMIT_BYTES, RECORD_BYTES, Create, Damaged, Delete, RegistryEntry, Replace, parent_of, shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scribengin.registry.contract import Grant, Registry, Term, Write


# Records as bytes: one JSON object, keys sorted, no blanks; a folder has no bytes.


def encode(path: str, value: Mapping[str, Any]) -> bytes:
    """A record's bytes. Raises Refused if there are more than RECORD_BYTES."""
    data = canonical(value) if value else b""
    if len(data) > RECORD_BYTES:
        largest = max(value, key=lambda key: len(canonical(value[key])))
        raise Refused(
            f"{shown(path)} would have {len(data):,} bytes, most of them in {largest!r}; up to {RECORD_BYTES:,} are allowed",
            remedy="keep only small shared values in the registry, and the rest in files",
            code="registry-large",
        )
    return data


def decode(data: bytes) -> dict[str, Any] | str:
    """The value in a record's bytes, or why they are not a record, as the end of a sentence. Records larger than RECORD_BYTES can be
    read."""
    if not data.strip():
        return {}
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return f"is not valid JSON: {error}"
    if not isinstance(value, dict):
        return f"is not a JSON object but {data[:60]!r}"
    number = value.get("format", 1)
    if type(number) is not int or number < 1:
        return f"has a format that is not a number of 1 or more: {number!r}"
    return value


def check_size(writes: Sequence[Write], data: Sequence[bytes]) -> None:
    """Raise Refused if the records of one commit have more than COMMIT_BYTES in total."""
    if (total := sum(map(len, data))) > COMMIT_BYTES:
        count = sum(isinstance(write, Create | Replace) for write in writes)
        raise Refused(
            f"{count} records of one commit have {total:,} bytes in total; up to {COMMIT_BYTES:,} are allowed",
            remedy="write them in several steps",
            code="registry-large",
        )


def data_of(writes: Sequence[Write]) -> list[bytes]:
    """The bytes of each write; empty for a write without a value. Raises Refused as `encode` and `check_size` do."""
    data = [encode(write.path, write.value) if isinstance(write, Create | Replace) else b"" for write in writes]
    check_size(writes, data)
    return data


_KEPT_BYTES = 64 * 1024
DAMAGED = ".damaged"
"""the folder beside a record for damaged records that were set aside; `names` leaves out names that begin with a dot"""


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A kind of record: a subclass declares its keys with their types. A key that has its default value is not written. `FORMAT` is
    increased if older programs must not replace what newer ones write; an additional key does not need that."""

    FORMAT: ClassVar[int] = 1

    @classmethod
    def parse(cls, value: Mapping[str, Any]) -> Self:
        """Parse the known keys. Raises msgspec.ValidationError, which names the key, for a wrong type or a missing key."""
        return msgspec.convert(value, cls)

    def dump(self, over: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The record as a JSON object, with those keys of `over` that this kind does not declare. Only keys of the object itself are kept
        so, not those inside its values."""
        known = msgspec.to_builtins(self)
        others = {key: value for key, value in (over or {}).items() if key not in self.__struct_fields__}
        return {**others, **known, "format": self.FORMAT}


R = TypeVar("R", bound=Record)


@dataclass(frozen=True, slots=True)
class Spot(Generic[R]):
    """A path, and the kind of its record."""

    path: str
    kind: type[R]

    def create(self, record: R, *, ephemeral: bool = False, grants: tuple[Grant, ...] = ()) -> Create:
        """The write that creates the record. `grants`: further access rights on it."""
        return Create(self.path, record.dump(), ephemeral=ephemeral, grants=grants)

    def put(self, there: RegistryEntry | Damaged | None, record: R) -> Create | Replace:
        """The write that creates or replaces the record; keys of other programs in `there` are kept.

        Committing it raises Conflict if the record has changed since it was read. Raises Refused if `there` has a newer format.
        """
        if there is None:
            return self.create(record)
        return Replace(there, record.dump(there.value if isinstance(there, RegistryEntry) else None))


@dataclass(frozen=True, slots=True)
class Stored(Generic[R]):
    """A record as it was read, with its entry."""

    record: R
    entry: RegistryEntry

    def replace(self, record: R) -> Replace:
        """The write that replaces the record; keys of other programs are kept. Raises Refused if it has a newer format."""
        return Replace(self.entry, record.dump(self.entry.value))


@dataclass(frozen=True, slots=True)
class Newer:
    """A record that a newer program wrote, and that this one cannot read. It must be left unchanged."""

    entry: RegistryEntry


def read_record(registry: Registry, spot: Spot[R]) -> Stored[R] | Newer | Damaged | None:
    """The record at the path; see `stored_as`."""
    found = registry.read(spot.path)
    return None if found is None else stored_as(found, spot)


def read_records(registry: Registry, spots: Sequence[Spot[R]]) -> list[Stored[R] | Newer | Damaged | None]:
    """The records at the paths, in few requests; see `stored_as`."""
    found = registry.read_many([spot.path for spot in spots])
    return [None if each is None else stored_as(each, spot) for spot, each in zip(spots, found, strict=True)]


def stored_as(found: RegistryEntry | Damaged, spot: Spot[R]) -> Stored[R] | Newer | Damaged:
    """The entry as a record of its kind. An object whose keys do not fit the kind is Damaged too, unless its format is newer."""
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
    """The write that creates or replaces the record that the registry has now; see `Spot.put`."""
    return spot.put(registry.read(spot.path), record)


def set_aside(registry: Registry, damaged: Damaged, *, term: Term | None = None) -> str:
    """Move a damaged record to the folder DAMAGED beside it, in one step. If it has records below it, it is emptied instead of removed.

    The kept record has `path`, `why`, `bytes`, `crc32`, and its `text`, or `base64` if it is not text, up to the first 64 KiB.

    Returns:
        The path of the kept record.

    Raises:
        Conflict: the record was fixed meanwhile.
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
