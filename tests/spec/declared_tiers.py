"""Tiers, edges and groups as hypothesis draws them; an edge is right together with the default that it is drawn for."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from scribengin.spec.model import Autoscale, Channel, Depth, EdgeProperties, Encryption, Group, Member, Pack, Rate, Resources, Tier

if TYPE_CHECKING:
    from collections.abc import Mapping

ids = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)
texts = st.one_of(
    st.sampled_from(["a: b", "yes", "5", "${env:X}", "$${", "host-1:9092", "x # y"]),
    st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\x00"), min_size=1, max_size=20).filter(str.strip),
)
durations = st.one_of(st.integers(1, 10**6).map(float), st.integers(1, 10**6).map(lambda ms: ms / 1000), st.floats(0.001, 1e9))
counts = st.integers(1, 2**50)
targets = st.one_of(ids, st.tuples(ids, ids).map(".".join))
names = st.lists(ids, min_size=1, max_size=3, unique=True).map(tuple)


def says(value: Any) -> bool:
    """Whether a field of it is given: an empty section is a mistake."""
    return any(getattr(value, field.name) not in (None, {}, ()) for field in fields(value))


@st.composite
def channels(draw: st.DrawFn, *, default: bool) -> Channel:
    partitions = draw(st.none() | counts)
    maps = st.dictionaries(ids, texts, max_size=2)
    kind = draw(st.sampled_from([None, "kafka", "folder"]))
    match kind:
        case "kafka":
            topic = None if default else draw(st.none() | texts)
            return Channel("kafka", topic, None, draw(st.none() | texts), draw(maps), partitions, draw(st.none() | counts))
        case "folder":
            return Channel("folder", path=None if default else draw(st.none() | texts), partitions=partitions)
        case _:
            return Channel(partitions=partitions or 1)


@st.composite
def encryptions(draw: st.DrawFn) -> Encryption:
    keys = draw(st.dictionaries(ids, texts, min_size=1, max_size=3))
    return draw(
        st.sampled_from([Encryption(none=True), Encryption(draw(texts)), Encryption(None, keys, draw(st.sampled_from(list(keys))))])
    )


def depths(low: int, high: int) -> st.SearchStrategy[Depth]:
    level = st.none() | st.integers(low, high)
    return st.builds(Depth, level, level, level.map(lambda s: None if s is None else float(s))).filter(says)


@st.composite
def edges(draw: st.DrawFn, default: EdgeProperties | None = None) -> EdgeProperties:
    """An edge for a flow with that default, or a default."""
    ordering, key = draw(st.sampled_from([(None, ()), ("none", ()), ("key", draw(names))]))
    if default and default.ordering == "key" and ordering is None:
        key = draw(st.just(()) | names)
    durability = draw(st.sampled_from([None, "end_to_end", "store_on_failure", "best_effort"]))
    holds = durability or (default.durability if default else None)
    edge = EdgeProperties(
        draw(st.none() | channels(default=default is None)),
        draw(st.sampled_from([None, "none", "gzip", "lz4", "snappy", "zstd"])),
        draw(st.none() | encryptions()),
        draw(st.none() | st.builds(Pack, st.none() | counts, st.none() | counts, st.none() | st.just(0.0) | durations).filter(says)),
        ordering,
        key,
        draw(st.none() | durations.filter(lambda seconds: seconds >= 1)),
        draw(st.none() | st.builds(Rate, st.none() | counts, st.none() | counts).filter(says)),
        draw(st.none() | depths(100, 1000)),
        draw(st.none() | depths(1, 100)),
        draw(st.none() | depths(1000, 2**40)),
        durability,
        draw(st.none() | counts) if holds == "store_on_failure" else None,
        draw(st.none() | targets) if default else None,
    )
    return edge if says(edge) else EdgeProperties(compression="zstd")


@st.composite
def autoscales(draw: st.DrawFn, executors: int | None) -> Autoscale:
    """Bounds that include that number of executors."""
    at_least, at_most = sorted([draw(counts), draw(counts)])
    given = executors or at_least
    mode = draw(st.sampled_from(["advise", "act"]))
    return Autoscale(draw(durations.filter(lambda seconds: seconds >= 1)), max(at_most, given), min(at_least, given), mode)


@st.composite
def tiers(draw: st.DrawFn, id_: str, nodes: list[str]) -> Tier:
    executors = draw(st.none() | counts)
    return Tier(
        id_,
        tuple(draw(st.lists(st.sampled_from(nodes), min_size=1, max_size=3, unique=True))),
        draw(st.none() | ids),
        Resources(
            draw(st.none() | counts),
            draw(st.none() | counts),
            executors,
            draw(
                st.dictionaries(
                    st.sampled_from(["spark.sql.shuffle.partitions", "spark.locality.wait"]), st.sampled_from(["8", "0s", "a b"])
                )
            ),
        ),
        draw(st.none() | st.just(0.0) | durations),
        draw(st.sampled_from(["checkpoint", "state"])),
        draw(st.just("each") | counts),
        draw(st.none() | autoscales(executors)),
    )


@st.composite
def groups(draw: st.DrawFn, id_: str) -> Group:
    places = draw(st.lists(texts, min_size=1, max_size=3, unique=True))
    own = draw(st.lists(ids.filter(lambda name: not name.startswith("m")), min_size=len(places), max_size=len(places), unique=True))
    cost = st.just(1.0) | st.floats(0.001, 1e9)
    return Group(
        id_,
        tuple(
            Member(at, name if draw(st.booleans()) else f"m{number}", draw(cost))
            for number, (at, name) in enumerate(zip(places, own, strict=True), start=1)
        ),
    )


@st.composite
def parts(draw: st.DrawFn, nodes: list[str], default: EdgeProperties) -> Mapping[str, Any]:
    """`tiers`, `edges` and `groups` of a Flow."""
    some = st.lists(ids, max_size=2, unique=True)
    arrow = st.tuples(st.sampled_from([*nodes, "some.branch"]), st.sampled_from(nodes)).map(" -> ".join)
    return {
        "tiers": {id_: draw(tiers(id_, nodes)) for id_ in draw(some)},
        "edges": {name: draw(edges(default)) for name in draw(st.lists(arrow, max_size=2, unique=True))},
        "groups": {id_: draw(groups(id_)) for id_ in draw(some)},
    }
