"""Converts the model back to a flow file: `parse(dump(flow)) == flow`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, assert_never

from scribengin.core.secret import Secret
from scribengin.core.units import show_bytes_exactly, show_duration_exactly
from scribengin.core.zones import UTC_NAME
from scribengin.spec.alerts import show_condition
from scribengin.spec.flow_tests import ALL
from scribengin.spec.model import (
    PROFILE_TRIGGER_S,
    Aggregate,
    Dedupe,
    Filter,
    Join,
    MaxDead,
    Merge,
    Parse,
    Python,
    Route,
    Select,
    Sql,
    Utilities,
)
from scribengin.spec.yaml_text import escaped, names_data, write_yaml

if TYPE_CHECKING:
    from datetime import datetime

    from scribengin.core.options import NodeType, Option, OptionKind
    from scribengin.spec.flow_tests import Expected, FlowTest, GivenRows, VersionChange
    from scribengin.spec.model import (
        Action,
        AgentTier,
        Alert,
        Autoscale,
        Channel,
        Depth,
        EdgeProperties,
        Encryption,
        Flow,
        Group,
        Member,
        Pack,
        Rate,
        RecordBound,
        SchemaSpec,
        Sink,
        Source,
        Step,
        Tier,
        Watermark,
    )


# Converts a test of a flow to the plain data of a flow file.


def dump_test(test: FlowTest) -> dict[str, Any]:
    """The data that `read_tests` reads back as an equal test."""
    data: dict[str, Any] = {"name": escaped(test.name)}
    if test.given:
        data["given"] = {source: _given_rows(batches) for source, batches in test.given.items()}
    expect: dict[str, Any] = {sink: _expected(expected) for sink, expected in test.expect.items()}
    if test.dead is not None:
        dead = {step: _expected(expected) for step, expected in test.dead.items()}
        expect["dead"] = dead.get(ALL, dead)
    data["expect"] = expect
    if test.clock:
        data["clock"] = [_time(time) for time in test.clock]
    if test.crash:
        data["crash_after"] = f"batch {test.crash.batch} {test.crash.point}"
    if test.changes:
        data["changed"] = [_change(change) for change in test.changes]
    return data


def _given_rows(batches: tuple[GivenRows, ...]) -> Any:
    given = [{"files": [escaped(file) for file in rows.files]} if rows.files else list(rows.rows) for rows in batches]
    return given[0] if len(given) == 1 else {"batches": given}


def _expected(expected: Expected) -> Any:
    if expected.rows is not None and (expected.contains, expected.count, expected.files, expected.ordered) == (None, None, (), False):
        return list(expected.rows)
    if expected.count is not None and (expected.rows, expected.contains, expected.files, expected.ordered) == (None, None, (), False):
        return expected.count
    data: dict[str, Any] = {"rows": list(expected.rows)} if expected.rows is not None else {}
    if expected.contains is not None:
        data["contains"] = list(expected.contains)
    if expected.count is not None:
        data["count"] = expected.count
    if expected.files:
        data["files"] = [escaped(file) for file in expected.files]
    return data | ({"ordered": True} if expected.ordered else {})


def _change(change: VersionChange) -> dict[str, Any]:
    what: dict[str, Any] = {"patch": change.patch} if change.patch else {"flow": escaped(change.flow)}
    return {"before": f"batch {change.before}"} | what


def _time(time: datetime) -> str:
    return time.isoformat().replace("+00:00", "Z")


# Converts tiers, edges and groups to the plain data of a flow file; `spec.tiers` reads it.


def parts_data(flow: Flow, *, resolved: bool) -> dict[str, Any]:
    """`tiers`, `edges` and `groups` as data, those that the flow has. `resolved` also writes defaults."""
    data = {
        "tiers": {id_: _agent_tier(tier) for id_, tier in flow.agent_tiers.items()}
        | {id_: _tier(tier, resolved=resolved) for id_, tier in flow.tiers.items()},
        "edges": {id_: edge_data(edge) for id_, edge in flow.edges.items()},
        "groups": {id_: _group(group, resolved=resolved) for id_, group in flow.groups.items()},
    }
    return {section: members for section, members in data.items() if members}


def edge_data(edge: EdgeProperties) -> dict[str, Any]:
    """The keys of one edge, or of `defaults.edge`, as data."""
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
    """`high_water`, `low_water` and `capacity` of a source, as data."""
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
        autoscale=None if tier.autoscale is None else _autoscale(tier.autoscale, resolved=resolved),
        acknowledge=tier.acknowledge if resolved or tier.acknowledge != "checkpoint" else None,
    )


def _agent_tier(tier: AgentTier) -> dict[str, Any]:
    return _given(agents=tier.agents, gateways=tier.gateways, steps=names_data(tier.steps) if tier.steps else None)


def _autoscale(given: Autoscale, *, resolved: bool) -> dict[str, Any]:
    return _given(
        lag=_duration(given.lag_s),
        min=given.min if resolved or given.min != 1 else None,
        max=given.max,
        mode=given.mode if resolved or given.mode != "advise" else None,
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


def dump_flow(flow: Flow, *, source_types: Mapping[str, NodeType], sink_types: Mapping[str, NodeType], resolved: bool = False) -> str:
    """The flow as YAML text. `resolved` also writes every default. Secrets appear as their references, never as their values."""
    return write_yaml(flow_data(flow, source_types=source_types, sink_types=sink_types, resolved=resolved))


def flow_data(
    flow: Flow, *, source_types: Mapping[str, NodeType], sink_types: Mapping[str, NodeType], resolved: bool = False
) -> dict[str, Any]:
    """The flow as the plain data of its file: mappings, lists, texts, numbers, booleans."""
    data: dict[str, Any] = {"version": flow.version, "name": flow.name}
    if flow.about:
        data["about"] = escaped(flow.about)
    if flow.labels:
        data["labels"] = {name: escaped(value) for name, value in flow.labels.items()}
    defaults = _defaults(flow, resolved=resolved)
    if defaults:
        data["defaults"] = defaults
    data["sources"] = {
        source.id: _source(source, source_types.get(source.type), flow if resolved else None) for source in flow.sources.values()
    }
    if flow.steps:
        data["steps"] = {step.id: _step(step, flow if resolved else None) for step in flow.steps.values()}
    data["sinks"] = {sink.id: _sink(sink, sink_types.get(sink.type), flow if resolved else None) for sink in flow.sinks.values()}
    return data | parts_data(flow, resolved=resolved) | _watched(flow)


def _watched(flow: Flow) -> dict[str, Any]:
    data: dict[str, Any] = {}
    if flow.max_delay_s is not None:
        data["max_delay"] = show_duration_exactly(flow.max_delay_s)
    if flow.max_dead is not None:
        data["max_dead"] = _max_dead(flow.max_dead)
    if flow.alerts:
        data["alerts"] = {id_: _alert(alert) for id_, alert in flow.alerts.items()}
    if flow.tests or flow.test_files:
        data["tests"] = [*(escaped(file) for file in flow.test_files), *map(dump_test, flow.tests)]
    return data


def _max_dead(most: MaxDead) -> Any:
    if most.batch is not None and most == MaxDead(most.batch, most.batch):
        return _bound(most.batch)
    bounds = {name: _bound(bound) for name, bound in (("batch", most.batch), ("run", most.run)) if bound is not None}
    return bounds | ({} if most.then == "fail" else {"then": most.then})


def _bound(bound: RecordBound) -> str | int:
    return bound.text() if bound.records is None else bound.records


def _alert(alert: Alert) -> dict[str, Any]:
    data: dict[str, Any] = {"when": show_condition(alert.when)}
    if alert.webhook:
        data["webhook"] = escaped(alert.webhook)
    if alert.command:
        data["command"] = [escaped(word) for word in alert.command]
    return data


def _defaults(flow: Flow, *, resolved: bool) -> dict[str, Any]:
    given = flow.defaults
    plain = type(given)()
    data: dict[str, Any] = {}
    if resolved or given.delivery != plain.delivery:
        data["delivery"] = given.delivery
    if resolved or given.on_error != plain.on_error:
        data["on_error"] = given.on_error
    if resolved or given.late != plain.late:
        data["late"] = given.late
    if resolved or given.profile != plain.profile:
        data["profile"] = given.profile
    if resolved or given.trigger_s != PROFILE_TRIGGER_S[given.profile]:
        data["trigger"] = show_duration_exactly(given.trigger_s)
    age = {} if given.retain_s is None else {"age": show_duration_exactly(given.retain_s)}
    if given.retain_bytes is not None:
        data["retain"] = age | {"size": show_bytes_exactly(given.retain_bytes)}
    elif age:
        data["retain"] = age["age"]
    if given.edge != plain.edge:
        data["edge"] = edge_data(given.edge)
    if resolved or given.trace != plain.trace:
        data["trace"] = given.trace
    if resolved or given.standby != plain.standby:
        data["standby"] = given.standby
    if resolved or given.engine != plain.engine:
        data["engine"] = given.engine
    return data


def _source(source: Source, declared: NodeType | None, filled_from: Flow | None) -> dict[str, Any]:
    data: dict[str, Any] = {"type": source.type, **_options(source.options, declared, filled_from)}
    if source.schema:
        data["schema"] = _schema(source.schema)
    if source.watermark:
        data["watermark"] = _watermark(source.watermark)
    if source.static or filled_from:
        data["static"] = source.static
    on_error = filled_from.on_error(source) if filled_from else source.on_error
    if on_error:
        data["on_error"] = on_error
    return data | waters_data(source)


def _sink(sink: Sink, declared: NodeType | None, filled_from: Flow | None) -> dict[str, Any]:
    data: dict[str, Any] = {"from": names_data(sink.inputs), "type": sink.type}
    data |= _options(sink.options, declared, filled_from)
    if sink.together:
        data["together"] = sink.together
    trigger_s, delivery = sink.trigger_s, sink.delivery
    if filled_from:
        paced = any(tier.trigger_s is not None for tier in filled_from.tiers.values())  # then a sink's trigger is that of its tier
        trigger_s = filled_from.defaults.trigger_s if trigger_s is None and not paced else trigger_s
        delivery = delivery or filled_from.defaults.delivery
    if trigger_s is not None:
        data["trigger"] = show_duration_exactly(trigger_s)
    if delivery:
        data["delivery"] = delivery
    if sink.to:
        data["to"] = sink.to
    return data


def _step(step: Step, filled_from: Flow | None) -> dict[str, Any]:
    data: dict[str, Any] = {"from": names_data(step.inputs), **_action(step.action, resolved=filled_from is not None)}
    if step.require:
        data["require"] = _pairs(step.require)
    on_error = filled_from.on_error(step) if filled_from else step.on_error
    if on_error:
        data["on_error"] = on_error
    if step.emit != "append" or (filled_from and isinstance(step.action, (Aggregate, Sql))):
        data["emit"] = step.emit
    if step.late or (filled_from and isinstance(step.action, (Aggregate, Sql, Dedupe, Join, Merge))):
        data["late"] = filled_from.late(step) if filled_from else step.late
    if step.watermark:
        data["watermark"] = _watermark(step.watermark)
    if step.schema:
        data["schema"] = _schema(step.schema)
    return data


def _action(action: Action, *, resolved: bool) -> dict[str, Any]:
    match action:
        case Filter(predicate):
            return {"filter": escaped(predicate)}
        case Select(columns):
            return {"select": _pairs(columns)}
        case Sql(text):
            return {"sql": escaped(text)}
        case Aggregate(by, columns, window):
            data: dict[str, Any] = {"by": names_data(by)} if by else {}
            if window:
                data["window"] = {"time": escaped(window.time), "size": show_duration_exactly(window.size_s)}
                if resolved or window.slide_s != window.size_s:
                    data["window"]["slide"] = show_duration_exactly(window.slide_s)
                if resolved or window.time_zone != UTC_NAME:
                    data["window"]["time_zone"] = escaped(window.time_zone)
            return {"aggregate": data | {"columns": _pairs(columns)}}
        case Join(key, how, time, within_s):
            data = {"key": names_data(key), "how": how} | ({"time": _pairs(time)} if time else {})
            return {"join": data | _within(within_s)}
        case Parse(column, format_, schema, delimiter, null, others, time):
            data = {"column": escaped(column), "format": format_, "schema": escaped(str(schema))}
            plain = {"delimiter": ",", "null": ""}
            given = {"delimiter": delimiter, "null": null}
            cells = {name: _option(value, "words") for name, value in given.items() if resolved or value != plain[name]}
            cells |= {name: value if isinstance(value, bool) else escaped(value) for name, value in others or ()}
            times = {"time": time} if resolved or time != "exact" else {}
            return {"parse": data | (cells if format_ == "csv" else {}) | times}
        case Route(cases, otherwise):
            return {"route": _pairs(cases) | ({"otherwise": otherwise} if otherwise else {})}
        case Python():
            return {"python": _python(action, resolved=resolved)}
        case Utilities(references, order):
            return {"utilities": list(references)} | ({"order": order} if resolved or order != "fixed" else {})
        case Dedupe(key, time_, within_s):
            return {"dedupe": {"key": names_data(key)} | ({"time": escaped(time_)} if time_ else {}) | _within(within_s)}
        case Merge(how, key, time_, within_s, origin):
            data = {"how": how} | ({"key": names_data(key)} if key else {}) | ({"origin": escaped(origin)} if origin else {})
            return {"merge": data | ({"time": escaped(time_)} if time_ else {}) | _within(within_s)}
        case _:
            assert_never(action)


def _python(action: Python, *, resolved: bool) -> Any:
    if not resolved and not action.branches and action.time_limit_s == Python("").time_limit_s:
        return action.reference
    data: dict[str, Any] = {"function": action.reference}
    if action.branches:
        data["branches"] = list(action.branches)
    return data | {"time_limit": show_duration_exactly(action.time_limit_s)}


def _within(within_s: float | None) -> dict[str, Any]:
    return {} if within_s is None else {"within": show_duration_exactly(within_s)}


def _options(options: Mapping[str, Any], declared: NodeType | None, filled_from: Flow | None) -> dict[str, Any]:
    values = dict(options)
    if declared and filled_from is not None:
        filled = declared.filled(options, filled_from.defaults.profile)
        values = {option.name: _with_defaults(option, filled[option.name]) for option in declared.options if _holds(option, options)}
        values = {name: value for name, value in values.items() if not _is_absent(value, declared.option(name))}
    return {name: _declared(value, declared.option(name) if declared else None) for name, value in values.items()}


def _with_defaults(option: Option, value: Any) -> Any:
    """The value with the default values of its sections."""
    if not option.keys or value is None:
        return value
    if isinstance(value, Mapping):
        return option.filled(value)
    return tuple(option.filled(item) if isinstance(item, Mapping) else item for item in value)


def _declared(value: Any, option: Option | None) -> Any:
    """The value of an option as data; without a declaration it is a text."""
    if option is not None and option.keys and isinstance(value, Mapping):
        return {name: _declared(item, option.key(name)) for name, item in value.items()}
    if option is not None and option.keys:
        return [_declared(item, option) if isinstance(item, Mapping) else escaped(item) for item in value]
    return _option(value, "text" if option is None else option.kind)


def _holds(option: Option, options: Mapping[str, Any]) -> bool:
    """True if the option applies together with the given ones."""
    return option.name in options or not option.formats or options.get("format") in option.formats


def _is_absent(value: Any, option: Option | None) -> bool:
    return value is None or (option is not None and option.kind in ("list", "map", "columns") and not value)


def _option(value: Any, kind: OptionKind) -> Any:
    if isinstance(value, Secret):
        return value.reference
    match kind:
        case "duration":
            return show_duration_exactly(value)
        case "bytes":
            return show_bytes_exactly(value)
        case "list":
            return [escaped(item) for item in value]
        case "words":
            return escaped(value) if isinstance(value, str) else [escaped(item) for item in value]
        case "columns" if not any(value.values()):
            return [escaped(item) for item in value]
        case "map" | "columns":
            return {name: _option(item, "text") for name, item in value.items()}
        case "int" | "float" | "bool":
            return value
        case _:
            return escaped(str(value))


def _schema(schema: SchemaSpec) -> Any:
    fields = escaped(str(schema.fields))
    return fields if schema.evolve == "strict" else {"fields": fields, "evolve": schema.evolve}


def _watermark(watermark: Watermark) -> Any:
    if watermark.ahead_s is not None or watermark.idle_s is not None:
        spans = {"delay": watermark.delay_s, "ahead": watermark.ahead_s, "idle": watermark.idle_s}
        given = {name: show_duration_exactly(span_s) for name, span_s in spans.items() if span_s is not None}
        return {"column": escaped(watermark.column)} | given
    column = watermark.column if watermark.column.split() == [watermark.column] else f"`{watermark.column}`"
    return escaped(f"{column} {show_duration_exactly(watermark.delay_s)}")


def _pairs(pairs: tuple[tuple[str, str], ...]) -> dict[str, str]:
    return {name: escaped(text) for name, text in pairs}
