"""The properties of a channel as text: the value in force, and where the flow file sets it. Never a key or a password."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scribengin.core.units import show_bytes
from scribengin.plan.describe import span
from scribengin.spec.model import Depth, EdgeProperties, Encryption, Pack, Rate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scribengin.plan.channels import PlannedChannel
    from scribengin.spec.model import Flow


_EDGE, _DEFAULT, _BUILT_IN = "edge", "defaults.edge", "built-in"


@dataclass(frozen=True, slots=True)
class Property:
    """A property of a channel. `said` is `edge`, `defaults.edge` or `built-in`; several separated by commas if parts of the value come from
    several."""

    name: str
    value: str
    said: str


def place_words(channel: PlannedChannel) -> str:
    """The channel's location: `topic a-b at 127.0.0.1:9092, 4 partitions when it is created`."""
    where = channel.channel
    if where.type != "kafka":
        return channel.place
    copies = f", {where.replication} copies" if where.replication else ""
    parts = f"{where.partitions} partition{'s' * (where.partitions != 1)}{copies} when it is created"
    return f"{channel.place} at {where.bootstrap}, {parts}{', config (secret)' if where.config else ''}"


def properties(flow: Flow, channel: PlannedChannel) -> tuple[Property, ...]:
    """Every property in force, in the order of a flow file's keys."""
    return tuple(_properties(flow.edges.get(channel.names[0], EdgeProperties()), flow.defaults.edge, channel))


def property_texts(flow: Flow, channel: PlannedChannel) -> dict[str, str]:
    """Property → its value as text, to compare with the value in force before."""
    return {each.name: each.value for each in properties(flow, channel)}


def _properties(own: EdgeProperties, default: EdgeProperties, channel: PlannedChannel) -> Iterator[Property]:
    edge = channel.edge

    def origin(name: str) -> str:
        return _EDGE if _given(getattr(own, name)) else _DEFAULT if _given(getattr(default, name)) else _BUILT_IN

    def parts(name: str, show: Callable[[Any, str], str | None]) -> Property:
        value = getattr(edge, name)
        shown = {part: text for part in value.__dataclass_fields__ if (text := show(value, part)) is not None}
        origins = {part: _described_part(getattr(own, name), getattr(default, name), part) for part in shown}
        return Property(name, ", ".join(shown.values()) or "none", ", ".join(dict.fromkeys(origins.values())) or _BUILT_IN)

    yield Property("channel", place_words(channel), origin("channel"))
    yield Property("compression", str(edge.compression), origin("compression"))
    yield Property("encryption", _encryption(edge.encryption), origin("encryption"))
    yield parts("pack", _pack)
    yield Property("ordering", _ordering(edge), origin("ordering"))
    yield Property("retention", span(edge.retention_s or 0.0), origin("retention_s"))
    yield parts("limit", _rate)
    yield parts("high_water", _depth)
    if own.low_water is None and default.low_water is None:
        yield Property("low_water", parts("low_water", _depth).value, "half of high_water")
    else:
        yield parts("low_water", _depth)
    yield parts("capacity", _depth)
    yield Property("durability", str(edge.durability), origin("durability"))
    if edge.durability == "store_on_failure":
        yield Property("spill", f"at most {show_bytes(edge.spill or 0)}", origin("spill"))
    if edge.to:
        yield Property("to", f"group {edge.to}", origin("to"))


def _given(value: object) -> bool:
    return value not in (None, ())


def _described_part(own: object, default: object, part: str) -> str:
    for value, where in ((own, _EDGE), (default, _DEFAULT)):
        if value is not None and getattr(value, part) is not None:
            return where
    return _BUILT_IN


def _encryption(encryption: Encryption | None) -> str:
    if encryption is None or encryption.none:
        return "none"
    if encryption.keyring:
        return f"AES-GCM; the last key of {encryption.keyring} encrypts"
    return f"AES-GCM; key {encryption.use} encrypts; keys are {', '.join(encryption.keys)}"


def _ordering(edge: EdgeProperties) -> str:
    if edge.ordering == "key":
        return f"key: rows with equal {', '.join(edge.key)} keep their order"
    return "none: the channel does not keep the order of a source's rows"


def _pack(pack: Pack, part: str) -> str | None:
    value = getattr(pack, part)
    if value is None:
        return None
    return {"rows": f"{value:,.0f} rows", "bytes": show_bytes(value), "linger_s": f"linger {span(value)}"}[part]


def _rate(rate: Rate, part: str) -> str | None:
    value = getattr(rate, part)
    return None if value is None else f"{value:,} rows/s" if part == "rows" else f"{show_bytes(value)}/s"


def _depth(depth: Depth, part: str) -> str | None:
    value = getattr(depth, part)
    if value is None:
        return None
    return {"rows": f"{value:,.0f} rows", "bytes": show_bytes(value), "age_s": f"{span(value)} old"}[part]
