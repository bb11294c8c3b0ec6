"""Tiers, edges and groups back to the plain data of a flow file; `spec.tiers` reads what stands here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scribengin.core.secret import Secret
from scribengin.spec.units_text import show_bytes_exactly, show_duration_exactly
from scribengin.spec.yaml_text import escaped, names_data

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scribengin.spec.edge_model import Channel, Depth, EdgeProperties, Encryption, Pack, Rate
    from scribengin.spec.model import Flow, Group, Member, Source, Tier


def parts_data(flow: Flow, *, resolved: bool) -> dict[str, Any]:
    """`tiers`, `edges` and `groups`, those that the flow has. `resolved` writes defaults out too."""
    data = {
        "tiers": {id_: _tier(tier, resolved=resolved) for id_, tier in flow.tiers.items()},
        "edges": {id_: edge_data(edge) for id_, edge in flow.edges.items()},
        "groups": {id_: _group(group, resolved=resolved) for id_, group in flow.groups.items()},
    }
    return {section: members for section, members in data.items() if members}


def edge_data(edge: EdgeProperties) -> dict[str, Any]:
    """One edge, or `defaults.edge`."""
    return _given(
        channel=_channel(edge.channel) if edge.channel else None,
        compression=edge.compression,
        encryption=_encryption(edge.encryption) if edge.encryption else None,
        pack=_pack(edge.pack) if edge.pack else None,
        ordering=edge.ordering,
        key=names_data(edge.key) if edge.key else None,
        retention=_duration(edge.retention_s),
        limit=_rate(edge.limit) if edge.limit else None,
        high_water=_depth(edge.high_water) if edge.high_water else None,
        low_water=_depth(edge.low_water) if edge.low_water else None,
        capacity=_depth(edge.capacity) if edge.capacity else None,
        durability=edge.durability,
        spill=_size(edge.spill),
        to=edge.to,
    )


def waters_data(source: Source) -> dict[str, Any]:
    """`high_water`, `low_water` and `capacity` of a source."""
    levels = {name: getattr(source, name) for name in ("high_water", "low_water", "capacity")}
    return {name: _depth(level) for name, level in levels.items() if level}


def _channel(channel: Channel) -> Any:
    data = _given(
        type=channel.type,
        topic=_text(channel.topic),
        path=_text(channel.path),
        bootstrap=_text(channel.bootstrap),
        config=_texts(channel.config),
        partitions=channel.partitions,
        replication=channel.replication,
    )
    return channel.type if list(data) == ["type"] else data


def _encryption(encryption: Encryption) -> Any:
    if encryption.none:
        return "none"
    return _given(keyring=_text(encryption.keyring), keys=_texts(encryption.keys), use=_text(encryption.use))


def _pack(pack: Pack) -> dict[str, Any]:
    return _given(rows=pack.rows, bytes=_size(pack.bytes), linger=_duration(pack.linger_s))


def _rate(rate: Rate) -> dict[str, Any]:
    return _given(rows=rate.rows, bytes=_size(rate.bytes))


def _depth(depth: Depth) -> dict[str, Any]:
    return _given(rows=depth.rows, bytes=_size(depth.bytes), age=_duration(depth.age_s))


def _tier(tier: Tier, *, resolved: bool) -> dict[str, Any]:
    gets = tier.resources
    resources = _given(
        cores=gets.cores,
        memory=_size(gets.memory),
        executors=gets.executors,
        spark=_texts(gets.spark),
        standby=gets.standby,
    )
    return {"steps": names_data(tier.steps)} | _given(
        group=tier.group,
        resources=resources or None,
        trigger=_duration(tier.trigger_s),
        workers=tier.workers if resolved or tier.workers != 1 else None,
        acknowledge=tier.acknowledge if resolved or tier.acknowledge != "checkpoint" else None,
    )


def _group(group: Group, *, resolved: bool) -> dict[str, Any]:
    return {"members": [_member(member, number, resolved=resolved) for number, member in enumerate(group.members, start=1)]}


def _member(member: Member, number: int, *, resolved: bool) -> dict[str, Any]:
    return {"at": escaped(member.at)} | _given(
        name=member.name if resolved or member.name != f"m{number}" else None,
        cost=member.cost if resolved or member.cost != 1.0 else None,
    )


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _text(text: str | None) -> str | None:
    return None if text is None else escaped(text)


def _size(count: int | None) -> str | None:
    return None if count is None else show_bytes_exactly(count)


def _duration(seconds: float | None) -> str | None:
    return None if seconds is None else show_duration_exactly(seconds)


def _texts(texts: Mapping[str, Any]) -> dict[str, str] | None:
    return {name: text.reference if isinstance(text, Secret) else escaped(str(text)) for name, text in texts.items()} or None
