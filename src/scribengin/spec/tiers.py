"""Reads `tiers`, `edges`, `groups` and `defaults.edge`. Checks that do not need the graph are here."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from scribengin.core.problems import suggestion
from scribengin.core.units import show_bound
from scribengin.spec import keys, tier_keys
from scribengin.spec.model import (
    AgentTier,
    Autoscale,
    Channel,
    Depth,
    EdgeProperties,
    Encryption,
    Group,
    Member,
    Pack,
    Rate,
    Resources,
    Tier,
)
from scribengin.spec.reader import NAME_PATTERN
from scribengin.spec.sections import Read, SectionOwner, Sections
from scribengin.spec.yaml_document import Mapping, Scalar, shorten

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from collections.abc import Mapping as Mapping_

    from scribengin.spec.reader import DocumentReader
    from scribengin.spec.yaml_document import Node

ARROW = re.compile(rf"\s*({NAME_PATTERN}(?:\.{NAME_PATTERN})?)\s*->\s*({NAME_PATTERN})\s*\Z")
"""the key of an edge: the reference that is read, and its reader"""
_TWO_NAMES = re.compile(r"\W*(\w+(?:\.\w+)?)\s*([^\w.]+)\s*(\w+(?:\.\w+)?)\W*\Z")
_MEASURES = (("rows", "rows", "int"), ("bytes", "bytes", "bytes"), ("age", "age_s", "duration"))
"""(key, field, kind) of the measures of a Depth"""
_OF_KIND = {"kafka": ("topic", "bootstrap", "config", "replication"), "folder": ("path",)}
"""type of a channel → the keys that do not apply to other types"""


@dataclass(frozen=True, slots=True)
class TierParts:
    """The content of the three sections. `unread` names the sections with an error; consequences of these errors are not reported."""

    tiers: dict[str, Tier] = field(default_factory=dict)
    agent_tiers: dict[str, AgentTier] = field(default_factory=dict)
    edges: dict[str, EdgeProperties] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)
    unread: frozenset[str] = frozenset()


def read_parts(reader: DocumentReader, sections: Sections, read: Read, default: EdgeProperties) -> TierParts:
    """The three sections of a flow whose keys are `read`; `default` is the value of `defaults.edge`."""
    parts = _Parts(reader, sections, default)
    unread = []
    found: dict[str, dict[str, Any]] = {}
    for section, one in (("tiers", parts.tier), ("edges", parts.edge), ("groups", parts.group)):
        before = reader.errors
        found[section] = parts.members(read, section, one)
        if reader.errors > before or (section in read.given and section not in read.values):
            unread.append(section)
    tiers = {id_: tier for id_, tier in found["tiers"].items() if isinstance(tier, Tier)}
    agents = {id_: tier for id_, tier in found["tiers"].items() if isinstance(tier, AgentTier)}
    return TierParts(tiers, agents, found["edges"], found["groups"], frozenset(unread))


def read_default_edge(reader: DocumentReader, read: Read, owner: SectionOwner) -> EdgeProperties:
    """Read `defaults.edge`."""
    return _EdgeReader(reader, read, owner, EdgeProperties()).read()


class _Parts:
    """Reads one member of a section at a time; None if it could not be read."""

    def __init__(self, reader: DocumentReader, sections: Sections, default: EdgeProperties) -> None:
        self._reader = reader
        self._sections = sections
        self._default = default
        self._edges: set[str] = set()

    def members(self, read: Read, section: str, one: Callable[[str, Scalar, Node], tuple[str, Any] | None]) -> dict[str, Any]:
        mapping: Mapping | None = read.values.get(section)
        if mapping is not None and not mapping.entries:
            example = next(key.form for key in keys.FLOW.keys if key.name == section)
            self._reader.error("wrong-kind", mapping, f"{section} of the flow is empty", f"write {section}: {example}, or take the key out")
        entries = mapping.entries.items() if mapping else ()
        found = [one(name, key, node) for name, (key, node) in entries if not name.startswith("x-")]
        return dict(member for member in found if member is not None)

    def tier(self, id_: str, key: Scalar, node: Node) -> tuple[str, Tier | AgentTier] | None:
        owner = SectionOwner("tier", key.start, id=id_)
        self._reader.check_name(id_, key, "the id of a tier")
        read = self._sections.read(tier_keys.TIER, node, owner)
        if read is None:
            return None
        if "agents" in read.given:
            return self._agent_tier(id_, owner, read)
        if "gateways" in read.given:
            message = f"{owner.key('gateways')} needs `agents`"
            self._reader.error("key-misplaced", read.given["gateways"][0], message, "add agents: GROUP, or take gateways out")
        if "steps" not in read.given:
            steps = next(key for key in tier_keys.TIER.keys if key.name == "steps")
            remedy = self._sections.remedy_to_add(steps, owner)
            self._reader.error("missing-key", owner.start, f"{owner.called} has no `steps`", remedy)
        if "steps" not in read.values:
            return None
        values = {name: value for name, value in read.values.items() if name != "gateways"}
        given: Read | None = values.pop("resources", None)
        resources = Resources(**given.values) if given else Resources()
        autoscale = self._autoscale(owner, values.pop("autoscale", None), given)
        return id_, Tier(
            id_, values.pop("steps"), resources=resources, trigger_s=values.pop("trigger", None), autoscale=autoscale, **values
        )

    def _agent_tier(self, id_: str, owner: SectionOwner, read: Read) -> tuple[str, AgentTier] | None:
        """Read a tier that agents run."""
        for name in read.given:
            if name not in ("agents", "gateways", "steps") and not name.startswith("x-"):
                message = f"{owner.key(name)} has no effect on agents, which run {owner.called}"
                self._reader.error("key-misplaced", read.given[name][0], message, "take it out")
        return (id_, AgentTier(id_, **read.values)) if read.sound and "agents" in read.values else None

    def _autoscale(self, owner: SectionOwner, given: Read | None, resources: Read | None) -> Autoscale | None:
        """Read `autoscale`, and check that min ≤ executors ≤ max."""
        if given is None or not {"lag", "max"} <= given.values.keys():
            return None
        scale = Autoscale(given.values["lag"], given.values["max"], given.values.get("min", 1), given.values.get("mode", "advise"))
        executors = None if resources is None else resources.values.get("executors")
        if scale.min > scale.max:
            message = f"{owner.key('autoscale.min')} is {scale.min}, more than max, which is {scale.max}"
            self._reader.error("autoscale-bounds", given.given["min"][1], message, "write values with min ≤ max")
        elif resources is not None and executors is not None and not scale.min <= executors <= scale.max:
            message = f"{owner.key('resources.executors')} is {executors}, outside {scale.min} to {scale.max} of its autoscale"
            remedy = "take executors out: then it begins with min; or write values with min ≤ executors ≤ max"
            self._reader.error("autoscale-bounds", resources.given["executors"][1], message, remedy)
        return scale

    def edge(self, text: str, key: Scalar, node: Node) -> tuple[str, EdgeProperties] | None:
        arrow = ARROW.match(text)
        if arrow is None:
            remedy = _meant(text) or 'write "a -> b": a node or `route.branch`, and a node that reads it'
            self._reader.error("edge-form", key, f"{shorten(text)} is not a valid name of an edge", remedy)
        id_ = " -> ".join(arrow.groups()) if arrow else text
        owner = SectionOwner("edge", key.start, id=id_)
        if id_ in self._edges:
            self._reader.error("duplicate-key", key, f"{owner.called} is duplicated", "keep one of the two")
        self._reader.places.spelled.setdefault(id_, text)
        read = self._sections.read(tier_keys.EDGE, node, owner)
        if read is None or arrow is None or id_ in self._edges:
            return None
        self._edges.add(id_)
        return id_, _EdgeReader(self._reader, read, owner, self._default).read()

    def group(self, id_: str, key: Scalar, node: Node) -> tuple[str, Group] | None:
        owner = SectionOwner("group", key.start, id=id_)
        self._reader.check_name(id_, key, "the id of a group")
        read = self._sections.read(tier_keys.GROUP, node, owner)
        if read is None or "members" not in read.values:
            return None
        given: list[Read | None] = read.values["members"]
        if not given:
            self._reader.error("group-empty", read.given["members"][1], f"{owner.called} has no members", "write members: [{at: host1}]")
        members = [
            Member(one.values["at"], one.values.get("name", f"m{index}"), one.values.get("cost", 1.0))
            for index, one in enumerate(given, start=1)
            if one is not None and "at" in one.values
        ]
        self._check_unique_members(owner, given)
        return (id_, Group(id_, tuple(members))) if members else None

    def _check_unique_members(self, owner: SectionOwner, given: list[Read | None]) -> None:
        for what, called in (("at", "the place"), ("name", "the name")):
            seen: set[str] = set()
            for index, one in enumerate(given, start=1):
                value = one.values.get(what, f"m{index}" if what == "name" else None) if one else None
                if one and value in seen:
                    at = one.given[what if what in one.given else "at"][1]
                    remedy = "take one of the two out" if what == "at" else "give one of them another name"
                    self._reader.error("twice", at, f"two members of {owner.called} have {called} {shorten(str(value))}", remedy)
                seen.add(value or "")


def read_waters(reader: DocumentReader, read: Read, owner: SectionOwner) -> dict[str, Depth | None]:
    """`high_water`, `low_water` and `capacity` of a source. Checks that they are in ascending order in each measure."""
    levels = {level: _filled(Depth, read.values.get(level), age="age_s") for level in ("high_water", "low_water", "capacity")}
    _EdgeReader(reader, read, owner, EdgeProperties()).check_levels(EdgeProperties(**levels))
    return levels


class _EdgeReader:
    """Reads one section of edge properties. `default` fills in what it does not set: an edge must be valid together with it."""

    def __init__(self, reader: DocumentReader, read: Read, owner: SectionOwner, default: EdgeProperties) -> None:
        self._reader = reader
        self._read = read
        self._owner = owner
        self._default = default

    def read(self) -> EdgeProperties:
        values = self._read.values
        edge = EdgeProperties(
            channel=self._channel(values.get("channel")),
            compression=values.get("compression"),
            encryption=self._encryption(values.get("encryption")),
            pack=_filled(Pack, values.get("pack"), linger="linger_s"),
            ordering=values.get("ordering"),
            key=values.get("key", ()),
            retention_s=values.get("retention"),
            limit=_filled(Rate, values.get("limit")),
            high_water=_filled(Depth, values.get("high_water"), age="age_s"),
            low_water=_filled(Depth, values.get("low_water"), age="age_s"),
            capacity=_filled(Depth, values.get("capacity"), age="age_s"),
            durability=values.get("durability"),
            spill=values.get("spill"),
            to=values.get("to"),
        )
        self._check_ordering(edge)
        self._check_spill(edge)
        self.check_levels(edge)
        return edge

    def _error(self, code: str, name: str, message: str, remedy: str) -> None:
        """Report a Problem at the value of a key."""
        self._reader.error(code, self._read.given[name][1], message, remedy)

    def _channel(self, given: str | Read | None) -> Channel | None:
        if given is None or isinstance(given, str):
            return None if given is None else Channel(type=given)  # type: ignore[arg-type]
        values = given.values
        kind = values.get("type") or next((kind for kind in _OF_KIND if any(name in given.given for name in _OF_KIND[kind])), None)
        for other, names in _OF_KIND.items():
            for name in names if kind not in (None, other) else ():
                if name in given.given:
                    message = f"`{self._owner.prefix}channel.{name}` of {self._owner.called} does not apply to a channel of type {kind}"
                    self._reader.error("key-misplaced", given.given[name][0], message, f"take it out, or write type: {other}")
        return Channel(**{**values, "type": kind})

    def _encryption(self, given: str | Read | None) -> Encryption | None:
        if given is None or isinstance(given, str):
            return None if given is None else Encryption(none=True)
        if not given.given:
            return None  # reported as empty
        values, called = given.values, f"`{self._owner.prefix}encryption` of {self._owner.called}"
        known: Mapping_[str, Any] = values.get("keys", {})
        use: str | None = values.get("use") or (next(iter(known)) if len(known) == 1 else None)
        for message, remedy, name in _wrong_keys(given, known, use):
            at = given.given[name][1] if name else self._read.given["encryption"][1]
            self._reader.error("encryption-keys", at, f"{called} {message}", remedy)
        return Encryption(values.get("keyring"), known, use)

    def _check_ordering(self, edge: EdgeProperties) -> None:
        given, values = self._read.given, self._read.values
        if "ordering" in given and "ordering" not in values:
            return
        ordering, key = edge.ordering or self._default.ordering, edge.key or self._default.key
        if "key" in given and ordering != "key":
            message = f"{self._owner.key('key')} needs `ordering: key`"
            self._reader.error("key-misplaced", given["key"][0], message, "add ordering: key, or take key out")
        elif "ordering" in given and ordering == "key" and not key and ("key" in values or "key" not in given):
            message = f"{self._owner.key('ordering')} is `key`, but there is no `key` with its columns"
            self._error("missing-key", "ordering", message, "add key: [COLUMN]")

    def _check_spill(self, edge: EdgeProperties) -> None:
        given = self._read.given
        if "durability" in given and edge.durability is None:
            return
        if "spill" in given and (edge.durability or self._default.durability) != "store_on_failure":
            message = f"{self._owner.key('spill')} needs `durability: store_on_failure`"
            self._reader.error("key-misplaced", given["spill"][0], message, "add it, or take spill out")

    def check_levels(self, edge: EdgeProperties) -> None:
        """Check for each measure that low_water ≤ high_water ≤ capacity."""
        for name, attribute, kind in _MEASURES:
            levels = [
                (level, value)
                for level in ("low_water", "high_water", "capacity")
                if (value := _first(getattr(edge, level), getattr(self._default, level), attribute)) is not None
            ]
            for (lower, low), (upper, high) in pairwise(levels):
                given: list[Read] = [self._read.values[level] for level in (lower, upper) if level in self._read.values]
                inner = next((one for one in given if name in one.given), None)
                if low > high and inner is not None:
                    limit = f"the {show_bound(kind, high)} of {upper}"
                    message = f"{self._owner.key(f'{lower}.{name}')} is {show_bound(kind, low)}, more than {limit}"
                    remedy = "write values with low_water ≤ high_water ≤ capacity"
                    self._reader.error("water-levels", inner.given[name][1], message, remedy)


def _wrong_keys(given: Read, known: Mapping_[str, Any], use: str | None) -> Iterator[tuple[str, str, str]]:
    """(message, remedy, the key at fault; empty for the whole) for keys of an encryption that do not fit together."""
    has_ring, has_keys = "keyring" in given.given, "keys" in given.given
    if has_ring and has_keys:
        yield "has both a keyring and keys", "keep one of the two", "keys"
    elif not has_ring and not has_keys:
        yield "has neither a keyring nor keys", "write {keyring: FILE}, or {keys: {k1: …}, use: k1}", ""
    elif has_ring and "use" in given.given:
        yield "has `use` beside a keyring; the last line of a keyring is the key that encrypts", "take `use` out", "use"
    elif "keys" in given.values and not known:
        yield "has no key", 'write keys: {k1: "${secret:env/K1}"}', "keys"
    elif known and use is None and "use" not in given.given:
        yield "does not name the key that encrypts", f"add use: {next(iter(known))}", "keys"
    elif known and use is not None and use not in known:
        yield f"uses the key {shorten(use)}, which it does not have", suggestion(use, known, "its keys are"), "use"


def _first(own: Depth | None, default: Depth | None, attribute: str) -> float | None:
    """The value of one measure of an edge, else of the default; None if neither sets it."""
    values: list[float | None] = [getattr(depth, attribute) for depth in (own, default) if depth is not None]
    return next((value for value in values if value is not None), None)


def _filled(make: Callable[..., Any], given: Read | None, **renamed: str) -> Any:
    """Build a value from a section. Each key is a field of the same name, except for those in `renamed`."""
    return None if given is None else make(**{renamed.get(name, name): value for name, value in given.values.items()})


def _meant(text: str) -> str:
    """A remedy with the probably intended edge, if the text contains two names; else empty."""
    names = _TWO_NAMES.match(text)
    if names is None:
        return ""
    first, between, second = names.groups()
    if "<" in between and ">" not in between:
        first, second = second, first
    arrow = f"{first} -> {second.partition('.')[0]}"
    return f'did you mean "{arrow}"?' if ARROW.match(arrow) else ""
